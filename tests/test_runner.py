"""One run from question to checked answer: the order of the folds, the turns, the limits, the ways to stop.

What holds of a backend stands in test_backends.py, how a run ends when something breaks in test_endings.py.
Most here is told of the connector alone: the runner does not know which backend it drives.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import runner, trace
from orchestrator.errors import LimitExceeded, UsageError
from orchestrator.events import (
    Charge,
    CitationsChecked,
    Event,
    LimitReached,
    PassFinished,
    PassStarted,
    RunFailed,
    RunFinished,
    TextDelta,
    ToolCall,
    ToolResult,
)
from orchestrator.offline import StandIns
from orchestrator.result import Result
from orchestrator.runner import Run
from orchestrator.starting import prepare
from orchestrator.trace import Record
from tests.whole import (
    QUESTION,
    Backend,
    Json,
    asked,
    assert_ended_once,
    both_backends,
    children,
    file_of,
    options,
    research,
    search,
    told,
    user_texts,
)

PAGE = "https://docs.python.org/3/reference/compound_stmts.html"
CLAIM = "The with statement was added in 1999"
FOUND: Json = {"calls": [search()]}
UNCITED: Json = {"text": f"{CLAIM}."}


def dangling(marker: str = "https://nobody.example/page") -> Json:
    return {"text": f"{CLAIM} ([Nobody]({marker}))."}


def purposes(result: Result) -> list[str]:
    """What each pass was for, in order."""
    return list({event.step: event.purpose for event in told(result, PassStarted)}.values())


def assert_paid(result: Result, stand_ins: StandIns) -> None:
    """Every request of the run is in its ledger, to the last of them."""
    assert result.ledger.usd == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)


# --- one event


async def test_an_event_is_recorded_then_seen_by_sources_then_told_then_judged(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    """DESIGN, One vocabulary: in this order, and the budget is the only one that may stop."""
    seen: list[tuple[str, bool, int, float]] = []
    async with prepare(QUESTION, options(stand_ins, "connector", runs_dir=tmp_path, max_usd=1)) as prepared:
        run = Run(prepared)

        def listen(record: Record) -> None:
            on_disk = trace.read(prepared.trace.path)[-1].seq == record.seq
            seen.append((record.event.event, on_disk, len(run.registry), run.budget.spent))

        run.listeners = [listen]
        call = ToolCall(id="c", server="parallel-search", tool="web_search", arguments={})
        page = {"results": [{"url": PAGE, "excerpts": ["A text."]}]}
        result = ToolResult(id="c", content=page, is_error=False, ms=1, chars=9, bytes=9)
        run.emit(call)
        run.emit(result)
        dear = PassStarted(
            step=1, purpose="answer", model="m", context_tokens=9, output_tokens=9, booked_usd=2.0
        )
        with pytest.raises(LimitExceeded):
            run.emit(dear)
    assert seen == [
        ("tool_call", True, 0, 0.0),
        ("tool_result", True, 1, 0.001),  # booked with the call
        ("charge", True, 1, 0.0),  # the booking is gone and the charge not counted yet
        ("pass_started", True, 1, 0.001),
    ]
    assert run.budget.spent == 2.001


async def test_what_an_event_leads_to_follows_it_in_the_record(stand_ins: StandIns, tmp_path: Path) -> None:
    result = await research(stand_ins, "connector", runs_dir=tmp_path)
    kinds = [record.event.event for record in trace.read(file_of(result))]
    assert kinds[0] == "run_started"
    assert kinds[kinds.index("tool_result") + 1] == "charge"
    assert kinds[kinds.index("pass_finished") + 1] == "charge"
    assert kinds[-2:] == ["citations_checked", "run_finished"]


async def test_a_listener_that_fails_ends_the_run_and_not_its_record(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    """Nobody reads any more: the file still says how it ended."""

    def fails(record: Record) -> None:
        if not isinstance(record.event, PassStarted | TextDelta | ToolResult):
            return
        raise BrokenPipeError

    stand_ins.configure(call_delay=0.3)
    result = await research(stand_ins, "connector", runs_dir=tmp_path, listeners=[fails])
    assert (result.status, result.ledger.usd > 0) == ("failed", True)
    assert "BrokenPipeError" in result.message
    assert_ended_once(file_of(result))


# --- an ordinary run


@both_backends
async def test_an_answer_is_cited_checked_and_paid_to_the_cent(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    """Issue of the main job, "It is done when"."""
    result = await research(stand_ins, backend, runs_dir=tmp_path)
    assert result.status == "done"
    assert result.citations
    assert {verdict.verdict for verdict in result.citations} <= {"supported", "unknown"}
    assert {verdict.url for verdict in result.citations} <= {source.url for source in result.sources}
    assert (result.backend, result.offline, result.steps, result.tool_calls) == (backend, True, 2, 1)
    assert_paid(result, stand_ins)
    ending = assert_ended_once(file_of(result))
    assert (ending.answer, ending.ids_shown) == (result.answer, backend == "agent-sdk")


async def test_a_result_is_what_its_file_says(stand_ins: StandIns, tmp_path: Path) -> None:
    """The run file is the only state."""
    from orchestrator.terminal import history

    result = await research(stand_ins, "connector", runs_dir=tmp_path)
    assert history.load(file_of(result)) == result


# --- the correction turn


@both_backends
async def test_a_correction_turn_names_the_markers_and_mends_the_answer(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    """DESIGN, Citations: dangling markers get one correction turn that names them."""
    stand_ins.script([FOUND, dangling()])
    result = await research(stand_ins, backend, runs_dir=tmp_path)
    assert result.status == "done"
    assert CLAIM not in result.answer
    assert purposes(result) == ["answer", "answer", "correction"]
    prompt = user_texts(asked(stand_ins)[-1])[-1]
    assert "https://nobody.example/page" in prompt
    assert len(told(result, CitationsChecked)) == 2
    assert_paid(result, stand_ins)


@pytest.mark.parametrize("answer", [dangling(), UNCITED], ids=["dangling", "without any citation"])
async def test_a_second_miss_is_uncited_and_there_is_no_third_turn(
    stand_ins: StandIns, tmp_path: Path, answer: Json
) -> None:
    stand_ins.script([FOUND, answer, answer])
    result = await research(stand_ins, "connector", runs_dir=tmp_path)
    assert result.status == "uncited"
    assert result.message
    assert result.answer == answer["text"]
    assert len(result.sources) > 1
    assert_paid(result, stand_ins)


async def test_an_answer_without_facts_needs_no_citation(stand_ins: StandIns, tmp_path: Path) -> None:
    stand_ins.script([FOUND, {"text": "Shall I go on?"}])
    result = await research(stand_ins, "connector", runs_dir=tmp_path)
    assert (result.status, purposes(result)) == ("done", ["answer", "answer"])


@pytest.mark.parametrize("fault", ["refusal", "dropped_stream", "max_tokens", "empty"])
async def test_a_correction_that_comes_to_nothing_leaves_the_answer_as_it_was(
    stand_ins: StandIns, tmp_path: Path, fault: str
) -> None:
    stand_ins.script(
        [FOUND, dangling(), {"fault": fault, "text": "Half of another answer, and then no more."}]
    )
    result = await research(stand_ins, "connector", runs_dir=tmp_path, max_usd=9)
    assert (result.status, result.answer) == ("uncited", dangling()["text"])
    assert [verdict.verdict for verdict in result.citations] == ["dangling"]
    assert bool(result.warnings) == (fault in ("refusal", "dropped_stream"))
    assert result.limits_reached == (("max_tokens",) if fault == "max_tokens" else ())
    assert result.ledger.usd >= stand_ins.bill()["usd"] - 1e-9


async def test_a_correction_that_no_step_is_left_for_is_not_made(stand_ins: StandIns, tmp_path: Path) -> None:
    """N steps allowed means exactly N (case I025)."""
    stand_ins.script([FOUND, dangling()])
    result = await research(stand_ins, "connector", runs_dir=tmp_path, max_steps=2, max_usd=9)
    stand_ins.reset()
    assert result.steps <= 2
    assert "max_steps" in result.limits_reached


async def test_strict_counts_sentences_that_their_source_does_not_say(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    """DESIGN, Citations: with --strict, unsupported sentences are corrected too, and a second miss counts."""
    answer = {"text": f"{CLAIM} ([With]({PAGE}#the-with-statement))."}
    stand_ins.script([FOUND, answer])
    lenient = await research(stand_ins, "connector", runs_dir=tmp_path)
    assert (lenient.status, [v.verdict for v in lenient.citations]) == ("done", ["unsupported"])
    stand_ins.script([FOUND, answer, answer])
    strict = await research(stand_ins, "connector", runs_dir=tmp_path, strict=True)
    assert strict.status == "uncited"
    assert "--strict" in strict.message
    assert "1999" in user_texts(asked(stand_ins)[-1])[-1]


# --- the judge


@both_backends
async def test_the_judge_is_one_request_of_its_own_model_in_the_same_ledger(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    marker = "[S1]" if backend == "agent-sdk" else f"([With]({PAGE}#the-with-statement))"
    stand_ins.script([FOUND, {"text": f"{CLAIM} {marker}."}])
    result = await research(stand_ins, backend, runs_dir=tmp_path, judge=True)
    assert purposes(result) == ["answer", "answer", "judge"]
    assert asked(stand_ins)[-1]["model"] == "claude-haiku-5-5"
    assert all(verdict.judged for verdict in result.citations)
    assert result.answer.startswith(CLAIM)  # what the judge says is no part of the answer
    assert {line.purpose for line in result.ledger.lines if "haiku" in line.item} == {"judge"}
    assert_paid(result, stand_ins)


async def test_a_judge_that_cannot_be_asked_leaves_the_verdicts_and_says_so(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    stand_ins.script([FOUND, {"text": f"{CLAIM} ([With]({PAGE}#the-with-statement))."}])
    stand_ins.configure(fault="529", fault_after=1)
    result = await research(stand_ins, "connector", runs_dir=tmp_path, judge=True)
    assert (result.status, [v.verdict for v in result.citations]) == ("done", ["unsupported"])
    assert ["judge" in warning for warning in result.warnings] == [True]


async def test_the_judge_is_not_asked_beyond_the_steps_that_are_allowed(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    stand_ins.script([FOUND, {"text": f"{CLAIM} ([With]({PAGE}#the-with-statement))."}])
    result = await research(stand_ins, "connector", runs_dir=tmp_path, judge=True, max_steps=3)
    assert result.steps == 3
    stand_ins.reset()


# --- limits


LIMITS = [
    ("max_steps", {"max_steps": 3}),
    ("max_calls", {"max_calls": {"web_search": 1}}),
    ("max_usd", {"max_usd": 0.45}),
    ("repeated_calls", {"max_usd": 9}),
]


@both_backends
@pytest.mark.parametrize(("limit", "given"), LIMITS, ids=[name for name, _ in LIMITS])
async def test_a_limit_ends_the_search_and_one_final_request_answers_from_what_was_found(
    stand_ins: StandIns, tmp_path: Path, backend: Backend, limit: str, given: dict[str, Any]
) -> None:
    """DESIGN: a run that hit a limit and delivered its checked answer is `done` and names the limit."""
    stand_ins.configure(call_delay=0.3, script_needs_tools=True)
    same = limit == "repeated_calls"
    stand_ins.script([{"calls": [search(f"with statement {'' if same else n}")]} for n in range(3)])
    result = await research(stand_ins, backend, runs_dir=tmp_path, **given)
    stand_ins.reset()
    assert result.status == "done", result.message
    assert limit in result.limits_reached
    assert result.citations
    assert purposes(result)[-1] == "final"
    assert purposes(result).count("final") == 1
    assert assert_ended_once(file_of(result)).ids_shown
    if "max_steps" in given:
        assert result.steps == given["max_steps"]


@both_backends
async def test_no_more_than_the_cap_is_spent_and_the_ledger_is_no_less_than_the_bill(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    stand_ins.configure(call_delay=0.3, caching="uncached", script_needs_tools=True)
    stand_ins.script([{"calls": [search(f"with statement {n}")]} for n in range(9)])
    result = await research(stand_ins, backend, runs_dir=tmp_path, max_usd=0.4)
    bill = stand_ins.bill()["usd"]
    stand_ins.reset()
    assert result.status == "done"
    assert "max_usd" in result.limits_reached
    assert bill - 1e-9 <= result.ledger.usd <= 0.4


async def test_the_final_request_holds_question_evidence_and_reason_and_no_advice_for_users(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    """DESIGN, Budget 4."""
    stand_ins.configure(call_delay=0.3, script_needs_tools=True)
    stand_ins.script([{"calls": [search("with statement")]}, {"calls": [search("another")]}])
    result = await research(stand_ins, "connector", runs_dir=tmp_path, max_steps=3)
    (body,) = [body for body in asked(stand_ins) if not body.get("tools")]
    (prompt,) = user_texts(body)
    assert QUESTION in prompt
    assert "No tool can be called any more: 2 of 3 steps are used" in prompt
    assert "--max-steps" not in prompt
    shown = set(re.findall(r'id="?(S\d+)', prompt))
    assert shown
    assert {verdict.source for verdict in result.citations} <= shown


async def test_a_final_answer_with_dangling_markers_is_asked_for_once_more(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    stand_ins.script([FOUND, {"fault": "max_tokens", "text": "Half."}, {"text": f"{CLAIM} [S99]."}])
    result = await research(stand_ins, "connector", runs_dir=tmp_path, max_usd=9)
    assert (result.status, purposes(result)) == ("done", ["answer", "answer", "final", "final"])
    assert "[S99]" in user_texts(asked(stand_ins)[-1])[-1]
    assert_paid(result, stand_ins)


async def test_a_final_answer_that_cannot_be_mended_stays(stand_ins: StandIns, tmp_path: Path) -> None:
    stand_ins.script(
        [FOUND, {"fault": "max_tokens", "text": "Half."}, {"text": f"{CLAIM} [S99]."}, {"fault": "refusal"}]
    )
    result = await research(stand_ins, "connector", runs_dir=tmp_path, max_usd=9)
    assert (result.status, result.answer) == ("uncited", f"{CLAIM} [S99].")
    assert ["final request" in warning for warning in result.warnings] == [True]


async def test_a_final_request_that_fails_leaves_what_was_written_and_the_limit_as_the_reason(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    text = "The with statement wraps a block, and this goes on for a while longer."
    stand_ins.script([FOUND, {"fault": "max_tokens", "text": text}, {"fault": "refusal"}])
    result = await research(stand_ins, "connector", runs_dir=tmp_path, max_usd=9)
    assert (result.status, result.answer) == ("max_tokens", text[: len(text) // 2])
    assert "--max-output-tokens" in result.message
    assert result.sources
    assert not result.ids_shown


async def test_a_limit_before_anything_was_found_says_which_it_was(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    stand_ins.configure(call_delay=0.3)
    stand_ins.script([FOUND])
    result = await research(stand_ins, "connector", runs_dir=tmp_path, max_calls={"web_search": 0})
    assert (result.status, result.limits_reached) == ("step_limit", ("max_calls",))
    assert "--max-calls web_search=N" in result.message


@pytest.mark.parametrize(
    ("fault", "says"), [("empty", "nothing was found"), ("tool_error", "upstream search failed")]
)
async def test_three_searches_that_find_nothing_end_the_searching_and_name_the_cause(
    stand_ins: StandIns, tmp_path: Path, fault: str, says: str
) -> None:
    """Cases I020, I040."""
    stand_ins.configure(call_delay=0.3, search={"fault": fault})
    stand_ins.script([{"calls": [search(f"word {n}")]} for n in range(4)])
    result = await research(stand_ins, "connector", runs_dir=tmp_path, max_usd=9)
    stand_ins.reset()
    assert (result.status, result.limits_reached) == ("no_sources", ("empty_searches",))
    assert says in result.message
    assert result.tool_calls == 3


# --- stopping


@both_backends
@pytest.mark.parametrize("moment", [PassStarted, ToolCall, TextDelta], ids=lambda kind: kind.__name__)
async def test_a_cancelled_run_is_recorded_as_interrupted_and_leaves_nothing_behind(
    stand_ins: StandIns, tmp_path: Path, backend: Backend, moment: type[Event]
) -> None:
    """Case I119."""
    stand_ins.configure(pace=0.02, call_delay=0.3)
    records: list[Record] = []
    begun = asyncio.Event()

    def listen(record: Record) -> None:
        records.append(record)
        if isinstance(record.event, moment):
            begun.set()

    work = research(stand_ins, backend, runs_dir=tmp_path, listeners=[listen])
    task = asyncio.create_task(work)
    with anyio.fail_after(30):
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
    assert children() == []
    (path,) = trace.run_files(tmp_path)
    ending = assert_ended_once(path)
    assert isinstance(ending, RunFailed)
    assert ending.status == "interrupted"
    assert "resume" in ending.message
    charged = sum(r.event.line.usd for r in trace.read(path) if isinstance(r.event, Charge))
    assert charged >= stand_ins.bill()["usd"] - 1e-9


@both_backends
async def test_a_stream_yields_the_records_of_the_file_as_they_are_written(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    chosen = options(stand_ins, backend, runs_dir=tmp_path)
    records = [record async for record in runner.stream(QUESTION, chosen)]
    (path,) = trace.run_files(tmp_path)
    written = [record.event.event for record in trace.read(path) if record.event.event != "text_delta"]
    assert [record.event.event for record in records if record.event.event != "text_delta"] == written
    assert isinstance(records[-1].event, RunFinished)
    assert len([r for r in records if isinstance(r.event, PassFinished)]) >= 1


async def test_leaving_a_stream_early_interrupts_the_run(stand_ins: StandIns, tmp_path: Path) -> None:
    stand_ins.configure(search={"fault": "hanging", "fault_method": "tools/call"})
    chosen = options(stand_ins, "connector", runs_dir=tmp_path)
    with anyio.fail_after(30):
        async with aclosing(runner.stream(QUESTION, chosen)) as records:
            async for record in records:
                if isinstance(record.event, ToolCall):
                    break
    (path,) = trace.run_files(tmp_path)
    assert assert_ended_once(path).status == "interrupted"


async def test_a_stream_raises_what_kept_the_run_from_beginning(stand_ins: StandIns, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="empty"):
        async for _ in runner.stream("  ", options(stand_ins, "connector", runs_dir=tmp_path)):
            pass
    assert trace.run_files(tmp_path) == []
    assert asked(stand_ins) == []


async def test_a_limit_that_is_reached_is_on_record_once(stand_ins: StandIns, tmp_path: Path) -> None:
    stand_ins.script([FOUND, {"fault": "max_tokens", "text": "Half."}])
    result = await research(stand_ins, "connector", runs_dir=tmp_path)
    (reached,) = told(result, LimitReached)
    assert reached.limit == "max_tokens"
    assert "--max-output-tokens" in reached.action
    assert reached.action.endswith("answering from what was found")
