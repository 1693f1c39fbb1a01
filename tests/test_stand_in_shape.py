"""The stand-in says what the real service says: its streams held against recorded ones, field by field.

The references are our own streams, and those of the real service where they lie beside the project.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from orchestrator.backends.connector import Connector
from orchestrator.backends.request import OLDER_MCP_BETA, user
from orchestrator.offline import StandIns
from tests.replay import context, lines
from tests.shapes import Shape, differences, disorder, unknown

REAL = Path(__file__).parents[2] / "shared" / "recordings" / "messages-api"
OWN = Path(__file__).parent / "recordings"
Json = dict[str, Any]
QUESTION = "How does the with statement handle exceptions?"


def recorded(folder: Path) -> Shape:
    shape = Shape()
    for file in sorted(folder.iterdir()):
        if file.suffix == ".txt":
            shape.see(map(json.loads, lines(file)))
        elif file.suffix == ".json":
            shape.see([json.loads(file.read_text(encoding="utf-8"))])
    return shape


@pytest.fixture(scope="module")
def references() -> dict[str, Shape]:
    return {folder.name: recorded(folder) for folder in (OWN, REAL) if folder.is_dir()}


def wrong(references: dict[str, Shape], events: list[Json]) -> list[str]:
    """Everything in which these events are not what was recorded."""
    found: list[str] = []
    for name, known in references.items():
        found += [f"{name}: {difference}" for difference in differences(known, events)]
        found += [f"{name}: {field}" for event in events for field in unknown(event, known)]
    return found


async def answer(stand_ins: StandIns, *, stream: bool = True, **options: Any) -> httpx2.Response:
    """The raw answer to the request that the connector sends."""
    of = context(stand_ins, offline=True, **options)
    backend = Connector(of)
    allowed = {server.name: tuple(server.tools) for server in of.servers}
    body = backend.with_betas(backend.body(allowed, [user(QUESTION)], 4_000))
    headers = {
        "authorization": "Bearer key",
        "anthropic-version": "2026-10-21",
        "anthropic-beta": ",".join(body.pop("betas")),
    }
    async with httpx2.AsyncClient(timeout=30) as http:
        url = f"{stand_ins.anthropic_base_url}/v1/messages"
        return await http.post(url, json=body | {"stream": stream}, headers=headers)


def frames(response: httpx2.Response) -> list[tuple[str, Json]]:
    """Event name and data of each server-sent event."""
    found = []
    for frame in response.text.strip().split("\n\n"):
        name, data = frame.split("\n")
        assert name.startswith("event: ")
        assert data.startswith("data: ")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


SCENES: dict[str, Json] = {
    "a search": {},
    "the older connector": {"options": {"mcp_beta": OLDER_MCP_BETA}},
    "no caching": {"told": {"caching": "uncached"}},
    "no iterations": {"told": {"iterations": False}},
    "no clearing, no fallback": {"options": {"clear_trigger": None, "fallbacks": "off"}},
    "much thinking": {"told": {"thinking": 900}},
    "a failed call": {"told": {"search": {"fault": "tool_error"}}},
    "a pause": {"told": {"pause_after": 1}},
    "a pause with an open call": {"told": {"pause_after": 1, "pause_open": True}},
    "a refusal": {"told": {"fault": "refusal"}},
    "a refusal half way": {"told": {"fault": "partial_refusal"}},
    "a fallback": {"told": {"fault": "fallback"}},
    "a sticky fallback": {"told": {"fault": "sticky_fallback"}},
    "a compaction": {"told": {"fault": "compaction"}},
    "an answer that is cut": {"told": {"fault": "max_tokens"}},
    "a full context": {"told": {"fault": "context_exceeded"}},
    "citations alone": {"told": {"fault": "citations_only"}},
    "an empty answer": {"told": {"fault": "empty"}},
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
async def test_the_stand_ins_stream_has_the_shape_of_the_services(
    stand_ins: StandIns, references: dict[str, Shape], scene: Json
) -> None:
    """Order of events, which fields stand where, where usage appears."""
    stand_ins.configure(**scene.get("told", {}))
    response = await answer(stand_ins, **scene.get("options", {}))
    assert response.headers["content-type"].startswith("text/event-stream")
    said = frames(response)
    assert [name for name, _ in said] == [data["type"] for _, data in said]
    events = [data for _, data in said]
    assert disorder(events) == []
    assert wrong(references, events) == []


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
async def test_the_stand_ins_whole_message_has_the_shape_of_the_services(
    stand_ins: StandIns, references: dict[str, Shape], scene: Json
) -> None:
    stand_ins.configure(**scene.get("told", {}))
    response = await answer(stand_ins, stream=False, **scene.get("options", {}))
    message = response.json()
    assert message["type"] == "message"
    assert wrong(references, [message]) == []


# --- the comparison itself ------------------------------------------------------------------------

Change = Callable[[list[Json]], None]


def _event(events: list[Json], kind: str) -> Json:
    return next(event for event in events if event["type"] == kind)


def _block(events: list[Json], kind: str) -> Json:
    block: Json = next(
        event["content_block"]
        for event in events
        if event["type"] == "content_block_start" and event["content_block"]["type"] == kind
    )
    return block


def _rename(of: Json, old: str, new: str) -> None:
    of[new] = of.pop(old)


def _number_from_one(events: list[Json]) -> None:
    for event in events:
        if "index" in event:
            event["index"] += 1


CHANGES: dict[str, Change] = {
    "a field is renamed": lambda e: _rename(_block(e, "mcp_tool_use"), "server_name", "server"),
    "a field is left out": lambda e: _block(e, "mcp_tool_result").pop("is_error"),
    "a field is added": lambda e: _block(e, "mcp_tool_result").update(duration_ms=12),
    "a field has another type": lambda e: _event(e, "message_start")["message"].update(id=7),
    "a count is a text": lambda e: _event(e, "message_delta")["usage"].update(output_tokens="12"),
    "usage is not in message_delta": lambda e: _event(e, "message_delta").pop("usage"),
    "usage stands in message_stop": lambda e: _event(e, "message_stop").update(usage={"output_tokens": 1}),
    "usage is not in message_start": lambda e: _event(e, "message_start")["message"].pop("usage"),
    "structured content is passed on": lambda e: _block(e, "mcp_tool_result").update(structured={"a": 1}),
    "a call opens with its input": lambda e: _block(e, "mcp_tool_use").update(input={"objective": "x"}),
    "a stop reason that does not exist": lambda e: _event(e, "message_delta")["delta"].update(
        stop_reason="finished"
    ),
    "a block is not closed": lambda e: e.remove(_event(e, "content_block_stop")),
    "the start is missing": lambda e: e.remove(_event(e, "message_start")),
    "an event is repeated": lambda e: e.insert(0, copy.deepcopy(e[0])),
    "blocks are numbered from one": _number_from_one,
    "an unknown event": lambda e: e.insert(3, {"type": "content_block_aurora", "index": 0}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_the_comparison_fails_when_one_thing_is_changed(
    stand_ins: StandIns, references: dict[str, Shape], change: Change
) -> None:
    events = [data for _, data in frames(await answer(stand_ins))]
    change(events)
    for name, known in references.items():
        assert disorder(events) or wrong({name: known}, events)


def test_the_recordings_of_the_real_service_are_a_reference(references: dict[str, Shape]) -> None:
    if not REAL.is_dir():
        pytest.skip("the recordings of the real service are not beside this project")
    assert {OWN.name, REAL.name} == references.keys()
