"""The wire below an MCP session: failures become JSON-RPC errors that say what happened, text is made sound.

`mcp`'s HTTP client ends a whole session when one request cannot be sent, and forgets the status and the
Retry-After of a refusal. Here the HTTP client answers such a request itself with a JSON-RPC error, so the
session lives, and `Failure` reads the rest out of the error's data.
"""

from __future__ import annotations

import codecs
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, Self

import httpx2
import mcp_types
from mcp import MCPError, StdioServerParameters, stdio_client
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from orchestrator import mend
from orchestrator.errors import McpUnavailable, RateLimited, RunError
from orchestrator.settings import Server

SILENCE_SECONDS: Final = 300.0
"""How long an open response may send nothing; a call's own timeout is far below."""
LARGEST_EVENT: Final = 64 * 1024 * 1024
"""Bytes of one streamed message; results of 10 MB were seen."""
_KEY: Final = "orchestrator/failure"


class CallFailed(McpUnavailable):
    """One call failed; the next may work. `code` is the JSON-RPC error's, where the server gave one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Failure:
    """What is known of a request that got no result."""

    code: int = mcp_types.INTERNAL_ERROR
    message: str = ""
    http: int | None = None
    """The HTTP status, where it was one that the server refused with."""
    retry_after: float | None = None
    """Seconds, where the server said it."""
    session_lost: bool = False
    """The server does not know our session (any more): it did nothing."""
    unreachable: bool = False
    """No connection came about."""

    @classmethod
    def of(cls, error: MCPError) -> Failure:
        data = error.data if isinstance(error.data, dict) else {}
        told = data.get(_KEY) or {"code": error.code, "message": error.message}
        return cls(**told)

    def as_error(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "data": {_KEY: asdict(self)}}

    def explained(self, server: Server, seconds: float) -> RunError:
        """The typed error for the user: what happened, and what to do."""
        who = f"MCP server {server.name!r}"
        said = f" It said: {self.message}" if self.message else ""
        if self.http == 429:
            wait = "" if self.retry_after is None else f" Try again in {self.retry_after:g} s."
            limited = RateLimited(f"{who} refuses for now: too many requests (HTTP 429).{wait}{said}")
            limited.boundary, limited.retry_after = "mcp", self.retry_after
            return limited
        if (remedy := _REMEDIES.get(self.http or 0)) is not None:
            return McpUnavailable(f"{who} {remedy} (HTTP {self.http}).{said}")
        if self.unreachable:
            return McpUnavailable(f"{who} cannot be reached at {_public(server)}: {self.message}")
        if self.code == mcp_types.REQUEST_TIMEOUT:
            return CallFailed(f"{who} did not answer within {seconds:g} s.")
        if self.code == mcp_types.CONNECTION_CLOSED:
            return CallFailed(
                f"{who} broke off before it answered; the call may have been carried out.{said}"
            )
        what = f"failed (HTTP {self.http})" if self.http else f"answered with error {self.code}"
        return CallFailed(f"{who} {what}.{said}", self.code)


_REMEDIES: Final = {
    401: "wants a key, or refuses the one it got: check the key of its entry",
    402: "says that the account is out of credit: top it up, or go without the key",
    403: "does not allow this: check the key of its entry",
    404: "is not at this address: check the url of its entry, a slash at its end counts",
    405: "does not speak Streamable HTTP at this address: check the url of its entry",
}


def _public(server: Server) -> str:
    """Where the server is, without what may be secret."""
    if server.url is None:
        return server.command or "?"
    return str(httpx2.URL(server.url).copy_with(userinfo=b"", query=None, fragment=None))


@asynccontextmanager
async def streams(server: Server) -> AsyncIterator[TransportStreams]:
    """The message streams of a configured server, whichever transport it has."""
    if server.type == "stdio":
        env = {name: value.get_secret_value() for name, value in server.env.items()}
        child = StdioServerParameters(
            command=server.command or "", args=list(server.args), env=env, encoding_error_handler="replace"
        )
        async with stdio_client(child) as (read, write):
            yield _Reread(read), write
        return
    headers = {name: value.get_secret_value() for name, value in server.headers.items()}
    if server.authorization_token is not None:
        headers["Authorization"] = f"Bearer {server.authorization_token.get_secret_value()}"
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    async with (
        Http(headers=headers, timeout=httpx2.Timeout(30.0, read=SILENCE_SECONDS), limits=limits) as http,
        streamable_http_client(server.url or "", http_client=http, max_sse_event_size=LARGEST_EVENT) as both,
    ):
        yield both


class Http(httpx2.AsyncClient):
    """An HTTP client in whose answers every failure of a JSON-RPC request is a JSON-RPC error."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method != "POST":
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError as error:
            unreachable = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            why = f"{type(error).__name__}: {error}"
            return _answer(request, Failure(mcp_types.CONNECTION_CLOSED, why, unreachable=unreachable))
        if response.status_code >= 400:
            return _answer(request, await _refusal(request, response))
        if response.status_code == 200:
            return _sound(request, response)
        return response


def _answer(request: httpx2.Request, failure: Failure) -> httpx2.Response:
    """The failure as the answer to this request; a notification has none."""
    id = json.loads(request.content).get("id")
    if id is None:
        return httpx2.Response(202, request=request)
    return httpx2.Response(
        200, json={"jsonrpc": "2.0", "id": id, "error": failure.as_error()}, request=request
    )


async def _refusal(request: httpx2.Request, response: httpx2.Response) -> Failure:
    try:
        body = (await response.aread())[:100_000].decode("utf-8", "replace")
    except httpx2.TransportError:
        body = ""
    finally:
        await response.aclose()
    code, message = _said(body)
    status = response.status_code
    lost = "mcp-session-id" in request.headers and (
        status == 404 or (status == 400 and "session" in message.lower())
    )
    return Failure(code, message, status, _retry_after(response), session_lost=lost)


def _said(body: str) -> tuple[int, str]:
    """The code and message of a JSON-RPC error, or of whatever JSON or text came instead."""
    try:
        told = json.loads(body)
    except ValueError:
        return mcp_types.INTERNAL_ERROR, " ".join(body.split())[:300]
    error = told.get("error") if isinstance(told, dict) else None
    inner = error if isinstance(error, dict) else told if isinstance(told, dict) else {}
    code, message = inner.get("code"), inner.get("message") or inner.get("detail") or error
    return (
        code if isinstance(code, int) else mcp_types.INTERNAL_ERROR,
        str(message or "")[:300],
    )


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


def _sound(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """The same response with text that every JSON reader takes."""
    headers = response.headers.copy()
    for name in ("content-encoding", "content-length", "transfer-encoding"):
        headers.pop(name, None)
    return httpx2.Response(200, headers=headers, stream=_SoundText(response), request=request)


class _SoundText(httpx2.AsyncByteStream):
    """The body, decoded, with invalid UTF-8 and unpaired surrogates replaced, however it is cut up."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        held = ""
        async for chunk in self._response.aiter_bytes():
            text = held + decoder.decode(chunk)
            cut = mend.open_escape(text)
            held = text[cut:]
            yield mend.text(text[:cut]).encode()
        yield mend.text(held + decoder.decode(b"", final=True)).encode()

    async def aclose(self) -> None:
        await self._response.aclose()


class _Reread:
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
