"""The run file: what is written, what is masked, and that any crash leaves it readable."""

from __future__ import annotations

import json
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator import trace
from orchestrator.errors import UsageError
from orchestrator.events import (
    Charge,
    ChargeLine,
    Checkpoint,
    CitationsChecked,
    Coverage,
    Event,
    LimitReached,
    Limits,
    PassFinished,
    PassStarted,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCall,
    ToolInfo,
    ToolResult,
    ToolsListed,
    Usage,
    Verdict,
)
from orchestrator.trace import MASK, Trace

KEY = "sk-ant-api03-AbCdEf0123456789_-xyz"
OWN = "parallel key/with+signs 42"


def started(**values: Any) -> RunStarted:
    return RunStarted(
        **{
            "question": "When?",
            "backend": "connector",
            "backend_reason": "as asked",
            "model": "m",
            "limits": Limits(),
            "servers": ("parallel-search",),
            "versions": {"orchestrator": "0.1.0"},
            "offline": True,
            "base_url": "http://127.0.0.1:1",
            **values,
        }
    )


def ending(**values: Any) -> RunFinished:
    return RunFinished(
        **{"status": "done", "answer": "In 1990 [S1].", "ids_shown": True, "seconds": 1.5, **values}
    )


EVENTS: tuple[Event, ...] = (
    started(),
    ToolsListed(server="parallel-search", tools=(ToolInfo(name="web_search"),)),
    PassStarted(step=1, purpose="answer", model="m", context_tokens=9, output_tokens=9, booked_usd=0.1),
    TextDelta(text="Let me "),
    TextDelta(text="look."),
    ToolCall(id="c1", server="parallel-search", tool="web_search", arguments={"objective": "Hubble"}),
    ToolResult(
        id="c1",
        content={"results": [{"url": "https://a.org", "excerpts": ["é\n☃ 😀"]}]},
        is_error=False,
        ms=3,
        chars=9,
        bytes=9,
    ),
    PassFinished(
        steps=(1,),
        purpose="answer",
        model="m",
        usage=(Usage(model="m"),),
        stop_reason="end_turn",
        exact=True,
        detail="d",
    ),
    Charge(
        line=ChargeLine(item="m input", quantity=9, unit_usd=1e-6, usd=9e-6, estimated=False, step=1),
        settles=(1,),
    ),
    Checkpoint(backend="connector", blocks=({"type": "text", "text": "Let me look."},)),
    LimitReached(limit="max_steps", value=3, ceiling=3, action="answered from what was found"),
    CitationsChecked(
        verdicts=(
            Verdict(
                marker="[S1]",
                source="S1",
                url="https://a.org",
                title="A",
                sentence="In 1990.",
                verdict="supported",
                evidence="1990",
            ),
        ),
        coverage=Coverage(factual=2, cited=1, uncited=("It flew.",)),
    ),
    ending(),
)


def write(folder: Path, *events: Event, run: str | None = None, **options: Any) -> Path:
    run = run or trace.new_run_id()
    path = folder / f"{run}.jsonl"
    file = Trace(path, run, **options)
    for event in events:
        file.write(event)
    file.close()
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- what is written


def test_every_line_has_its_stamp_and_the_first_the_schema(tmp_path: Path) -> None:
    path = write(tmp_path, *EVENTS)
    found = lines(path)
    assert [line["seq"] for line in found] == list(range(len(found)))
    assert all({"event", "run", "seq", "at"} <= set(line) for line in found)
    assert {line["run"] for line in found} == {path.stem}
    assert (found[0]["schema"], found[0]["version"]) == (trace.SCHEMA, "0.1.0")
    assert all("schema" not in line for line in found[1:])


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    """Text deltas come back merged per block; everything else as it was."""
    read = [record.event for record in trace.read(write(tmp_path, *EVENTS))]
    merged = [*EVENTS[:3], TextDelta(text="Let me look."), *EVENTS[5:]]
    assert read == merged


def test_the_live_record_of_a_delta_has_the_number_of_its_line(tmp_path: Path) -> None:
    file = Trace(tmp_path / "r.jsonl", "r")
    records = [file.write(event) for event in EVENTS[:6]]
    assert [record.seq for record in records] == [0, 1, 2, 3, 3, 4]
    file.close()
    assert [record.seq for record in trace.read(tmp_path / "r.jsonl")] == [0, 1, 2, 3, 4]


def test_a_new_booking_of_the_same_pass_does_not_split_its_text(tmp_path: Path) -> None:
    again = EVENTS[2].model_copy(update={"booked_usd": 0.2})
    path = write(tmp_path, *EVENTS[:4], again, *EVENTS[4:6])
    read = [record.event for record in trace.read(path)]
    assert read == [*EVENTS[:3], again, TextDelta(text="Let me look."), EVENTS[5]]
    assert [line["seq"] for line in lines(path)] == list(range(6))


def test_text_held_back_is_written_on_closing(tmp_path: Path) -> None:
    path = write(tmp_path, started(), TextDelta(text="half a "), TextDelta(text="sentence"))
    assert trace.read(path)[-1].event == TextDelta(text="half a sentence")


def test_an_event_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    """The record exists before anything may stop the run."""
    file = Trace(tmp_path / "r.jsonl", "r")
    file.write(EVENTS[0])
    assert len(lines(tmp_path / "r.jsonl")) == 1
    file.write_all(EVENTS[1:3])
    assert len(lines(tmp_path / "r.jsonl")) == 3
    file.close()
    file.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permission bits")
def test_only_the_user_can_read_a_run(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "runs", *EVENTS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_an_existing_run_file_is_never_overwritten(tmp_path: Path) -> None:
    """Case I131: a second log of the same second must not replace the first."""
    path = write(tmp_path, *EVENTS)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="--runs-dir"):
        Trace(path, path.stem)
    assert path.read_bytes() == before


def test_an_unwritable_folder_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="--runs-dir"):
        Trace(tmp_path / "file" / "r.jsonl", "r")


def test_run_ids_are_unique_and_begin_with_the_time_so_that_they_sort_by_it() -> None:
    """Case I131: unique run ids."""
    ids = [trace.new_run_id() for _ in range(2000)]
    assert len(set(ids)) == len(ids)
    assert all(trace.RUN_ID.fullmatch(run) for run in ids)
    written = datetime.strptime(ids[0][:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - written) < timedelta(minutes=5)


# --- what a crash leaves


def test_a_file_cut_at_any_byte_is_still_read(tmp_path: Path) -> None:
    """Case I127: killed at every write point, the run must be readable up to its last whole line."""
    whole = write(tmp_path, *EVENTS)
    data = whole.read_bytes()
    records = trace.read(whole)
    cut = tmp_path / "cut.jsonl"
    ends = [at for at, byte in enumerate(data) if byte == ord("\n")]
    near_ends = {at + offset for at in ends for offset in (-1, 0, 1, 2)}
    for size in sorted({*range(0, len(data), 7), *near_ends}):
        cut.write_bytes(data[:size])
        left = trace.read(cut)
        complete = data[:size].count(b"\n")
        assert left in (records[:complete], records[: complete + 1])


def test_a_broken_line_in_the_middle_is_refused_by_number(tmp_path: Path) -> None:
    path = write(tmp_path, *EVENTS)
    data = path.read_bytes().split(b"\n")
    data[3] = data[3][:-5]
    path.write_bytes(b"\n".join(data))
    with pytest.raises(UsageError, match="line 4"):
        trace.read(path)


@pytest.mark.parametrize(
    "line", [b"[]", b"{}", b"1", b'{"event": "run_started"}', b"\xff", b'{"event": "new"}']
)
def test_what_is_no_run_file_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(UsageError, match="line 1"):
        trace.read(path)


def test_a_newer_schema_is_refused_clearly(tmp_path: Path) -> None:
    path = write(tmp_path, *EVENTS)
    path.write_text(
        path.read_text(encoding="utf-8").replace('"schema":1', '"schema":2').replace("0.1.0", "9.0"),
        encoding="utf-8",
    )
    with pytest.raises(UsageError, match=r"newer version \(9\.0, schema 2\)"):
        trace.read(path)


# --- what is masked


def everywhere(secret: str) -> tuple[Event, ...]:
    """Events with the secret in every readable field that can hold text, dict keys included."""
    return (
        started(
            question=f"is {secret} a key?", base_url=f"https://u:{secret}@host", versions={secret: secret}
        ),
        ToolsListed(server="s", tools=(ToolInfo(name="t", description=f"use {secret}"),)),
        TextDelta(text=f"The key is {secret}."),
        ToolCall(id="c", server="s", tool="t", arguments={secret: [{"deep": secret}]}),
        ToolResult(
            id="c",
            content=[{"type": "text", "text": f"x{secret}"}],
            is_error=True,
            ms=1,
            chars=1,
            bytes=1,
            usage=({"n": secret},),
        ),
        PassFinished(
            steps=(1,),
            purpose="answer",
            model="m",
            usage=(),
            stop_reason="refusal",
            exact=True,
            detail=secret,
        ),
        LimitReached(limit="repeated_text", value=secret, ceiling=None, action=secret),
        CitationsChecked(
            verdicts=(
                Verdict(
                    marker=secret,
                    source=None,
                    url=None,
                    title=None,
                    sentence=secret,
                    verdict="dangling",
                    evidence=secret,
                ),
            ),
            coverage=Coverage(uncited=(secret,)),
        ),
        ending(answer=secret, message=secret, warnings=(secret,)),
        RunFailed(
            status="failed", answer=secret, ids_shown=False, seconds=0, message=secret, boundary="ours"
        ),
    )


@pytest.mark.parametrize("content", [True, False])
@pytest.mark.parametrize("secret", [KEY, OWN, "header-value-1234"])
def test_no_secret_in_any_field_of_the_file(tmp_path: Path, secret: str, content: bool) -> None:
    """Cases I142, I143: by default, by shape and by value, wherever it stands."""
    known = () if secret is KEY else (secret,)
    path = write(tmp_path, *everywhere(secret), content=content, secrets=known)
    text = path.read_text(encoding="utf-8")
    assert secret not in text
    assert MASK in text
    assert len(trace.read(path)) == len(lines(path))


@pytest.mark.parametrize(
    "text",
    [
        "sk-ant-api03-0123456789",
        "sk-0123456789abcdefghijABCDEFGHIJ",
        "Authorization: Bearer abc123abc123abc123",
        "ghp_0123456789abcdefghij0123",
        "AKIAABCDEFGHIJKLMNOP",
        "https://user:pass-w0rd@example.org/x",
        "xoxb-1234567890-abcdef",
    ],
)
def test_shapes_of_secrets_are_masked(text: str) -> None:
    assert MASK in trace.Mask(()).text(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://example.sk/sk-bratislava-hotels-and-restaurants-in-town",
        "a task-management-system-for-everybody-1234",
        "the bearer of responsibilities and bearer authentication",
        "Basic understanding of internationalization",
        "https://example.org:8080/@user/post",
        "offline",
        "emoji 😀, combining e\u0301, \u202eright to left",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """Case I134 too: only unpaired surrogates are replaced."""
    assert trace.Mask(("offline",)).text(text) == text


def test_a_secret_split_over_deltas_is_masked_in_the_merged_line(tmp_path: Path) -> None:
    path = write(tmp_path, started(), TextDelta(text=KEY[:15]), TextDelta(text=KEY[15:]), ending())
    assert KEY not in path.read_text(encoding="utf-8")


def test_a_checkpoint_that_would_be_changed_is_withheld_whole(tmp_path: Path) -> None:
    """It must come back byte for byte; and the gap is known, so that nothing is built on half of it."""
    clean = Checkpoint(backend="connector", blocks=({"type": "text", "text": "fine"},))
    secret = Checkpoint(backend="connector", blocks=({"type": "text", "text": KEY},))
    assert trace.checkpoints([trace.read(write(tmp_path, started(), clean, clean))]) == (clean, clean)
    path = write(tmp_path, started(), clean, secret, clean)
    assert KEY not in path.read_text(encoding="utf-8")
    assert trace.checkpoints([trace.read(path)]) is None


def test_lone_surrogates_become_replacement_characters(tmp_path: Path) -> None:
    """Case I133: also where they hide in keys; files are always UTF-8."""
    path = write(
        tmp_path,
        started(),
        ToolResult(id="c", content={"a\ud800": ["b\udfff 😀"]}, is_error=False, ms=1, chars=1, bytes=1),
    )
    result = trace.read(path)[1].event
    assert isinstance(result, ToolResult)
    assert result.content == {"a\ufffd": ["b\ufffd 😀"]}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=json_values, text=st.text(), secret=st.text(min_size=8, max_size=20), at=st.integers(0, 10_000)
)
def test_any_content_survives_writing_and_any_cut(
    tmp_path: Path, content: Any, text: str, secret: str, at: int
) -> None:
    """Property: what a tool or a model says never makes a file that cannot be read."""
    events = (
        started(),
        TextDelta(text=text),
        ToolResult(id="c", content=content, is_error=False, ms=1, chars=1, bytes=1),
    )
    path = write(tmp_path, *events, secrets=(secret,))
    data = path.read_bytes()
    whole = trace.read(path)
    path.write_bytes(data[: at % (len(data) + 1)])
    assert trace.read(path) == whole[: len(trace.read(path))]


# --- without content


def test_without_content_no_text_of_question_pages_or_answer_is_kept(tmp_path: Path) -> None:
    """`--no-content` writes no checkpoint and no text."""
    path = write(tmp_path, *EVENTS, content=False)
    text = path.read_text(encoding="utf-8")
    for word in ("When?", "Let me", "Hubble", "a.org", "1990", "It flew", "checkpoint", '"d"'):
        assert word not in text
    kept = [record.event.event for record in trace.read(path)]
    assert kept == [e.event for e in EVENTS if not isinstance(e, TextDelta | Checkpoint)]
    charge = next(r.event for r in trace.read(path) if isinstance(r.event, Charge))
    assert charge == EVENTS[8]


def test_the_live_record_keeps_the_text_that_the_file_does_not(tmp_path: Path) -> None:
    file = Trace(tmp_path / "r.jsonl", "r", content=False)
    assert file.write(EVENTS[0]).event == EVENTS[0]
    assert file.write(EVENTS[3]).event == EVENTS[3]
    file.close()


def test_a_run_without_content_says_why_it_cannot_be_used(tmp_path: Path) -> None:
    records = trace.read(write(tmp_path, *EVENTS, content=False))
    with pytest.raises(UsageError, match="--no-content"):
        trace.require_content(records, "resume")
    trace.require_content(trace.read(write(tmp_path, *EVENTS)), "resume")
    with pytest.raises(UsageError, match="no run"):
        trace.require_content([], "resume")


# --- which run


def test_a_run_is_found_by_id_prefix_path_or_last(tmp_path: Path) -> None:
    old = write(tmp_path, *EVENTS, run="20260101-000000-000-aaaaaa")
    new = write(tmp_path, *EVENTS, run="20260102-000000-000-bbbbbb")
    (tmp_path / "notes.jsonl").write_text("", encoding="utf-8")
    assert trace.run_files(tmp_path) == [old, new]
    assert trace.find(old.stem, tmp_path) == old
    assert trace.find("20260102", tmp_path) == new
    assert trace.find("last", tmp_path) == new
    assert trace.find(str(old), tmp_path / "elsewhere") == old


@pytest.mark.parametrize("run", ["2026", "2027", "", "nowhere.jsonl", "*", "../x", "notes"])
def test_what_names_no_single_run_is_a_usage_error(tmp_path: Path, run: str) -> None:
    write(tmp_path, *EVENTS, run="20260101-000000-000-aaaaaa")
    write(tmp_path, *EVENTS, run="20260102-000000-000-bbbbbb")
    with pytest.raises(UsageError):
        trace.find(run, tmp_path)


def test_last_of_no_runs_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run"):
        trace.find("last", tmp_path / "missing")


def test_a_chain_holds_what_a_run_goes_on_from_oldest_first(tmp_path: Path) -> None:
    first = write(tmp_path, *EVENTS)
    second = write(tmp_path, started(follow_up=first.stem), ending())
    third = write(tmp_path, started(resumes=second.stem), ending())
    assert [run[0].run for run in trace.chain(third)] == [first.stem, second.stem, third.stem]
    second.unlink()
    with pytest.raises(UsageError, match=second.stem):
        trace.chain(third)


def test_a_removed_run_takes_the_engine_s_session_with_it(tmp_path: Path) -> None:
    path = write(tmp_path, *EVENTS)
    session = trace.session_folder(path)
    session.mkdir()
    (session / "page.txt").write_text("secret page", encoding="utf-8")
    trace.remove(path)
    assert list(tmp_path.iterdir()) == []
