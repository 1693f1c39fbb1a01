"""What users of such systems reported of money, loops and endings: each case as a run against its bill.

Case numbers are those of the collection. Covered elsewhere: I001 (a silent engine) and I026 to I035 by
test_endings, test_connector and test_recordings; I004, I007 and I010 across processes by test_daily; I005,
I008, I014 and I017 by test_money; I011 by test_prices and test_cli; I023 by test_budget; I028 in every form
by test_render. I019 has its dollars per question in `eval`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator import cli, offline, trace
from orchestrator.events import LimitReached, PassFinished
from orchestrator.offline import StandIns
from orchestrator.result import Result
from orchestrator.runner import run
from orchestrator.settings import Options
from tests.test_money import ANSWER, QUESTION, searches

Json = dict[str, Any]


def options(double: StandIns, folder: Path, **given: Any) -> Options:
    chosen = Options(**{"offline": True, "backend": "connector", "runs_dir": folder, **given})
    return chosen.with_stand_ins(double.anthropic_base_url, double.server_urls)


async def play(
    folder: Path, passes: list[Json], told: Json | None = None, **given: Any
) -> tuple[Result, Json, list[Json]]:
    """One run of this script, its bill, and the requests that it sent."""
    async with offline.in_step() as double:
        double.configure(script_needs_tools=True, **(told or {}))
        double.script(passes)
        result = await run(QUESTION, options(double, folder, **given))
        bill = await asyncio.to_thread(double.bill)
        return result, bill, [entry["body"] for entry in double.requests()]


# --- budgets and runaway cost ---------------------------------------------------------------------


async def test_a_request_asks_for_no_more_output_than_the_cap_can_pay(tmp_path: Path) -> None:
    """Case I002: the worst case is computed before the call, and lowers it."""
    _, bill, requests = await play(tmp_path, [ANSWER], max_usd=0.10)
    assert requests[0]["max_tokens"] * 20e-6 < 0.10
    _, _, roomy = await play(tmp_path, [ANSWER], max_usd=5)
    assert roomy[0]["max_tokens"] == 16_000
    assert bill["usd"] <= 0.10


@pytest.mark.parametrize("caching", ["cached", "uncached"])
async def test_every_request_of_a_run_stands_under_its_cap(caching: str, tmp_path: Path) -> None:
    """Case I007: first turn, paused turn, correction and final request, cached or not."""
    told = {"caching": caching, "pause_after": 2, "search": {"result_chars": 20_000}}
    passes = [
        *searches(4)[:4],
        {"text": "It was added in 1871 by Ada Lovelace, who wrote 4,000 lines of it."},
    ]
    for cap in (0.12, 0.25, 0.45, 0.80):
        result, bill, requests = await play(tmp_path, passes, told, max_usd=cap)
        assert bill["usd"] <= cap
        assert result.ledger.usd >= bill["usd"] - 1e-9
        assert all(request["max_tokens"] * 20e-6 <= cap for request in requests)


async def test_a_resumed_run_and_the_run_before_it_share_one_cap(tmp_path: Path) -> None:
    """Cases I007 and I013: what was spent before is counted once."""
    broken = searches(3)
    broken[0]["fault"] = "dropped_stream"
    async with offline.in_step() as double:
        double.configure(script_needs_tools=True)
        double.script(broken)
        first = await run(QUESTION, options(double, tmp_path, max_usd=0.30))
        assert first.status == "failed"
        double.configure(search={"result_chars": 40_000})
        again = await run("", options(double, tmp_path, max_usd=0.30), resume=first.run_id)
        bill = await asyncio.to_thread(double.bill)
    assert again.answer
    assert again.ledger.usd > first.ledger.usd
    assert again.ledger.usd >= bill["usd"] - 1e-9
    assert bill["usd"] <= 0.30


async def test_a_message_that_is_announced_twice_is_booked_once(tmp_path: Path) -> None:
    """Case I013: the ledger is keyed by what was asked, not by how often it is heard of."""
    result, bill, _ = await play(tmp_path, searches(2), {"fault": "double_start"}, max_usd=1)
    assert result.ledger.usd == pytest.approx(bill["usd"], abs=1e-9)
    assert result.steps == len(bill["passes"])


async def test_a_run_whose_usage_never_arrives_still_counts_every_pass(tmp_path: Path) -> None:
    """Case I016."""
    result, bill, _ = await play(tmp_path, searches(2), {"usage": False}, max_usd=1)
    assert result.ledger.usd >= bill["usd"]
    assert result.steps == len(bill["passes"])
    assert {line.step for line in result.ledger.lines if line.estimated} == set(range(1, result.steps + 1))


async def test_every_attempt_that_broke_off_before_its_answer_is_booked(tmp_path: Path) -> None:
    """Case I016: the SDK repeats a request whose connection broke, and each of them may be billed."""
    asked = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with offline.in_step() as double, await asyncio.start_server(hang_up, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        chosen = options(double, tmp_path, max_usd=0.50)
        chosen = chosen.model_copy(update={"anthropic_base_url": f"http://127.0.0.1:{port}"})
        result = await run(QUESTION, chosen)
    assert result.status == "failed"
    assert asked == 3
    assert [line.step for line in result.ledger.lines if line.estimated] == [1, 2, 3]


def test_the_command_says_what_a_run_may_cost_before_it_costs_anything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Case I019."""
    assert cli.main(["ask", QUESTION, "--offline"]) == 0
    assert "up to $0.50" in capsys.readouterr().err


# --- loops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "says"), [("empty", "nothing was found"), ("tool_error", "search failed")])
async def test_searches_that_bring_nothing_end_the_run_and_name_the_cause(
    fault: str, says: str, tmp_path: Path
) -> None:
    """Cases I020 and I040: three in a row, however many the model would still make."""
    result, bill, _ = await play(tmp_path, searches(9), {"search": {"fault": fault}}, max_usd=None)
    assert result.status == "no_sources"
    assert says in result.message
    assert len(bill["tool_calls"]) == 3


async def test_the_same_search_in_another_order_is_the_same_search(tmp_path: Path) -> None:
    """Case I022."""
    words = ["with statement", "exceptions", "context manager"]
    passes = [
        {
            "calls": [
                {
                    "server": "parallel-search",
                    "tool": "web_search",
                    "input": {"objective": "find", "search_queries": words[at:] + words[:at]},
                }
            ]
        }
        for at in range(3)
    ]
    result, bill, requests = await play(tmp_path, [*passes, ANSWER], max_usd=None)
    assert result.limits_reached == ("repeated_calls",)
    assert len(bill["passes"]) == 4  # nobody reads what the third one returned
    assert "already called" in json.dumps(requests[-1]["messages"])


@pytest.mark.parametrize("steps", [2, 3, 5])
async def test_n_steps_are_n_passes_on_the_bill(steps: int, tmp_path: Path) -> None:
    """Cases I025 and I038: a step is one model pass, the answer's included."""
    result, bill, _ = await play(tmp_path, searches(9), max_usd=None, max_steps=steps)
    assert len(bill["passes"]) == result.steps == steps
    assert result.answer
    reached = [r.event for r in trace.read(result.run_file or Path()) if isinstance(r.event, LimitReached)]
    assert {(limit.limit, limit.ceiling) for limit in reached} == {("max_steps", steps)}
    assert "--max-steps" in reached[0].action
    assert f"of {steps} steps" in reached[0].action


# --- stop reasons, final answer -------------------------------------------------------------------


async def test_at_the_limit_one_request_without_tools_answers_from_what_was_found(tmp_path: Path) -> None:
    """Cases I037 and I040: tools are gone, the evidence and the reason are in the prompt."""
    result, _, requests = await play(tmp_path, searches(9), max_usd=None, max_steps=4)
    assert result.status == "done"
    assert requests[-1].keys() & {"tools", "mcp_servers"} == set()
    prompt = requests[-1]["messages"][0]["content"][0]["text"]
    assert "[S1]" in prompt
    assert "4 steps" in prompt
    assert "--max-steps" not in prompt
    purposes = [r.event for r in trace.read(result.run_file or Path()) if isinstance(r.event, PassFinished)]
    assert purposes[-1].purpose == "final"


async def test_a_capped_tool_ends_a_hosted_loop_with_an_answer(tmp_path: Path) -> None:
    """A hosted call cannot be denied singly: the loop ends, and nobody reads what it may have returned."""
    result, bill, _ = await play(tmp_path, searches(5), max_usd=None, max_calls={"web_search": 2})
    assert len(bill["passes"]) == 4
    assert result.ledger.usd >= bill["usd"] - 1e-9
    assert result.limits_reached == ("max_calls",)
    assert result.answer


# --- what 0 and none mean -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        ("--max-usd", "none"),
        ("--max-usd", "none", "--worst-case"),
        ("--max-steps", "none"),
        ("--max-seconds", "none"),
        ("--max-calls", "web_search=none"),
        ("--daily-usd", "none"),
        ("--reserve", "0"),
        ("--price-call", "parallel-search=0"),
        ("--max-usd", "5", "--worst-case"),
    ],
    ids=" ".join,
)
def test_none_is_no_limit(given: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Case I008."""
    assert cli.main(["ask", QUESTION, "--offline", "--format", "json", *given]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["limits_reached"] == []
    assert found["ledger"]["usd"] > 0
    if given[:2] == ("--max-usd", "none"):
        assert found["ledger"]["cap"] is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--max-usd", "0"), "--max-usd"),
        (("--max-seconds", "0"), "--max-seconds"),
        (("--max-steps", "0"), "--max-steps"),
        (("--daily-usd", "0"), "--daily-usd"),
        (("--max-output-tokens", "0"), "--max-output-tokens"),
    ],
)
def test_zero_allows_nothing_and_is_refused_before_anything_is_sent(
    given: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["ask", QUESTION, "--offline", *given]) == 2
    assert says in capsys.readouterr().err


def test_zero_calls_of_a_tool_still_give_an_ending(capsys: pytest.CaptureFixture[str]) -> None:
    """The model asks for it once, is not let through, and the run says which limit it was."""
    cli.main(["ask", QUESTION, "--offline", "--format", "json", "--max-calls", "parallel-search=0"])
    found = json.loads(capsys.readouterr().out)
    assert "max_calls" in found["limits_reached"]
    assert not any(
        "/" in line["item"] and line["usd"] and not line["estimated"] for line in found["ledger"]["lines"]
    )


def test_a_day_that_is_nearly_spent_is_named_as_the_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The option that raises it is the day's, not the run's."""
    assert cli.main(["ask", QUESTION, "--offline", "--daily-usd", "0.01"]) == 2
    said = capsys.readouterr().err
    assert "--daily-usd" in said
    assert "--max-usd" not in said
