"""A real host before our MCP server: the Agent SDK's command line, set up by what `install` prints."""

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
    ResultMessage,
    TextBlock,
    ToolResultBlock,
    UserMessage,
)

from orchestrator.offline import StandIns
from orchestrator.serving import hosts
from orchestrator.serving.hosts import Machine

pytestmark = pytest.mark.engine
QUESTION = "How does the with statement work?"
SEARCH = {"objective": QUESTION, "search_queries": ["with statement"]}
CLAIM = "The with statement is used to wrap the execution of a block with methods of a context manager"


def options(stand_ins: StandIns, folder: Path) -> ClaudeAgentOptions:
    printed, _ = hosts.shown("claude-code", Machine(), {"ORCHESTRATOR_OFFLINE": "true", "HOME": str(folder)})
    working = folder / "working"
    working.mkdir()
    return ClaudeAgentOptions(
        model="claude-opus-5-5",
        system_prompt="Answer from what the search returns.",
        tools=[],
        setting_sources=[],
        strict_mcp_config=True,
        mcp_servers=json.loads(printed)["mcpServers"],
        allowed_tools=["mcp__orchestrator"],
        cwd=working,
        env={
            "ANTHROPIC_BASE_URL": stand_ins.anthropic_base_url,
            "ANTHROPIC_API_KEY": "offline",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CONFIG_DIR": str(folder / "configuration"),
            "ENABLE_TOOL_SEARCH": "false",
        },
    )


async def talk(client: ClaudeSDKClient, question: str) -> tuple[str, list[Any], ResultMessage]:
    """The answer, the tool results as the model saw them, and the end."""
    await client.query(question)
    texts: list[str] = []
    results: list[Any] = []
    end: ResultMessage | None = None
    async for message in client.receive_response():
        match message:
            case AssistantMessage():
                texts += [block.text for block in message.content if isinstance(block, TextBlock)]
            case UserMessage(content=list() as blocks):
                results += [block for block in blocks if isinstance(block, ToolResultBlock)]
            case ResultMessage():
                end = message
    assert end is not None
    return "".join(texts), results, end


def shown(result: Any) -> dict[str, Any]:
    """A tool result as JSON, whichever of its two forms the host shows its model."""
    content = result.content
    text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
    value = json.loads(text)
    assert isinstance(value, dict)
    return value


async def test_it_searches_cites_and_the_check_agrees(stand_ins: StandIns, tmp_path: Path) -> None:
    """The host's model sees source ids and links, cites one, and check_citations finds it backed."""
    answer = f"{CLAIM} [S1]."
    call = {"server": None, "tool": "mcp__orchestrator__web_search", "input": SEARCH}
    check = {"server": None, "tool": "mcp__orchestrator__check_citations", "input": {"text": answer}}
    stand_ins.script(
        [
            {"calls": [call], "stop_reason": "tool_use"},
            {"calls": [check], "stop_reason": "tool_use"},
            {"text": answer},
        ]
    )
    with anyio.fail_after(120):
        async with ClaudeSDKClient(options(stand_ins, tmp_path)) as client:
            text, results, end = await talk(client, QUESTION)
    assert (end.subtype, text) == ("success", answer)
    searched, checked = map(shown, results)
    first = searched["results"][0]
    assert first["source_id"] == "S1" and first["cite"].startswith("[S1](")
    assert checked["citations"][0]["source"] == "S1" and not checked["dangling"]
    assert checked["citations"][0]["verdict"] == "supported"
    assert checked["session_id"] == searched["session_id"]


async def test_the_hosts_own_model_finds_its_way(stand_ins: StandIns, tmp_path: Path) -> None:
    """Without a script: the stand-in model takes the tools from the list, and cites what came back."""
    with anyio.fail_after(120):
        async with ClaudeSDKClient(options(stand_ins, tmp_path)) as client:
            text, results, end = await talk(client, QUESTION)
    assert end.subtype == "success" and results
    urls = {each["url"] for each in shown(results[0])["results"]}
    assert any(url in text for url in urls) or "[S" in text
