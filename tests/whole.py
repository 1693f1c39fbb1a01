"""Whole runs against the stand-ins: what the commands do, without their printing."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import pytest

from orchestrator import runner, trace
from orchestrator.events import Ending
from orchestrator.offline import StandIns
from orchestrator.result import Result
from orchestrator.runner import Listener
from orchestrator.settings import Options

T = TypeVar("T")
Json = dict[str, Any]

QUESTION: Final = "How does the with statement handle exceptions?"
Backend = Literal["connector", "agent-sdk"]
BACKENDS: Final = (
    pytest.param("connector", id="connector"),
    pytest.param("agent-sdk", id="agent-sdk", marks=pytest.mark.engine),
)
both_backends = pytest.mark.parametrize("backend", BACKENDS)
"""The same sentence of both; the Agent SDK's is told by its real command line."""


def search(words: str = "with statement exceptions", server: str = "parallel-search") -> Json:
    """A call of the search tool, as a scripted pass makes it."""
    tool = {"exa": "web_search_exa"}.get(server, "web_search")
    asked = {"query": words} if server == "exa" else {"objective": words, "search_queries": [words]}
    return {"server": server, "tool": tool, "input": asked}


def options(stand_ins: StandIns, backend: Backend, **chosen: Any) -> Options:
    """Options of an offline run through this backend, at stand-ins that are running already."""
    return Options(offline=True, backend=backend, **chosen).with_stand_ins(
        stand_ins.anthropic_base_url, stand_ins.server_urls
    )


async def research(
    stand_ins: StandIns,
    backend: Backend,
    question: str = QUESTION,
    *,
    resume: str | None = None,
    listeners: Sequence[Listener] = (),
    **chosen: Any,
) -> Result:
    """One run to its end, as `ask` and `resume` have it carried out."""
    return await runner.run(question, options(stand_ins, backend, **chosen), listeners, resume=resume)


def file_of(result: Result) -> Path:
    assert result.run_file is not None
    return result.run_file


def told(result: Result, kind: type[T]) -> list[T]:
    """The events of one kind in a run's file."""
    return [record.event for record in trace.read(file_of(result)) if isinstance(record.event, kind)]


def assert_ended_once(path: Path) -> Ending:
    """A run file is readable, its lines are numbered, and exactly its last one is an ending."""
    records = trace.read(path)
    assert [record.seq for record in records] == list(range(len(records)))
    assert [isinstance(record.event, Ending) for record in records].index(True) == len(records) - 1
    last = records[-1].event
    assert isinstance(last, Ending)
    return last


def asked(stand_ins: StandIns) -> list[Json]:
    """The bodies of all requests for an answer, in order."""
    stand_ins.settle()
    return [request["body"] for request in stand_ins.requests() if request["path"] == "/v1/messages"]


def user_texts(body: Json) -> list[str]:
    """What the request's user turns say, tool results left out."""
    texts: list[str] = []
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "user":
            texts += [block["text"] for block in blocks if block["type"] == "text"]
    return texts


def children() -> list[int]:
    """The processes that this one has started and not reaped; none where the system does not tell.

    Python's own helper process stays for the whole session once a test has used multiprocessing.
    """
    from orchestrator.backends.engine import descendants

    return [pid for pid in descendants(os.getpid()) if b"multiprocessing" not in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def serve(stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch, backend: Backend, **environment: str) -> None:
    """Make commands use these stand-ins as they would use any service at an address."""
    entry = {"type": "http", "url": stand_ins.mcp_url}
    file = Path("servers.json").absolute()
    file.write_text(json.dumps({"mcpServers": {"parallel-search": entry}}), encoding="utf-8")
    settings = {
        "ANTHROPIC_BASE_URL": stand_ins.anthropic_base_url,
        "ANTHROPIC_API_KEY": "sk-ant-of-nobody-0123456789",
        "ORCHESTRATOR_MCP_CONFIG": str(file),
        "ORCHESTRATOR_BACKEND": backend,
    }
    for name, value in (settings | environment).items():
        monkeypatch.setenv(name, value)


@contextmanager
def command(*args: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command line as a process of its own, which does not outlive the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *args],
        env={**os.environ, "PYTHONPATH": str(Path(runner.__file__).parents[1])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[bytes], words: bytes) -> None:
    """Read the process's standard error until a line begins with these words."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(words):
            return
    raise AssertionError(f"it never said {words!r}")


def gone(pids: Iterable[int], within: float = 10.0) -> bool:
    """Whether all of these processes end in time; polled, since they are not our children any more."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}/cmdline").exists() and _runs(pid) for pid in pids):
            return True
        select.select([], [], [], 0.05)
    return False


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False
