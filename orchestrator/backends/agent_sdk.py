"""The Claude Agent SDK as a backend: the loop runs in its command line, on this machine.

One child process carries a conversation. What it says (messages) and what it asks (hooks) come out of one
queue in order, as our events; a hook is answered when its event was taken. The child asks nobody before it
repeats a request, so what no hook sees is seen in its stream: each `message_start` books a pass, each
`message_delta` settles one, and a stop reason behind which it would go on by itself ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    Message,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from claude_agent_sdk.types import HookCallback, HookEvent

from orchestrator.backends import RunContext, engine
from orchestrator.backends.faults import context_exceeded
from orchestrator.backends.hooks import Answer, Governor, failure, split_name
from orchestrator.backends.messages import result_text
from orchestrator.backends.wire import StreamFold
from orchestrator.errors import BackendError, LimitExceeded, Refused, RunError, boundary
from orchestrator.events import Event, PassFinished, Purpose
from orchestrator.settings import ANTHROPIC_URL
from orchestrator.sources import clean

FLUSH_SECONDS: Final = 5.0
"""How long a finished conversation may take to write its session down."""
HOOK_SECONDS: Final = 24 * 3600.0
"""How long a hook may wait for us: the run's own clock ends it long before."""
POLL_SECONDS: Final = 0.05
MAX_PAUSES: Final = 5
"""How often a turn that the service paused is gone on with."""
LONGEST_REASON: Final = 9_000
"""Characters; the command line cuts what hooks say at 10,000."""
BUFFER_BYTES: Final = 64 * 1024 * 1024
"""The longest line that is read from the child: a result comes as one line."""
UNWANTED_NEXT: Final = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
"""Stop reasons behind which the command line makes up to three more requests by itself."""
ANY_STOP: Final = UNWANTED_NEXT | {"end_turn", "stop_sequence", "tool_use", "pause_turn"}


class SessionLost(BackendError):  # noqa: N818 - what happened, like its siblings
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
        max_tokens = self.context.budget.max_tokens(0)
        with engine.folders(self.context.folder) as (home, work):
            try:
                resume = engine.session(self.context, home)
            except FileNotFoundError:
                raise SessionLost from None
            talk = _Conversation(self.context, max_tokens)
            options = _options(self.context, home, work, max_tokens, resume)
            try:
                await talk.open(options)
                yield talk
                await talk.leave()
            finally:
                await talk.child.close()

    async def answer(self, prompt: str, max_tokens: int, purpose: Purpose = "final") -> AsyncIterator[Event]:
        """One pass of a child without tools or servers; see the protocol."""
        passes = _Passes(self.context, purpose, max_tokens)
        child = _Child(stops=ANY_STOP)
        with engine.folders(None) as (home, work):
            options = _options(self.context, home, work, max_tokens)
            try:
                await child.start(replace(options, system_prompt=None, effort="low", max_turns=1))
                await child.ask(prompt)
                while passes.stop_reason is None:
                    message = await child.next()
                    for event in passes.read(message):
                        yield event
                    if isinstance(message, ResultMessage):
                        raise engine.failed(self.context, asdict(message), child.retry_after)
            finally:
                await child.close()
        if passes.stop_reason in UNWANTED_NEXT:
            raise passes.unwanted()


def _options(
    context: RunContext, home: Path, work: Path, max_tokens: int, resume: str | None = None
) -> ClaudeAgentOptions:
    """What every child is started with: no tools, no settings files, the limits as outer walls."""
    left = context.budget.remaining
    return ClaudeAgentOptions(
        tools=[],
        setting_sources=[],
        strict_mcp_config=True,
        permission_mode="dontAsk",
        system_prompt=clean(context.system),
        model=context.options.model,
        effort=context.options.effort,
        cwd=work,
        env=engine.environment(context, home, max_tokens),
        include_partial_messages=True,
        verbatim_prompts=True,
        max_turns=context.options.limits.max_steps,
        max_budget_usd=left if left and left > 0 else None,
        max_buffer_size=BUFFER_BYTES,
        resume=resume,
        fork_session=resume is not None,
    )


# --- one child process ----------------------------------------------------------------------------


@dataclass
class _Told:
    """An event from a hook, which waits until it was taken."""

    event: Event
    taken: asyncio.Future[None]


@dataclass
class _Parked:
    """The Stop hook waits: the answer is complete, and its reply decides how things go on."""

    reply: asyncio.Future[Answer]


@dataclass
class _Ending:
    """A hook that will not be answered: the loop is over once the pass is settled."""


class _Child:
    """One command line; everything it says and asks is in one queue."""

    def __init__(self, stops: frozenset[str]) -> None:
        """`stops` are the stop reasons at which the process is ended before it can go on."""
        self.retry_after: float | None = None
        self._stops = stops
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._client: ClaudeSDKClient | None = None
        self._pump: asyncio.Task[None] | None = None
        self._stderr: list[str] = []

    @property
    def client(self) -> ClaudeSDKClient:
        assert self._client is not None
        return self._client

    async def start(self, options: ClaudeAgentOptions) -> None:
        self._client = ClaudeSDKClient(replace(options, stderr=self._stderr.append))
        with boundary("agent-sdk", "The Claude Agent SDK could not be started"):
            await self._client.connect()
        self._pump = asyncio.create_task(self._listen())

    async def ask(self, prompt: str) -> None:
        with boundary("agent-sdk", "The engine took no question"):
            await self.client.query(clean(prompt))

    async def next(self) -> Any:
        """What comes next: a message, or what a hook has to say. Raises BackendError at the end."""
        item = await self._queue.get()
        if isinstance(item, Exception):
            raise BackendError(
                f"The engine stopped: {(self._stderr or [str(item)])[-1]}", "agent-sdk"
            ) from item
        if isinstance(item, SystemMessage) and item.subtype == "api_retry":
            self.retry_after = (item.data.get("retry_delay_ms") or 0) / 1000
        return item

    async def tell(self, event: Event) -> None:
        """For hooks: put an event into the stream; returns when it was taken."""
        taken = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Told(event, taken))
        await taken

    async def park(self, *_: object) -> Answer:
        """The Stop hook: wait for what comes next."""
        reply: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Parked(reply))
        return await reply

    async def hold(self) -> None:
        """Never answer: nothing can begin while a hook is waited for."""
        self._queue.put_nowait(_Ending())
        await asyncio.get_running_loop().create_future()

    async def _listen(self) -> None:
        try:
            async for message in self.client.receive_messages():
                # before anyone looks at it: a few milliseconds later the next request is out
                if isinstance(message, StreamEvent) and _stop_reason(message.event) in self._stops:
                    self.kill()
                self._queue.put_nowait(message)
            self._queue.put_nowait(EOFError("it ended without a result"))
        except Exception as error:
            self._queue.put_nowait(error)

    def kill(self) -> None:
        """End the process and what it started, at once.

        The SDK's own way gives a busy child five seconds, in which it goes on spending.
        """
        process = getattr(getattr(self._client, "_transport", None), "_process", None)
        if process is None or process.returncode is not None:
            return
        started = engine.descendants(process.pid)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        if self._pump is not None:
            self._pump.cancel()
        if self._client is not None:
            await self._client.disconnect()


def _stop_reason(event: Mapping[str, Any]) -> str | None:
    delta = event.get("delta")
    if event.get("type") != "message_delta" or not isinstance(delta, Mapping):
        return None
    return delta.get("stop_reason")


# --- what it says ---------------------------------------------------------------------------------


class _Passes:
    """The stream of one turn, folded pass by pass."""

    def __init__(self, context: RunContext, purpose: Purpose, max_tokens: int) -> None:
        self._context = context
        self._purpose: Purpose = purpose
        self._max_tokens = max_tokens
        self._fold: StreamFold | None = None
        self._started: set[str] = set()
        self._answered = False
        """Whether the request under way has begun to be answered."""
        self._unseen = 0
        """Requests that broke off before anything of their answer was seen."""

    @property
    def settled(self) -> bool:
        """Whether no pass is under way."""
        return self._fold is None or self._fold.finished

    @property
    def stop_reason(self) -> str | None:
        """Of the last pass, once it is settled."""
        return self._fold.stop_reason if self._fold and self._fold.finished else None

    def read(self, message: Message) -> Iterator[Event]:
        """The events that one message means; the engine's copies of what was streamed mean none."""
        match message:
            case StreamEvent(event={"type": "message_start"} as raw, parent_tool_use_id=None):
                yield from self._book_unseen()
                self._answered = True
                self._started.add(str((raw.get("message") or {}).get("id")))
                self._fold = self._new_fold()
                yield from self._fold.feed(raw)
            case StreamEvent(event={"type": "message_delta", "delta": {"stop_reason": None}}):
                pass  # the engine's own, behind a stream that broke off: its usage is not the service's
            case StreamEvent(event=raw, parent_tool_use_id=None) if self._fold is not None:
                yield from self._fold.feed(raw)
            case SystemMessage(subtype="status", data={"status": "requesting"}):
                self._answered = False
            case SystemMessage(subtype="api_retry", data={"error_status": None}):
                yield from self._broken_off(unless=not self._started)
            case ResultMessage(is_error=True, api_error_status=None, terminal_reason="api_error"):
                yield from self._broken_off(unless=engine.never_sent(message.result or ""))
            case AssistantMessage(model=model, message_id=str(id)) if model != "<synthetic>":
                if id not in self._started:
                    raise BackendError("The engine made a request outside its stream", "agent-sdk")

    def _new_fold(self) -> StreamFold:
        options = self._context.options
        return StreamFold(
            self._context.budget,
            self._purpose,
            options.model,
            self._max_tokens,
            hosted=False,
            counts_thinking=options.anthropic_base_url == ANTHROPIC_URL,
        )

    def _broken_off(self, *, unless: bool) -> Iterator[Event]:
        """A request broke off; what was not seen of it may be billed all the same."""
        self._unseen += not self._answered
        self._answered = False
        if not unless:
            yield from self._book_unseen()

    def _book_unseen(self) -> Iterator[Event]:
        while self._unseen:
            self._unseen -= 1
            started = self._context.budget.open_pass(self._purpose, self._max_tokens)
            yield started
            yield PassFinished(
                steps=(started.step,),
                purpose=self._purpose,
                model=started.model,
                usage=(),
                stop_reason=None,
                exact=False,
            )

    def unwanted(self) -> RunError:
        """Why a turn that ended with one of `UNWANTED_NEXT` cannot go on."""
        match self.stop_reason:
            case "refusal":
                details = self._fold.stop_details if self._fold else {}
                category = details.get("category")
                reason = details.get("explanation") or "it gave no reason"
                return Refused(
                    f"The model declined to answer ({category or 'no category'}): {reason};"
                    " ask in other words",
                    category,
                )
            case "max_tokens":
                return LimitExceeded(
                    "max_tokens",
                    self._max_tokens,
                    self._max_tokens,
                    f"the answer was cut at {self._max_tokens} output tokens;"
                    " raise --max-output-tokens, or --max-usd where that lowered it",
                )
        return context_exceeded()


class _Conversation:
    """An open conversation; see the protocol."""

    def __init__(self, context: RunContext, max_tokens: int) -> None:
        self.child = _Child(stops=UNWANTED_NEXT)
        self._context = context
        self._max_tokens = max_tokens
        self._named = engine.aliases(context.servers)
        self._tools = engine.Toolbox()
        self._calls: dict[str, ToolUseBlock] = {}
        self._parked: _Parked | None = None
        self._session: str | None = None

    # --- opening and leaving ---

    async def open(self, options: ClaudeAgentOptions) -> None:
        """Start the child; once more when a server lists other tools than were allowed beforehand."""
        file = engine.write_servers(self._named, Path(str(options.cwd)).parent / "servers.json")
        noted = [
            engine.full_name(alias, tool) for alias, server in self._named.items() for tool in server.tools
        ]
        options = replace(options, mcp_servers=file)
        self._tools = await self._start(replace(options, allowed_tools=noted))
        if self._tools.unwanted or not set(self._tools.names) <= set(noted):
            allowed, unwanted = list(self._tools.names), self._tools.unwanted
            await self.child.close()
            self._tools = await self._start(
                replace(options, allowed_tools=allowed, disallowed_tools=unwanted)
            )

    async def _start(self, options: ClaudeAgentOptions) -> engine.Toolbox:
        self.child = _Child(stops=UNWANTED_NEXT)
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

        return matchers(governor) | {"PreToolUse": [_matcher(before)], "Stop": [_matcher(child.park)]}

    def _plain_name(self, name: str) -> tuple[str, str]:
        return self._tools.names.get(name) or split_name(name)

    async def _list_tools(self) -> engine.Toolbox:
        """Wait until every server is connected. Raises McpUnavailable when one cannot be used."""
        tools = engine.Toolbox()
        while True:
            with boundary("agent-sdk", "The engine does not say what its servers do"):
                said = await self.child.client.get_mcp_status()
            statuses: dict[str, Mapping[str, Any]] = {s["name"]: s for s in said["mcpServers"]}
            if all(statuses.get(alias, {}).get("status") != "pending" for alias in self._named):
                break
            await asyncio.sleep(POLL_SECONDS)
        for alias, server in self._named.items():
            status = statuses.get(alias, {})
            if status.get("status") != "connected":
                raise engine.unavailable(server.name, status)
            tools.add(alias, server, status.get("tools") or ())
        return tools

    async def leave(self) -> None:
        """Let the child end the conversation and write its session down."""
        if self._parked is not None and self._context.folder is not None:
            with contextlib.suppress(TimeoutError, BackendError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._release()

    # --- turns ---

    async def turn(self, prompt: str, purpose: Purpose = "answer") -> AsyncIterator[Event]:
        """Ask and say what happens; see the protocol."""
        done = False
        try:
            while self._tools.listed:
                yield self._tools.listed.pop(0)
            self._passes = _Passes(self._context, purpose, self._max_tokens)
            await self._ask(prompt, hooked=purpose == "correction")
            for _ in range(MAX_PAUSES):
                async for event in self._until_quiet():
                    yield event
                if self._passes.stop_reason != "pause_turn":
                    break
                await self._ask("Go on.", hooked=True)
            if self._session and self._context.folder:
                yield engine.checkpoint(self._context, self._session)
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

    async def _until_quiet(self) -> AsyncIterator[Event]:
        """Everything until the answer is complete. Raises what ends the turn otherwise."""
        while True:
            item = await self.child.next()
            match item:
                case _Told():
                    yield item.event
                    item.taken.set_result(None)
                case _Parked():
                    self._parked = item
                    return
                case _:
                    for event in self._read(item):
                        yield event
            if isinstance(item, ResultMessage):
                if item.is_error:
                    raise engine.failed(self._context, asdict(item), self.child.retry_after)
                return
            self._judge()

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
        if id not in governor.seen:  # a tool that does not exist
            asked = self._calls.get(id)
            yield governor.call(id, asked.name if asked else "", asked.input if asked else {})
        governor.seen.add(id)
        governor.running.discard(id)
        yield failure(id, result_text(block.content), denied=True)


def matchers(governor: Governor) -> dict[HookEvent, list[HookMatcher]]:
    """A governor's hooks in the SDK's shape, for anyone's own options."""
    return {
        "PreToolUse": [_matcher(governor.before)],
        "PostToolUse": [_matcher(governor.after)],
        "PostToolUseFailure": [_matcher(governor.failed)],
    }


def _matcher(hook: Any) -> HookMatcher:
    return HookMatcher(hooks=[cast(HookCallback, hook)], timeout=HOOK_SECONDS, on_failure="block")
