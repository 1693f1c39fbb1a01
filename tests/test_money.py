"""The promises of money against a bill that is kept by somebody else: a seeded sample of the full bench.

`python tests/bench/money.py` plays thousands of such loops; here is what every change must pass.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import money
import pytest

from orchestrator import offline
from orchestrator.errors import UsageError
from orchestrator.events import LimitReached
from orchestrator.result import Result
from orchestrator.runner import run
from orchestrator.settings import Options
from orchestrator.trace import Record

Json = dict[str, Any]
QUESTION = "How does the with statement work?"
ANSWER = {"text": "The statement runs its block.", "thinking": 300}


def searches(count: int, thinking: int = 200, each: int = 1) -> list[Json]:
    """Passes that search for something else each time, and an answer."""
    asked = [(at, nth) for at in range(count) for nth in range(each)]
    calls = [
        {
            "server": "parallel-search",
            "tool": "web_search",
            "input": {"objective": f"find {at} {nth}", "search_queries": [f"with statement {at} {nth}"]},
        }
        for at, nth in asked
    ]
    passes: list[Json] = [
        {"thinking": thinking, "calls": calls[at * each : (at + 1) * each]} for at in range(count)
    ]
    return [*passes, ANSWER]


async def ask(
    passes: list[Json],
    folder: Path,
    *,
    told: Json | None = None,
    taught: bool = False,
    listeners: Any = (),
    **options: Any,
) -> tuple[Result, Json]:
    """One run of this script beside its bill; where it is `taught`, after one without a cap."""
    async with offline.in_step() as double:
        chosen = Options(**{"offline": True, "backend": "connector", "runs_dir": folder, **options})
        chosen = chosen.with_stand_ins(double.anthropic_base_url, double.server_urls)
        chosen = chosen.model_copy(update={"offline": False})  # stand-ins may not teach, services may
        healthy = {"script_needs_tools": True, "pace": 0.0003}
        if taught:
            double.configure(**healthy, search={"result_chars": 9_000})
            double.script(searches(3))
            await run(QUESTION, chosen.model_copy(update={"max_usd": None}))
            double.reset()
        double.configure(**healthy, **(told or {}))
        double.script(passes)
        result = await run(QUESTION, chosen, listeners)
        return result, await asyncio.to_thread(double.bill)


async def test_no_loop_crosses_its_cap_and_no_ledger_is_below_the_bill(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Random hosted loops, each without a cap and under it in all modes; see the bench for what is drawn."""
    report = await money.play(list(enumerate(money.loops(14, "ci"))), "connector")
    with capsys.disabled():
        for mode in money.MODES:
            chosen = [outcome for outcome in report.outcomes if outcome.mode == mode]
            money.show(mode, chosen, report.refused[mode])
    assert report.broken == []
    assert len(report.outcomes) > 14


@pytest.mark.engine
async def test_no_loop_of_the_engine_crosses_its_cap() -> None:
    """The same through the Agent SDK's command line; its passes that no hook sees are on the bill, too."""
    loops = [loop for loop in money.loops(12, "engine") if loop.cap > 0.2][:3]
    report = await money.play(list(enumerate(loops)), "agent-sdk", ["default"])
    assert report.broken == []
    assert report.outcomes


@pytest.mark.parametrize("fault", money.STREAM_FAULTS)
@pytest.mark.parametrize("mode", ["worst_case", "default"])
async def test_what_breaks_off_is_booked_and_never_below_the_bill(fault: str, mode: str) -> None:
    """Case I016: usage that never arrives leaves the pass at its booking."""
    passes = searches(3)
    passes[2]["fault"] = fault
    loop = replace(next(money.loops(1, fault)), cap=1.0, model="claude-opus-5-5", passes=tuple(passes))
    loop.behaviour["search"]["result_chars"] = [9_000, 30_000]
    report = await money.play([(0, loop)], "connector", [mode])
    assert report.broken == []
    assert not report.outcomes[0].exact


@pytest.mark.parametrize("iterations", [True, False])
async def test_a_fallback_is_paid_twice_whether_or_not_the_service_itemises_it(
    iterations: bool, tmp_path: Path
) -> None:
    """The total counts the serving attempt alone; what the declined one cost is booked then."""
    passes = searches(2)
    passes[1]["fault"] = "fallback"
    told = {"iterations": iterations}
    result, bill = await ask(passes, tmp_path, told=told, max_usd=2, fallbacks="on")
    assert {entry["model"] for entry in bill["passes"]} == {"claude-opus-5-5", "claude-opus-4-8"}
    assert result.ledger.usd >= bill["usd"] - 1e-9
    assert any(line.estimated for line in result.ledger.lines) is not iterations
    if iterations:
        assert result.ledger.usd == pytest.approx(bill["usd"], abs=1e-9)


@pytest.mark.parametrize("chars", [24_000, 50_000, 130_000])
async def test_a_sum_over_passes_is_priced_at_the_tier_of_each_or_marked_estimated(
    chars: int, tmp_path: Path
) -> None:
    """Case I005: above 100,000 tokens of prompt, one model's whole request costs five times as much."""
    told = {"iterations": False, "caching": "uncached", "search": {"result_chars": chars}}
    result, bill = await ask(searches(4), tmp_path, told=told, max_usd=None, model="claude-haiku-5-5")
    estimated = any(line.estimated for line in result.ledger.lines)
    assert not (estimated and chars == 24_000)
    assert result.ledger.usd >= bill["usd"] - 1e-9
    if not estimated:
        assert result.ledger.usd == pytest.approx(bill["usd"], abs=1e-9)


@pytest.mark.parametrize("taught", [False, True])
async def test_a_default_run_is_not_cut_while_its_real_bill_is_far_from_the_cap(
    taught: bool, tmp_path: Path
) -> None:
    """$0.50, Opus, five searches of the size that the search server was seen to return, and a little more."""
    told = {"search": {"result_chars": [12_000, 25_000, 30_000]}}
    result, bill = await ask(searches(5), tmp_path, told=told, taught=taught)
    assert bill["usd"] < 0.30
    if taught:
        assert not result.limits_reached
        assert result.ledger.usd == pytest.approx(bill["usd"], abs=1e-9)
    assert result.tool_calls >= (5 if taught else 3)


async def test_a_result_larger_than_declared_is_named_and_costs_one_pass_at_most(tmp_path: Path) -> None:
    told = {"search": {"result_chars": [4_000, 160_000]}}
    heard: list[Record] = []
    result, bill = await ask(
        searches(5), tmp_path, told=told, taught=True, listeners=[heard.append], max_usd=0.30
    )
    [named] = [r.event for r in heard if isinstance(r.event, LimitReached) and r.event.limit == "result_size"]
    assert named.value >= 160_000
    assert "result_size" in result.limits_reached
    assert bill["usd"] <= 0.30 + max(entry["usd"] for entry in bill["passes"])
    assert result.ledger.usd >= bill["usd"] - 1e-9


async def test_several_calls_in_one_pass_are_all_counted_before_the_pass_that_reads_them(
    tmp_path: Path,
) -> None:
    told = {"search": {"result_chars": 50_000}}
    result, bill = await ask(searches(2, each=4), tmp_path, told=told, max_usd=0.40)
    assert "max_usd" in result.limits_reached
    assert len(bill["tool_calls"]) < 4
    assert bill["usd"] <= 0.40


async def test_a_cap_that_is_too_small_names_the_smallest_one_that_pays(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Nothing was sent") as refused:
        await ask(searches(1), tmp_path, max_usd=0.01)
    named = re.search(r"--max-usd (\d\.\d\d)", str(refused.value))
    assert named is not None
    result, bill = await ask([ANSWER], tmp_path, max_usd=float(named[1]))
    assert result.answer
    assert bill["usd"] <= float(named[1])


async def test_a_pause_that_the_cap_cannot_carry_on_is_answered_from_what_was_found(tmp_path: Path) -> None:
    told = {"pause_after": 2, "caching": "uncached", "search": {"result_chars": 48_000}}
    result, bill = await ask(searches(6), tmp_path, told=told, max_usd=0.32)
    assert "max_usd" in result.limits_reached
    assert result.answer
    assert bill["usd"] <= 0.32


@pytest.mark.parametrize("worst_case", [True, False])
async def test_without_a_cap_nothing_is_cut_and_everything_is_counted(
    worst_case: bool, tmp_path: Path
) -> None:
    """Case I008: no limit is not the same as a large one."""
    result, bill = await ask(searches(8), tmp_path, max_usd=None, worst_case=worst_case)
    assert not result.limits_reached
    assert result.ledger.cap is None
    assert result.ledger.usd == pytest.approx(bill["usd"], abs=1e-9)


async def test_judge_and_correction_draw_on_the_same_cap(tmp_path: Path) -> None:
    """Cases I014 and I017: every call that the program makes is in the ledger, under what it was for."""
    passes = [*searches(2)[:2], {"text": "The with statement was added in 1871 by Ada Lovelace."}]
    result, bill = await ask(passes, tmp_path, max_usd=0.60, judge=True)
    assert {line.purpose for line in result.ledger.lines} >= {"answer", "correction"}
    assert result.ledger.usd == pytest.approx(bill["usd"], abs=1e-9)
    assert result.ledger.usd == pytest.approx(sum(line.usd for line in result.ledger.lines), abs=1e-12)
    assert bill["usd"] <= 0.60
