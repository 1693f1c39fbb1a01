"""Relays the tools of the search servers, governed: numbered sources, caps, prices, memory, a record.

Results are raw JSON all the way; nothing is parsed into models and written out again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from orchestrator.errors import ConfigurationError, LimitExceeded, McpUnavailable, RunError, UsageError
from orchestrator.events import Charge, ChargeLine, Event, LimitReached, ToolCall, ToolResult
from orchestrator.mcp_client import mend
from orchestrator.mcp_client.mend import Json
from orchestrator.prices import Prices
from orchestrator.serving import answers
from orchestrator.serving.answers import PART, SESSION, Answer, Memory
from orchestrator.serving.caps import Booking, Caps
from orchestrator.serving.conversation import Conversation, Conversations
from orchestrator.settings import Server
from orchestrator.upstream import CallFailed, Progress, Result, Tool, Upstream, connect, tools_of

log = logging.getLogger(__name__)

LISTING_SECONDS: Final = 8.0
"""How long a host that asks for tools waits for a search server."""
LISTED_SECONDS: Final = 60.0
"""How long a tool list is taken to be what the server would say again."""
_CALLS: Final = itertools.count(1)
_ANALYTICS: Final = (SESSION, "model_name")
"""Arguments that do not change what comes back."""


@dataclass(frozen=True)
class Published:
    """One tool as hosts see it, and whose it is."""

    entry: Json
    upstream: Upstream
    tool: Tool

    @property
    def takes_session(self) -> bool:
        return SESSION in self.tool.raw["inputSchema"].get("properties", {})


@dataclass
class Relay:
    """The relayed tools of all servers, open inside `async with`."""

    servers: Sequence[Server]
    prices: Prices
    caps: Caps
    conversations: Conversations
    shelf: Shelf
    now: Callable[[], float]
    max_chars: int | None = None
    """Characters of text of one source in a result."""
    published: dict[str, Published] = field(default_factory=dict)
    """By name, as last listed."""
    _listed: float | None = None
    _failure: RunError | None = None
    """Why the last listing is not what it should be."""
    _listing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changes: dict[str, str] = field(default_factory=dict)
    _upstreams: list[Upstream] = field(default_factory=list)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def __post_init__(self) -> None:
        self._memory = Memory(self.now)

    async def __aenter__(self) -> Self:
        self._upstreams = [await self._stack.enter_async_context(connect(s)) for s in self.servers]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def tools(self) -> list[Json]:
        """The tools/list entries of all servers. Raises `RunError` when there are none."""
        async with self._listing:
            if self._listed is None or self.now() - self._listed > LISTED_SECONDS:
                self.published = await self._ask_all()
                self._listed = None if self._failure else self.now()
        return [published.entry for published in self.published.values()]

    async def _ask_all(self) -> dict[str, Published]:
        published: dict[str, Published] = {}
        self._failure = None
        for upstream in self._upstreams:
            server = upstream.server
            for tool in await self._listed_by(upstream):
                if tool.upstream_name in server.tools or (not server.tools and tool.read_only):
                    name = _free_name(tool.name, server.name, published)
                    entry = answers.entry(name, tool, self._about(server, tool))
                    published[name] = Published(entry, upstream, tool)
        if not published:
            raise self._failure or McpUnavailable("No search server lists a tool that may be used here.")
        return published

    async def _listed_by(self, upstream: Upstream) -> list[Tool]:
        """Its tools; where it cannot say now, those of last time: a call will say what is wrong."""
        server = upstream.server.name
        before = self.shelf.get(server)
        try:
            async with asyncio.timeout(LISTING_SECONDS):
                tools = await upstream.tools()
        except (RunError, TimeoutError) as error:
            self._failure = _as_run_error(error, server)
            log.error("%s", self._failure)
            return tools_of(before)
        for name, change in changed(server, before, tools).items():
            log.warning("%s", change)
            self._changes[f"{server}/{name}"] = change
        self.shelf.put(server, tools)
        return tools

    @property
    def all_listed(self) -> bool:
        """Whether the last listing had every server's own word."""
        return self._listed is not None

    def _about(self, server: Server, tool: Tool) -> str:
        try:
            _, unit, _ = self.prices.tool_usd(server.name, tool.upstream_name, {})
        except ConfigurationError as error:
            return f"Not usable: {error}."
        notes = server.tools.get(tool.upstream_name)
        per = "URL" if notes and notes.usd_per_url is not None else "call"
        return f"{server.description} ${unit:g} per {per}.".strip()

    async def call(self, name: str, arguments: Json, report: Progress) -> Json:
        """One tools/call result; denials and failures are results too, marked as errors, for the model.

        Raises `KeyError` for a tool that is not there.
        """
        if name not in self.published:
            await self.tools()
        published = self.published[name]
        asked = dict(arguments)
        session_id, part = asked.pop(SESSION, None), asked.pop(PART, 1)
        try:
            if not isinstance(part, int) or part < 1:
                raise UsageError(f"{PART} is a whole number from 1.")
            conversation = self.conversations.get(session_id)
            server, tool = published.upstream.server.name, published.tool.upstream_name
            call = ToolCall(id=f"call-{next(_CALLS)}", server=server, tool=tool, arguments=asked)
            result, meta = await self._result(published, call, conversation, report)
            change = self._changes.pop(f"{server}/{tool}", None)
            answer = Answer(name, conversation, result, asked, part, self.max_chars, change).build()
        except (UsageError, RunError) as error:
            return answers.refusal(error, self.caps, session_id)
        answer["_meta"] = {
            **result.meta,
            answers.META: meta | {SESSION: conversation.id, "left": self.caps.left()},
        }
        return answer

    async def _result(
        self, published: Published, call: ToolCall, conversation: Conversation, report: Progress
    ) -> tuple[Result, Json]:
        """The result and what it cost; the conversation holds what happened."""
        key = _key(call)
        if (known := self._memory.get(key)) is not None:
            free = ChargeLine(
                item=f"{call.server}/{call.tool}", quantity=1, unit_usd=0.0, usd=0.0, estimated=False, step=0
            ).model_copy(update={"basis": "memory"})
            await self.conversations.note(conversation, call, _told(call, known), Charge(line=free))
            return known, {"usd": 0.0, "from_memory": True}
        await self.conversations.note(conversation, call)
        booking = await self._admit(call, conversation)
        sent = call.arguments | ({SESSION: conversation.id} if published.takes_session else {})
        told: ToolResult | None = None
        try:
            result = await published.upstream.call(published.tool, sent, on_progress=report)
            result = answers.conforming(
                result, published.tool.raw.get("outputSchema"), published.upstream.notice
            )
            told = _told(call, result)
        except RunError as error:
            if not isinstance(error, CallFailed) or error.code is not None:
                booking.cancel()
                told = _failed(call, error)
            raise
        finally:  # also when the host cancels: what may have been carried out is booked
            usd = await self._settle(call, told, conversation, booking)
        if not result.is_error:
            self._memory.put(key, told.chars, result)
        return result, {"usd": usd, "from_memory": False}

    async def _admit(self, call: ToolCall, conversation: Conversation) -> Booking:
        quantity, unit, _ = self.prices.tool_usd(call.server, call.tool, call.arguments)
        try:
            return self.caps.admit((f"{call.server}/{call.tool}", call.tool, call.server), quantity * unit)
        except LimitExceeded as limit:
            denied = _failed(call, limit).model_copy(update={"denied": True})
            reached = LimitReached(
                limit=limit.limit, value=limit.value, ceiling=limit.ceiling, action=f"{limit}; denied"
            )
            await self.conversations.note(conversation, denied, reached)
            raise

    async def _settle(
        self, call: ToolCall, told: ToolResult | None, conversation: Conversation, booking: Booking
    ) -> float:
        line = self.prices.tool_line(call, told, 0)
        events: list[Event] = [*filter(None, (told,)), *([Charge(line=line)] if line else [])]
        booking.settle(line.usd if line else 0.0)
        await self.conversations.note(conversation, *events)
        return booking.usd


@dataclass(frozen=True)
class Shelf:
    """The tool lists of last time: to see what changed, and to stand in for a server that is down."""

    folder: Path

    def get(self, server: str) -> list[Json]:
        try:
            kept = json.loads(self._path(server).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        return kept if isinstance(kept, list) else []

    def put(self, server: str, tools: Sequence[Tool]) -> None:
        entries = [tool.raw for tool in tools]
        if entries == self.get(server):
            return
        path = self._path(server)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{uuid.uuid4().hex[:8]}")
        fresh.write_text(json.dumps(entries, indent=1), encoding="utf-8")
        fresh.replace(path)

    def _path(self, server: str) -> Path:
        return self.folder / f"{mend.safe_names([server])[server]}.json"


def changed(server: str, before: Sequence[Json], tools: Sequence[Tool]) -> dict[str, str]:
    """What is not as it was when this server was last listed, by tool; nothing the first time."""
    then = {entry["name"]: mend.digest(entry) for entry in before}
    now = {tool.upstream_name: mend.digest(tool.raw) for tool in tools}
    found = {}
    for name in sorted(then.keys() | now.keys()) if then else ():
        if then.get(name) != now.get(name):
            how = "is gone" if name not in now else "is new" if name not in then else "was changed"
            found[name] = f"Tool {name!r} of server {server!r} {how} since it was last listed here."
    return found


def _as_run_error(error: Exception, server: str) -> RunError:
    if isinstance(error, RunError):
        return error
    return McpUnavailable(f"MCP server {server!r} did not list its tools within {LISTING_SECONDS:g} s.")


def _free_name(name: str, server: str, taken: dict[str, Any]) -> str:
    if name not in taken:
        return name
    both = f"{server}_{name}"
    return mend.safe_names([*taken, both])[both]


def _key(call: ToolCall) -> str:
    asked = {name: value for name, value in call.arguments.items() if name not in _ANALYTICS}
    return json.dumps([call.server, call.tool, asked], sort_keys=True)


def _told(call: ToolCall, result: Result) -> ToolResult:
    text = json.dumps(result.value, ensure_ascii=False)
    return ToolResult(
        id=call.id,
        content=result.value,
        is_error=result.is_error,
        ms=result.ms,
        chars=len(text),
        bytes=len(text.encode("utf-8", "replace")),
        usage=result.usage,
    )


def _failed(call: ToolCall, error: Exception) -> ToolResult:
    text = str(error)
    return ToolResult(
        id=call.id, content=text, is_error=True, ms=None, chars=len(text), bytes=len(text.encode())
    )
