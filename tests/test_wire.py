"""What nobody expects in a stream: never a crash, recorded, a sensible ending. And what the fold books.

Each odd stream goes through the real SDK and the connector over loopback, as the real ones do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from orchestrator.backends.connector import Connector
from orchestrator.backends.messages import encodable
from orchestrator.backends.wire import THINKING_MARGIN, StreamFold
from orchestrator.budget import Budget
from orchestrator.errors import RunError
from orchestrator.events import (
    Checkpoint,
    Event,
    Limits,
    PassFinished,
    PassStarted,
    ToolCall,
    ToolResult,
)
from orchestrator.prices import Prices
from tests.replay import Answer, context, drive_into, replaying, sse, text_of

Json = dict[str, Any]
SAID = "Lake Baikal is deep."
USAGE = {"input_tokens": 700, "output_tokens": 40}
START: Json = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 700, "output_tokens": 1},
    },
}
DELTA: Json = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE}
STOP: Json = {"type": "message_stop"}


def block(index: int, content: Json | None, *deltas: Json | None) -> list[Json]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *parts: str) -> list[Json]:
    return block(
        index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": part} for part in parts)
    )


def call(index: int, *parts: str, id: str = "mcptoolu_1") -> list[Json]:
    opened = {"type": "mcp_tool_use", "id": id, "name": "echo", "input": {}, "server_name": "echo"}
    return block(index, opened, *({"type": "input_json_delta", "partial_json": part} for part in parts))


def result(index: int, id: str = "mcptoolu_1", **fields: Any) -> list[Json]:
    return block(index, {"type": "mcp_tool_result", "tool_use_id": id, **fields})


CALL = call(0, "", '{"message": ', '"hi"}')
RESULT = result(1, is_error=False, content=[{"type": "text", "text": "https://echo.example/ hi"}])
UNKNOWN: Json = {"type": "aurora", "glow": {"height_km": 110}}


@dataclass(frozen=True)
class Odd:
    """An odd stream, and the sensible reading of it."""

    name: str
    events: list[Json] | Answer
    text: str = SAID
    status: str = "done"
    steps: int = 1
    exact: bool | None = True
    """Whether usage settled the passes; None when nothing did."""
    check: Callable[[list[Event]], bool] = lambda _: True

    def __str__(self) -> str:
        return self.name


def _fields(event: Any) -> Any:
    """The same with a field nobody knows in every object."""
    if isinstance(event, dict):
        return {key: _fields(value) for key, value in event.items()} | {"aurora": [{"glow": 1}]}
    return [_fields(item) for item in event] if isinstance(event, list) else event


def _calls(seen: Iterable[Event]) -> list[ToolCall]:
    return [event for event in seen if isinstance(event, ToolCall)]


def _results(seen: Iterable[Event]) -> list[ToolResult]:
    return [event for event in seen if isinstance(event, ToolResult)]


def _points(seen: Iterable[Event]) -> list[Json]:
    return [point.blocks[-1] for point in seen if isinstance(point, Checkpoint)]


CITATION = {"type": "char_location", "cited_text": "deep", "document_index": 0, "document_title": None}
WEB_CITATION = {"type": "web_search_result_location", "url": "https://lake.example/a", "title": "A"}
ODD = [
    Odd("an ordinary stream", [START, *text(0, "Lake Baikal ", "is deep."), DELTA, STOP]),
    Odd(
        "an unknown block",
        [START, *block(0, UNKNOWN), *text(1, SAID), DELTA, STOP],
        check=lambda seen: _points(seen)[0]["content"][0] == UNKNOWN,
    ),
    Odd(
        "an unknown block between a result and the text",
        [START, *CALL, *RESULT, *block(2, UNKNOWN), *text(3, SAID), DELTA, STOP],
        steps=2,
    ),
    Odd("unknown events", [UNKNOWN, START, UNKNOWN, *text(0, SAID), UNKNOWN, DELTA, UNKNOWN, STOP]),
    Odd(
        "an unknown delta",
        [
            START,
            *block(0, {"type": "text", "text": ""}, UNKNOWN, {"type": "text_delta", "text": SAID}),
            DELTA,
            STOP,
        ],
    ),
    Odd(
        "an unknown stop reason",
        [START, *text(0, SAID), {**DELTA, "delta": {"stop_reason": "aurora"}}, STOP],
        check=lambda seen: [e.stop_reason for e in seen if isinstance(e, PassFinished)] == ["aurora"],
    ),
    Odd("unknown fields", [_fields(event) for event in [START, *text(0, SAID), DELTA, STOP]]),
    Odd(
        "a start without optional fields",
        [{"type": "message_start", "message": {}}, *text(0, SAID), DELTA, STOP],
    ),
    Odd("a start without a message", [{"type": "message_start"}, *text(0, SAID), DELTA, STOP]),
    Odd("no start at all", [*text(0, SAID), DELTA, STOP]),
    Odd("a start that is sent twice", [START, START, *text(0, SAID), DELTA, STOP]),
    Odd(
        "events with null where an object belongs",
        [START, *block(0, None, None), *text(1, SAID), DELTA, STOP],
    ),
    Odd(
        "a delta for a block that never began",
        [
            START,
            {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "?"}},
            *text(0, SAID),
            DELTA,
            STOP,
        ],
    ),
    Odd("a block that never ends", [START, *text(0, SAID)[:-1], DELTA, STOP]),
    Odd(
        "a text that comes whole at its beginning",
        [START, *block(0, {"type": "text", "text": SAID}), DELTA, STOP],
    ),
    Odd(
        "usage that is missing",
        [START, *text(0, SAID), {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, STOP],
        exact=False,
    ),
    Odd("usage that is null", [START, *text(0, SAID), {**DELTA, "usage": None}, STOP], exact=False),
    Odd("no message_delta", [START, *text(0, SAID), STOP], exact=False),
    Odd("no message_stop", [START, *text(0, SAID), DELTA]),
    Odd(
        "several message_deltas",
        [
            START,
            *text(0, SAID),
            {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 20}},
            DELTA,
            {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1}},
            STOP,
        ],
        check=lambda seen: (
            [u.output_tokens for e in seen if isinstance(e, PassFinished) for u in e.usage] == [40]
        ),
    ),
    Odd(
        "iterations that are no list of objects",
        [START, *text(0, SAID), {**DELTA, "usage": {**USAGE, "iterations": [None, 3]}}, STOP],
        check=lambda seen: (
            [u.prompt_tokens for e in seen if isinstance(e, PassFinished) for u in e.usage] == [700]
        ),
    ),
    Odd(
        "citations without text (case I068)",
        [
            START,
            *text(0, SAID),
            *block(1, {"type": "text", "text": ""}, {"type": "citations_delta", "citation": CITATION}),
            DELTA,
            STOP,
        ],
        check=lambda seen: [b["type"] for b in _points(seen)[0]["content"]] == ["text"],
    ),
    Odd(
        "citations that name an address (case I068)",
        [
            START,
            *block(
                0,
                {"type": "text", "text": ""},
                {"type": "text_delta", "text": SAID},
                {"type": "citations_delta", "citation": WEB_CITATION},
            ),
            DELTA,
            STOP,
        ],
        text=f"{SAID} [source](<https://lake.example/a>)",
        check=lambda seen: _points(seen)[0]["content"][0]["citations"] == [WEB_CITATION],
    ),
    Odd("no content", [START, DELTA, STOP], text="", check=lambda seen: not _points(seen)),
    Odd("an empty text", [START, *text(0, ""), DELTA, STOP], text="", check=lambda seen: not _points(seen)),
    Odd(
        "arguments that are no JSON",
        [START, *call(0, '{"message": '), *RESULT, *text(2, SAID), DELTA, STOP],
        steps=2,
        check=lambda seen: _calls(seen)[0].arguments == {},
    ),
    Odd(
        "arguments that are no object",
        [START, *call(0, "[1]"), *RESULT, *text(2, SAID), DELTA, STOP],
        steps=2,
        check=lambda seen: _points(seen)[0]["content"][0]["input"] == {},
    ),
    Odd(
        "a result without content",
        [START, *CALL, *result(1), *text(2, SAID), DELTA, STOP],
        steps=2,
        check=lambda seen: (_results(seen)[0].content, _results(seen)[0].is_error) == ("", False),
    ),
    Odd(
        "a result that is one text",
        [START, *CALL, *result(1, content="https://echo.example/ hi"), *text(2, SAID), DELTA, STOP],
        steps=2,
        check=lambda seen: _results(seen)[0].content == "https://echo.example/ hi",
    ),
    Odd(
        "a result without a call",
        [START, *text(0, SAID), *result(1, "mcptoolu_9", content="https://echo.example/ hi"), DELTA, STOP],
    ),
    Odd(
        "lone surrogates in text and result (case I133)",
        [
            START,
            *CALL,
            *result(
                1, content=[{"type": "text", "text": '{"url": "https://echo.example/", "t": "\\ud83d"}'}]
            ),
            *text(2, "\ud83d", SAID, "😀"),
            DELTA,
            STOP,
        ],
        text=f"�{SAID}😀",
        steps=2,
        check=lambda seen: _results(seen)[0].content["t"] == "�",
    ),
    Odd(
        "a stream that breaks off",
        sse([START, *text(0, SAID)], cut=True),
        status="failed",
        exact=None,
    ),
    Odd("a stream that ends without an ending", [START, *text(0, SAID)], status="failed", exact=None),
    Odd("a stream of nothing", Answer(b""), text="", status="failed", steps=0, exact=None),
    Odd(
        "a frame that is no JSON",
        Answer(sse([START, *text(0, SAID)]).body + b"event: message_delta\ndata: {broken\n\n"),
        status="failed",
        exact=None,
    ),
    Odd(
        "a page of HTML",
        Answer(b"<html>Welcome</html>", content_type="text/html"),
        text="",
        status="failed",
        steps=0,
        exact=None,
    ),
    Odd(
        "an error in the stream",
        [
            START,
            *text(0, SAID),
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        ],
        status="failed",
        exact=None,
    ),
    Odd(
        "a rate limit in the stream",
        [START, {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}}],
        text="",
        status="rate_limited",
        exact=None,
    ),
    Odd(
        "a tool that nobody offered",
        [
            START,
            *block(0, {"type": "tool_use", "id": "toolu_1", "name": "shell", "input": {}}),
            {**DELTA, "delta": {"stop_reason": "tool_use"}},
            STOP,
        ],
        text="",
        status="failed",
    ),
]


@pytest.mark.parametrize("odd", ODD, ids=str)
async def test_an_odd_stream_has_a_sensible_ending(odd: Odd) -> None:
    """The events are recorded, the money is settled or stays booked, the ending has a status."""
    seen: list[Event] = []
    status = "done"
    with replaying(odd.events if isinstance(odd.events, Answer) else sse(odd.events)) as service:
        of = context(service, max_usd=5)
        try:
            async with Connector(of).conversation() as conversation:
                await drive_into(seen, of, conversation.turn("How deep is Lake Baikal?"))
        except RunError as error:
            status = error.status
            assert str(error)
    assert status == odd.status
    assert text_of(seen) == odd.text
    assert len({event.step for event in seen if isinstance(event, PassStarted)}) == odd.steps
    settled = [event.exact for event in seen if isinstance(event, PassFinished)]
    assert settled == ([] if odd.exact is None else [odd.exact])
    assert odd.check(seen)
    if odd.steps:  # whatever was said was paid for: charged, or still booked
        assert of.budget.spent > 0
        assert (of.budget.charged > 0) == (odd.exact is not None)


def folded(
    events: Iterable[Json], *, limits: Limits | None = None, hosted: bool = True, **fold: Any
) -> tuple[list[Event], Budget, StreamFold]:
    """The events of a stream, folded by a budget as they come."""
    budget = Budget(limits or Limits(max_usd=5), Prices({}, price_call={"echo": 0}), "claude-opus-5-5")
    reader = StreamFold(budget, "answer", "claude-opus-5-5", 16_000, hosted=hosted, **fold)
    seen: list[Event] = []
    for raw in events:
        for event in reader.feed(raw):
            follows = [event, *budget.see(event)]
            for charge in follows[1:]:
                budget.see(charge)
            seen += follows
    return seen, budget, reader


def booked(seen: Iterable[Event]) -> list[int]:
    """Output tokens booked, time after time."""
    return [event.output_tokens for event in seen if isinstance(event, PassStarted)]


def thinking(*deltas: Json) -> list[Json]:
    return block(0, {"type": "thinking", "thinking": "", "signature": ""}, *deltas)


def counted(tokens: int | None) -> Json:
    return {"type": "thinking_delta", "thinking": "", "estimated_tokens": tokens}


SIGNED = {"type": "signature_delta", "signature": "c2lnbmVk"}


def test_hidden_thinking_is_booked_by_its_estimate_with_a_margin() -> None:
    """FACTS: the estimate in the stream is deliberately lossy."""
    seen, _, _ = folded([START, *thinking(*[counted(500)] * 4, counted(None), SIGNED)])
    assert 0 <= max(booked(seen)) - 2000 * THINKING_MARGIN <= 600


def test_thinking_that_nobody_counts_is_booked_as_the_whole_pass() -> None:
    seen, _, _ = folded([START, *thinking(SIGNED)])
    assert max(booked(seen)) == 16_000


def test_thinking_too_short_to_be_counted_is_booked_as_little_where_the_service_counts() -> None:
    seen, _, _ = folded([START, *thinking(counted(None), SIGNED)], counts_thinking=True)
    assert max(booked(seen)) < 1_000


def test_the_service_is_known_to_count_once_it_has_counted() -> None:
    second = [event | {"index": 3} for event in thinking(SIGNED)]
    seen, _, _ = folded([START, *thinking(counted(50), SIGNED), *CALL[:0], *RESULT, *second])
    assert max(booked(seen)) < 1_000


def test_visible_and_redacted_thinking_count_by_their_size() -> None:
    shown, _, _ = folded([START, *thinking({"type": "thinking_delta", "thinking": "x" * 9_000}, SIGNED)])
    hidden, _, _ = folded(
        [START, *block(0, {"type": "redacted_thinking", "data": "x" * 9_000}), *text(1, "a")]
    )
    assert max(booked(shown)) > 4_000
    assert max(booked(hidden)) > 4_000


def test_a_pass_that_outgrows_its_booking_is_booked_again() -> None:
    seen, budget, _ = folded([START, *text(0, *["deep water " * 40] * 20)])
    amounts = [event.booked_usd for event in seen if isinstance(event, PassStarted)]
    assert amounts == sorted(amounts)
    assert budget.spent == amounts[-1]


def test_a_block_of_the_model_behind_a_result_begins_the_next_pass() -> None:
    """DESIGN: a step is one sampling pass, seen in the stream."""
    again = [event | {"index": event["index"] + 2} for event in call(0, "{}", id="mcptoolu_2")]
    more = [event | {"index": event["index"] + 2} for event in result(1, "mcptoolu_2", content="a")]
    seen, budget, _ = folded([START, *CALL, *RESULT, *again, *more, *text(4, SAID), DELTA, STOP])
    assert [event.steps for event in seen if isinstance(event, PassFinished)] == [(1, 2, 3)]
    assert budget.step == 3


def test_calls_side_by_side_are_one_pass() -> None:
    pair = [*CALL, *[e | {"index": 1} for e in call(0, "{}", id="mcptoolu_2")]]
    seen, budget, _ = folded([START, *pair, *result(2), *result(3, "mcptoolu_2"), *text(4, SAID), DELTA])
    assert len(_calls(seen)) == 2
    assert budget.step == 2


def test_calls_that_the_service_does_not_run_are_left_to_the_hooks() -> None:
    """The Agent SDK sees its tool calls in hooks, with the arguments that really go out."""
    opened = {"type": "tool_use", "id": "toolu_1", "name": "mcp__echo__echo", "input": {}}
    seen, _, reader = folded([START, *block(0, opened), DELTA, STOP], hosted=False)
    assert not _calls(seen)
    assert reader.content == [opened]


def test_content_is_put_together_as_a_whole_message_would_hold_it() -> None:
    """Case I034: split JSON, signature and text are what a non-streaming response has."""
    stream = [
        START,
        *thinking(counted(50), SIGNED),
        *call(1, '{"a": "é', '", "b": 1.50}'),
        *text(2, "a", "b"),
    ]
    _, _, reader = folded(stream)
    assert reader.content == [
        {"type": "thinking", "thinking": "", "signature": "c2lnbmVk"},
        {
            "type": "mcp_tool_use",
            "id": "mcptoolu_1",
            "name": "echo",
            "server_name": "echo",
            "input": {"a": "é", "b": 1.5},
        },
        {"type": "text", "text": "ab"},
    ]


def test_an_answer_that_says_nothing_of_usage_stays_at_its_booking() -> None:
    """Case I016: a request without usage counts, at the worst it can have cost."""
    seen, budget, _ = folded([START, *text(0, SAID), {**DELTA, "usage": None}, STOP])
    largest = max(event.booked_usd for event in seen if isinstance(event, PassStarted))
    assert [line.estimated for line in budget.lines] == [True]
    assert budget.charged == largest


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a\ud83d", "a�"),
        ("\ud83d\ude00", "😀"),
        ("😀", "😀"),
        ({"k": ["\udc00"]}, {"k": ["�"]}),
        (None, None),
    ],
)
def test_only_lone_surrogates_are_replaced(given: Any, kept: Any) -> None:
    """Cases I133 and I134."""
    assert encodable(given) == kept
