"""The client side of MCP: one lasting session with a search server, reopened when the server lost it.

Everything that can go wrong on the way becomes a typed error with a remedy:

    McpUnavailable     the server cannot be used: down, unauthorised, out of credit, speaks no MCP
    ├── CallFailed       this one call failed: timeout, dropped stream, a protocol error
    RateLimited        429 after one patient repeat

Whole lists and results are mended (`mend`) before the SDK sees them, so one bad tool or block costs
only itself. A call that never reached a working session (404) is repeated once; one that may have
been carried out is not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types
from mcp import ClientSession, MCPError
from mcp.shared.dispatcher import ProgressFnT
from pydantic import RootModel, ValidationError

from orchestrator.errors import McpUnavailable, RunError
from orchestrator.events import ToolInfo
from orchestrator.mcp_client import mend
from orchestrator.mcp_client.mcp_faults import CallFailed, WireError, explained
from orchestrator.mcp_client.mcp_wire import CONNECT_SECONDS, dispatcher
from orchestrator.settings import Server

__all__ = ["CallFailed", "Progress", "Result", "Tool", "Upstream", "connect"]

log = logging.getLogger(__name__)

CALL_SECONDS: Final = 60.0
"""How long a call may take where the server's notes say nothing."""
PATIENCE_SECONDS: Final = 10.0
"""The longest Retry-After that is waited for; above it the error names the wait."""
Progress = ProgressFnT
"""Told how far a call is: progress, total, message."""
_PAGES: Final = 100


class _Raw(RootModel[dict[str, Any]]):
    """A result as it came: already mended, and looked at by the session."""


_WHO: Final = mcp_types.Implementation(name="orchestrator", version="0.1.0")


@dataclass(frozen=True)
class Tool:
    """A tool as a host may see it: valid, and under a name that every model API takes."""

    name: str
    upstream_name: str
    raw: dict[str, Any]
    """The mended JSON of the tools/list entry, under the upstream name."""

    @property
    def info(self) -> ToolInfo:
        return ToolInfo(
            name=self.name, digest=mend.digest(self.raw), description=self.raw.get("description", "")
        )

    @property
    def read_only(self) -> bool:
        return bool(self.raw.get("annotations", {}).get("readOnlyHint"))


def tools_of(entries: Iterable[dict[str, Any]]) -> list[Tool]:
    """Mended tools/list entries as tools with names that hosts take."""
    listed = {entry["name"]: entry for entry in entries}
    safe = mend.safe_names(listed)
    return [Tool(safe[name], name, raw) for name, raw in listed.items()]


@dataclass(frozen=True)
class Result:
    """What one call returned, as upstream gave it."""

    content: list[dict[str, Any]]
    """MCP content blocks."""
    structured: dict[str, Any] | None
    is_error: bool
    meta: dict[str, Any] = field(default_factory=dict)
    ms: float = 0.0

    @property
    def usage(self) -> tuple[dict[str, Any], ...]:
        """The server's own report of what the call cost, where it gave one."""
        reported = self.meta.get("parallel/usage")
        return tuple(filter(_is_dict, reported)) if isinstance(reported, list) else ()

    @property
    def value(self) -> Any:
        """What a `ToolResult` event holds: structured content where there is any, else the blocks."""
        return self.content if self.structured is None else self.structured


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


@asynccontextmanager
async def connect(server: Server) -> AsyncIterator[Upstream]:
    """A search server, reached at the first use and again whenever it lost the session."""
    upstream = Upstream(server)
    try:
        yield upstream
    finally:
        await upstream.close()


class Upstream:
    """Use through `connect`. Safe for many concurrent calls."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._said: set[str] = set()
        self._upstream_names: dict[str, str] = {}
        self._opening = asyncio.Lock()
        self._link: _Link | None = None

    async def tools(self) -> list[Tool]:
        """All tools the server lists, over all pages; a fresh list each time.

        Raises `McpUnavailable` (and `RateLimited`) when the server cannot be used or lists nothing.
        """
        listed: dict[str, dict[str, Any]] = {}
        cursor: str | None = None
        for _ in range(_PAGES):
            params = mcp_types.PaginatedRequestParams(cursor=cursor)
            page = await self._request(mcp_types.ListToolsRequest(params=params), CONNECT_SECONDS)
            for tool in page["tools"]:
                if listed.setdefault(tool["name"], tool) is not tool:
                    self.notice(f"a second tool named {tool['name']!r} was dropped")
            before, cursor = cursor, page.get("nextCursor")
            if not cursor or cursor == before:
                break
        if not listed:
            raise McpUnavailable(f"MCP server {self.server.name!r} lists no tools; check its address.")
        tools = tools_of(listed.values())
        self._upstream_names = {tool.name: tool.upstream_name for tool in tools}
        return tools

    async def call(
        self,
        tool: Tool | str,
        arguments: dict[str, Any],
        *,
        seconds: float | None = None,
        on_progress: Progress | None = None,
    ) -> Result:
        """Call a tool, or what has this safe or own name; `seconds` overrides what the server's notes allow.

        A failure that the tool reports itself is a `Result` with `is_error`; everything else raises
        `CallFailed`, `RateLimited` or `McpUnavailable`.
        """
        name = tool.upstream_name if isinstance(tool, Tool) else self._upstream_names.get(tool, tool)
        notes = self.server.tools.get(name)
        patience = seconds or (notes.timeout_seconds if notes else CALL_SECONDS)
        params = mcp_types.CallToolRequestParams(name=name, arguments=arguments)
        started = time.perf_counter()
        raw = await self._request(mcp_types.CallToolRequest(params=params), patience, on_progress)
        return Result(
            content=raw["content"],
            structured=raw.get("structuredContent"),
            is_error=raw.get("isError", False),
            meta=raw.get("_meta") or {},
            ms=(time.perf_counter() - started) * 1000,
        )

    async def close(self) -> None:
        """End the session and whatever process was started for it."""
        if self._link is not None:
            await self._link.close()

    async def _request(
        self,
        request: mcp_types.ListToolsRequest | mcp_types.CallToolRequest,
        seconds: float,
        on_progress: Progress | None = None,
    ) -> dict[str, Any]:
        for repeats_left in (1, 0):
            link = await self._linked()
            with link.in_use():
                try:
                    result = await link.session.send_request(
                        request, _Raw, request_read_timeout_seconds=seconds, progress_callback=on_progress
                    )
                    return result.root
                except (MCPError, WireError) as error:
                    if not repeats_left or not await self._remedied(error, link, seconds):
                        raise explained(error, self.server, seconds) from error
                except ValidationError as error:
                    raise CallFailed(
                        f"MCP server {self.server.name!r} sent what is not MCP: {error}"
                    ) from error
        raise AssertionError("the last round returns or raises")

    async def _remedied(self, error: MCPError | WireError, link: _Link, seconds: float) -> bool:
        """Do what lets a second try work; False when the call may have been carried out, or none can."""
        if isinstance(error, MCPError):
            if error.code == mcp_types.CONNECTION_CLOSED:
                link.retire()
            return False
        if error.session_lost:
            link.retire()
            return True
        wait = error.retry_after if error.http == 429 else None
        if wait is None or wait > min(PATIENCE_SECONDS, seconds):
            return False
        await asyncio.sleep(wait)
        return True

    async def _linked(self) -> _Link:
        async with self._opening:
            if self._link is None or not self._link.alive:
                if self._link is not None:
                    self._link.retire()
                self._link = await _Link.open(self.server, self.notice)
            return self._link

    def notice(self, what: str) -> None:
        """Say once what is odd about this server."""
        if what not in self._said:
            self._said.add(what)
            log.warning("MCP server %r: %s", self.server.name, what)


class _Link:
    """One session, held open by a task of its own, because cancel scopes end in the task they began in.

    A retired link takes no new calls and closes when the last one in flight is done.
    """

    def __init__(self, server: Server, notice: mend.Notice) -> None:
        self.session: ClientSession
        self._ending = asyncio.Event()
        self._retired = False
        self._users = 0
        self._opened: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(server, notice))

    @classmethod
    async def open(cls, server: Server, notice: mend.Notice) -> _Link:
        """Reach the server and shake hands. Raises `McpUnavailable` or `RateLimited`."""
        link = cls(server, notice)
        try:
            link.session = await asyncio.wait_for(link._opened, CONNECT_SECONDS)
        except BaseException as error:
            link._task.cancel()
            await asyncio.wait([link._task])
            if not isinstance(error, Exception):
                raise
            raise _why_not_open(error, server) from error
        return link

    @property
    def alive(self) -> bool:
        return not (self._retired or self._ending.is_set() or self._task.done())

    @contextmanager
    def in_use(self) -> Iterator[None]:
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._retired and not self._users:
                self._ending.set()

    def retire(self) -> None:
        self._retired = True
        if not self._users:
            self._ending.set()

    async def close(self) -> None:
        self._ending.set()
        await asyncio.wait([self._task])

    async def _hold(self, server: Server, notice: mend.Notice) -> None:
        try:
            async with (
                dispatcher(server, notice, self._ending) as wire,
                ClientSession(dispatcher=wire, client_info=_WHO) as session,
            ):
                await _greet(session, server)
                self._opened.set_result(session)
                await self._ending.wait()
        except Exception as error:
            if self._opened.done():
                log.debug("MCP server %r: the session broke", server.name, exc_info=True)
            else:
                self._opened.set_exception(_innermost(error))
        finally:
            self._ending.set()


async def _greet(session: ClientSession, server: Server) -> None:
    """Agree on a protocol version: discovery as of 2026-07-28, or the handshake of before.

    Over HTTP discovery comes first, as in the SDK's own client: whatever is no sign of a newer server means
    an older one. A child process is shaken hands with first, for old ones die of what they do not know.
    """
    if server.type == "stdio":
        try:
            await session.initialize()
        except MCPError as error:
            if error.code not in (mcp_types.UNSUPPORTED_PROTOCOL_VERSION, mcp_types.METHOD_NOT_FOUND):
                raise
            await session.discover()
        return
    try:
        await session.discover()
    except (MCPError, ValidationError, RuntimeError):
        await session.initialize()
    except WireError as error:
        if error.http is None or error.http in (401, 402, 403, 429) or error.http >= 500:
            raise
        await session.initialize()


def _innermost(error: Exception) -> Exception:
    """The error itself, out of the groups that the transport's task groups wrap around it."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _why_not_open(error: Exception, server: Server) -> RunError:
    if isinstance(error, MCPError | WireError):
        return explained(error, server, CONNECT_SECONDS)
    if isinstance(error, TimeoutError):
        reason = f"did not answer within {CONNECT_SECONDS:g} s"
    else:
        reason = f"could not be started or spoken to: {error}"
    return McpUnavailable(f"MCP server {server.name!r} {reason}.")
