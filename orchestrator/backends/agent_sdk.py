"""The Claude Agent SDK as a backend: the loop runs in its command line, on this machine.

One child process carries a conversation. What it says (messages) and what it asks (hooks) come out of one
queue in order, as our events; a hook is answered when its event was taken. The child asks nobody before it
repeats a request, so what no hook sees is seen in its stream: each `message_start` books a pass, each
`message_delta` settles one, and a stop reason behind which it would go on by itself ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    HookMatcher,
    Message,
    ResultMessage,
    SystemMessage,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from claude_agent_sdk.types import HookEvent

from orchestrator.backends import RunContext, engine, sessions
from orchestrator.backends.engine import Child, Parked, Told
from orchestrator.backends.hooks import (
    UNWANTED_NEXT,
    Answer,
    Governor,
    Passes,
    failure,
    matcher,
    split_name,
)
from orchestrator.backends.messages import result_text
from orchestrator.backends.toolbox import Toolbox, aliases, full_name, unavailable, write_servers
from orchestrator.errors import BackendError, RunError, boundary
from orchestrator.events import Event, Purpose, TextDelta
from orchestrator.settings import ANTHROPIC_URL
from orchestrator.sources import clean

FLUSH_SECONDS: Final = 5.0
"""How long a finished conversation may take to write its session down."""
POLL_SECONDS: Final = 0.05
POLLS: Final = int((engine.CONNECT_SECONDS + 5) / POLL_SECONDS)
"""How often the servers are looked at, should the command line never give one up."""
MAX_PAUSES: Final = 5
"""How often a turn that the service paused is gone on with."""
LONGEST_REASON: Final = 9_000
"""Characters; the command line cuts what hooks say at 10,000."""
ENVIRONMENT_BYTES: Final = 1_000
"""What the engine says of itself and its surroundings in each conversation."""
ANY_STOP: Final = UNWANTED_NEXT | {"end_turn", "stop_sequence", "tool_use", "pause_turn"}


class SessionLost(BackendError):
    """The engine's session of the earlier run is gone: the conversation can only begin anew."""

    def __init__(self) -> None:
        super().__init__("The session of the earlier run is gone", "agent-sdk")


class AgentSdk:
    """Backend over the Claude Agent SDK; its model is shown source ids."""

    name = "agent-sdk"
    ids_shown = True

    def __init__(self, context: RunContext) -> None:
        self.context = context

    @asynccontextmanager
    async def conversation(self) -> AsyncIterator[_Conversation]:
        """Start the command line with the search servers; see the protocol.

        Raises `SessionLost` when the conversation to carry on is not there any more.
        """
        with engine.folders(self.context.folder) as (home, work):
            resume, read_again = self._resume(home)
            max_tokens = self.context.budget.max_tokens(read_again)
            talk = _Conversation(self.context, max_tokens)
            options = engine.options(self.context, home, work, max_tokens, resume)
            try:
                await talk.open(options)
                yield talk
                await talk.leave()
            finally:
                await talk.child.close()

    def _resume(self, home: Path) -> tuple[str | None, int]:
        """The session to carry on and its bytes, fetched into this run's home."""
        context = self.context
        if not context.earlier:
            return None, 0
        file = sessions.find(context.folder, context.earlier)
        if file is None:
            raise SessionLost
        return sessions.fetch(file, home)

    async def answer(self, prompt: str, max_tokens: int, purpose: Purpose = "final") -> AsyncGenerator[Event]:
        """One pass of a child without tools or servers; see the protocol."""
        passes = passes_of(self.context, purpose, max_tokens, len(prompt.encode("utf-8", "replace")))
        child = Child(stops=ANY_STOP)
        with engine.folders(None) as (home, work):
            options = engine.options(self.context, home, work, max_tokens)
            try:
                options.env["DISABLE_PROMPT_CACHING"] = "1"  # nobody reads this prompt again
                await child.start(replace(options, system_prompt=None, effort="low", max_turns=1))
                await child.ask(prompt)
                while passes.stop_reason is None:
                    message = await child.next()
                    for event in passes.read(message):
                        yield event
                    if isinstance(message, ResultMessage):
                        engine.conclude(self.context, message, child.retry_after)
                        break
                if passes.stop_reason in UNWANTED_NEXT:
                    unwanted = passes.unwanted()
                    async for event in _afterwards(child, passes):
                        yield event
                    raise unwanted
            finally:
                await child.close()


async def _afterwards(child: Child, passes: Passes) -> AsyncGenerator[Event]:
    """What the engine had begun by itself before it was ended: paid for, and nobody reads it."""
    async for message in child.rest():
        for event in passes.read(message):
            if not isinstance(event, TextDelta):
                yield event


def passes_of(context: RunContext, purpose: Purpose, max_tokens: int, prompt_bytes: int = 0) -> Passes:
    """The fold over one turn of this run; `prompt_bytes` are those of a request that stands alone."""
    options = context.options
    counts = options.anthropic_base_url == ANTHROPIC_URL
    return Passes(
        context.budget,
        purpose,
        options.model,
        max_tokens,
        prompt_bytes=prompt_bytes + ENVIRONMENT_BYTES,
        counts_thinking=counts,
    )


class _Conversation:
    """An open conversation; see the protocol."""

    def __init__(self, context: RunContext, max_tokens: int) -> None:
        self.child = Child(stops=UNWANTED_NEXT)
        self._context = context
        self._max_tokens = max_tokens
        self._named = aliases(context.servers)
        self._tools = Toolbox()
        self._calls: dict[str, ToolUseBlock] = {}
        self._parked: Parked | None = None
        self._session: str | None = None

    # --- opening and leaving ---

    async def open(self, options: ClaudeAgentOptions) -> None:
        """Start the child; once more when a server lists other tools than were allowed beforehand."""
        file = write_servers(self._named, Path(str(options.cwd)).parent / "servers.json")
        noted = [full_name(alias, tool) for alias, server in self._named.items() for tool in server.tools]
        options = replace(options, mcp_servers=file)
        self._tools = await self._start(replace(options, allowed_tools=noted))
        if self._tools.unwanted or not set(self._tools.names) <= set(noted):
            allowed, unwanted = list(self._tools.names), self._tools.unwanted
            await self.child.close()
            self._tools = await self._start(
                replace(options, allowed_tools=allowed, disallowed_tools=unwanted)
            )

    async def _start(self, options: ClaudeAgentOptions) -> Toolbox:
        self.child = Child(stops=UNWANTED_NEXT)
        await self.child.start(replace(options, hooks=self._hooks()))
        return await self._list_tools()

    def _hooks(self) -> dict[HookEvent, list[HookMatcher]]:
        context, child = self._context, self.child
        governor = self._governor = Governor(
            context.budget,
            context.registry,
            child.tell,
            name=self._plain_name,
            max_chars=context.options.max_chars,
        )

        async def before(given: Any, *_: object) -> Answer:
            answer = await governor.before(given)
            if governor.limit:
                await child.hold()
            return answer

        hooks = governor.hooks() | {"PreToolUse": before, "Stop": child.park}
        return {event: [matcher(child.heard(hook))] for event, hook in hooks.items()}

    def _plain_name(self, name: str) -> tuple[str, str]:
        return self._tools.names.get(name) or split_name(name)

    async def _list_tools(self) -> Toolbox:
        """Wait until every server is connected. Raises McpUnavailable when one cannot be used."""
        tools = Toolbox()
        for _ in range(POLLS):
            with boundary("agent-sdk", "The engine does not say what its servers do"):
                said = await self.child.client.get_mcp_status()
            statuses: dict[str, Mapping[str, Any]] = {s["name"]: s for s in said["mcpServers"]}
            if all(statuses.get(alias, {}).get("status") != "pending" for alias in self._named):
                break
            await asyncio.sleep(POLL_SECONDS)
        for alias, server in self._named.items():
            status = statuses.get(alias, {})
            if status.get("status") != "connected":
                raise unavailable(server.name, status)
            tools.add(alias, server, status.get("tools") or ())
        return tools

    async def leave(self) -> None:
        """Let the child end the conversation and write its session down."""
        if self._parked is not None and self._context.folder is not None:
            with contextlib.suppress(TimeoutError, BackendError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._release()

    # --- turns ---

    async def turn(self, prompt: str, purpose: Purpose = "answer") -> AsyncGenerator[Event]:
        """Ask and say what happens; see the protocol."""
        done = False
        try:
            while self._tools.listed:
                yield self._tools.listed.pop(0)
            self._passes = passes_of(self._context, purpose, self._max_tokens)
            hooked = purpose == "correction"
            for _ in range(1 + MAX_PAUSES):
                await self._ask(prompt, hooked=hooked)
                async with aclosing(self._until_quiet()) as events:
                    async for event in events:
                        yield event
                if self._passes.stop_reason != "pause_turn":
                    break
                prompt, hooked = "Go on.", True
            if self._session and self._context.folder:
                yield sessions.checkpoint(self._context.run_id, self._session)
            done = True
        finally:
            if not done:
                self.child.kill()

    async def _ask(self, prompt: str, *, hooked: bool) -> None:
        """Ask as the reply to the Stop hook where it waits, else as a new user message."""
        if self._parked and hooked and len(prompt) <= LONGEST_REASON:
            self._parked.reply.set_result({"decision": "block", "reason": clean(prompt)})
            self._parked = None
            return
        if self._parked:
            await self._release()
        await self.child.ask(prompt)

    async def _release(self) -> None:
        if self._parked is not None:
            self._parked.reply.set_result({})
            self._parked = None
        while not isinstance(await self.child.next(), ResultMessage):
            pass

    async def _until_quiet(self) -> AsyncGenerator[Event]:
        """Everything until the answer is complete. Raises what ends the turn otherwise."""
        while True:
            item = await self.child.next()
            match item:
                case Told():
                    yield item.event
                    item.answer()
                case Parked():
                    self._parked = item
                    return
                case _:
                    for event in self._read(item):
                        yield event
            if isinstance(item, ResultMessage):
                engine.conclude(self._context, item, self.child.retry_after)
                return
            try:
                self._judge()
            except RunError:
                async for event in _afterwards(self.child, self._passes):
                    yield event
                raise

    def _judge(self) -> None:
        """Raise what a settled pass, or a call that was not let through, ends the turn with."""
        if not self._passes.settled:
            return
        if self._passes.stop_reason in UNWANTED_NEXT:
            raise self._passes.unwanted()
        if self._governor.limit and not self._governor.running:
            raise self._governor.limit

    def _check_tools(self, offered: list[str]) -> None:
        if extra := sorted(set(offered) - set(self._tools.names)):
            raise BackendError(
                f"The engine offers tools that nobody allowed: {', '.join(extra)}", "agent-sdk"
            )

    def _read(self, message: Message) -> Iterator[Event]:
        match message:
            case SystemMessage(subtype="init", data=data):
                self._session = data.get("session_id")
                self._check_tools(data.get("tools") or [])
            case UserMessage(content=list(blocks)):
                for block in blocks:
                    if isinstance(block, ToolResultBlock):
                        yield from self._result(block)
            case AssistantMessage(content=blocks):
                calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
                self._calls |= {block.id: block for block in calls}
        yield from self._passes.read(message)

    def _result(self, block: ToolResultBlock) -> Iterator[Event]:
        """A result in the conversation: hooks have told of it, unless the call was refused before them."""
        id, governor = block.tool_use_id, self._governor
        if id in governor.seen and id not in governor.running:
            return
        if not block.is_error:
            raise BackendError("Governance bypassed: a tool ran and no hook was asked", "agent-sdk")
        if missing := id not in governor.seen:  # a tool that does not exist
            asked = self._calls.get(id)
            yield governor.call(id, asked.name if asked else "", asked.input if asked else {})
        governor.seen.add(id)
        governor.running.discard(id)
        yield failure(id, result_text(block.content), denied=missing)
