"""How hosts reach the MCP server: over standard input and output, or over HTTP.

Over stdio nothing but JSON-RPC may reach standard output, whatever a library prints, so descriptor 1 is
taken away before anything else is imported. Over HTTP the server answers to loopback only, and any other
address needs a token.
"""

from __future__ import annotations

import asyncio
import hmac
import io
import ipaddress
import logging
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, nullcontext
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from orchestrator.errors import UsageError
from orchestrator.serving.caps import Ceiling

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import SecretStr
    from starlette.types import ASGIApp, Receive, Scope, Send

    from orchestrator.gateway import Gateway
    from orchestrator.settings import Options

log = logging.getLogger(__name__)

LONGEST_LINE: Final = 16 * 1024 * 1024
"""Bytes of one message from a host."""
HOURLY: Final = Ceiling(usd=2.0)
DAILY: Final = Ceiling()
LOG_BYTES: Final = 1_000_000
CLOSING_SECONDS: Final = 3


async def serve(
    options: Options,
    http: str | None = None,
    *,
    token: SecretStr | None = None,
    hour: Ceiling = HOURLY,
    day: Ceiling = DAILY,
) -> None:
    """Serve until the host goes away, or over HTTP until cancelled.

    `http` is HOST:PORT; `hour` and `day` cap what all callers may use together.
    Raises `UsageError` for an address that is none, or that needs a token.
    """
    address = _address(http, token) if http is not None else None
    async with AsyncExitStack() as stack:
        wires = _wires() if address is None else None
        _log_to(options.state_folder / "logs")
        if options.offline:
            from orchestrator.offline import stand_ins

            double = await stack.enter_async_context(stand_ins(corpus=options.corpus))
            options = options.with_stand_ins(double.anthropic_base_url, double.server_urls)
        from orchestrator.gateway import Gateway

        opened = Gateway(options, private=address is None, hour=hour, day=day)
        gateway = await stack.enter_async_context(opened)
        if wires is not None:
            await _over_stdio(gateway, *wires)
        elif address is not None:
            await _over_http(gateway, *address, token)


def _log_to(folder: Path) -> None:
    """Log to standard error, and to a file where the user's state folder can be written."""
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handlers.append(
            RotatingFileHandler(folder / "mcp.log", maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
        )
    except OSError as error:
        sys.stderr.write(f"no log file: {error}\n")
    logging.basicConfig(
        level=logging.WARNING, handlers=handlers, force=True, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("orchestrator").setLevel(logging.INFO)


# --- standard input and output ----------------------------------------------------------------------------


def _wires() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for us alone, for good: others read nothing and write to standard error."""
    sys.stdout.flush()
    taken = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return os.fdopen(taken[0], "rb"), os.fdopen(taken[1], "wb")


async def _over_stdio(gateway: Gateway, stdin: BinaryIO, stdout: BinaryIO) -> None:
    import anyio
    from mcp.server.stdio import stdio_server

    from orchestrator.mcp_client.mcp_wire import Reread

    if sys.platform == "win32":  # children take the handles, not the descriptors
        from mcp.os.win32.utilities import rebind_std_handle_to_fd

        rebind_std_handle_to_fd(0)
        rebind_std_handle_to_fd(1)
    wire = io.TextIOWrapper(stdout, encoding="utf-8", newline="\n")
    lines: Any
    if _is_pipe(stdin):
        lines = _lines(stdin)
    else:
        lines = anyio.wrap_file(io.TextIOWrapper(stdin, encoding="utf-8", errors="replace"))
    async with stdio_server(stdin=lines, stdout=anyio.wrap_file(wire)) as (read, write):
        await gateway.server.run(Reread(read), write, gateway.server.create_initialization_options())


def _is_pipe(stream: BinaryIO) -> bool:
    """Whether the loop itself can read it; a thread that waits for a line cannot be interrupted."""
    mode = os.fstat(stream.fileno()).st_mode
    return os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


async def _lines(pipe: BinaryIO) -> AsyncIterator[str]:
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        while True:
            try:
                line = await reader.readline()
            except ValueError:
                log.error("a message from the host above %d bytes was dropped", LONGEST_LINE)
                continue
            if not line:
                return
            yield line.decode("utf-8", "replace")
    finally:
        transport.close()


# --- HTTP -------------------------------------------------------------------------------------------------


def _address(http: str, token: SecretStr | None) -> tuple[str, int]:
    host, _, port = http.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{http!r} is no address: give HOST:PORT, such as 127.0.0.1:8080.")
    if token is None and not _is_loopback(host):
        raise UsageError(f"{host} can be reached by others: give a token, or serve on 127.0.0.1.")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _over_http(gateway: Gateway, host: str, port: int, token: SecretStr | None) -> None:
    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings

    names = ["127.0.0.1", "localhost", "[::1]"] if _is_loopback(host) else [host]
    security = TransportSecuritySettings(
        # a wildcard address has no name to check against: there the token stands alone
        enable_dns_rebinding_protection=host not in ("0.0.0.0", "::"),
        allowed_hosts=[*names, *(f"{name}:*" for name in names)],
        allowed_origins=[f"http://{name}{port}" for name in names for port in ("", ":*")],
    )
    app: ASGIApp = gateway.server.streamable_http_app(host=host, transport_security=security)
    if token is not None:
        app = Door(app, token)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=CLOSING_SECONDS)
    with _listening(host, port) as listening:
        log.info("MCP server at http://%s:%d/mcp", host, listening.getsockname()[1])
        server = uvicorn.Server(config)
        server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]  # ours cancel this task
        serving = asyncio.create_task(server.serve([listening]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.should_exit = True
            await serving
            raise


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # the protocol is named so that asyncio sees TCP, and answers without Nagle's delay
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name == "posix":
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(512)
    except OSError as error:
        bound.close()
        raise UsageError(f"{host}:{port} cannot be served: {error.strerror}.") from None
    return bound


class Door:
    """Lets in who shows the token."""

    def __init__(self, app: ASGIApp, token: SecretStr) -> None:
        self._app = app
        self._shown = f"Bearer {token.get_secret_value()}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shown = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "http" and not hmac.compare_digest(shown, self._shown):
            from starlette.responses import PlainTextResponse

            refused = PlainTextResponse("A token is needed.", 401, {"WWW-Authenticate": "Bearer"})
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)
