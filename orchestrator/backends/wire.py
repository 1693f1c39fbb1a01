"""Reading a Messages API stream: raw events in, our events out, the same for both backends.

The reading is lenient (unknown blocks, events, fields and stop reasons are passed over, missing ones have a
sensible reading), the events are strict. What a pass may cost while it runs is booked from here: input when
the pass begins, output as it is seen to grow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from orchestrator.backends.messages import (
    Block,
    encodable,
    mapping,
    parsed,
    read_iterations,
    read_usage,
    result_text,
    size,
    tools_listed,
)
from orchestrator.billing import Billing
from orchestrator.budget import Budget
from orchestrator.events import (
    Event,
    PassFinished,
    PassStarted,
    Purpose,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)

THINKING_MARGIN: Final = 2.0
"""The stream's own estimate of hidden thinking is lossy by its documentation: count it twice."""
UNCOUNTED_THINKING: Final = 128
"""Tokens of a thinking block too short for the service to count, where it counts them."""
BEHIND_A_CALL: Final = 32
"""Output tokens that may follow a finished tool call before the loop is left: mostly nothing does."""
MODEL_BLOCKS: Final = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "mcp_tool_use", "server_tool_use"}
)
BETWEEN_PASSES: Final = frozenset({"fallback", "compaction"})
"""Blocks, besides tool results, behind which a further pass begins."""


@dataclass
class StreamFold:
    """The fold over one response; `hosted` when the service runs the tools inside it.

    After `feed` of the last event: `stop_reason` (None when the stream broke off), `finished`, and the
    response's `content`.
    """

    budget: Budget
    purpose: Purpose
    model: str
    max_tokens: int
    hosted: bool = True
    prompt_bytes: int = 0
    """What the request adds to the conversation, or all of it where it stands alone."""
    counts_thinking: bool = False
    """Whether the service counts hidden thinking in the stream; else seen from the stream itself."""
    stop_reason: str | None = None
    stop_details: Mapping[str, Any] = field(default_factory=dict)
    """What the service adds to the stop reason, for instance a refusal's category and explanation."""
    finished: bool = False

    def __post_init__(self) -> None:
        self._steps: list[int] = []
        self._asked = self.model
        self._handed_over = 0
        """Passes before another model took over, or a summary the conversation's place."""
        self._usage: Usage | None = None
        self._settled: Usage | None = None
        self._iterations: tuple[Usage, ...] = ()
        self._itemised = False
        self._blocks: dict[Any, Block] = {}
        self._between = False
        self._pass_blocks = 0
        self._output_bytes = 0
        self._thinking = 0
        self._unmeasured_thinking = False

    @property
    def content(self) -> list[dict[str, Any]]:
        """The response's content blocks so far, as they are to be sent back."""
        return [block.whole() for block in self._blocks.values()]

    def sent(self) -> None:
        """The request is out: it may be billed, whether or not it is answered."""
        self.budget.sent(self.purpose, self.max_tokens, self.model, self.prompt_bytes)

    def unheard(self) -> Iterator[Event]:
        """The pass of an attempt that broke off before anything of its answer was seen."""
        started = self.budget.open_pass(
            self.purpose, self.max_tokens, None, self.model, prompt_bytes=self.prompt_bytes
        )
        yield started
        yield PassFinished(
            steps=(started.step,),
            purpose=self.purpose,
            model=started.model,
            usage=(),
            stop_reason=None,
            exact=False,
        )

    def feed(self, raw: Mapping[str, Any]) -> Iterator[Event]:
        """The events that one raw stream event means."""
        raw = encodable(raw)
        index = raw.get("index", 0)
        match raw.get("type"):
            case "message_start":
                yield from self._message_start(mapping(raw.get("message")))
            case "content_block_start":
                yield from self._block_start(index, mapping(raw.get("content_block")))
            case "content_block_delta":
                yield from self._block_delta(index, mapping(raw.get("delta")))
            case "content_block_stop":
                yield from self._block_stop(index)
            case "message_delta" if not self.finished:
                yield from self._message_delta(raw)
            case "message_stop" if not self.finished:
                yield from self._finish()

    def _message_start(self, message: Mapping[str, Any]) -> Iterator[Event]:
        if self._steps:  # sent twice: the first one opened the pass
            return
        self.model = self._asked = message.get("model") or self.model
        self._usage = read_usage(mapping(message.get("usage")), self.model)
        yield self._begin(self._usage)

    def _begin(self, usage: Usage | None = None) -> PassStarted:
        self._between = False
        self._pass_blocks = 0
        self._output_bytes = 0
        self._thinking = 0
        self._unmeasured_thinking = False
        first = 0 if self._steps else self.prompt_bytes
        started = self.budget.open_pass(self.purpose, self.max_tokens, usage, self.model, prompt_bytes=first)
        self._steps.append(started.step)
        return started

    def _block_start(self, index: Any, raw: Mapping[str, Any]) -> Iterator[Event]:
        block = self._blocks[index] = Block(dict(raw))
        if block.type in MODEL_BLOCKS and (self._between or not self._steps):
            yield self._begin()
        self._pass_blocks += block.type in MODEL_BLOCKS
        if block.type == "thinking":
            self.budget.unmeasured(not self.counts_thinking)
            self._unmeasured_thinking = True
        elif block.type == "redacted_thinking":
            self._output_bytes += size(str(raw.get("data") or ""))
        elif block.type == "text":
            yield from self._text(raw.get("text"))
        elif block.type == "mcp_tool_listing":
            yield tools_listed(raw)
        elif block.type.endswith("_tool_result"):
            if not self._between and (written := self.budget.written(self._seen())) is not None:
                yield written
            self._between = True
            yield self._result(raw)
        elif block.type in BETWEEN_PASSES:
            if self._between:  # an attempt that was declined, or a summary, before it wrote anything
                yield self._begin()
            self._between = True
            self._handed_over = len(self._steps)
            self.model = mapping(raw.get("to")).get("model") or self.model

    def _block_delta(self, index: Any, delta: Mapping[str, Any]) -> Iterator[Event]:
        text = self._blocks[index].add(delta) if index in self._blocks else ""
        match delta.get("type"):
            case "text_delta":
                yield from self._text(text)
                return
            case "thinking_delta":
                self._think(delta, text)
            case _:
                self._output_bytes += size(text)
        yield from self._grown()

    def _text(self, text: Any) -> Iterator[Event]:
        if text and isinstance(text, str):
            self._output_bytes += size(text)
            yield TextDelta(text=text)
            yield from self._grown()

    def _think(self, delta: Mapping[str, Any], text: str) -> None:
        estimate = delta.get("estimated_tokens")
        if isinstance(estimate, int):
            self.counts_thinking = True
            self._thinking += estimate
            self._unmeasured_thinking = False
            self.budget.unmeasured(False)
        elif text:
            self._output_bytes += size(text)
            self._unmeasured_thinking = False
            self.budget.unmeasured(False)

    def _seen(self) -> int:
        """Upper estimate of the open pass's output tokens so far.

        An answer may be in another language than the results from which rates were learned.
        """
        visible = Billing().tokens(self._output_bytes, self._pass_blocks)
        return visible + ceil(self._thinking * THINKING_MARGIN)

    def _grown(self) -> Iterator[Event]:
        grown = self.budget.grow(self._seen())
        if grown is not None:
            yield grown

    def _block_stop(self, index: Any) -> Iterator[Event]:
        block = self._blocks.get(index)
        if block is None:
            return
        if block.type == "thinking" and self._unmeasured_thinking:
            # it was billed and nobody said how much: no less than the whole pass is a safe bound
            self._unmeasured_thinking = False
            self.budget.unmeasured(False)
            self._thinking += UNCOUNTED_THINKING if self.counts_thinking else self.max_tokens
            yield from self._grown()
        elif block.type == "text":
            yield from self._cited(block)
        elif self.hosted and block.type in ("mcp_tool_use", "server_tool_use"):
            if (written := self.budget.written(self._seen(), BEHIND_A_CALL)) is not None:
                yield written
            yield ToolCall(
                id=str(block.raw.get("id")),
                server=block.raw.get("server_name") or "anthropic",
                tool=str(block.raw.get("name")),
                arguments=block.arguments,
            )

    def _cited(self, block: Block) -> Iterator[Event]:
        """The service's own citations stand beside the text: as links they are markers like any other."""
        citations = [mapping(citation) for citation in block.raw.get("citations") or ()]
        for url in dict.fromkeys(str(c["url"]) for c in citations if c.get("url")):
            yield from self._text(f" [source](<{url}>)")

    def _result(self, block: Mapping[str, Any]) -> ToolResult:
        text = result_text(block.get("content"))
        if not text and block.get("content"):  # hosted search returns structured blocks instead of text
            text = json.dumps(block["content"], ensure_ascii=False)
        return ToolResult(
            id=str(block.get("tool_use_id")),
            content=parsed(text),
            is_error=bool(block.get("is_error")),
            ms=None,
            chars=len(text),
            bytes=size(text),
        )

    def _message_delta(self, raw: Mapping[str, Any]) -> Iterator[Event]:
        """There may be several; usage counts up in them, and the one with the stop reason ends the passes."""
        delta = mapping(raw.get("delta"))
        self.stop_reason = delta.get("stop_reason") or self.stop_reason
        self.stop_details = mapping(delta.get("stop_details")) or self.stop_details
        usage = mapping(raw.get("usage"))
        if isinstance(usage.get("output_tokens"), int):
            self._settled = read_usage(usage, self.model, self._usage)
            self._iterations = read_iterations(usage, self._settled, self._asked)
            self._itemised = bool(usage.get("iterations"))
        if self.stop_reason is not None:
            yield from self._finish()

    def _finish(self) -> Iterator[Event]:
        if not self._steps:  # nothing was said, and it may be billed all the same
            yield self._begin()
        self.finished = True
        details = [self.stop_details.get(key) for key in ("category", "explanation")]
        # the total counts what the model that ended the answer did; iterations would count all
        lost = 0 if self._itemised or self._settled is None else self._handed_over
        if lost:
            yield PassFinished(
                steps=tuple(self._steps[:lost]),
                purpose=self.purpose,
                model=self._asked,
                usage=(),
                stop_reason=None,
                exact=False,
            )
        yield PassFinished(
            steps=tuple(self._steps[lost:]),
            purpose=self.purpose,
            model=self.model,
            usage=self._iterations,
            stop_reason=self.stop_reason,
            exact=self._settled is not None,
            detail=": ".join(str(detail) for detail in details if detail) or None,
        )
