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

THINKING_MARGIN: Final = 1.5
"""The stream's own estimate of hidden thinking is lossy by its documentation: count half as much again."""
MODEL_BLOCKS: Final = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "mcp_tool_use", "server_tool_use"}
)
BETWEEN_PASSES: Final = frozenset({"fallback", "compaction"})
"""Blocks, besides tool results, behind which a further pass begins."""


def read_usage(raw: Mapping[str, Any], model: str, before: Usage | None = None) -> Usage:
    """One usage object of the wire; a field that is absent or null keeps its value from `before`."""

    def number(name: str, default: int) -> int:
        value = raw.get(name)
        return value if isinstance(value, int) else default

    creation = raw.get("cache_creation")
    long = creation.get("ephemeral_1h_input_tokens") if isinstance(creation, Mapping) else None
    long_write = long if isinstance(long, int) else (before.cache_write_1h_tokens if before else 0)
    written_before = before.cache_write_tokens + before.cache_write_1h_tokens if before else 0
    details = raw.get("output_tokens_details")
    thinking = details.get("thinking_tokens") if isinstance(details, Mapping) else None
    return Usage(
        model=raw.get("model") or model,
        kind=raw.get("type") or "message",
        input_tokens=number("input_tokens", before.input_tokens if before else 0),
        cache_write_tokens=max(number("cache_creation_input_tokens", written_before) - long_write, 0),
        cache_write_1h_tokens=long_write,
        cache_read_tokens=number("cache_read_input_tokens", before.cache_read_tokens if before else 0),
        output_tokens=number("output_tokens", before.output_tokens if before else 0),
        thinking_tokens=thinking if isinstance(thinking, int) else None,
        inference_geo=raw.get("inference_geo") or (before.inference_geo if before else None),
        service_tier=raw.get("service_tier") or (before.service_tier if before else None),
        speed=raw.get("speed") or (before.speed if before else None),
    )


def read_iterations(raw: Mapping[str, Any], total: Usage) -> tuple[Usage, ...]:
    """Usage by sampling iteration where the service gives it, else the total alone."""
    iterations = raw.get("iterations")
    if not isinstance(iterations, list) or not iterations:
        return (total,)
    common = {"inference_geo": total.inference_geo, "service_tier": total.service_tier, "speed": total.speed}
    return tuple(
        read_usage(entry, total.model).model_copy(update=common)
        for entry in iterations
        if isinstance(entry, Mapping)
    )


def result_text(content: object) -> str:
    """The text of a tool result's content as the model is shown it."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(block.get("text", "") for block in content if isinstance(block, Mapping))
    return ""


def parsed(text: str) -> Any:
    """JSON text as its value, anything else as it is."""
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


@dataclass
class _Block:
    type: str
    raw: dict[str, Any]
    json_parts: list[str] = field(default_factory=list)


@dataclass
class StreamFold:
    """The fold over one response; `hosted` when the service runs the tools inside it.

    After `feed` of the last event: `stop_reason` (None when the stream broke off) and `finished`.
    """

    budget: Budget
    purpose: Purpose
    model: str
    max_tokens: int
    hosted: bool = True
    stop_reason: str | None = None
    stop_detail: str | None = None
    finished: bool = False

    def __post_init__(self) -> None:
        self._steps: list[int] = []
        self._usage: Usage | None = None
        self._blocks: dict[int, _Block] = {}
        self._between = False
        self._output_bytes = 0
        self._thinking = 0
        self._unmeasured_thinking = False

    def feed(self, raw: Mapping[str, Any]) -> Iterator[Event]:
        """The events that one raw stream event means."""
        match raw.get("type"):
            case "message_start":
                yield from self._message_start(raw.get("message") or {})
            case "content_block_start":
                yield from self._block_start(raw.get("index", 0), raw.get("content_block") or {})
            case "content_block_delta":
                yield from self._block_delta(raw.get("index", 0), raw.get("delta") or {})
            case "content_block_stop":
                yield from self._block_stop(raw.get("index", 0))
            case "message_delta":
                yield from self._message_delta(raw)
            case "message_stop" if not self.finished:
                yield self._finish((), exact=False)

    def _message_start(self, message: Mapping[str, Any]) -> Iterator[Event]:
        if self._steps:  # sent twice: the first one opened the pass
            return
        self.model = message.get("model") or self.model
        self._usage = read_usage(message.get("usage") or {}, self.model)
        yield self._begin(self._usage)

    def _begin(self, usage: Usage | None = None) -> PassStarted:
        self._between = False
        self._output_bytes = 0
        self._thinking = 0
        self._unmeasured_thinking = False
        started = self.budget.open_pass(self.purpose, self.max_tokens, usage)
        self._steps.append(started.step)
        return started

    def _block_start(self, index: int, block: Mapping[str, Any]) -> Iterator[Event]:
        kind = str(block.get("type"))
        self._blocks[index] = _Block(kind, dict(block))
        if kind in MODEL_BLOCKS and (self._between or not self._steps):
            yield self._begin()
        if kind == "thinking":
            self._unmeasured_thinking = True
        elif kind == "text" and block.get("text"):
            yield from self._text(block["text"])
        elif kind.endswith("_tool_result"):
            self._between = True
            yield self._result(block)
        elif kind in BETWEEN_PASSES:
            self._between = True
            self.model = (block.get("to") or {}).get("model") or self.model

    def _block_delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[Event]:
        match delta.get("type"):
            case "text_delta":
                yield from self._text(delta.get("text") or "")
                return
            case "input_json_delta":
                part = delta.get("partial_json") or ""
                if index in self._blocks:
                    self._blocks[index].json_parts.append(part)
                self._output_bytes += len(part.encode("utf-8", "replace"))
            case "thinking_delta":
                estimate = delta.get("estimated_tokens")
                if isinstance(estimate, int):
                    self._thinking += estimate
                    self._unmeasured_thinking = False
                elif delta.get("thinking"):
                    self._output_bytes += len(delta["thinking"].encode("utf-8", "replace"))
                    self._unmeasured_thinking = False
        yield from self._grown()

    def _text(self, text: str) -> Iterator[Event]:
        if text:
            self._output_bytes += len(text.encode("utf-8", "replace"))
            yield TextDelta(text=text)
            yield from self._grown()

    def _grown(self) -> Iterator[Event]:
        seen = self.budget.billing.tokens(self._output_bytes, len(self._blocks))
        grown = self.budget.grow(seen + ceil(self._thinking * THINKING_MARGIN))
        if grown is not None:
            yield grown

    def _block_stop(self, index: int) -> Iterator[Event]:
        block = self._blocks.get(index)
        if block is None:
            return
        if block.type == "thinking" and self._unmeasured_thinking:
            # it was billed and nobody said how much: no less than the whole pass is a safe bound
            self._unmeasured_thinking = False
            grown = self.budget.grow(self.max_tokens)
            if grown is not None:
                yield grown
        if self.hosted and block.type in ("mcp_tool_use", "server_tool_use"):
            yield ToolCall(
                id=str(block.raw.get("id")),
                server=block.raw.get("server_name") or "anthropic",
                tool=str(block.raw.get("name")),
                arguments=self._arguments(block),
            )

    def _arguments(self, block: _Block) -> dict[str, Any]:
        value = parsed("".join(block.json_parts)) if "".join(block.json_parts) else block.raw.get("input")
        return value if isinstance(value, dict) else {}

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
            bytes=len(text.encode("utf-8", "replace")),
        )

    def _message_delta(self, raw: Mapping[str, Any]) -> Iterator[Event]:
        delta = raw.get("delta") or {}
        self.stop_reason = delta.get("stop_reason") or self.stop_reason
        details = delta.get("stop_details")
        if isinstance(details, Mapping):
            self.stop_detail = ": ".join(
                str(details[key]) for key in ("category", "explanation") if details.get(key)
            )
        usage = raw.get("usage")
        if not isinstance(usage, Mapping) or not isinstance(usage.get("output_tokens"), int):
            yield self._finish((), exact=False)
            return
        total = read_usage(usage, self.model, self._usage)
        yield self._finish(read_iterations(usage, total), exact=True)

    def _finish(self, usage: tuple[Usage, ...], *, exact: bool) -> PassFinished:
        self.finished = True
        return PassFinished(
            steps=tuple(self._steps),
            purpose=self.purpose,
            model=self.model,
            usage=usage,
            stop_reason=self.stop_reason,
            exact=exact,
            detail=self.stop_detail,
        )
