"""What governs an Agent SDK session: hooks around every tool call, and a fold over its messages.

Anyone's own options can hold them. What happens is told through `publish`, which returns when the event is
on record; only then does a hook answer, so the record is ahead of every consequence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, cast

from claude_agent_sdk import (
    AssistantMessage,
    HookMatcher,
    Message,
    ResultMessage,
    StreamEvent,
    SystemMessage,
)
from claude_agent_sdk.types import HookCallback, HookEvent

from orchestrator.backends.faults import context_exceeded, rate_limited, stopped
from orchestrator.backends.messages import encodable, parsed, result_text, size
from orchestrator.backends.wire import StreamFold
from orchestrator.budget import Budget, Denial
from orchestrator.errors import BackendError, LimitExceeded, RunError
from orchestrator.events import Event, Purpose, ToolCall, ToolResult
from orchestrator.sources import Registry, clean

LARGEST_RESULT: Final = 50_000
"""UTF-16 units of one result: above it the command line shows the model a preview instead."""
PATIENCE_MS: Final = 20_000
"""The longest Retry-After that is waited for."""
HOOK_SECONDS: Final = 24 * 3600.0
"""How long a hook may wait for us: the run's own clock ends it long before."""
UNWANTED_NEXT: Final = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
"""Stop reasons behind which the command line makes up to three more requests by itself."""
_NEVER_SENT: Final = re.compile(r"ECONNREFUSED|ENOTFOUND|EAI_AGAIN|certificate", re.I)
_PREFIX: Final = "mcp__"

Publish = Callable[[Event], Awaitable[None]]
Answer = dict[str, Any]
Hook = Callable[..., Awaitable[Answer]]


def split_name(name: str) -> tuple[str, str]:
    """Server and tool of a full name; the engine's own tools have no server."""
    server, _, tool = name.removeprefix(_PREFIX).partition("__")
    return (server, tool) if name.startswith(_PREFIX) and tool else ("", name)


class Governor:
    """The hooks of one session."""

    def __init__(
        self,
        budget: Budget,
        registry: Registry,
        publish: Publish,
        *,
        name: Callable[[str], tuple[str, str]] = split_name,
        max_chars: int | None = None,
    ) -> None:
        """`name` reads a full tool name as server and tool; `max_chars` is the longest result shown."""
        self._denial: Denial | None = None
        self.seen: set[str] = set()
        """Calls that were asked about before they ran."""
        self.running: set[str] = set()
        """Calls that were let through and have not come back."""
        self._budget = budget
        self._registry = registry
        self._publish = publish
        self._name = name
        self._max_chars = min(max_chars or LARGEST_RESULT, LARGEST_RESULT)

    @property
    def limit(self) -> LimitExceeded | None:
        """The limit that ends the loop, once a call was denied for good."""
        return self._denial.limit if self._denial else None

    def call(self, id: str, name: str, arguments: Any) -> ToolCall:
        """The call as an event."""
        server, tool = self._name(name)
        return ToolCall(id=id, server=server, tool=tool, arguments=encodable(arguments or {}))

    def hooks(self) -> dict[HookEvent, Hook]:
        """All of them, by the event that they answer."""
        return {"PreToolUse": self.before, "PostToolUse": self.after, "PostToolUseFailure": self.failed}

    async def before(self, given: Mapping[str, Any], *_: object) -> Answer:
        """PreToolUse: record the call, then let it through or deny it with words for the model."""
        call = self.call(given["tool_use_id"], given["tool_name"], given["tool_input"])
        self.seen.add(call.id)
        self.running.add(call.id)
        await self._publish(call)
        denial = self._denial or self._budget.admit(call)
        if denial is None:
            return {}
        if denial.ends:
            self._denial = denial
        await self._failed(call.id, denial.message, None, denied=True)
        verdict = {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": denial.message,
        }
        # a denial alone lets the model ask again, and each asking is a paid pass
        ending = {"continue_": False, "stopReason": denial.message} if denial.ends else {}
        return {"hookSpecificOutput": verdict, **ending}

    async def after(self, given: Mapping[str, Any], *_: object) -> Answer:
        """PostToolUse: record what came back, and show the model the same with source ids in it."""
        content = _content(given["tool_response"])
        labelled = self._registry.label(content, given["tool_input"] or {})
        shown = self._fit(labelled, _has_blocks(given["tool_response"]))
        text = result_text(shown)
        self.running.discard(given["tool_use_id"])
        await self._publish(
            ToolResult(
                id=given["tool_use_id"],
                content=content,
                is_error=False,
                ms=given.get("duration_ms"),
                chars=len(text),
                bytes=size(text),
            )
        )
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": shown}}

    async def failed(self, given: Mapping[str, Any], *_: object) -> Answer:
        """PostToolUseFailure: record the error; the model is shown it as it is."""
        await self._failed(given["tool_use_id"], given["error"], given.get("duration_ms"))
        return {}

    async def _failed(self, id: str, text: str, ms: float | None, *, denied: bool = False) -> None:
        self.running.discard(id)
        await self._publish(failure(id, text, ms, denied=denied))

    def _fit(self, labelled: Any, blocks: bool) -> Any:
        """As the model is to see it: text or content blocks, cut where it is too long, and saying so."""
        if not blocks:
            if not isinstance(labelled, str):
                labelled = json.dumps(labelled, ensure_ascii=False, separators=(",", ":"))
            return cut(clean(labelled), self._max_chars)
        fitting, room = [], self._max_chars
        for block in labelled:
            text = {"text": cut(block["text"], room)} if "text" in block else {}
            room -= len(text.get("text", ""))
            fitting.append(block | text)
        return fitting


def cut(text: str, most: int) -> str:
    """At most so many UTF-16 units of the text; where it is longer, a note says so."""
    units = text.encode("utf-16-le")
    if len(units) <= 2 * most:
        return text
    note = f"\n[Cut here: {len(units) // 2:,} characters, of which --max-chars shows {most:,}.]"
    return units[: 2 * max(most - len(note), 0)].decode("utf-16-le", "ignore") + note


def failure(id: str, text: str, ms: float | None = None, *, denied: bool = False) -> ToolResult:
    """A result that is an error: the tool's own, or (`denied`) of a call that never reached its server."""
    text = clean(text)
    return ToolResult(
        id=id, content=text, is_error=True, ms=ms, chars=len(text), bytes=size(text), denied=denied
    )


def _has_blocks(response: Any) -> bool:
    """Whether a response holds content blocks that are more than text."""
    return isinstance(response, list) and any(
        isinstance(block, dict) and block.get("type") not in (None, "text") for block in response
    )


def _content(response: Any) -> Any:
    """A hook's tool response as an event holds it: JSON as its value, text as text, else the blocks."""
    if isinstance(response, list) and not _has_blocks(response):
        response = "\n".join(
            block["text"] for block in response if isinstance(block, dict) and "text" in block
        )
    if not isinstance(response, str):
        response = json.dumps(response, ensure_ascii=False)
    return parsed(clean(response))


class Passes:
    """The fold over a session's messages, pass by pass: what no hook sees is seen here."""

    def __init__(  # noqa: PLR0913 - what a StreamFold needs
        self,
        budget: Budget,
        purpose: Purpose,
        model: str,
        max_tokens: int,
        *,
        prompt_bytes: int = 0,
        counts_thinking: bool,
    ) -> None:
        """`max_tokens` is what each request may use; the rest is as for the `StreamFold`."""
        self._budget = budget
        self._purpose: Purpose = purpose
        self._model = model
        self._max_tokens = max_tokens
        self._prompt_bytes = prompt_bytes
        self._counts_thinking = counts_thinking
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
                yield from self._begin(raw)
            case StreamEvent(event={"type": "message_delta", "delta": {"stop_reason": None}}):
                pass  # the engine's own, behind a stream that broke off: its usage is not the service's
            case StreamEvent(event=raw, parent_tool_use_id=None) if self._fold is not None:
                yield from self._fold.feed(raw)
            case SystemMessage(subtype="status", data={"status": "requesting"}):
                self._answered = False
                self._budget.sent(self._purpose, self._max_tokens, self._model, self._prompt_bytes)
            case SystemMessage(data={"error_status": 429, "retry_delay_ms": delay}) if delay > PATIENCE_MS:
                raise rate_limited("The model service", delay / 1000)
            case SystemMessage(subtype="api_retry", data={"error_status": None}):
                yield from self._broken_off(unless=not self._started)
            case ResultMessage(is_error=True):
                yield from self._failed(message)
            case AssistantMessage(model=model, message_id=str(id)) if model != "<synthetic>":
                if id not in self._started:
                    raise BackendError("The engine made a request outside its stream", "agent-sdk")

    def _begin(self, raw: Mapping[str, Any]) -> Iterator[Event]:
        """A pass begins; the start of one and the same message may be said twice."""
        id = (raw.get("message") or {}).get("id")
        if id is not None and id in self._started:
            return
        yield from self._book_unseen()
        self._answered = True
        self._counts_thinking |= self._fold is not None and self._fold.counts_thinking
        self._started.add(str(id))
        self._fold = self._folding()
        yield from self._fold.feed(raw)

    def _failed(self, result: ResultMessage) -> Iterator[Event]:
        """The engine gave up: either the service refused its last request, or the request broke off."""
        unbilled = result.api_error_status is not None or never_sent(result.result or "")
        if unbilled:
            self._budget.refused()
        if result.api_error_status is None and result.terminal_reason == "api_error":
            yield from self._broken_off(unless=unbilled)

    def _broken_off(self, *, unless: bool) -> Iterator[Event]:
        """A request broke off; what was not seen of it may be billed all the same."""
        self._unseen += not self._answered
        self._answered = False
        if not unless:
            yield from self._book_unseen()

    def _book_unseen(self) -> Iterator[Event]:
        while self._unseen:
            self._unseen -= 1
            yield from self._folding().unheard()

    def _folding(self) -> StreamFold:
        return StreamFold(
            self._budget,
            self._purpose,
            self._model,
            self._max_tokens,
            hosted=False,
            prompt_bytes=self._prompt_bytes,
            counts_thinking=self._counts_thinking,
        )

    def unwanted(self) -> RunError:
        """Why a turn that ended with one of `UNWANTED_NEXT` cannot go on."""
        details = self._fold.stop_details if self._fold else {}
        return stopped(self.stop_reason, details, self._max_tokens) or context_exceeded()


def never_sent(text: str) -> bool:
    """Whether this connection error says that no request can have reached the service."""
    return bool(_NEVER_SENT.search(text))


def matcher(hook: Hook) -> HookMatcher:
    """The hook as options hold it; a call that it fails to answer for does not run."""
    return HookMatcher(hooks=[cast(HookCallback, hook)], timeout=HOOK_SECONDS, on_failure="block")
