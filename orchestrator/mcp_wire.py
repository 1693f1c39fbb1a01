"""The wire below an MCP session: what goes over HTTP or to a child process, and what failed on the way.

`mcp`'s HTTP transport ends a whole session when one request cannot be sent, forgets the status and the
Retry-After of a refusal, and opens a connection for each call. `HttpDispatcher` stands in its place, under
the SDK's own `ClientSession`: one pooled connection, and a `WireError` that says what happened.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
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

from orchestrator import mend
from orchestrator.errors import McpUnavailable, RateLimited, RunError
from orchestrator.mend import Json
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
_SESSION: Final = "mcp-session-id"
_ACCEPT: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class CallFailed(McpUnavailable):
    """One call failed; the next may work. `code` is the JSON-RPC error's, where the server gave one.

    Without a code nobody said how it ended: the call may have been carried out, and charged.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class WireError(Exception):
    """A request that got no answer from the MCP server itself."""

    message: str
    http: int | None = None
    """The HTTP status that it was refused with; None when the connection failed."""
    retry_after: float | None = None
    """Seconds, where the server said it."""
    session_lost: bool = False
    """The server does not know our session (any more): it did nothing."""
    unreachable: bool = False
    """No connection came about."""


_REMEDIES: Final = {
    401: "wants a key, or refuses the one it got: check the key of its entry",
    402: "says that the account is out of credit: top it up, or go without the key",
    403: "does not allow this: check the key of its entry",
    404: "is not at this address: check the url of its entry, a slash at its end counts",
    405: "does not speak Streamable HTTP at this address: check the url of its entry",
}


def explained(error: WireError | MCPError, server: Server, seconds: float) -> RunError:
    """The typed error for the user: what happened, and what to do."""
    who = f"MCP server {server.name!r}"
    said = f" It said: {error.message}" if error.message else ""
    if isinstance(error, WireError):
        return _explained(error, server, who, said)
    if error.code == mcp_types.REQUEST_TIMEOUT:
        return CallFailed(f"{who} did not answer within {seconds:g} s.")
    if error.code == mcp_types.CONNECTION_CLOSED:
        return CallFailed(f"{who} ended before it answered; the call may have been carried out.")
    return CallFailed(f"{who} answered with error {error.code}.{said}", error.code)


def _explained(error: WireError, server: Server, who: str, said: str) -> RunError:
    if error.http == 429:
        wait = "" if error.retry_after is None else f" Try again in {error.retry_after:g} s."
        limited = RateLimited(f"{who} refuses for now: too many requests (HTTP 429).{wait}{said}")
        limited.boundary, limited.retry_after = "mcp", error.retry_after
        return limited
    if error.unreachable:
        return McpUnavailable(f"{who} cannot be reached at {_public(server)}: {error.message}")
    if error.http is None:
        return CallFailed(f"{who} broke off before it answered; the call may have been carried out.{said}")
    if (remedy := _REMEDIES.get(error.http)) is not None:
        return McpUnavailable(f"{who} {remedy} (HTTP {error.http}).{said}")
    return CallFailed(f"{who} failed (HTTP {error.http}).{said}", error.http)


def _public(server: Server) -> str:
    """Where the server is, without what may be secret."""
    if server.url is None:
        return server.command or "?"
    return str(httpx2.URL(server.url).copy_with(userinfo=b"", query=None, fragment=None))


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
                raise await _refused(response)
            if session := response.headers.get(_SESSION):
                self._session = {_SESSION: session}
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


async def _refused(response: httpx2.Response) -> WireError | MCPError:
    """What a status other than 200 means; a JSON-RPC error in the body counts where the status says less."""
    text = (await response.aread())[:100_000].decode("utf-8", "replace")
    status = response.status_code
    try:
        told = json.loads(text)
    except ValueError:
        told = {}
    error = told.get("error") if isinstance(told, dict) else None
    inner = error if isinstance(error, dict) else told if isinstance(told, dict) else {}
    message = str(inner.get("message") or inner.get("detail") or error or " ".join(text.split()))[:300]
    lost = _SESSION in response.request.headers and (
        status == 404 or (status == 400 and "session" in message.lower())
    )
    code = inner.get("code")
    if isinstance(error, dict) and isinstance(code, int) and status in (400, 404, 500) and not lost:
        return MCPError(code, message, error.get("data"))
    if status // 100 == 3:
        message = f"it redirects to {response.headers.get('location')}: use that url"
    return WireError(message, status, _retry_after(response), session_lost=lost)


def _retry_after(response: httpx2.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


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
