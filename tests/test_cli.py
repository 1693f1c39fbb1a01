"""The command line: from arguments to exit code, standard output and standard error."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import cli, trace
from orchestrator.errors import EXIT_CODES
from orchestrator.events import RunFailed, RunFinished, RunStarted
from orchestrator.offline import StandIns
from orchestrator.terminal.console import plain

QUESTION = "How does the with statement handle exceptions?"
KEY = "sk-ant-test-0123456789abcdef"
PACKAGE = Path(cli.__file__).parents[1]


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process."""

    def run(*args: str) -> Outcome:
        capsys.readouterr()
        code = cli.main(args)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def served(stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    """The stand-ins as any other service at an address: nothing but environment and a servers file."""
    entry = {"type": "http", "url": stand_ins.mcp_url}
    Path("servers.json").write_text(json.dumps({"mcpServers": {"parallel-search": entry}}), encoding="utf-8")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", stand_ins.anthropic_base_url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ORCHESTRATOR_MCP_CONFIG", str(Path("servers.json").absolute()))
    monkeypatch.setenv("ORCHESTRATOR_BACKEND", "connector")
    return stand_ins


def started(*args: str, err: int = subprocess.PIPE, **environment: str) -> subprocess.Popen[bytes]:
    """The command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *args],
        env={**os.environ, "PYTHONPATH": str(PACKAGE), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=err,
    )


def finished(*args: str, given: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command as a process of its own, run to its end."""
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *args],
        env={**os.environ, "PYTHONPATH": str(PACKAGE), **environment},
        input=given,
        capture_output=True,
        timeout=120,
        check=False,
    )


def run_files() -> list[Path]:
    from orchestrator.settings import Options

    return trace.run_files(Options().runs_folder)


# --- help


def test_help_shows_every_command_and_a_first_step(command: Any) -> None:
    for args in ((), ("--help",), ("-h",), ("help",)):
        shown = command(*args)
        assert shown.code == 0
        for name in (name for group in cli.COMMANDS.values() for name in group):
            assert f"\n  {name} " in shown.out
        assert "ask --offline" in shown.out


@pytest.mark.parametrize("name", [name for group in cli.COMMANDS.values() for name in group])
def test_each_command_explains_itself(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        cli.main([*name.split(), "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f" {name} " in shown.splitlines()[0]
    assert max(map(len, shown.splitlines())) <= 100
    assert "PydanticUndefined" not in shown


def test_version(command: Any) -> None:
    assert command("--version").out == "orchestrator 0.1.0\n"


# --- what bad input gets: exit 2, one line, nothing sent


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("question",), "no command 'question'"),
        (("--offline", "ask", "q"), "Options stand after"),
        (("ask",), "QUESTION"),
        (("ask", ""), "QUESTION"),
        (("ask", "  \n"), "empty"),
        (("ask", "q", "--nonsense"), "--nonsense"),
        (("ask", "q", "another"), "another"),
        (("ask", "q", "--max-usd"), "--max-usd"),
        (("ask", "q", "--max-usd", "0"), "--max-usd"),
        (("ask", "q", "--max-usd=-1"), "--max-usd"),
        (("ask", "q", "--max-usd", "0.000001"), "--max-usd"),
        (("ask", "q", "--max-steps", "0"), "--max-steps"),
        (("ask", "q", "--server", "gogle"), "parallel-search"),
        (("ask", "q", "--mcp-config", "nowhere.json"), "nowhere.json"),
        (("ask", "q", "--model", "nonsense-1"), "--price-in"),
        (("ask", "q", "--output", "no/such/folder/a.txt"), "--output"),
        (("ask", "q", "--follow-up", "last"), "no run"),
        (("resume", "last"), "no run"),
        (("runs", "show", "20260101"), "no run"),
        (("runs", "rm", "20260101"), "no run"),
    ],
)
def test_bad_input_is_refused_in_one_line_before_anything_is_sent(
    command: Any, served: StandIns, args: tuple[str, ...], said: str
) -> None:
    """Nothing is sent, no run file is left, and one line says what is wrong."""
    outcome = command(*args)
    assert outcome.code == 2
    assert outcome.out == ""
    assert said in outcome.err
    assert len([line for line in outcome.lines if line.startswith("orchestrator: ")]) == 1
    assert served.requests() == []
    assert run_files() == []


def test_no_key_names_the_variable_and_the_way_without(command: Any) -> None:
    outcome = command("ask", QUESTION)
    assert outcome.code == 2
    assert "ANTHROPIC_API_KEY" in outcome.err
    assert "--offline" in outcome.err
    assert len(outcome.lines) == 1


def test_an_unreadable_corpus_is_exit_2(command: Any) -> None:
    assert command("ask", QUESTION, "--offline", "--corpus", "nowhere").code == 2


def test_a_loopback_server_at_anthropics_own_address_is_named(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the other backend as the remedy."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    Path("mine.json").write_text(
        '{"mcpServers": {"mine": {"url": "http://127.0.0.1:9/mcp"}}}', encoding="utf-8"
    )
    outcome = command(
        "ask", "q", "--backend", "connector", "--mcp-config", "mine.json", "--price-call", "mine=0"
    )
    assert outcome.code == 2
    assert "mine" in outcome.err
    assert "agent-sdk" in outcome.err


def test_a_line_here_that_moves_the_key_is_exit_2(command: Any) -> None:
    Path(".env").write_text("ANTHROPIC_BASE_URL=https://elsewhere.example\n", encoding="utf-8")
    outcome = command("ask", QUESTION, "--offline")
    assert outcome.code == 2
    assert "orchestrator.toml" in outcome.err


# --- an answer


def test_ask_prints_the_answer_and_nothing_else(command: Any, served: StandIns) -> None:
    outcome = command("ask", QUESTION)
    assert outcome.code == 0, outcome.err
    assert "https://docs.python.org/" in outcome.out
    assert "searching for" not in outcome.out
    assert "[S1]" not in outcome.out


def test_progress_is_plain_lines_where_there_is_no_terminal(command: Any, served: StandIns) -> None:
    """Searching for ..., 3 sources, $0.0123 of $0.50."""
    outcome = command("ask", QUESTION)
    assert any(line.startswith("up to $0.50") for line in outcome.lines)
    assert any(line.startswith("searching for ") for line in outcome.lines)
    assert any(" sources, $" in line and " of $0.50" in line for line in outcome.lines)
    assert "\x1b" not in outcome.err
    assert KEY not in outcome.err


def test_quiet_says_nothing(command: Any, served: StandIns) -> None:
    outcome = command("ask", QUESTION, "--quiet")
    assert (outcome.code, outcome.err) == (0, "")


def test_quiet_still_says_why_it_failed(command: Any, served: StandIns) -> None:
    served.configure(fault="401")
    outcome = command("ask", QUESTION, "--quiet")
    assert outcome.code == 3
    assert len(outcome.lines) == 1


def test_json_holds_the_stable_fields(command: Any, served: StandIns) -> None:
    """The JSON result as DESIGN fixes it; the total is the stand-in's own bill."""
    outcome = command("ask", QUESTION, "--format", "json")
    result = outcome.result
    assert {
        "run_id", "status", "limits_reached", "question", "answer", "citations", "sources", "coverage",
        "ledger", "steps", "tool_calls", "backend", "model", "models_used", "offline", "started", "seconds",
        "run_file",
    } <= set(result)  # fmt: skip
    assert result["status"] == "done"
    assert result["citations"]
    assert not [c for c in result["citations"] if c["verdict"] == "dangling"]
    assert {c["url"] for c in result["citations"]} <= {s["url"] for s in result["sources"]}
    assert result["ledger"]["usd"] == pytest.approx(served.bill()["usd"], abs=1e-9)
    assert Path(result["run_file"]).is_file()


def test_offline_says_that_no_language_model_was_used(command: Any) -> None:
    outcome = command("ask", QUESTION, "--offline", "--format", "json")
    assert outcome.code == 0, outcome.err
    assert "no language model" in outcome.err
    assert outcome.result["offline"] is True


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_a_file_gets_what_standard_output_would(command: Any, served: StandIns, form: str) -> None:
    outcome = command("ask", QUESTION, "--format", form, "--output", "answer")
    assert (outcome.code, outcome.out) == (0, "")
    text = Path("answer").read_text(encoding="utf-8")
    assert "docs.python.org" in text
    assert [path.name for path in Path.cwd().iterdir()] == ["servers.json", "answer"] or len(
        list(Path.cwd().iterdir())
    ) == 2


def test_stream_json_is_the_run_file_as_it_happens(command: Any, served: StandIns) -> None:
    outcome = command("ask", QUESTION, "--format", "stream-json")
    events = [json.loads(line) for line in outcome.out.splitlines()]
    assert events[0]["event"] == "run_started"
    assert events[-1]["event"] == "run_finished"
    assert [e["seq"] for e in events] == sorted(e["seq"] for e in events)
    command("ask", QUESTION, "--format", "stream-json", "--output", "events.jsonl", "--quiet")
    written = Path("events.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(written[-1])["event"] == "run_finished"
    path = run_files()[0]
    assert {e["event"] for e in events} == {record.event.event for record in trace.read(path)}


def test_a_question_from_standard_input(served: StandIns) -> None:
    ended = finished("ask", "-", "--format", "json", given=f"{QUESTION}\n".encode())
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["question"] == QUESTION


@pytest.mark.parametrize(
    "question",
    [
        "with statement 😀 exceptions \u202eright to left\u202c שלום",
        "@/etc/passwd and the with statement",
        "/compact the with statement",
        "null",
        "None",
        '{"with": ["statement"]}',
        "-5 degrees with a statement",
    ],
)
def test_any_text_is_a_question(command: Any, served: StandIns, question: str) -> None:
    outcome = command("ask", "--format", "json", "--", question)
    assert outcome.code in (0, 1), outcome.err
    assert outcome.result["question"] == question


def test_a_question_with_undecodable_bytes_is_asked_without_them(command: Any, served: StandIns) -> None:
    """Python hands bytes that are no UTF-8 over as lone surrogates."""
    argument = b"with statement \xff\xed\xa0\x80 exceptions".decode("utf-8", "surrogateescape")
    outcome = command("ask", argument, "--format", "json")
    assert outcome.code in (0, 1), outcome.err
    assert "\ufffd" in outcome.result["question"]


def test_a_question_of_200_kb_is_asked_or_refused_clearly(command: Any, served: StandIns) -> None:
    outcome = command("ask", f"{QUESTION} " * 4300, "--format", "json")
    if outcome.code == 2:
        assert "--max-usd" in outcome.err
    else:
        assert outcome.result["status"]


ODD = "with statement 😀 → exceptions"


def test_a_console_that_lacks_a_character_never_ends_a_run(served: StandIns) -> None:
    """Case I109."""
    ended = finished("ask", ODD, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ended.returncode in (0, 1), ended.stderr
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_json_on_such_a_console_is_json_with_every_character(
    served: StandIns, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    assert cli.main(["ask", ODD, "--format", form, "--quiet"]) in (0, 1)
    first = written.getvalue().decode("ascii").splitlines()[0]
    assert json.loads(first)["question"] == ODD


def test_a_reader_that_goes_away_is_no_traceback(served: StandIns) -> None:
    with started("ask", QUESTION) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 3
    assert b"Traceback" not in err
    assert b"Nobody reads standard output" in err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo terminals of this kind")
def test_on_a_terminal_progress_is_in_place(served: StandIns) -> None:
    import pty

    parent, child = pty.openpty()
    with started("ask", QUESTION, err=child, TERM="xterm", PYTHONIOENCODING="ascii") as process:
        os.close(child)
        shown = b"".join(_read(parent))
        out = process.communicate(timeout=60)[0]
    os.close(parent)
    assert process.returncode == 0, shown
    assert b"\x1b[" in shown
    assert b"searching for" in shown
    assert b"docs.python.org" in out


def _read(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, 4096)
        except OSError:  # the other end is closed
            return
        if not data:
            return
        yield data


# --- endings


@pytest.mark.parametrize(
    ("fault", "status"), [("401", "failed"), ("refusal", "refusal"), ("429", "rate_limited")]
)
def test_each_ending_has_its_exit_code_one_line_and_a_readable_file(
    command: Any, served: StandIns, fault: str, status: str
) -> None:
    served.configure(fault=fault)
    outcome = command("ask", QUESTION, "--format", "json")
    assert outcome.result["status"] == status
    assert outcome.code == EXIT_CODES[outcome.result["status"]]
    assert len([line for line in outcome.lines if line.startswith(f"orchestrator: {status}: ")]) == 1
    assert isinstance(trace.read(Path(outcome.result["run_file"]))[-1].event, RunFinished | RunFailed)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no such signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_stopped_run_ends_130_with_a_complete_file(served: StandIns, name: str) -> None:
    served.configure(search={"fault": "hanging", "fault_method": "tools/call"})
    with started("ask", QUESTION, "--format", "json") as process:
        assert process.stderr
        for line in process.stderr:
            if line.startswith(b"searching for"):
                break
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"Traceback" not in err
    result = json.loads(out)
    assert result["status"] == "interrupted"
    assert "resume" in err.decode()
    assert isinstance(trace.read(Path(result["run_file"]))[-1].event, RunFailed)


def test_an_unwritable_home_needs_only_a_folder_for_runs(served: StandIns, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    runs = tmp_path / "runs"
    home = str(blocked)
    ended = finished("ask", QUESTION, HOME=home, XDG_STATE_HOME=home)
    assert ended.returncode == 2
    assert b"--runs-dir" in ended.stderr
    ended = finished("ask", QUESTION, "--runs-dir", str(runs), HOME=home, XDG_STATE_HOME=home)
    assert ended.returncode == 0, ended.stderr
    assert len(trace.run_files(runs)) == 1


# --- the record


def test_runs_are_listed_shown_and_removed(command: Any, served: StandIns) -> None:
    assert command("runs").out == ""
    first = command("ask", QUESTION, "--format", "json").result
    command("ask", "What is a generator?", "--quiet")
    listed = command("runs", "list").out.splitlines()
    assert len(listed) == 2
    assert listed[0].startswith(first["run_id"])
    assert "done" in listed[0]
    assert QUESTION in listed[0]
    shown = command("runs", "show", first["run_id"])
    assert "docs.python.org" in shown.out
    assert f"${first['ledger']['usd']:.4f}" in shown.err
    again = command("runs", "show", first["run_id"], "--format", "json").result
    assert again == first
    assert command("runs", "rm", "last", first["run_id"]).code == 0
    assert run_files() == []


def test_a_run_without_content_is_listed_and_cannot_be_resumed(command: Any, served: StandIns) -> None:
    assert command("ask", QUESTION, "--no-content", "--quiet").code == 0
    assert "without content" in command("runs").out
    for args in (("resume", "last"), ("ask", "and?", "--follow-up", "last")):
        outcome = command(*args)
        assert outcome.code == 2
        assert "--no-content" in outcome.err
    assert len(run_files()) == 1
    assert not trace.session_folder(run_files()[0]).exists()


def test_a_failed_run_is_completed_with_its_own_settings(command: Any, served: StandIns) -> None:
    served.configure(fault="529")
    failed = command("ask", QUESTION, "--max-steps", "7", "--effort", "low", "--format", "json")
    assert failed.code == 3
    served.configure(fault=None)
    resumed = command("resume", failed.result["run_id"][:-3], "--format", "json")
    assert resumed.code == 0, resumed.err
    assert resumed.result["question"] == QUESTION
    assert resumed.result["run_id"] != failed.result["run_id"]
    first = trace.read(Path(resumed.result["run_file"]))[0].event
    assert isinstance(first, RunStarted)
    assert (first.limits.max_steps, first.effort, first.resumes) == (7, "low", failed.result["run_id"])


def test_a_finished_run_is_not_resumed(command: Any, served: StandIns) -> None:
    command("ask", QUESTION, "--quiet")
    outcome = command("resume", "last")
    assert outcome.code == 2
    assert "--follow-up" in outcome.err


# --- check


def sources(*lines: dict[str, Any] | str) -> str:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    Path("sources.jsonl").write_text(text, encoding="utf-8")
    return "sources.jsonl"


HUBBLE = {"url": "https://a.example/hubble", "title": "Hubble", "excerpts": ["Hubble was launched in 1990."]}


@pytest.mark.parametrize(
    ("text", "args", "code"),
    [
        ("Hubble was launched in 1990 [S1].", (), 0),
        ("Hubble was launched in 1990 [1].", (), 0),
        ("Hubble was launched in 1990 (https://a.example/hubble).", (), 0),
        ("Hubble was launched in 1990 [S7].", (), 1),
        ("Hubble was launched in 1991 [S1].", (), 0),
        ("Hubble was launched in 1991 [S1].", ("--strict",), 1),
    ],
)
def test_check_ends_1_when_a_citation_names_nothing(
    command: Any, text: str, args: tuple[str, ...], code: int
) -> None:
    Path("answer.md").write_text(text, encoding="utf-8")
    outcome = command("check", "answer.md", "--sources", sources(HUBBLE), *args)
    assert outcome.code == code, outcome.err
    assert len(outcome.lines) == (1 if code else 0)


def test_check_as_json_holds_what_design_names(command: Any) -> None:
    Path("answer.md").write_text("It was launched in 1990 [x]. It was built in 1985 [S9].", encoding="utf-8")
    outcome = command("check", "answer.md", "--sources", sources(HUBBLE | {"id": "x"}), "--format", "json")
    assert outcome.code == 1
    assert {"text", "citations", "bibliography", "dangling", "coverage"} <= set(outcome.result)
    assert len(outcome.result["dangling"]) == 1


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("{",), "line 1 is not JSON"),
        ((HUBBLE, {"title": "no address"}), "line 2, url"),
        ((HUBBLE, HUBBLE | {"excerpts": "text"}), "line 2, excerpts"),
        ((HUBBLE | {"id": "S2"}, HUBBLE), "line 2 has the id S2"),
    ],
)
def test_a_wrong_line_of_sources_is_named(command: Any, lines: tuple[Any, ...], said: str) -> None:
    Path("answer.md").write_text("x", encoding="utf-8")
    outcome = command("check", "answer.md", "--sources", sources(*lines))
    assert outcome.code == 2
    assert said in outcome.err


@pytest.mark.parametrize("args", [(), ("--run", "last", "--sources", "s.jsonl"), ("--sources", "none.jsonl")])
def test_check_wants_one_thing_to_check_against(command: Any, args: tuple[str, ...]) -> None:
    Path("answer.md").write_text("x", encoding="utf-8")
    assert command("check", "answer.md", *args).code == 2


def test_a_run_s_own_answer_passes_its_check(command: Any, served: StandIns) -> None:
    result = command("ask", QUESTION, "--format", "json").result
    Path("answer.md").write_text(result["answer"], encoding="utf-8")
    outcome = command("check", "answer.md", "--run", "last", "--format", "json")
    assert outcome.code == 0, outcome.err
    assert outcome.result["citations"]
    assert outcome.result["dangling"] == []


# --- this machine


def test_an_entry_is_shown_installed_looked_at_and_taken_out(
    command: Any, nothing_from_outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARALLEL_API_KEY", "pk-0123456789abcdef")
    shown = command("install", "cursor", "--env", "PARALLEL_API_KEY")
    assert shown.result["mcpServers"]["orchestrator"]["env"]["PARALLEL_API_KEY"] == "pk-0123456789abcdef"
    assert "env" not in command("install", "claude-code", "--print").out or "pk-" not in shown.err
    assert command("install", "claude-code").code == 0
    assert (nothing_from_outside / ".claude.json").is_file()
    assert "claude-code" in command("doctor", "--offline").out
    assert command("install", "claude-code", "--uninstall").code == 0
    assert command("install", "emacs").code == 2
    assert command("install", "cursor", "--env", "NOT_SET").code == 2


def test_doctor_offline_finds_nothing_to_fix(command: Any) -> None:
    outcome = command("doctor", "--offline")
    assert outcome.code == 0, outcome.out
    for word in (
        "anthropic ",
        "mcp ",
        "ANTHROPIC_API_KEY",
        "PARALLEL_API_KEY",
        "web_search",
        "Agent SDK",
        "writable",
    ):
        assert word in outcome.out


def test_doctor_gives_each_finding_its_remedy_and_never_a_key(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("down.json").write_text(
        '{"mcpServers": {"down": {"url": "http://127.0.0.1:9/mcp"}}}', encoding="utf-8"
    )
    monkeypatch.setenv("PARALLEL_API_KEY", "pk-0123456789abcdef")
    monkeypatch.setenv("ORCHESTRATOR_MAX_USDD", "1")
    outcome = command("doctor", "--mcp-config", "down.json", "--runs-dir", "down.json")
    assert outcome.code == 2
    broken = [line for line in outcome.out.splitlines() if line.startswith("fix ")]
    assert len(broken) == 3
    assert all(": " in line for line in broken)
    assert "ORCHESTRATOR_MAX_USDD" in outcome.out
    assert "pk-0123456789abcdef" not in outcome.out + outcome.err


def test_doctor_names_a_server_that_is_down_as_the_one_thing_to_fix(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("down.json").write_text(
        '{"mcpServers": {"down": {"url": "http://127.0.0.1:9/mcp"}}}', encoding="utf-8"
    )
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    outcome = command("doctor", "--mcp-config", "down.json")
    assert outcome.code == 3
    assert KEY not in outcome.out + outcome.err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no such signals")
def test_offline_alone_prints_its_addresses_as_one_line(tmp_path: Path) -> None:
    with started("offline") as process:
        assert process.stdout
        addresses = json.loads(process.stdout.readline())
        assert {"anthropic_base_url", "mcp_url", "control_url", "server_urls"} <= set(addresses)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b""), err


def test_what_pages_say_cannot_drive_a_terminal() -> None:
    assert plain("a\x1b]0;owned\x07b\n\x9bc") == "a ]0;owned b  c"
