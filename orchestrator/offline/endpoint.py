"""One Streamable HTTP endpoint of a search stand-in: what happens before and around the MCP server."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from orchestrator.offline.search_faults import ON_THE_WIRE, REFUSALS
from orchestrator.offline.search_state import SearchState

_LOOPBACK: Final = TransportSecuritySettings(
    allowed_hosts=["127.0.0.1:*", "localhost:*", "[::1]:*"],
    allowed_origins=["http://127.0.0.1:*", "http://localhost:*", "http://[::1]:*"],
)
"""A web page that the user has open can reach loopback too; it is not to use the stand-ins."""
_SECRET_HEADERS: Final = frozenset({"authorization", "x-api-key"})


@dataclass(frozen=True)
class Access:
    """Who asks: with a key or without, and what their connection pins."""

    keyed: bool = False
    bad_key: bool = False
    """The key is wrong, at a service that says so only when a tool is called."""
    pinned: dict[str, Any] = field(default_factory=dict)
    fault: str | None = None
    """The fault that hits this request."""


Admit = Callable[[Request], Access | Response]
"""Lets a request in, or answers it."""


def access_of(ctx: ServerRequestContext[Any, Request]) -> Access:
    """The access of the request that a handler answers."""
    access = ctx.request.scope["access"] if ctx.request else None
    assert isinstance(access, Access)
    return access


def is_bad_key(key: str) -> bool:
    """Whether a key is one that the stand-ins refuse."""
    return re.search("bogus|invalid|wrong", key, re.IGNORECASE) is not None


def rpc_error(status: int, code: int, message: str) -> Response:
    """A refusal in JSON-RPC's shape."""
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}, status)


def app(servers: Mapping[str, tuple[Server[Any], Admit]], state: SearchState, *, sse: bool) -> Starlette:
    """One application with an endpoint per path. Mounting it elsewhere needs its lifespan to be run, too."""
    managers = [
        (
            path,
            admit,
            StreamableHTTPSessionManager(
                server, json_response=not sse, stateless=True, security_settings=_LOOPBACK
            ),
        )
        for path, (server, admit) in servers.items()
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for _path, _admit, manager in managers:
                await stack.enter_async_context(manager.run())
            yield

    routes = [Route(path, _Endpoint(manager, admit, state)) for path, admit, manager in managers]
    starlette = Starlette(routes=routes, lifespan=lifespan)
    starlette.router.redirect_slashes = False
    return starlette


class _Endpoint:
    """POST only; keys, pins, protocol version, sessions and faults, then the MCP server."""

    def __init__(self, manager: StreamableHTTPSessionManager, admit: Admit, state: SearchState) -> None:
        self._manager = manager
        self._admit = admit
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method != "POST":
            await Response("Method Not Allowed", 405, {"Allow": "POST"})(scope, receive, send)
            return
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        rpc = _parsed(body)
        self._state.log(_entry(request, rpc))
        answer = self._admitted(request, rpc)
        if isinstance(answer, Response):
            await answer(scope, receive, send)
            return
        await anyio.sleep(self._state.faults.latency_ms / 1000)
        fault = await self._hang(receive) if answer.fault == "hanging" else answer.fault
        if fault in REFUSALS:
            await REFUSALS[fault](self._state.faults.retry_after)(scope, receive, send)
        else:
            inner = {**scope, "access": answer}
            await self._manager.handle_request(
                inner, _replayed(body, receive), self._sender(answer, rpc, send)
            )

    def _admitted(self, request: Request, rpc: dict[str, Any]) -> Access | Response:
        access = self._admit(request)
        if isinstance(access, Response):
            return access
        version = request.headers.get("mcp-protocol-version")
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            # As a server of the 2025 protocols says it: newer clients probe, read this and fall back.
            known = ", ".join(HANDSHAKE_PROTOCOL_VERSIONS)
            return rpc_error(
                400,
                -32600,
                f"Bad Request: Unsupported protocol version: {version}. Supported versions: {known}",
            )
        session = request.headers.get("mcp-session-id")
        if session is not None and not self._state.knows_session(session):
            return rpc_error(404, -32600, "Session not found")
        fault = self._state.take(rpc.get("method"))
        return Access(access.keyed, access.bad_key, access.pinned, fault)

    async def _hang(self, receive: Receive) -> str:
        """Until the client gives up, or the service is healthy again; the answer then comes too late."""
        while self._state.faults.fault == "hanging":
            with anyio.move_on_after(0.1):
                if (await receive())["type"] == "http.disconnect":
                    break
        return "down"

    def _sender(self, access: Access, rpc: dict[str, Any], send: Send) -> Send:
        if access.fault == "drop":
            return _dropping(send)
        if access.fault in ON_THE_WIRE:
            return _replacing(send, *ON_THE_WIRE[access.fault])
        if rpc.get("method") == "initialize":
            return _with_header(send, b"mcp-session-id", self._state.open_session().encode())
        return send


def _parsed(body: bytes) -> dict[str, Any]:
    """The JSON-RPC message, empty where it is none: the MCP server answers that itself."""
    try:
        message = json.loads(body)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _entry(request: Request, rpc: dict[str, Any]) -> dict[str, Any]:
    headers = {name: value for name, value in request.headers.items() if name not in _SECRET_HEADERS}
    query = {name: value for name, value in request.query_params.items() if "key" not in name.lower()}
    return {
        "method": request.method,
        "path": request.url.path,
        "query": query,
        "headers": headers,
        "body": rpc,
    }


def _replayed(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def _with_header(send: Send, name: bytes, value: bytes) -> Send:
    async def extended(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            message = {**message, "headers": [*message["headers"], (name, value)]}
        await send(message)

    return extended


def _dropping(send: Send) -> Send:
    """Half of the first piece goes out, then nothing: the server closes the unfinished connection."""
    state = {"open": True}

    async def half(message: Message) -> None:
        if not state["open"]:
            return
        if message["type"] == "http.response.body":
            state["open"] = False
            message = {**message, "body": message["body"][: len(message["body"]) // 2], "more_body": True}
        await send(message)

    return half


def _replacing(send: Send, old: bytes, new: bytes) -> Send:
    """Replace bytes of the body; its length is then left open."""

    async def replaced(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (name, value) for name, value in message["headers"] if name.lower() != b"content-length"
            ]
            message = {**message, "headers": headers}
        elif message["type"] == "http.response.body":
            message = {**message, "body": message["body"].replace(old, new)}
        await send(message)

    return replaced
