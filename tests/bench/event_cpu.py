"""CPU time per stream event with the budget watching and without it.

    python tests/bench/event_cpu.py [rounds]

One long hosted response (thinking, searches, an answer of 4,000 words) goes through the reading that every
run does: decode, fold, count, judge. Off, the budget is one that counts nothing. A model writes some hundred
events a second at most: the last figure is what the budget takes of one core then.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any, cast

from orchestrator.backends.wire import StreamFold
from orchestrator.billing import Clearing
from orchestrator.budget import Budget
from orchestrator.events import Event, Limits, PassStarted, Purpose, ToolCall, Usage
from orchestrator.prices import Prices
from orchestrator.settings import Server, ToolNotes

MODEL = "claude-opus-5-5"
SEARCH = Server(name="search", tools={"web_search": ToolNotes(role="search", usd_per_call=0.001)})
EVENTS_A_SECOND = 100
Json = dict[str, Any]


class Off:
    """Counts nothing and allows everything."""

    def open_pass(
        self, purpose: Purpose, max_tokens: int, usage: Usage | None, model: str, *, prompt_bytes: int
    ) -> PassStarted:
        return PassStarted(
            step=1,
            purpose=purpose,
            model=model,
            context_tokens=0,
            output_tokens=max_tokens,
            booked_usd=0.0,
        )

    def grow(self, *_: object) -> None: ...
    def written(self, *_: object) -> None: ...
    def unmeasured(self, *_: object) -> None: ...
    def admit(self, _: ToolCall) -> None: ...
    def judge(self, _: Event) -> None: ...

    def see(self, _: Event) -> list[Event]:
        return []


def budget() -> Budget:
    return Budget(
        limits=Limits(max_usd=50, max_steps=None),
        prices=Prices(servers={SEARCH.name: SEARCH}),
        model=MODEL,
        clearing=Clearing(40_000, 4),
        opening_bytes=9_000,
        sources_in=lambda _: 1,
    )


def stream(searches: int = 8, words: int = 4_000) -> Iterator[Json]:
    """The raw events of one response."""
    usage = {"input_tokens": 900, "output_tokens": 1}
    yield {"type": "message_start", "message": {"model": MODEL, "content": [], "usage": usage}}
    index = 0
    for at in range(searches):
        thinking = [{"type": "thinking_delta", "thinking": "", "estimated_tokens": 60} for _ in range(5)]
        yield from _block(index, {"type": "thinking", "thinking": ""}, thinking)
        call = {"type": "mcp_tool_use", "id": f"c{at}", "name": "web_search", "server_name": "search"}
        written = json.dumps({"objective": f"find {at}", "search_queries": [f"query {at}"]})
        pieces = [
            {"type": "input_json_delta", "partial_json": written[n : n + 8]}
            for n in range(0, len(written), 8)
        ]
        yield from _block(index + 1, {**call, "input": {}}, pieces)
        content = [{"type": "text", "text": "text of a page " * 1_600}]
        result = {"type": "mcp_tool_result", "tool_use_id": f"c{at}", "is_error": False, "content": content}
        yield from _block(index + 2, result, [])
        index += 3
    deltas = [{"type": "text_delta", "text": f"word{at} "} for at in range(words)]
    yield from _block(index, {"type": "text", "text": ""}, deltas)
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9_000}}
    yield {"type": "message_stop"}


def _block(index: int, start: Json, deltas: list[Json]) -> Iterator[Json]:
    yield {"type": "content_block_start", "index": index, "content_block": start}
    yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
    yield {"type": "content_block_stop", "index": index}


def seconds(lines: list[str], counters: Budget) -> float:
    """CPU seconds for the whole stream."""
    fold = StreamFold(counters, "answer", MODEL, 16_000)
    began = time.process_time()
    for line in lines:
        for event in fold.feed(json.loads(line)):
            _emit(event, counters)
            if isinstance(event, ToolCall):
                assert counters.admit(event) is None
    return time.process_time() - began


def _emit(event: Event, counters: Budget) -> None:
    for follows in counters.see(event):
        _emit(follows, counters)
    counters.judge(event)


def main(rounds: int) -> None:
    lines = [json.dumps(event) for event in stream()]
    on, off = [], []
    for _ in range(rounds):  # in turns, so that a busy moment hits both alike
        on.append(seconds(lines, budget()) / len(lines))
        off.append(seconds(lines, cast(Budget, Off())) / len(lines))
    with_budget, without = statistics.median(on), statistics.median(off)
    print(f"{len(lines)} events, median of {rounds} rounds, CPU time an event:")
    print(f"{with_budget * 1e6:.0f} µs with the budget, {without * 1e6:.0f} µs without,", end=" ")
    print(f"{with_budget / without:.2f} times as much")
    share = (with_budget - without) * EVENTS_A_SECOND
    print(f"at {EVENTS_A_SECOND} events a second the budget takes {share:.2%} of one core")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
