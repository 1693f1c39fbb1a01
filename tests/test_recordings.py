"""Streams of the real service, and of our own in their shapes, read through the SDK and the connector.

The real ones lie beside the project and are never part of it; a fresh clone reads our own. Expected values
are what a person reads in the file; ledger totals are its tokens times the published prices per million.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.backends.connector import Connector
from orchestrator.errors import RunError
from orchestrator.events import (
    Checkpoint,
    Event,
    PassFinished,
    PassStarted,
    ToolCall,
    ToolResult,
    ToolsListed,
)
from tests.replay import (
    ECHO,
    Answer,
    context,
    drive,
    drive_into,
    kinds,
    lines,
    replaying,
    sanitised,
    sse,
    text_of,
    whole,
)

REAL = Path(__file__).parents[2] / "shared" / "recordings" / "messages-api"
OWN = Path(__file__).parent / "recordings"

PLAIN = "pass_started tools_listed text_delta pass_finished checkpoint"
HOSTED = "pass_started tools_listed tool_call tool_result pass_started text_delta pass_finished checkpoint"
REFUSED = "pass_started tools_listed pass_finished"
WEB = "tool_call tool_result pass_started text_delta"
SONNET_45, OPUS_55 = "claude-sonnet-4-5-20250929", "claude-opus-5-5"
PRESS = "The printing press was invented by Johannes Gutenberg around 1440."


@dataclass(frozen=True)
class Reading:
    """What a person reads in one file."""

    file: Path
    kinds: str
    """Kinds of events in their order, neighbours of one kind once."""
    usage: list[tuple[str, str, int, int]]
    """Model, kind, input tokens, output tokens of each iteration."""
    usd: float
    """The ledger's total in millionths of a US dollar."""
    text: str
    """How the visible text begins."""
    status: str = "done"
    steps: int = 1

    def __str__(self) -> str:
        return f"{self.file.parent.name}/{self.file.name}"


READINGS = [
    Reading(
        REAL / "anthropic-text.chunks.txt",
        PLAIN,
        [(SONNET_45, "message", 12, 30)],
        12 * 3 + 30 * 15,
        "Hello! I'm doing well",
    ),
    Reading(
        REAL / "anthropic-text.json",
        PLAIN,
        [(SONNET_45, "message", 12, 29)],
        12 * 3 + 29 * 15,
        "Hello! I'm doing well",
    ),
    Reading(
        REAL / "anthropic-message-delta-input-tokens.chunks.txt",
        PLAIN,
        [("claude-opus-4-5-20251101", "message", 61, 2)],
        61 * 5 + 2 * 25,
        "pong",
    ),
    Reading(
        REAL / "anthropic-clear-tool-uses.1.chunks.txt",
        PLAIN,
        [("claude-haiku-4-5-20251001", "message", 859, 122)],
        859 * 1 + 122 * 5,
        "\n\nHere's a comparison of the weather in both cities",
    ),
    Reading(
        REAL / "anthropic-mcp.1.chunks.txt",
        HOSTED,
        [(SONNET_45, "message", 1250, 83)],
        1250 * 3 + 83 * 15 + 1_000,
        "The echo tool responded back with: **hello world**",
        steps=2,
    ),
    Reading(
        REAL / "anthropic-mcp.1.json",
        HOSTED,
        [(SONNET_45, "message", 1250, 88)],
        1250 * 3 + 88 * 15 + 1_000,
        'The echo tool responded back with: **"hello world"**',
        steps=2,
    ),
    Reading(
        REAL / "anthropic-fallback.chunks.txt",
        PLAIN,
        [("claude-fable-5", "message", 408, 0), ("claude-opus-4-8", "fallback_message", 412, 264)],
        408 * 10 + 412 * 5 + 264 * 25,
        PRESS,
        steps=2,
    ),
    Reading(
        REAL / "anthropic-fallback.json",
        PLAIN,
        [("claude-fable-5", "message", 408, 0), ("claude-opus-4-8", "fallback_message", 412, 264)],
        408 * 10 + 412 * 5 + 264 * 25,
        PRESS,
        steps=2,
    ),
    Reading(
        REAL / "anthropic-refusal.chunks.txt",
        REFUSED,
        [("claude-fable-5", "message", 18, 5)],
        18 * 10 + 5 * 50,
        "",
        status="refusal",
    ),
    Reading(
        REAL / "anthropic-refusal.json",
        REFUSED,
        [("claude-fable-5", "message", 18, 5)],
        18 * 10 + 5 * 50,
        "",
        status="refusal",
    ),
    Reading(
        REAL / "anthropic-compaction.1.json",
        PLAIN,
        [("claude-opus-4-6", "compaction", 60385, 592), ("claude-opus-4-6", "message", 682, 1320)],
        60385 * 5 + 592 * 25 + 682 * 5 + 1320 * 25,
        "Based on our conversation history",
        steps=2,
    ),
    Reading(
        REAL / "anthropic-web-search-tool.1.json",
        f"pass_started tools_listed {WEB} {WEB} pass_finished checkpoint",
        [("claude-sonnet-4-20250514", "message", 27118, 600)],
        27118 * 3 + 600 * 15 + 2 * 10_000,
        "Let me search for more specific tech news from today (September 26, 2024).",
        steps=3,
    ),
    Reading(
        OWN / "text.chunks.txt",
        PLAIN,
        [("claude-sonnet-5-5", "message", 14, 21)],
        14 * 2 + 21 * 10,
        "Baikal is the deepest lake. 🌊",
    ),
    Reading(
        OWN / "mcp-search.chunks.txt",
        HOSTED,
        [(OPUS_55, "message", 1180, 96), (OPUS_55, "message", 240 + 1900 + 1180, 118)],
        1180 * 4 + 96 * 20 + 240 * 4 + 1900 * 5 + 1180 * 0.2 + 118 * 20 + 1_000,
        "Lake Baikal is 1,642 meters deep [USGS]",
        steps=2,
    ),
    Reading(
        OWN / "mcp-search.json",
        HOSTED,
        [(OPUS_55, "message", 2600, 80)],
        (2600 * 4 + 80 * 20) * 1.1 + 1_000,  # inference_geo is us
        "It is 1,642 meters deep.",
        steps=2,
    ),
    Reading(
        OWN / "mcp-parallel-calls.chunks.txt",
        f"pass_started tools_listed text_delta {HOSTED.split(' ', 2)[2]}",
        [(OPUS_55, "message", 4100, 150)],
        4100 * 4 + 150 * 20 + 1_000,  # the call that failed is free
        "I look at both. One page could not be read.",
        steps=2,
    ),
    Reading(
        OWN / "mcp-listing.chunks.txt",
        PLAIN,
        [(OPUS_55, "message", 1320, 12)],
        1320 * 4 + 12 * 20,
        "Nothing needs to be looked up.",
    ),
    Reading(
        OWN / "fallback.chunks.txt",
        PLAIN,
        [(OPUS_55, "message", 420, 0), ("claude-opus-4-8", "fallback_message", 431, 52)],
        420 * 4 + 431 * 5 + 52 * 25,
        "A port scanner lists open ports.",
        steps=2,
    ),
    Reading(
        OWN / "refusal.chunks.txt",
        REFUSED,
        [(OPUS_55, "message", 33, 6)],
        33 * 4 + 6 * 20,
        "",
        status="refusal",
    ),
    Reading(
        OWN / "context-cleared.chunks.txt",
        PLAIN,
        [(OPUS_55, "message", 21000, 8)],
        21000 * 4 + 8 * 20,
        "In short: yes.",
    ),
    Reading(
        OWN / "cut-at-max-tokens.chunks.txt",
        "pass_started tools_listed tool_call pass_finished",
        [(OPUS_55, "message", 1180, 512)],
        1180 * 4 + 512 * 20,
        "",
        status="max_tokens",
    ),
    Reading(
        OWN / "context-window-full.chunks.txt",
        PLAIN,
        [(OPUS_55, "message", 199000, 4)],
        199000 * 4 + 4 * 20,
        "The lake is",
        status="context_exceeded",
    ),
    Reading(
        OWN / "compaction.json",
        PLAIN,
        [(OPUS_55, "compaction", 52000, 300), (OPUS_55, "message", 310, 40)],
        52000 * 4 + 300 * 20 + 310 * 4 + 40 * 20,
        "We spoke of lakes.",
        steps=2,
    ),
    Reading(
        OWN / "hosted-search.json",
        f"pass_started tools_listed {WEB} pass_finished checkpoint",
        [(OPUS_55, "message", 9000, 60)],
        9000 * 4 + 60 * 20 + 10_000,
        "It is Baikal. [source](<https://en.wikipedia.org/wiki/Lake_Baikal>)",
        steps=2,
    ),
]


def answer(file: Path) -> Answer:
    if not file.is_file() and file.parent == REAL:
        pytest.skip("the recordings of the real service are not beside this project")
    return sse(lines(file)) if file.suffix == ".txt" else whole(file.read_bytes())


async def read(file: Path) -> tuple[list[Event], str, float]:
    """Events, status and ledger total of one turn that gets this answer."""
    seen: list[Event] = []
    with replaying(answer(file)) as service:
        prices = {"anthropic/web_search": 0.01, "parallel-search": 0.001}
        of = context(service, price_call=prices, max_usd=10, clear_trigger=None)
        status = "done"
        try:
            async with Connector(of).conversation() as conversation:
                await drive_into(seen, of, conversation.turn("What is it?"))
        except RunError as error:
            status = error.status
    return seen, status, of.budget.charged


@pytest.mark.parametrize("reading", READINGS, ids=str)
async def test_a_recording_is_read_as_a_person_reads_it(reading: Reading) -> None:
    """Events, usage, ledger total and status of each file."""
    seen, status, usd = await read(reading.file)
    assert status == reading.status
    assert " ".join(kinds(seen)) == reading.kinds
    [finished] = [event for event in seen if isinstance(event, PassFinished)]
    assert finished.exact
    assert [(u.model, u.kind, u.prompt_tokens, u.output_tokens) for u in finished.usage] == reading.usage
    assert text_of(seen).startswith(reading.text)
    assert len({event.step for event in seen if isinstance(event, PassStarted)}) == reading.steps
    if reading.status != "max_tokens":
        assert usd == pytest.approx(reading.usd / 1e6, abs=1e-12)
        calls = [event.id for event in seen if isinstance(event, ToolCall)]
        assert calls == [event.id for event in seen if isinstance(event, ToolResult)]


@pytest.mark.parametrize("folder", [REAL, OWN], ids=["real", "own"])
def test_every_recording_stands_in_the_table(folder: Path) -> None:
    if not folder.is_dir():
        pytest.skip("the recordings of the real service are not beside this project")
    tabled = {reading.file.name for reading in READINGS if reading.file.parent == folder}
    elsewhere = {"README.md", "mcp-paused.chunks.txt", "mcp-continued.chunks.txt"}
    found = {file.name for file in folder.iterdir() if not file.name.startswith("live-")}
    assert found - elsewhere == tabled


async def test_a_recorded_call_has_its_arguments_and_result() -> None:
    seen, _, _ = await read(REAL / "anthropic-mcp.1.chunks.txt")
    [call] = [event for event in seen if isinstance(event, ToolCall)]
    [result] = [event for event in seen if isinstance(event, ToolResult)]
    assert (call.server, call.tool, call.arguments) == ("echo", "echo", {"message": "hello world"})
    assert (result.content, result.is_error) == ("Tool echo: hello world", False)


async def test_a_search_result_is_read_as_the_value_that_its_text_holds() -> None:
    """FACTS: structured content does not reach the connector, so the JSON in the text is parsed."""
    seen, _, _ = await read(OWN / "mcp-search.chunks.txt")
    [result] = [event for event in seen if isinstance(event, ToolResult)]
    assert result.content["results"][0]["url"] == "https://www.usgs.gov/faqs/how-deep-lake-baikal"
    assert result.bytes > 500


@pytest.mark.parametrize(
    ("streamed", "complete"),
    [
        (REAL / "anthropic-mcp.1.chunks.txt", REAL / "anthropic-mcp.1.json"),
        (REAL / "anthropic-fallback.chunks.txt", REAL / "anthropic-fallback.json"),
    ],
    ids=["mcp", "fallback"],
)
async def test_streamed_and_whole_messages_leave_the_same_history(streamed: Path, complete: Path) -> None:
    """Case I034: the input of a call is assembled before it is sent back."""
    blocks: list[list[dict[str, Any]]] = []
    for file in (streamed, complete):
        seen, _, _ = await read(file)
        [point] = [event for event in seen if isinstance(event, Checkpoint)]
        blocks.append(point.blocks[1]["content"])
    for one, other in zip(*blocks, strict=True):
        assert one.keys() == other.keys()
        assert one.get("input") == other.get("input")
        assert one.get("content") == other.get("content")


async def test_the_services_own_listing_replaces_the_names_we_allow() -> None:
    listed, _, _ = await read(OWN / "mcp-listing.chunks.txt")
    declared, _, _ = await read(OWN / "text.chunks.txt")
    [theirs, _] = [event for event in listed if isinstance(event, ToolsListed)]
    [ours] = [event for event in declared if isinstance(event, ToolsListed)]
    assert (theirs.server, [tool.name for tool in theirs.tools]) == (
        "parallel-search",
        ["web_search", "web_fetch"],
    )
    assert all(tool.digest and tool.description for tool in theirs.tools)
    assert (ours.server, [(tool.name, tool.digest) for tool in ours.tools]) == ("echo", [("echo", None)])


async def test_a_paused_recording_is_carried_on_with_its_unchanged_content() -> None:
    """Cases I029 and I032: the paused content goes back as it came, and nothing else is said."""
    paused, continued = (OWN / f"mcp-{name}.chunks.txt" for name in ("paused", "continued"))
    with replaying(answer(paused), answer(continued)) as service:
        of = context(service, price_call={"parallel-search": 0.001}, max_usd=10)
        async with Connector(of).conversation() as conversation:
            seen = await drive(of, conversation.turn("What is it?"))
    first, second = service.requests
    assert second["messages"][:1] == first["messages"]
    [content] = [message["content"] for message in second["messages"][1:]]
    assert [block["type"] for block in content] == ["mcp_tool_use", "mcp_tool_result", "mcp_tool_use"]
    assert content[2]["input"] == {"objective": "b", "search_queries": ["b"]}
    assert {key: second[key] for key in second if key != "messages"} == {
        key: first[key] for key in first if key != "messages"
    }
    assert text_of(seen) == "Both were found."
    assert [event.steps for event in seen if isinstance(event, PassFinished)] == [(1, 2), (3, 4)]
    points = [event for event in seen if isinstance(event, Checkpoint)]
    assert [[block["role"] for block in point.blocks] for point in points] == [
        ["user", "assistant"],
        ["assistant"],
    ]
    assert ECHO.name in str(first["mcp_servers"])


def test_what_the_live_test_records_holds_no_key_signature_or_foreign_id() -> None:
    recorded: list[dict[str, Any]] = [
        {"id": "msg_01RNdvgjHoLmx2THF9AVj3KK", "text": "the key sk-1 of mcptoolu_017CuqaJcXe5ZHJjaz3KS1AT"},
        {"tool_use_id": "mcptoolu_017CuqaJcXe5ZHJjaz3KS1AT", "signature": "RXM=", "list": [{"data": ""}, 1]},
    ]
    assert sanitised(recorded, ["sk-1"]) == [
        {"id": "msg_own1", "text": "the key *** of mcptoolu_own2"},
        {"tool_use_id": "mcptoolu_own2", "signature": "c2FuaXRpc2Vk", "list": [{"data": ""}, 1]},
    ]
