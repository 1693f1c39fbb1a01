"""What a response looks like when something is odd: refusals, fallbacks, cut streams, unknown things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from orchestrator.offline import models
from orchestrator.offline.prompt import Json, Prompt
from orchestrator.offline.state import Fault, Pass

if TYPE_CHECKING:
    from orchestrator.offline.response import Response

Event = Json
SLOW_SECONDS: Final = 0.05
_UNKNOWN: Final = "aurora"
_CUT_AT_DELTA: Final = 2
_REFUSAL: Final = {
    "type": "refusal",
    "category": "cyber",
    "explanation": "This request triggered restrictions on violative cyber content and was blocked under "
    "Anthropic's Usage Policy.",
    "recommended_model": None,
}


class DroppedError(Exception):
    """The connection is to be cut here, without an ending."""


_STOPS: Final[dict[str | None, str]] = {
    "refusal": "refusal",
    "partial_refusal": "refusal",
    "max_tokens": "max_tokens",
    "context_exceeded": "model_context_window_exceeded",
    "empty": "end_turn",
    "unknown_stop_reason": _UNKNOWN,
}
"""Faults that end the response with this pass, and its stop reason."""
_SAY_NOTHING: Final = ("refusal", "empty")
_SAY_HALF: Final = ("partial_refusal", "max_tokens", "context_exceeded")


def plan(wanted: Pass, response: Response) -> Pass:
    """The pass as the fault lets it happen."""
    if response.fault in ("fallback", "sticky_fallback") and not response.request.fallbacks:
        response.fault = "refusal"
    fault = response.fault
    if fault not in _STOPS:
        return wanted
    if _STOPS[fault] == "refusal":
        response.stop_details = dict(_REFUSAL)
    said: Json = {"calls": (), "stop_reason": _STOPS[fault]}
    if fault in _SAY_NOTHING:
        said |= {"thinking": 0, "text": ""}
    elif fault in _SAY_HALF:
        said["text"] = wanted.text[: len(wanted.text) // 2]
    return wanted.model_copy(update=said)


async def before_pass(response: Response) -> AsyncIterator[Event]:
    """What the fault puts before the pass's own blocks."""
    fault, writer = response.fault, response.writer
    if fault == "fallback" and response.request.fallbacks:
        async for event in _hand_over(response):
            yield event
    elif fault == "compaction" and response.passes == 1:
        async for event in _compact(response):
            yield event
    elif fault == "unknown_block":
        async for event in writer.whole({"type": _UNKNOWN, "glow": {"height_km": 110}}, tokens=7):
            yield event
    elif fault == "citations_only":
        citation = {
            "type": "char_location",
            "cited_text": "a passage",
            "document_index": 0,
            "document_title": None,
            "start_char_index": 0,
            "end_char_index": 9,
            "file_id": None,
        }
        async for event in writer.text("", citations=[citation]):
            yield event
    elif fault in ("refusal", "empty"):
        writer.generate(5)


async def _hand_over(response: Response) -> AsyncIterator[Event]:
    """The model declines and the next one takes over; only its own passes count in the usage then."""
    response.fault = None
    declined, serving = response.model.id, response.request.fallbacks[0]
    block = {
        "type": "fallback",
        "from": {"model": declined},
        "to": {"model": serving},
        "trigger": {"type": "refusal", "category": "cyber"},
    }
    response.serve_with(serving)
    response.account.decline()
    async for event in response.writer.whole(block):
        yield event
    response.begin_pass()


async def _compact(response: Response) -> AsyncIterator[Event]:
    """The context is summarised first: a pass of its own, which the usage does not count."""
    response.fault = None
    summary = "## Summary of Conversation\n\nThe user asked a question; its wording follows."
    response.account.entries[-1].kind = "compaction"
    response.account.decline()
    async for event in response.writer.compaction(summary):
        yield event
    short = Prompt(response.prompt.counter)
    short.say("assistant", {"type": "compaction", "content": summary})
    last = response.prompt.pieces[-2]
    short.say(last.role, last.block)
    response.begin_pass(short)


async def twist(events: AsyncIterator[Event], response: Response) -> AsyncIterator[Event]:
    """The stream as the fault lets it out."""
    deltas = 0
    async for event in events:
        fault: Fault | None = response.fault or (None if response.told.usage else "no_usage")
        if fault == "slow":
            await asyncio.sleep(response.told.pace or SLOW_SECONDS)
        if fault in ("dropped_stream", "error_event") and event["type"] == "content_block_delta":
            deltas += 1
            if deltas > _CUT_AT_DELTA:
                if fault == "dropped_stream":
                    raise DroppedError
                yield {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
                return
        for odd in _ODD.get(fault or "", _plain)(event):
            yield odd
        if fault == "silent":
            await asyncio.Event().wait()


def _plain(event: Event) -> list[Event]:
    return [event]


def _double_start(event: Event) -> list[Event]:
    return [event, event] if event["type"] == "message_start" else [event]


def _unknown_event(event: Event) -> list[Event]:
    odd = {"type": _UNKNOWN, "glow": {"height_km": 110}}
    return [odd, event] if event["type"] in ("content_block_start", "message_delta") else [event]


def _unknown_delta(event: Event) -> list[Event]:
    if event["type"] != "content_block_delta":
        return [event]
    return [{**event, "delta": {"type": f"{_UNKNOWN}_delta", "glow": 1}}, event]


def _unknown_fields(event: Event) -> list[Event]:
    inner = {key: {**value, _UNKNOWN: 1} for key, value in event.items() if isinstance(value, dict)}
    return [{**event, **inner, _UNKNOWN: {"height_km": 110}}]


def _no_usage(event: Event) -> list[Event]:
    if event["type"] != "message_delta":
        return [event]
    return [{key: value for key, value in event.items() if key != "usage"}]


_ODD: Final[dict[str, Callable[[Event], list[Event]]]] = {
    "double_start": _double_start,
    "unknown_event": _unknown_event,
    "unknown_delta": _unknown_delta,
    "unknown_fields": _unknown_fields,
    "no_usage": _no_usage,
}


def fallback_model(name: str) -> models.Model:
    """The model that serves in place of the one that declined."""
    return models.find(name) or models.MODELS[models.DEFAULT_FALLBACK]
