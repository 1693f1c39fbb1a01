"""The live services, for who has keys: the main job through both backends, and what nobody could try.

    ANTHROPIC_API_KEY=... [PARALLEL_API_KEY=...] python -m pytest -m live tests/test_live.py

It says first what it costs at most, and at the end which assumptions hold. With ORCHESTRATOR_TEST_RECORD=1 it
also leaves the traffic, without keys, ids and signatures, in tests/recordings/. ANTHROPIC_BASE_URL is
honoured, ORCHESTRATOR_TEST_MCP_CONFIG names other search servers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anthropic
import pytest

from orchestrator import Options, ask
from orchestrator.backends.connector import Connector
from orchestrator.backends.request import user
from orchestrator.backends.wire import StreamFold
from orchestrator.events import Event, PassFinished, PassStarted, ToolCall, ToolResult, ToolsListed
from orchestrator.settings import Server
from orchestrator.upstream import connect
from tests.replay import context, lines, sanitised
from tests.shapes import Shape, disorder, unknown

pytestmark = pytest.mark.live

# Read before the fixtures take every key out of the environment.
GIVEN: Final = {
    name.lower(): value
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "PARALLEL_API_KEY")
    if (value := os.environ.get(name))
}
CONFIG: Final = os.environ.get("ORCHESTRATOR_TEST_MCP_CONFIG")
RECORD: Final = os.environ.get("ORCHESTRATOR_TEST_RECORD") == "1"
RECORDINGS: Final = Path(__file__).parent / "recordings"
ASK_USD: Final = {"connector": 0.20, "agent-sdk": 0.45}
"""The engine repeats requests by itself, so its calls must leave room for one more pass each."""
PROBE_USD: Final = 0.30
SEARCHES_USD: Final = 0.01
QUESTION: Final = "When was the Hubble Space Telescope launched, and how much did it cost until then?"
LONG_QUESTION: Final = (
    "Search three times, one after the other, for the launch dates of the Hubble, Chandra and Spitzer"
    " telescopes. Then name the three dates, each with the address of its source."
)


@dataclass
class Findings:
    """What was found about each assumption."""

    held: dict[str, str] = field(default_factory=dict)

    def note(self, assumption: str, holds: bool | None, what: str) -> None:
        word = {True: "holds", False: "DOES NOT HOLD", None: "not seen"}[holds]
        self.held[assumption] = f"{word}: {what}"


@pytest.fixture(scope="module", autouse=True)
def findings(request: pytest.FixtureRequest) -> Iterator[Findings]:
    """Says what this costs at most before anything is sent, and what was found at the end."""
    if "live" not in str(request.config.getoption("-m")):
        pytest.skip("tries the live services: python -m pytest -m live tests/test_live.py")
    if "anthropic_api_key" not in GIVEN:
        pytest.skip("ANTHROPIC_API_KEY is not set")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture
    found = Findings()
    ceiling = sum(ASK_USD.values()) + PROBE_USD + SEARCHES_USD
    with capture.global_and_fixture_disabled():
        print(f"\nThis costs at most ${ceiling:.2f}.")  # noqa: T201
    yield found
    with capture.global_and_fixture_disabled():
        print("\n")  # noqa: T201
        for assumption, what in found.held.items():
            print(f"- {assumption}\n    {what}")  # noqa: T201


def options(**more: Any) -> Options:
    return Options(**{**GIVEN, **({"mcp_config": CONFIG} if CONFIG else {}), **more})


@pytest.fixture
def servers() -> tuple[Server, ...]:
    return options().servers()


@pytest.mark.parametrize("backend", list(ASK_USD))
async def test_the_main_job_ends_with_a_checked_answer(
    backend: str, findings: Findings, tmp_path: Path
) -> None:
    """A real cited answer, within its budget."""
    result = await ask(QUESTION, options(backend=backend, max_usd=ASK_USD[backend], runs_dir=tmp_path))
    findings.note(
        f"the main job through {backend}",
        result.status == "done",
        f"{result.status}, {len(result.citations)} citations, ${result.ledger.usd:.4f}, {result.message}",
    )
    assert result.status == "done", result.message
    assert result.citations
    assert not [verdict for verdict in result.citations if verdict.verdict == "dangling"]
    assert result.ledger.usd <= ASK_USD[backend]


async def test_a_hosted_loop_is_as_the_facts_have_it(findings: Findings, servers: tuple[Server, ...]) -> None:
    """One request with several searches, read raw."""
    raw, seen = await _raw_loop(servers)
    if RECORD:
        secrets = [value for name, value in GIVEN.items() if name.endswith("key")]
        text = "\n".join(json.dumps(event, ensure_ascii=False) for event in sanitised(raw, secrets))
        (RECORDINGS / "live-mcp-search.chunks.txt").write_text(text + "\n", encoding="utf-8")
    known = _recorded()
    fields = sorted({found for event in raw for found in unknown(event, known)})
    findings.note("events have no fields that nobody knows", not fields, ", ".join(fields) or "none seen")
    out_of_order = disorder(raw)
    findings.note("events come in the recorded order", not out_of_order, "; ".join(out_of_order) or "yes")
    _note_loop(findings, raw, seen)
    assert [event for event in seen if isinstance(event, ToolCall)]
    assert [event for event in seen if isinstance(event, PassFinished) and event.exact]


async def _raw_loop(servers: tuple[Server, ...]) -> tuple[list[dict[str, Any]], list[Event]]:
    """The raw events of one request of the connector, and ours; closed where the budget says so."""
    given: dict[str, Any] = {
        **GIVEN,
        "max_usd": PROBE_USD,
        "clear_trigger": 5_000,
        "clear_keep": 1,
        "clear_at_least": 0,
    }
    of = context(None, servers=servers, max_output_tokens=2_000, **given)
    backend = Connector(of)
    allowed = {server.name: tuple(server.tools) for server in servers}
    body = backend.with_betas(backend.body(allowed, [user(LONG_QUESTION)], 2_000))
    fold = StreamFold(of.budget, "answer", of.options.model, 2_000, counts_thinking=True)
    raw: list[dict[str, Any]] = []
    seen: list[Event] = []
    base_url = GIVEN.get("anthropic_base_url")
    async with (
        anthropic.AsyncAnthropic(api_key=GIVEN["anthropic_api_key"], base_url=base_url) as client,
        await client.beta.messages.create(**body, stream=True) as stream,
    ):
        async for event in stream:
            raw.append(event.to_dict(warnings=False))
            for ours in fold.feed(raw[-1]):
                seen.append(ours)
                for charge in of.budget.see(ours):
                    of.budget.see(charge)
                if isinstance(ours, ToolCall) and (denial := of.budget.admit(ours)):
                    pytest.fail(f"the probe was cut short by its budget: {denial.message}")
    return raw, seen


def _note_loop(findings: Findings, raw: list[dict[str, Any]], seen: list[Event]) -> None:
    listed = [event for event in seen if isinstance(event, ToolsListed) and event.tools[0].digest]
    findings.note(
        "FLAG: mcp-client-2026-09-15 is accepted, and the service lists the tools",
        bool(listed),
        f"{len(listed)} listings",
    )
    passes = len({event.step for event in seen if isinstance(event, PassStarted)})
    usage = [entry for event in seen if isinstance(event, PassFinished) for entry in event.usage]
    findings.note(
        "not found: usage.iterations is always present, one for each pass",
        len(usage) == passes,
        f"{len(usage)} entries for {passes} passes",
    )
    reads = sum(entry.cache_read_tokens for entry in usage)
    findings.note(
        "not found: the context is read from the cache inside a hosted loop",
        reads > 0,
        f"{reads} of {sum(entry.prompt_tokens for entry in usage)} input tokens were cache reads",
    )
    output = sum(entry.output_tokens for entry in usage)
    stopped = [event.stop_reason for event in seen if isinstance(event, PassFinished)]
    findings.note(
        "FLAG: max_tokens bounds one pass, not the whole hosted response",
        True if output > 2_000 else None,
        f"{output} output tokens in {passes} passes under max_tokens 2000, ended with {stopped}",
    )
    edits = [
        edit for event in raw for edit in (event.get("context_management") or {}).get("applied_edits") or ()
    ]
    findings.note(
        "not found: clear_tool_uses clears MCP results",
        bool(edits) or None,
        json.dumps(edits),
    )
    _note_thinking(findings, raw, sum(entry.thinking_tokens or 0 for entry in usage))
    texts = [event for event in seen if isinstance(event, ToolResult)]
    findings.note(
        "the JSON of a search result reaches the connector as text",
        all(isinstance(event.content, dict | list) for event in texts if not event.is_error),
        f"{len(texts)} results of {[event.chars for event in texts]} characters",
    )


def _note_thinking(findings: Findings, raw: list[dict[str, Any]], told: int) -> None:
    deltas = [event["delta"] for event in raw if event["type"] == "content_block_delta"]
    counts = [delta.get("estimated_tokens") for delta in deltas if delta["type"] == "thinking_delta"]
    estimated = sum(count for count in counts if count)
    total = [((e.get("usage") or {}).get("output_tokens_details") or {}).get("thinking_tokens") for e in raw]
    billed = next((count for count in reversed(total) if count), told)
    findings.note(
        "the estimate of hidden thinking in the stream is at least half of what is billed",
        estimated * 2 >= billed if billed else None,
        f"{estimated} estimated in {len(counts)} deltas, {billed} billed",
    )


async def test_a_server_that_is_down_is_refused_as_users_report(findings: Findings) -> None:
    """FLAG: the error text of an unreachable MCP server, and its status, are only known from reports."""
    down = Server(name="nowhere", url="https://mcp.invalid/mcp", tools=options().servers()[0].tools)
    given: dict[str, Any] = {**GIVEN, "max_usd": 0.05}
    of = context(None, servers=(down,), **given)
    backend = Connector(of)
    said = "the request was accepted"
    try:
        async with backend.conversation() as conversation:
            async for event in conversation.turn("Answer with the word yes, without any search."):
                of.budget.see(event)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    findings.note("FLAG: a server that is down is a 400 that names it", "nowhere" in said, said)


async def test_the_search_server_is_as_the_facts_have_it(
    findings: Findings, servers: tuple[Server, ...]
) -> None:
    """FACTS 1, without a key as far as that goes; the rest is in test_offline_search.py."""
    anonymous = servers[0].model_copy(update={"authorization_token": None, "headers": {}})
    async with connect(anonymous) as upstream:
        tools = {tool.name: tool for tool in await upstream.tools()}
        fetch = tools.get("web_fetch")
        properties = fetch.raw["inputSchema"]["properties"] if fetch else {}
        findings.note(
            "FLAG: allow_live_fetch is in the schema of web_fetch",
            "allow_live_fetch" in properties,
            ", ".join(properties) or "no web_fetch",
        )
        asked = {"objective": "Hubble launch date", "search_queries": ["Hubble Space Telescope launch date"]}
        result = await upstream.call("web_search", asked)
    costs = [entry.get("cost_usd") for entry in result.usage]
    findings.note(
        "FLAG: results have structured content and _meta",
        result.structured is not None and bool(result.meta),
        f"structured {result.structured is not None}, _meta {sorted(result.meta)}",
    )
    findings.note("FLAG: the anonymous mode is fast ($0.001)", costs == [0.001], str(costs))
    assert not result.is_error


def _recorded() -> Shape:
    shape = Shape()
    for file in RECORDINGS.glob("*.chunks.txt"):
        shape.see(map(json.loads, lines(file)))
    return shape
