"""Going on: after a crash at any moment, after a limit, and with a further question."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from orchestrator import trace
from orchestrator.backends.engine import descendants
from orchestrator.errors import UsageError
from orchestrator.events import PassStarted, RunStarted, ToolCall
from orchestrator.offline import StandIns
from orchestrator.result import Result
from orchestrator.terminal import history
from tests.whole import (
    QUESTION,
    Backend,
    Json,
    asked,
    assert_ended_once,
    both_backends,
    children,
    command,
    file_of,
    gone,
    research,
    search,
    serve,
    told,
    user_texts,
    wait_for,
)

FURTHER = "And what does the __exit__ method return?"


def cut(result: Result, lines: int, torn: int = 0) -> Path:
    """The run's file as a crash behind so many lines leaves it, the last one torn where asked."""
    path = file_of(result)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:lines]) + whole[lines][:torn])
    return path


def moments(result: Result) -> list[int]:
    """Numbers of lines behind which a crash differs from the one before: where the kind of event changes."""
    kinds = [record.event.event for record in trace.read(file_of(result))]
    return [at for at in range(1, len(kinds)) if kinds[at] != kinds[at - 1]]


# --- a crash


@both_backends
async def test_a_run_is_completed_from_wherever_it_stopped(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    """Cases I124, I127, I128: stop behind any event, resume, and it finishes; what was spent counts."""
    stand_ins.script([{"calls": [search("with statement")]}, {"calls": [search("__exit__")]}])
    first = await research(stand_ins, backend, runs_dir=tmp_path, max_usd=9)
    whole = file_of(first).read_bytes()
    stops = moments(first)
    if backend == "agent-sdk":  # the same file format: three moments tell whether its own part holds
        stops = [stops[0], stops[len(stops) // 2], stops[-1]]
    for stop in stops:
        file_of(first).write_bytes(whole)
        crashed = history.load(cut(first, stop, torn=25 * (stop % 2)))
        assert crashed.status == "interrupted"
        billed = stand_ins.bill()["usd"]
        result = await research(
            stand_ins, backend, "ignored", runs_dir=tmp_path, resume=first.run_id, max_usd=9
        )
        assert result.status == "done", (stop, result.message)
        assert result.question == QUESTION
        assert result.citations
        assert_ended_once(file_of(result))
        (started,) = told(result, RunStarted)
        assert (started.resumes, started.follow_up) == (first.run_id, None)
        spent = stand_ins.bill()["usd"] - billed
        assert result.ledger.usd == pytest.approx(crashed.ledger.usd + spent, abs=1e-9), stop
        known = [(source.id, source.url) for source in crashed.sources]
        assert [(source.id, source.url) for source in result.sources][: len(known)] == known
        assert history.load(file_of(result)) == result


@pytest.mark.parametrize("stop", ["while a pass runs", "while a call runs"])
async def test_what_a_crash_left_open_is_in_the_ledger(
    stand_ins: StandIns, tmp_path: Path, stop: str
) -> None:
    """Budget, Settling: what was cut short is booked at its upper bound and marked estimated."""
    first = await research(stand_ins, "connector", runs_dir=tmp_path)
    events = [record.event for record in trace.read(file_of(first))]
    kind = PassStarted if stop == "while a pass runs" else ToolCall
    crashed = history.load(cut(first, next(n for n, e in enumerate(events, 1) if isinstance(e, kind))))
    assert crashed.ledger.usd > 0
    assert all(line.estimated for line in crashed.ledger.lines)
    assert ("parallel-search/web_search" in {line.item for line in crashed.ledger.lines}) == (
        stop == "while a call runs"
    )


async def test_what_a_crash_left_of_the_answer_is_shown(stand_ins: StandIns, tmp_path: Path) -> None:
    first = await research(stand_ins, "connector", runs_dir=tmp_path)
    lines = [record.event.event for record in trace.read(file_of(first))]
    crashed = history.load(cut(first, lines.index("citations_checked")))
    assert (crashed.status, crashed.answer) == ("interrupted", first.answer)


async def test_a_run_can_crash_and_be_resumed_again_and_again(stand_ins: StandIns, tmp_path: Path) -> None:
    first = await research(stand_ins, "connector", runs_dir=tmp_path, max_usd=9)
    cut(first, moments(first)[-2])
    second = await research(stand_ins, "connector", runs_dir=tmp_path, max_usd=9, resume=first.run_id)
    spent = history.load(cut(second, moments(second)[-2])).ledger.usd
    billed = stand_ins.bill()["usd"]
    third = await research(stand_ins, "connector", runs_dir=tmp_path, max_usd=9, resume=second.run_id)
    assert third.status == "done"
    assert third.ledger.usd == pytest.approx(spent + stand_ins.bill()["usd"] - billed, abs=1e-9)
    assert [line.step for line in third.ledger.lines] == sorted(line.step for line in third.ledger.lines)


@both_backends
def test_a_process_that_is_killed_loses_nothing_and_leaves_nobody_behind(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    """Case I127: kill -9 in the middle of a call."""
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    serve(stand_ins, monkeypatch, backend, ORCHESTRATOR_RUNS_DIR=str(tmp_path))
    stand_ins.configure(search={"fault": "hanging", "fault_method": "tools/call"})
    with command("ask", QUESTION) as process:
        wait_for(process, b"searching for")
        engine = descendants(process.pid)
        assert bool(engine) == (backend == "agent-sdk")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert gone(engine)
    (path,) = trace.run_files(tmp_path)
    assert history.load(path).ledger.usd >= stand_ins.bill()["usd"] - 1e-9
    stand_ins.configure(search={})
    with command("resume", "last", "--format", "json") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    result: Json = json.loads(out)
    assert (result["status"], result["question"], result["backend"]) == ("done", QUESTION, backend)
    assert result["citations"]
    assert result["ledger"]["usd"] >= stand_ins.bill()["usd"] - 1e-9


@both_backends
@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no such signal")
def test_ctrl_c_ends_130_with_a_complete_file_and_no_child(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    """Issue of the main job, "What bad input gets"."""
    serve(stand_ins, monkeypatch, backend, ORCHESTRATOR_RUNS_DIR=str(tmp_path))
    stand_ins.configure(search={"fault": "hanging", "fault_method": "tools/call"})
    with command("ask", QUESTION) as process:
        wait_for(process, b"searching for")
        engine = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"Traceback" not in err
    assert err.decode().splitlines()[-1].startswith("orchestrator: interrupted: ")
    assert gone(engine, within=1)
    (path,) = trace.run_files(tmp_path)
    assert assert_ended_once(path).status == "interrupted"
    assert history.load(path).ledger.usd >= stand_ins.bill()["usd"] - 1e-9
    assert children() == []


# --- a limit


async def test_a_run_that_money_ended_goes_on_with_more_and_says_how_much_it_takes(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    stand_ins.configure(call_delay=0.3, fault="refusal", fault_after=1)
    stand_ins.script([{"calls": [search()]}])
    poor = await research(stand_ins, "connector", runs_dir=tmp_path, max_usd=0.1)
    stand_ins.configure(fault=None)
    assert poor.status == "budget"
    with pytest.raises(UsageError, match=r"--max-usd 0\.\d\d"):
        await research(stand_ins, "connector", runs_dir=tmp_path, max_usd=0.06, resume=poor.run_id)
    before = len(trace.run_files(tmp_path))
    result = await research(stand_ins, "connector", runs_dir=tmp_path, max_usd=1, resume=poor.run_id)
    assert (result.status, len(trace.run_files(tmp_path))) == ("done", before + 1)
    assert result.ledger.usd >= stand_ins.bill()["usd"] - 1e-9


async def test_a_run_that_steps_ended_needs_two_more_of_them(stand_ins: StandIns, tmp_path: Path) -> None:
    """N steps allowed means exactly N, resumed or not."""
    stand_ins.configure(call_delay=0.3, search={"fault": "empty"})
    stand_ins.script([{"calls": [search("a")]}])
    short = await research(stand_ins, "connector", runs_dir=tmp_path, max_steps=2)
    assert (short.status, short.steps) == ("step_limit", 2)
    with pytest.raises(UsageError, match="2 are used: --max-steps 4 or more"):
        await research(stand_ins, "connector", runs_dir=tmp_path, max_steps=3, resume=short.run_id)
    stand_ins.configure(search={})
    result = await research(stand_ins, "connector", runs_dir=tmp_path, max_steps=5, resume=short.run_id)
    assert (result.status, result.steps) == ("done", 4)


# --- a further question


@both_backends
async def test_a_further_question_goes_on_in_the_same_conversation_with_the_same_source_ids(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    """Case I052; DESIGN: ids are stable for a whole conversation, follow-ups included."""
    first = await research(stand_ins, backend, runs_dir=tmp_path)
    before = asked(stand_ins)[-1]
    billed = stand_ins.bill()["usd"]
    second = await research(stand_ins, backend, FURTHER, runs_dir=tmp_path, follow_up=first.run_id)
    after = asked(stand_ins)[-1]
    assert second.status == "done"
    assert second.question == FURTHER
    assert user_texts(after)[: len(user_texts(before))] == user_texts(before)
    assert any(text.startswith(FURTHER) for text in user_texts(after))
    if backend == "connector":
        assert after["messages"][: len(before["messages"])] == before["messages"]
        assert after["system"] == before["system"]
        assert after["tools"] == before["tools"]
    known = [(source.id, source.url) for source in first.sources]
    assert [(source.id, source.url) for source in second.sources][: len(known)] == known
    assert second.ledger.usd == pytest.approx(stand_ins.bill()["usd"] - billed, abs=1e-9)
    (started,) = told(second, RunStarted)
    assert (started.follow_up, started.resumes) == (first.run_id, None)


@both_backends
async def test_shorter_please_needs_no_search_and_may_cite_what_was_found_before(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    first = await research(stand_ins, backend, runs_dir=tmp_path)
    second = await research(stand_ins, backend, "Shorter, please.", runs_dir=tmp_path, follow_up=first.run_id)
    assert (second.status, second.tool_calls) == ("done", 0), second.message
    assert second.citations
    assert {verdict.source for verdict in second.citations} <= {source.id for source in first.sources}


@pytest.mark.parametrize(
    "why",
    ["another model", "another backend", "a limit", "a final request", "a crash", "a masked checkpoint"],
)
async def test_a_conversation_that_is_not_whole_begins_anew_from_what_was_found(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """DESIGN, One vocabulary: going on then starts a fresh conversation from question, sources and ledger."""
    answer = "The with statement wraps a block (sk-ant-api03-0123456789abcdef)."
    match why:
        case "a limit":
            stand_ins.script([{"calls": [search()]}, {"fault": "max_tokens", "text": "Half."}])
        case "a final request":
            stand_ins.script([{"calls": [search()]}, {"fault": "dropped_stream", "text": "Half of a text."}])
        case "a masked checkpoint":
            stand_ins.script([{"calls": [search()]}, {"text": answer}, {"text": answer}])
    first = await research(stand_ins, "connector", runs_dir=tmp_path, max_usd=9)
    if why == "a crash":
        cut(first, moments(first)[-1])
    model = "claude-sonnet-5-5" if why == "another model" else first.model
    backend: Backend = "agent-sdk" if why == "another backend" else "connector"
    second = await research(
        stand_ins, backend, FURTHER, runs_dir=tmp_path, follow_up=first.run_id, max_usd=9, model=model
    )
    assert second.status == "done"
    body = next(body for body in asked(stand_ins) if FURTHER in json.dumps(body))
    assert [message["role"] for message in body["messages"] if message["role"] != "system"] == ["user"]
    prompt = next(text for text in user_texts(body) if FURTHER in text)
    assert QUESTION in prompt or why == "a crash"
    assert "https://docs.python.org/3/" in prompt or backend == "agent-sdk"
    known = [(source.id, source.url) for source in first.sources]
    assert [(source.id, source.url) for source in second.sources][: len(known)] == known


async def test_a_lost_session_of_the_engine_begins_anew(stand_ins: StandIns, tmp_path: Path) -> None:
    """DESIGN: as after a lost Agent SDK session."""
    import shutil

    first = await research(stand_ins, "agent-sdk", runs_dir=tmp_path)
    folder = trace.session_folder(file_of(first))
    assert folder.is_dir()
    shutil.rmtree(folder)
    second = await research(stand_ins, "agent-sdk", FURTHER, runs_dir=tmp_path, follow_up=first.run_id)
    assert second.status == "done"
    assert any(QUESTION in text and FURTHER in text for text in user_texts(asked(stand_ins)[-1]))


# --- what cannot be gone on from


@pytest.mark.parametrize("way", ["resume", "follow-up"])
@both_backends
async def test_a_run_without_content_is_refused_and_says_why(
    stand_ins: StandIns, tmp_path: Path, backend: Backend, way: str
) -> None:
    """DESIGN, One vocabulary: `--no-content` writes no checkpoint and no text."""
    stand_ins.configure(search={"fault": "empty"})
    first = await research(stand_ins, backend, runs_dir=tmp_path, no_content=True)
    assert first.answer  # it is there for who asked, and not in the file
    assert "exceptions" not in file_of(first).read_text(encoding="utf-8")
    assert not trace.session_folder(file_of(first)).exists()
    requests = len(asked(stand_ins))
    with pytest.raises(UsageError, match="--no-content"):
        if way == "resume":
            await research(stand_ins, backend, runs_dir=tmp_path, resume=first.run_id)
        else:
            await research(stand_ins, backend, FURTHER, runs_dir=tmp_path, follow_up=first.run_id)
    assert len(asked(stand_ins)) == requests
    assert len(trace.run_files(tmp_path)) == 1


async def test_a_run_that_is_done_is_asked_on_and_not_resumed(stand_ins: StandIns, tmp_path: Path) -> None:
    first = await research(stand_ins, "connector", runs_dir=tmp_path)
    with pytest.raises(UsageError, match="--follow-up"):
        await research(stand_ins, "connector", runs_dir=tmp_path, resume=first.run_id)


async def test_a_file_in_which_no_run_began_is_refused(stand_ins: StandIns, tmp_path: Path) -> None:
    first = await research(stand_ins, "connector", runs_dir=tmp_path)
    cut(first, 0, torn=40)
    with pytest.raises(UsageError, match="holds no run"):
        await research(stand_ins, "connector", runs_dir=tmp_path, resume=first.run_id)
