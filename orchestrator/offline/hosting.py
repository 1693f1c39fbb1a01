"""ASGI applications on loopback ports, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp

HOST: Final = "127.0.0.1"
_BACKLOG: Final = 512
_STOP_SECONDS: Final = 5.0


def listen(port: int = 0) -> socket.socket:
    """A listening loopback socket; port 0 lets the system choose. Raises OSError where it is taken."""
    # with the protocol named, asyncio sets TCP_NODELAY: without it every small answer waits 40 ms
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
    except OSError:
        bound.close()
        raise
    bound.listen(_BACKLOG)
    return bound


def address(bound: socket.socket) -> str:
    return f"http://{HOST}:{bound.getsockname()[1]}"


class _Quiet(uvicorn.Server):
    """A server that leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def serving(apps: Sequence[tuple[ASGIApp, socket.socket]]) -> Iterator[None]:
    """Serve until the block ends; requests that hang then are cut."""
    servers = [_Quiet(_config(app)) for app, _ in apps]
    sockets = [bound for _, bound in apps]

    async def run() -> None:
        pairs = zip(servers, sockets, strict=True)
        await asyncio.gather(*(server.serve(sockets=[bound]) for server, bound in pairs))

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="stand-ins", daemon=True)
    thread.start()
    try:
        yield
    finally:
        for server in servers:
            server.should_exit = server.force_exit = True
        thread.join(_STOP_SECONDS)
        for bound in sockets:
            bound.close()


@asynccontextmanager
async def serving_here(apps: Sequence[tuple[ASGIApp, socket.socket]]) -> AsyncIterator[None]:
    """Serve in the running event loop, beside the client: neither is far ahead of the other."""
    servers = [_Quiet(_config(app)) for app, _ in apps]
    pairs = zip(servers, apps, strict=True)
    running = asyncio.gather(*(server.serve(sockets=[bound]) for server, (_, bound) in pairs))
    try:
        yield
    finally:
        for server in servers:
            server.should_exit = server.force_exit = True
        await running
        for _, bound in apps:
            bound.close()


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        http="h11",
        ws="none",
        loop="asyncio",
        timeout_graceful_shutdown=0,
        h11_max_incomplete_event_size=1 << 20,
    )
