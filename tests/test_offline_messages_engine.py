"""The stand-in of the Messages API, driven by the Agent SDK's real engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    TextBlock,
)

from orchestrator.offline import StandIns

pytestmark = pytest.mark.engine
QUESTION = "How does the with statement handle exceptions?"
PATIENCE = 60
"""Seconds; a first start of the engine on a busy machine takes a few."""


def options(stand_ins: StandIns, folder: Path, **more: Any) -> ClaudeAgentOptions:
    """The engine with nothing but the search server, as FACTS ran it."""
    working = folder / "working"
    working.mkdir()
    return ClaudeAgentOptions(
        model="claude-opus-5-5",
        system_prompt="Answer from what the search returns.",
        tools=[],
        setting_sources=[],
        strict_mcp_config=True,
        mcp_servers={"parallel-search": {"type": "http", "url": stand_ins.mcp_url}},
        allowed_tools=["mcp__parallel-search__web_search", "mcp__parallel-search__web_fetch"],
        cwd=working,
        env={
            "ANTHROPIC_BASE_URL": stand_ins.anthropic_base_url,
            "ANTHROPIC_API_KEY": "offline",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4000",
            "CLAUDE_CONFIG_DIR": str(folder / "configuration"),
            "ENABLE_TOOL_SEARCH": "false",
        },
        **more,
    )


async def ask(client: ClaudeSDKClient, question: str) -> tuple[str, ResultMessage]:
    await client.query(question)
    texts: list[str] = []
    result: ResultMessage | None = None
    async for message in client.receive_response():
        if isinstance(message, AssistantMessage):
            texts += [block.text for block in message.content if isinstance(block, TextBlock)]
        elif isinstance(message, ResultMessage):
            result = message
    assert result is not None
    return "".join(texts), result


async def test_the_engine_searches_answers_and_reckons_what_the_bill_says(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    """Two passes, one search, no request refused; the engine's own figure is the bill to the cent's cent."""
    with anyio.fail_after(PATIENCE):
        async with ClaudeSDKClient(options(stand_ins, tmp_path)) as client:
            answer, result = await ask(client, QUESTION)
    assert result.subtype == "success"
    assert "](https://docs.python.org/3/" in answer
    bill = stand_ins.bill()
    assert len(bill["passes"]) == len(stand_ins.requests()) == 2
    assert [call["tool"] for call in bill["tool_calls"]] == ["web_search"]
    assert result.total_cost_usd == pytest.approx(bill["model_usd"], abs=1e-9)


async def test_a_second_question_in_the_same_session_replays_thinking_that_is_accepted(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    """FACTS: the Agent SDK keeps the prefix intact by itself."""
    with anyio.fail_after(PATIENCE):
        async with ClaudeSDKClient(options(stand_ins, tmp_path)) as client:
            await ask(client, QUESTION)
            answer, result = await ask(client, "shorter, please")
    assert (result.subtype, result.is_error) == ("success", False)
    replayed = stand_ins.requests()[-1]["body"]["messages"]
    kinds = [b["type"] for m in replayed if m["role"] == "assistant" for b in m["content"]]
    assert "thinking" in kinds
    assert answer
    assert len(stand_ins.bill()["passes"]) == len(stand_ins.requests())


async def test_ids_written_into_results_by_a_hook_are_what_the_answer_cites(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    """PostToolUse replaces what the model sees."""

    async def label(seen: Any, _id: str | None, _context: Any) -> Any:
        found = json.loads(seen["tool_response"])
        for number, result in enumerate(found["results"], 1):
            result.update(source_id=f"S{number}", cite=f"[S{number}]")
        output = {"hookEventName": "PostToolUse", "updatedToolOutput": json.dumps(found)}
        return {"hookSpecificOutput": output}

    hooks: Any = {"PostToolUse": [HookMatcher(matcher="^mcp__parallel-search__", hooks=[label])]}
    with anyio.fail_after(PATIENCE):
        async with ClaudeSDKClient(options(stand_ins, tmp_path, hooks=hooks)) as client:
            answer, _ = await ask(client, QUESTION)
    assert "[S" in answer
    assert "](" not in answer


async def test_a_dropped_stream_is_asked_again_by_the_engine_and_billed_twice(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    """FACTS, seen here: a silent repeat that no hook sees."""
    stand_ins.configure(fault="dropped_stream", fault_times=1)
    with anyio.fail_after(PATIENCE):
        async with ClaudeSDKClient(options(stand_ins, tmp_path)) as client:
            answer, result = await ask(client, QUESTION)
    assert result.subtype == "success"
    assert answer
    assert len(stand_ins.bill()["passes"]) == 3
