"""Another provider by changing one name: a server with other tools, other arguments, and text for results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.events import RunStarted, ToolCall, ToolResult
from orchestrator.offline import StandIns
from tests.whole import (
    Backend,
    Json,
    asked,
    assert_ended_once,
    both_backends,
    file_of,
    research,
    search,
    told,
    user_texts,
)


@both_backends
async def test_server_alone_swaps_the_provider_and_the_answer_is_cited_and_checked(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    """Issue of the main job, "It is done when": an abstraction nobody has swapped is only a hope."""
    by_name = {}
    for name in ("parallel-search", "exa"):
        before = stand_ins.bill()["usd"]
        result = await research(stand_ins, backend, runs_dir=tmp_path, server=(name,))
        assert (result.status, result.backend) == ("done", backend)
        assert result.citations
        assert all(verdict.verdict == "supported" for verdict in result.citations)
        assert {verdict.url for verdict in result.citations} <= {source.url for source in result.sources}
        assert all(source.excerpts for source in result.sources)
        assert result.ledger.usd == pytest.approx(stand_ins.bill()["usd"] - before, abs=1e-9)
        assert {call.server for call in told(result, ToolCall)} == {name}
        assert_ended_once(file_of(result))
        by_name[name] = result
    one, other = by_name.values()
    assert {call.tool for call in told(one, ToolCall)} == {"web_search"}
    assert {call.tool for call in told(other, ToolCall)} == {"web_search_exa"}
    assert isinstance(told(one, ToolResult)[0].content, dict)
    assert isinstance(told(other, ToolResult)[0].content, str)


@both_backends
async def test_the_other_provider_s_pages_become_sources_too(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    page = "https://docs.python.org/3/reference/compound_stmts.html"
    fetch: Json = {"server": "exa", "tool": "web_fetch_exa", "input": {"urls": [page]}}
    stand_ins.script([{"calls": [search(server="exa")]}, {"calls": [fetch]}])
    result = await research(stand_ins, backend, runs_dir=tmp_path, server=("exa",), max_usd=9)
    assert result.status == "done", result.message
    assert isinstance(told(result, ToolResult)[1].content, str)
    assert any(source.url.startswith(page) for source in result.sources)
    assert result.ledger.usd == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)


@both_backends
async def test_two_providers_serve_one_question_together(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    calls = [search(), search(server="exa")]
    stand_ins.script([{"calls": calls}])
    result = await research(
        stand_ins, backend, runs_dir=tmp_path, server=("parallel-search", "exa"), max_usd=9
    )
    assert result.status == "done"
    assert {call.server for call in told(result, ToolCall)} == {"parallel-search", "exa"}
    assert len({source.url for source in result.sources}) == len(result.sources)
    assert result.ledger.usd == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)


@both_backends
async def test_a_conversation_with_another_provider_begins_anew_from_what_was_found(
    stand_ins: StandIns, tmp_path: Path, backend: Backend
) -> None:
    """FACTS 0: replayed thinking is bound to the tools of its conversation."""
    first = await research(stand_ins, backend, runs_dir=tmp_path)
    second = await research(
        stand_ins,
        backend,
        "And what does __exit__ return?",
        runs_dir=tmp_path,
        server=("exa",),
        follow_up=first.run_id,
    )
    assert second.status == "done", second.message
    assert told(second, RunStarted)[0].servers == ("exa",)
    assert any(first.question in text for text in user_texts(asked(stand_ins)[-1]))
    known = [(source.id, source.url) for source in first.sources]
    assert [(source.id, source.url) for source in second.sources][: len(known)] == known


def test_the_command_takes_the_other_provider_by_its_name(
    stand_ins: StandIns, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline, whatever service the environment names: nothing is sent there."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-nobody-0123456789")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", stand_ins.anthropic_base_url)
    given = ("ask", "How does the with statement handle exceptions?", "--format", "json")
    code = cli.main([*given, "--offline", "--server", "exa", "--runs-dir", str(tmp_path)])
    assert code == 0
    printed = json.loads(capsys.readouterr().out)
    assert {line["item"] for line in printed["ledger"]["lines"] if "/" in line["item"]} == {
        "exa/web_search_exa"
    }
    assert asked(stand_ins) == []
    assert {citation["url"] for citation in printed["citations"]} <= {s["url"] for s in printed["sources"]}
