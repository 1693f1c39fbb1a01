"""How a run ends when something goes wrong: the table of endings, each through both backends."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

import anyio
import pytest

from orchestrator.errors import EXIT_CODES
from orchestrator.events import Charge, Status, TextDelta, ToolResult
from orchestrator.offline import StandIns
from orchestrator.runner import Listener
from orchestrator.trace import Record
from tests.whole import BACKENDS, Backend, Json, assert_ended_once, children, file_of, research, search, told

SLACK_SECONDS: Final = 10.0
"""How much later than --max-seconds a run may end."""
HALF: Final = "The with statement wraps the execution of a block; half of this text"


@dataclass(frozen=True)
class Cell:
    """What one backend makes of it: status, exit code, and words that the user must be told."""

    status: Status
    code: int
    says: str = ""
    limits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One thing that goes wrong. A cell that is only text is empty, and the text says why."""

    what: str
    connector: Cell | str
    agent_sdk: Cell | str
    behaviour: Json = field(default_factory=dict)
    script: tuple[Json, ...] = ()
    finds: bool = False
    """Whether a search came back before it went wrong: its sources must be delivered."""
    max_seconds: float = 60

    def cell(self, backend: Backend) -> Cell | str:
        return self.connector if backend == "connector" else self.agent_sdk


def alike(what: str, cell: Cell, **row: Any) -> Row:
    return Row(what, cell, cell, **row)


def server(fault: str, method: str | None = None) -> Json:
    """The search server misbehaves, or only its answers to one method."""
    return {"search": {"fault": fault} | ({"fault_method": method} if method else {})}


FOUND: Final = {"calls": [search()]}
DONE: Final = Cell("done", 0)
KEY: Final = Cell("mcp_unavailable", 3, "refused its key")
UNSAID: Final = Cell("no_sources", 1, "every search failed")
"""The service tells its caller that a call failed, and not with which status."""

TABLE: Final = (
    # before anything was found
    alike("refusal", Cell("refusal", 5, "declined to answer"), behaviour={"fault": "refusal"}),
    alike("max_tokens", Cell("max_tokens", 4, "--max-output-tokens"), behaviour={"fault": "max_tokens"}),
    alike(
        "max_tokens, half a text written",
        Cell("max_tokens", 4, "--max-output-tokens"),
        script=({"fault": "max_tokens", "text": HALF},),
    ),
    alike(
        "context exceeded", Cell("context_exceeded", 4, "narrower"), behaviour={"fault": "context_exceeded"}
    ),
    alike("pause_turn", DONE, behaviour={"pause_after": 1}),
    alike("401", Cell("failed", 3, "ANTHROPIC_API_KEY"), behaviour={"fault": "401"}),
    alike("429", Cell("rate_limited", 3, "resume"), behaviour={"fault": "429", "retry_after": 0.1}),
    alike(
        "429 for hours", Cell("rate_limited", 3, "resume"), behaviour={"fault": "429", "retry_after": 3600}
    ),
    alike("529", Cell("failed", 3, "overloaded"), behaviour={"fault": "529"}),
    alike("dropped stream", Cell("failed", 3, "broke off"), behaviour={"fault": "dropped_stream"}),
    alike("silence", Cell("timeout", 4, "--max-seconds"), behaviour={"fault": "silent"}, max_seconds=2),
    alike("an empty answer", Cell("failed", 3, "without an answer"), behaviour={"fault": "empty"}),
    # the search server
    alike("MCP server down", Cell("mcp_unavailable", 3, "parallel-search"), behaviour=server("down")),
    Row(
        "MCP server hanging",
        connector=Cell("timeout", 4, "--max-seconds", ("max_seconds",)),
        agent_sdk=Cell("mcp_unavailable", 3, "parallel-search"),
        behaviour=server("hanging"),
        max_seconds=6,
    ),
    alike(
        "MCP server hanging at a call",
        Cell("timeout", 4, "--max-seconds", ("max_seconds",)),
        behaviour=server("hanging", "tools/call"),
        max_seconds=4,
    ),
    alike("MCP tool error", Cell("no_sources", 1, "upstream search failed"), behaviour=server("tool_error")),
    alike("nothing found", Cell("no_sources", 1, "nothing was found"), behaviour=server("empty")),
    alike("search server 401", KEY, behaviour=server("401")),
    Row(
        "search server 402",
        connector=Cell("mcp_unavailable", 3, "parallel-search"),
        agent_sdk=Cell("mcp_unavailable", 3, "wants payment"),
        behaviour=server("402"),
    ),
    alike("search server 429", Cell("rate_limited", 3, "parallel-search"), behaviour=server("429")),
    Row("search server 401 at a call", UNSAID, KEY, behaviour=server("401", "tools/call")),
    Row(
        "search server 402 at a call",
        connector=UNSAID,
        agent_sdk=Cell("mcp_unavailable", 3, "wants payment"),
        behaviour=server("402", "tools/call"),
    ),
    Row(
        "search server 429 at a call",
        connector=UNSAID,
        agent_sdk=Cell("rate_limited", 3, "parallel-search"),
        behaviour=server("429", "tools/call"),
    ),
    Row(
        "search server breaks off at a call",
        connector="the stand-in's service breaks off with it; of the real one nothing is known",
        agent_sdk=Cell("no_sources", 1, "every search failed"),
        behaviour=server("drop"),
    ),
    # after something was found
    alike("refusal, late", Cell("refusal", 5), script=(FOUND, {"fault": "refusal"}), finds=True),
    alike(
        "max_tokens, late",
        Cell("done", 0, limits=("max_tokens",)),
        script=(FOUND, {"fault": "max_tokens", "text": HALF}),
        finds=True,
    ),
    alike(
        "context exceeded, late",
        Cell("done", 0, limits=("context",)),
        script=(FOUND, {"fault": "context_exceeded", "text": HALF}),
        finds=True,
    ),
    Row(
        "529, late",
        connector=Cell("failed", 3, "overloaded"),
        agent_sdk="each of its passes is a request, so this is 529 once more",
        behaviour={"fault": "529", "fault_after": 1, "pause_after": 1},
        finds=True,
    ),
    alike(
        "dropped stream, once", DONE, script=(FOUND, {"fault": "dropped_stream", "text": HALF}), finds=True
    ),
    Row(
        "dropped stream, late and ever after",
        connector=Cell("failed", 3, "broke off"),
        agent_sdk="the engine's repeats are the same wherever they begin",
        behaviour={"fault": "dropped_stream", "fault_after": 1, "pause_after": 1},
        finds=True,
    ),
    Row(
        "silence, late",
        connector=Cell("timeout", 4, "--max-seconds", ("max_seconds",)),
        agent_sdk="the clock is the run's, and does not know of the backend",
        behaviour={"fault": "silent", "fault_after": 1, "pause_after": 1},
        finds=True,
        max_seconds=3,
    ),
    alike(
        "MCP tool error, once",
        DONE,
        behaviour={"search": {"fault": "tool_error", "fault_times": 1}},
        finds=True,
    ),
)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.what)
async def test_each_ending_has_its_status_and_its_exit_code_in_time(
    stand_ins: StandIns, tmp_path: Path, row: Row, backend: Backend
) -> None:
    """Issue of the main job, "It is done when"; cases I026, I029, I035, I079, I118, I139."""
    cell = row.cell(backend)
    if isinstance(cell, str):
        pytest.skip(cell)
    stand_ins.configure(**row.behaviour)
    stand_ins.script(row.script)
    with anyio.fail_after(row.max_seconds + SLACK_SECONDS):
        # what breaks off is booked at its upper bound: no row but a money limit's own is to end by that
        result = await research(stand_ins, backend, runs_dir=tmp_path, max_usd=9, max_seconds=row.max_seconds)
    assert (result.status, EXIT_CODES[result.status]) == (cell.status, cell.code), result.message
    assert cell.says in result.message
    assert bool(result.message) == (result.status != "done")
    assert set(cell.limits) <= set(result.limits_reached)

    ending = assert_ended_once(file_of(result))
    assert (ending.status, ending.answer) == (result.status, result.answer)
    assert bool(result.sources) == (row.finds or result.status == "done")
    bill = stand_ins.bill()["usd"]
    assert result.ledger.usd >= bill - 1e-9
    if not any(line.estimated for line in result.ledger.lines):
        assert result.ledger.usd == pytest.approx(bill, abs=1e-9)
    assert result.ledger.usd == pytest.approx(sum(charge.line.usd for charge in told(result, Charge)))
    assert children() == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fault", ["max_tokens", "context_exceeded", "partial_refusal"])
async def test_what_was_written_before_it_went_wrong_is_delivered(
    stand_ins: StandIns, tmp_path: Path, backend: Backend, fault: str
) -> None:
    """Case I028: partial text, and a status that says so."""
    stand_ins.script([{"fault": fault, "text": HALF}])
    result = await research(stand_ins, backend, runs_dir=tmp_path)
    assert result.status != "done"
    assert result.answer == HALF[: len(HALF) // 2]
    assert "".join(delta.text for delta in told(result, TextDelta)) == result.answer


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_search_server_that_goes_down_on_the_way_costs_no_answer(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    """What was found before is answered from."""
    stand_ins.configure(pause_after=1)
    stand_ins.script([FOUND, {"calls": [search("something else")]}])

    def goes_down(record: Record) -> None:
        if isinstance(record.event, ToolResult):
            stand_ins.configure(search={"fault": "down"}, script_needs_tools=True)

    listeners: list[Listener] = [goes_down]
    result = await research(stand_ins, backend, runs_dir=tmp_path, listeners=listeners)
    stand_ins.reset()  # a service that cannot reach the server never asks its model again
    assert result.status == "done"
    assert result.citations
    assert bool(result.warnings) == (backend == "connector")


def test_every_way_to_end_has_an_exit_code() -> None:
    """DESIGN, Statuses: 0 to 5 and 130."""
    assert set(EXIT_CODES) == set(get_args(Status))
    assert sorted(set(EXIT_CODES.values())) == [0, 1, 3, 4, 5, 130]
