"""The wire below an MCP session: what goes over HTTP or to a child process, and what failed on the way.

`mcp`'s HTTP transport ends a whole session when one request cannot be sent, forgets the status and the
Retry-After of a refusal, and opens a connection for each call. `HttpDispatcher` stands in its place, under
the SDK's own `ClientSession`: one pooled connection, and a `WireError` that says what happened.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

import anyio
import httpx2
import mcp_types
from mcp import MCPError, StdioServerParameters, stdio_client
from mcp.client._transport import ReadStream, WriteStream
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from pydantic import SecretStr, ValidationError

from orchestrator.mcp_client import mend
from orchestrator.mcp_client.mcp_faults import SESSION_HEADER, WireError, refused
from orchestrator.mcp_client.mend import Json
from orchestrator.settings import Server

CONNECT_SECONDS: Final = 30.0
"""How long the server may take until a connection, or the handshake, is done."""
SILENCE_SECONDS: Final = 300.0
"""How long an open response may send nothing; a call's own timeout is far below."""
LARGEST_EVENT: Final = 64 * 1024 * 1024
"""Bytes of one streamed message; results of 10 MB were seen."""
_LAST_BYTES_SECONDS: Final = 0.1
"""How long the end of an answered stream is waited for, so that its connection can be used again."""
_PARTING_SECONDS: Final = 2.0
_ACCEPT: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@asynccontextmanager
async def dispatcher(
    server: Server, notice: mend.Notice, ended: asyncio.Event
) -> AsyncIterator[HttpDispatcher | StdioDispatcher]:
    """What a session with this server sends its requests through; `ended` is set when it is no more use."""
    if server.type == "stdio":
        child = StdioServerParameters(
            command=server.command or "",
            args=list(server.args),
            env=_clear(server.env),
            encoding_error_handler="replace",
        )
        async with stdio_client(child) as (read, write):
            yield StdioDispatcher(Reread(read), write, notice, ended)
        return
    headers = _clear(server.headers)
    if server.authorization_token is not None:
        headers["Authorization"] = f"Bearer {server.authorization_token.get_secret_value()}"
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=SILENCE_SECONDS)
    async with httpx2.AsyncClient(headers=headers, timeout=timeout, limits=limits) as http:
        over_http = HttpDispatcher(http, server.url or "", notice)
        try:
            yield over_http
        finally:
            await over_http.part()


def _clear(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in secrets.items()}


def _mended(method: str, raw: Json, notice: mend.Notice) -> Json:
    """A result in which the SDK finds nothing to refuse."""
    match method:
        case "tools/list":
            return mend.tool_list(raw, notice)
        case "tools/call":
            return mend.call_result(raw, notice)
    return raw


class StdioDispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's, with each result mended before it is validated, and an end that is told."""

    def __init__(
        self,
        read: ReadStream[SessionMessage | Exception],
        write: WriteStream[SessionMessage],
        notice: mend.Notice,
        ended: asyncio.Event,
    ) -> None:
        super().__init__(read, write)
        self._notice = notice
        self._ended = ended

    async def run(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super().run(*args, **kwargs)
        finally:
            self._ended.set()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **kwargs: Any
    ) -> Json:
        return _mended(method, await super().send_raw_request(method, params, opts, **kwargs), self._notice)


class HttpDispatcher:
    """Streamable HTTP as a client: each request a POST, its answer one JSON text or a stream of events."""

    def __init__(self, http: httpx2.AsyncClient, url: str, notice: mend.Notice) -> None:
        self._http = http
        self._url = url
        self._notice = notice
        self._ids = itertools.count(1)
        self._session: dict[str, str] = {}
        self._stamped: dict[str, str] = {}
        """Headers that the session puts on its requests: what we send by ourselves carries them, too."""
        self._partings: set[asyncio.Task[None]] = set()

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Part of the SDK's protocol: there is no standing channel, so there is nothing to pump."""
        task_status.started()
        await anyio.sleep_forever()

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Send and forget; a notification that does not arrive changes nothing."""
        message = {"jsonrpc": "2.0", "method": method, "params": dict(params or {})}
        headers = _ACCEPT | self._session | self._stamped | (opts or {}).get("headers", {})
        with suppress(httpx2.TransportError):
            await self._http.post(self._url, json=message, headers=headers)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """The mended result. Raises `MCPError` for an error of the server, `WireError` without an answer."""
        opts = opts or {}
        id = next(self._ids)
        told = dict(params or {})
        if (on_progress := opts.get("on_progress")) is not None:
            told["_meta"] = {**told.get("_meta", {}), "progressToken": id}
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": told}
        headers = _ACCEPT | self._session | opts.get("headers", {})
        if method != "initialize":
            self._stamped = opts.get("headers", {})
        try:
            async with asyncio.timeout(opts.get("timeout")):
                raw = await self._exchange(message, headers, on_progress)
        except TimeoutError:
            self._forget(id)
            raise MCPError(mcp_types.REQUEST_TIMEOUT, f"{method} timed out") from None
        except asyncio.CancelledError:
            self._forget(id)
            raise
        except httpx2.TransportError as error:
            unreachable = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            raise WireError(f"{type(error).__name__}: {error}", unreachable=unreachable) from error
        return _mended(method, raw, self._notice)

    async def part(self) -> None:
        """End the session at the server, where there is one."""
        if self._session:
            with suppress(TimeoutError, httpx2.TransportError):
                async with asyncio.timeout(_PARTING_SECONDS):
                    await self._http.delete(self._url, headers=self._session | self._stamped)
        for task in self._partings:
            task.cancel()

    def _forget(self, id: int) -> None:
        """Tell the server that nobody waits any more; in 2026-07-28 the closed connection says it."""
        task = asyncio.create_task(self.notify("notifications/cancelled", {"requestId": id}))
        self._partings.add(task)
        task.add_done_callback(self._partings.discard)

    async def _exchange(
        self, message: Json, headers: Mapping[str, str], on_progress: ProgressFnT | None
    ) -> Json:
        async with self._http.stream("POST", self._url, json=message, headers=headers) as response:
            if response.status_code != 200:
                raise await refused(response)
            if session := response.headers.get(SESSION_HEADER):
                self._session = {SESSION_HEADER: session}
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                return await self._streamed(response, message["id"], on_progress)
            return _result(_read((await response.aread()).decode("utf-8", "replace")))

    async def _streamed(self, response: httpx2.Response, id: int, on_progress: ProgressFnT | None) -> Json:
        result: Json | None = None
        deadline = asyncio.timeout(None)
        with suppress(TimeoutError):
            async with deadline:
                async for event in httpx2.EventSource(response, max_event_size=LARGEST_EVENT):
                    if result is not None or not event.data:
                        continue
                    match _read(event.data):
                        case {"method": "notifications/progress", "params": {"progress": progress} as told}:
                            if on_progress is not None:
                                await on_progress(progress, told.get("total"), told.get("message"))
                        case {"method": _}:
                            pass  # requests of the server's need abilities that this client does not claim
                        case {"id": answered} as reply if str(answered) == str(id):
                            result = reply
                            deadline.reschedule(asyncio.get_running_loop().time() + _LAST_BYTES_SECONDS)
        if result is None:
            raise WireError("the stream of events ended without an answer")
        return _result(result)


def _read(text: str) -> Any:
    try:
        return json.loads(mend.text(text))
    except ValueError:
        raise WireError(f"what came is not JSON: {text[:100]!r}", http=200) from None


def _result(reply: Any) -> Json:
    match reply:
        case {"result": dict() as result}:
            return result
        case {"error": {"code": int() as code} as error}:
            raise MCPError(code, str(error.get("message", "")), error.get("data"))
    raise WireError("what came is no answer of JSON-RPC", http=200)


class Reread:
    """A stdio stream on which a line that was refused for unpaired surrogates is read again, mended."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception]) -> None:
        self._inner = inner

    async def receive(self) -> SessionMessage | Exception:
        return _reread(await self._inner.receive())

    async def __anext__(self) -> SessionMessage | Exception:
        return _reread(await self._inner.__anext__())

    def __aiter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _reread(item: SessionMessage | Exception) -> SessionMessage | Exception:
    if not isinstance(item, ValidationError):
        return item
    line = item.errors()[0]["input"]
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(mend.text(line), by_name=False))
    except (ValidationError, TypeError):
        return item
