"""What can go wrong between us and an MCP server, and what a user is told of it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

import httpx2
import mcp_types
from mcp import MCPError

from orchestrator.errors import McpUnavailable, RateLimited, RunError
from orchestrator.settings import Server

SESSION_HEADER: Final = "mcp-session-id"


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


async def refused(response: httpx2.Response) -> WireError | MCPError:
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
    lost = SESSION_HEADER in response.request.headers and (
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
