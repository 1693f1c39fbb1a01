"""The stand-in's streams have the shape of recorded ones: order of events, which fields where, usage where.

The recordings lie beside the project and are never part of it; without them these tests are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx2
import pytest

from orchestrator.offline import StandIns

RECORDINGS = Path(__file__).parents[2] / "shared" / "recordings" / "messages-api"
pytestmark = pytest.mark.skipif(
    not RECORDINGS.is_dir(), reason="the recordings are not part of the project and do not lie beside it"
)

Json = dict[str, Any]
Path_ = tuple[str, ...]

NEWER: set[Path_] = {
    # What the recordings are too old for or do not happen to show; each stands in the SDK's response types.
    ("message_delta", "usage", "output_tokens_details", "thinking_tokens"),
    ("message_delta", "usage", "iterations", "cache_creation", "ephemeral_5m_input_tokens"),
    ("message_delta", "usage", "iterations", "cache_creation", "ephemeral_1h_input_tokens"),
    ("content_block_start:fallback", "content_block", "trigger", "type"),
    ("content_block_start:fallback", "content_block", "trigger", "category"),
    ("content_block_start:thinking", "index"),
    ("content_block_start:thinking", "content_block", "type"),
    ("content_block_start:thinking", "content_block", "thinking"),
    ("content_block_start:thinking", "content_block", "signature"),
    ("content_block_delta:signature_delta", "index"),
    ("content_block_delta:signature_delta", "delta", "type"),
    ("content_block_delta:signature_delta", "delta", "signature"),
}
CONSTANT: set[Path_] = {
    # Fields that every recorded stream has, whatever it is about.
    ("message_start", "message", name)
    for name in ("model", "id", "type", "role", "content", "stop_reason", "stop_sequence")
} | {
    ("message_start", "message", "usage", "input_tokens"),
    ("message_start", "message", "usage", "output_tokens"),
    ("message_delta", "delta", "stop_reason"),
    ("message_delta", "delta", "stop_sequence"),
    ("message_delta", "usage", "input_tokens"),
    ("message_delta", "usage", "output_tokens"),
}


def recorded(name: str) -> list[Json]:
    lines = (RECORDINGS / f"{name}.chunks.txt").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def all_recorded() -> list[Json]:
    names = [path.name.removesuffix(".chunks.txt") for path in sorted(RECORDINGS.glob("*.chunks.txt"))]
    assert names
    return [event for name in names for event in recorded(name)]


def spoken(stand_ins: StandIns, request: Json, betas: str = "") -> list[Json]:
    """The events as bytes on the wire, seen by nobody in between."""
    headers = {"x-api-key": "k", "anthropic-version": "2026-10-21", "anthropic-beta": betas}
    url = f"{stand_ins.anthropic_base_url}/v1/messages"
    answer = httpx2.post(url, json={**request, "stream": True}, headers=headers, trust_env=False, timeout=20)
    assert answer.status_code == 200, answer.text
    events = []
    for frame in answer.text.strip().split("\n\n"):
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def kind(event: Json) -> str:
    inner = event.get("content_block") or event.get("delta") or {}
    detail = inner.get("type") if event["type"].startswith("content_block") else None
    return f"{event['type']}:{detail}" if detail else str(event["type"])


def order(events: list[Json]) -> list[str]:
    """Kinds of events, runs of one kind as one; pings may come anywhere."""
    return [name for name, _ in groupby(kind(event) for event in events if event["type"] != "ping")]


def paths(events: list[Json]) -> set[Path_]:
    return {(kind(event), *path) for event in events for path in _inside(event) if path != ("type",)}


def _inside(value: Any) -> Iterator[Path_]:
    """Paths to all leaves; what stands in a tool's input or output is not the service's."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            if name in ("input", "partial_json"):
                yield (name,)
            else:
                yield from ((name, *path) for path in _inside(inner))
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _inside(inner)
    else:
        yield ()


def differences(events: list[Json]) -> set[Path_]:
    """What the events say and no recording does, and what all recordings say and the events do not."""
    here = paths(events)
    said = {path for path in here - paths(all_recorded()) - NEWER if not _is_empty_container(path)}
    return said | (CONSTANT - here)


def _is_empty_container(path: Path_) -> bool:
    """An empty list or object where the recordings have a filled one, or the other way round."""
    return any(other[: len(path)] == path for other in paths(all_recorded()) | NEWER)


REQUEST: Json = {
    "model": "claude-opus-5-5",
    "max_tokens": 1_000,
    "messages": [{"role": "user", "content": "Hello"}],
}


def hosted(stand_ins: StandIns) -> Json:
    return {
        **REQUEST,
        "mcp_servers": [{"type": "url", "name": "parallel-search", "url": stand_ins.mcp_url}],
        "tools": [{"type": "mcp_toolset", "mcp_server_name": "parallel-search"}],
    }


CALL = {
    "server": "parallel-search",
    "tool": "web_search",
    "input": {"objective": "exceptions", "search_queries": ["exceptions"]},
}


def test_the_order_of_a_connector_call_is_the_recorded_one(stand_ins: StandIns) -> None:
    """Call, result, text: event by event."""
    stand_ins.script(
        [{"thinking": 0, "calls": [CALL]}, {"thinking": 0, "text": "It simply echoed back. " * 3}]
    )
    seen = spoken(stand_ins, hosted(stand_ins), "mcp-client-2025-11-20")
    assert order(seen) == order(recorded("anthropic-mcp.1"))
    assert differences(seen) == set()
    use = [event for event in seen if kind(event) == "content_block_start:mcp_tool_use"]
    assert [event["content_block"]["input"] for event in use] == [{}]


@pytest.mark.parametrize(
    ("name", "told", "more", "betas"),
    [
        ("anthropic-text", {"text": "Hello! I'm doing well, thank you for asking."}, {}, ""),
        ("anthropic-refusal", {"text": "No.", "fault": "refusal"}, {}, ""),
        (
            "anthropic-fallback",
            {"text": "The printing press was invented around 1440.", "fault": "fallback"},
            {"fallbacks": "default"},
            "server-side-fallback-2026-07-01",
        ),
        (
            "anthropic-clear-tool-uses.1",
            {"text": "Here is a comparison of the weather in both cities."},
            {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
            "context-management-2025-06-27",
        ),
    ],
)
def test_a_stream_has_the_recorded_order_and_fields(
    stand_ins: StandIns, name: str, told: Json, more: Json, betas: str
) -> None:
    """One row per recording."""
    stand_ins.script([{"thinking": 0, **told}])
    seen = spoken(stand_ins, {**REQUEST, **more}, betas)
    assert order(seen) == order(recorded(name))
    assert differences(seen) == set()
    mine, theirs = (
        {path[1:] for path in paths(each) if path[0] == "message_delta"} for each in (seen, recorded(name))
    )
    assert theirs - mine == set()


def test_a_stream_with_everything_says_nothing_that_the_service_does_not(stand_ins: StandIns) -> None:
    """Thinking, two searches at once, cached."""
    stand_ins.script([{"thinking": 300, "calls": [CALL, CALL]}, {"thinking": 300, "text": "Done. " * 20}])
    request = {**hosted(stand_ins), "cache_control": {"type": "ephemeral"}}
    assert differences(spoken(stand_ins, request, "mcp-client-2025-11-20")) == set()


def test_whole_messages_have_the_recorded_fields(stand_ins: StandIns) -> None:
    """The JSON form, connector call."""
    stand_ins.script([{"thinking": 0, "calls": [CALL]}, {"thinking": 0, "text": "Done."}])
    headers = {"x-api-key": "k", "anthropic-version": "2026-10-21", "anthropic-beta": "mcp-client-2025-11-20"}
    url = f"{stand_ins.anthropic_base_url}/v1/messages"
    mine = httpx2.post(url, json=hosted(stand_ins), headers=headers, trust_env=False, timeout=20).json()
    theirs = json.loads((RECORDINGS / "anthropic-mcp.1.json").read_text(encoding="utf-8"))
    added = {("stop_details",), ("usage", "inference_geo"), ("usage", "iterations")}
    extra = {path for path in set(_inside(mine)) - set(_inside(theirs)) if path[:1] not in added}
    assert {path for path in extra if path[:2] not in added} == set()
    assert set(_inside(theirs)) - set(_inside(mine)) == set()


@pytest.mark.parametrize(
    "fault", ["unknown_fields", "unknown_event", "unknown_delta", "unknown_block", "no_usage"]
)
def test_the_comparison_notices_a_difference(stand_ins: StandIns, fault: str) -> None:
    """A comparison that nothing can fail would prove nothing."""
    stand_ins.script([{"thinking": 0, "text": "Hello! I am well.", "fault": fault}])
    assert differences(spoken(stand_ins, REQUEST)) != set()
