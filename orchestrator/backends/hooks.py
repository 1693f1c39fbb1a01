"""Budget, record and sources around every tool call of an Agent SDK session, as that SDK's hooks.

Nothing here imports the SDK: the methods take and return what its hooks exchange as plain dictionaries, so
that anyone's own options can hold them. What happens is told through `publish`, which returns when the
event is on record; only then does a hook answer, so the record is ahead of every consequence.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from orchestrator.backends.messages import parsed, result_text, size
from orchestrator.budget import Budget, Denial
from orchestrator.errors import LimitExceeded
from orchestrator.events import Event, ToolCall, ToolResult
from orchestrator.sources import Registry, clean

LARGEST_RESULT: Final = 90_000
"""Characters of one result; above about 100,000 the command line shows the model a preview instead."""
_PREFIX: Final = "mcp__"

Publish = Callable[[Event], Awaitable[None]]
Answer = dict[str, Any]


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
        return ToolCall(id=id, server=server, tool=tool, arguments=arguments or {})

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
        if blocks:
            texts = ({"text": self._cut(block["text"])} if "text" in block else {} for block in labelled)
            return [block | text for block, text in zip(labelled, texts, strict=True)]
        if not isinstance(labelled, str):
            labelled = json.dumps(labelled, ensure_ascii=False, separators=(",", ":"))
        return self._cut(clean(labelled))

    def _cut(self, text: str) -> str:
        if len(text) <= self._max_chars:
            return text
        note = f"\n[Cut here: {len(text):,} characters, of which --max-chars shows {self._max_chars:,}.]"
        return text[: max(self._max_chars - len(note), 0)] + note


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
