"""Dollar caps side by side: ten scripted loops under ten caps against one bill that is kept by somebody else.

    python tests/bench/overshoot.py [--pydantic-ai PYTHON] [--loops 10] [--seed 1]

Prints a Markdown table: how often and how far the bill went above the cap, and how many answers from sources
came back.
`--pydantic-ai` is a Python interpreter that has `pydantic-ai-slim[anthropic,mcp]`; without it that row is
left out. Every program is asked the same question, gets the same searches from the same stand-in, and may
spend the same: between 30% and 90% of what the loop costs through the Agent SDK when nothing ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from orchestrator import offline
from orchestrator.offline import StandIns
from orchestrator.runner import run
from orchestrator.settings import Options

Json = dict[str, Any]
MODEL: Final = "claude-opus-5-5"
QUESTION: Final = "How does the with statement handle exceptions?"
LEAST_USD: Final = 0.15
"""A smaller cap pays no search and answer of this model."""
SERVER: Final = "parallel-search"
TOOL: Final = f"mcp__{SERVER}__web_search"
SECONDS: Final = 60

ELSEWHERE: Final = """
import asyncio, decimal, json, sys
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

told = json.loads(sys.argv[1])

async def main():
    provider = AnthropicProvider(api_key="offline", base_url=told["base_url"])
    agent = Agent(AnthropicModel(told["model"], provider=provider), toolsets=[MCPToolset(told["mcp_url"])],
                  model_settings={"max_tokens": 16000, "anthropic_cache": True})
    limits = UsageLimits(cost_limit=decimal.Decimal(str(told["cap"])), request_limit=None)
    try:
        print((await agent.run(told["question"], usage_limits=limits)).output)
    except UsageLimitExceeded:
        pass

asyncio.run(main())
"""
"""The same question under pydantic-ai's cost limit, for an interpreter of its own."""


@dataclass(frozen=True)
class Loop:
    """Searches that follow each other, and the share of their whole price that may be spent."""

    passes: tuple[Json, ...]
    sizes: tuple[int, ...]
    share: float


def loop(dice: random.Random) -> Loop:
    count = dice.randrange(5, 10)
    passes = [
        {"thinking": dice.choice((100, 400, 1_200)), "calls": [_search(f"with statement {at}")]}
        for at in range(count)
    ]
    answer = {"thinking": 300, "text": "An exception is passed to the exit method. " * 20}
    sizes = tuple(dice.randrange(5_000, 45_000) for _ in range(count))
    return Loop((*passes, answer), sizes, dice.uniform(0.3, 0.9))


def _search(query: str) -> Json:
    arguments = {"objective": f"find {query}", "search_queries": [query]}
    return {"server": SERVER, "tool": "web_search", "input": arguments}


@dataclass
class Row:
    """What came of one program's runs: bill and cap of each, and how many answers."""

    name: str
    ask: Callable[[StandIns, float, Path], Awaitable[str]]
    own_tools: bool = False
    """Whether it names the tools as their server does, without the server's name."""
    spent: list[tuple[float, float]] = field(default_factory=list)
    answers: int = 0

    def line(self) -> str:
        above = [bill / cap - 1 for bill, cap in self.spent if bill > cap + 1e-9]
        far = f"{statistics.median(above):.0%}, most {max(above):.0%}" if above else "-"
        count = len(self.spent)
        used = statistics.median(bill / cap for bill, cap in self.spent)
        return f"| {self.name} | {len(above)} of {count} | {far} | {used:.0%} | {self.answers} of {count} |"


def ours(backend: str) -> Callable[[StandIns, float, Path], Awaitable[str]]:
    async def ask(double: StandIns, cap: float, folder: Path) -> str:
        return await _run(double, cap, folder, backend)

    return ask


async def _run(double: StandIns, cap: float | None, folder: Path, backend: str) -> str:
    options = Options(
        offline=True, backend=backend, model=MODEL, max_usd=cap, max_steps=None, runs_dir=folder / backend
    ).with_stand_ins(double.anthropic_base_url, double.server_urls)
    # a real service may teach rates, stand-ins may not: to the program this is one
    result = await run(QUESTION, options.model_copy(update={"offline": False}))
    return result.answer if result.sources else ""  # what nothing was found for is no answer here


async def engine_alone(double: StandIns, cap: float, folder: Path) -> str:
    """The Agent SDK as its documentation shows it, with its own cap."""
    from claude_agent_sdk import ClaudeAgentOptions, ResultError, ResultMessage, query

    work = folder / "work"
    work.mkdir(exist_ok=True)
    options = ClaudeAgentOptions(
        tools=[],
        setting_sources=[],
        strict_mcp_config=True,
        mcp_servers={SERVER: {"type": "http", "url": double.mcp_url}},
        allowed_tools=[TOOL],
        model=MODEL,
        max_budget_usd=cap,
        cwd=work,
        env={
            "ANTHROPIC_BASE_URL": double.anthropic_base_url,
            "ANTHROPIC_API_KEY": "offline",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CONFIG_DIR": str(folder / "home"),
            "ENABLE_TOOL_SEARCH": "false",
            "MCP_CONNECTION_NONBLOCKING": "0",
            "MAX_MCP_OUTPUT_TOKENS": "100000",
        },
    )
    answer = ""
    try:
        async for message in query(prompt=QUESTION, options=options):
            if isinstance(message, ResultMessage) and not message.is_error:
                answer = message.result or ""
    except ResultError:
        pass
    return answer


def elsewhere(python: Path) -> Callable[[StandIns, float, Path], Awaitable[str]]:
    async def ask(double: StandIns, cap: float, folder: Path) -> str:
        told = {
            "base_url": double.anthropic_base_url,
            "mcp_url": double.mcp_url,
            "model": MODEL,
            "cap": cap,
            "question": QUESTION,
        }
        process = await asyncio.create_subprocess_exec(
            python,
            *("-W", "ignore", "-c", ELSEWHERE, json.dumps(told)),
            cwd=folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, wrong = await process.communicate()
        if process.returncode:
            raise RuntimeError(wrong.decode().strip()[-2_000:])
        return said.decode().strip()

    return ask


def _set(double: StandIns, chosen: Loop, *, own_tools: bool = False) -> None:
    double.reset()
    double.configure(script_needs_tools=True, pace=0.0003, search={"result_chars": chosen.sizes})
    passes = json.loads(json.dumps(chosen.passes))
    for call in (call for step in passes for call in step.get("calls", ())):
        call["server"] = None if own_tools else call["server"]
    double.script(passes)


async def _bill(double: StandIns) -> float:
    return float((await asyncio.to_thread(double.bill))["usd"])


async def compare(rows: list[Row], chosen: list[Loop]) -> None:
    """Play every loop with every program."""
    async with offline.in_step() as double:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for backend in ("connector", "agent-sdk"):  # what the service costs was seen once, as by any user
                _set(double, chosen[0])
                await _run(double, None, folder, backend)
            for each in chosen:
                _set(double, each)
                await _run(double, None, folder / "uncut", "agent-sdk")
                cap = round(max(await _bill(double) * each.share, LEAST_USD), 3)
                for row in rows:
                    _set(double, each, own_tools=row.own_tools)
                    async with asyncio.timeout(SECONDS):
                        answer = await row.ask(double, cap, folder)
                    row.spent.append((await _bill(double), cap))
                    row.answers += bool(answer.strip())
                    print(f"{row.name}: cap ${cap}, bill ${row.spent[-1][0]:.4f}", file=sys.stderr)


def main(count: int, seed: str, python: Path | None) -> None:
    """Play the loops and print the table."""
    rows = [
        Row("this project, connector", ours("connector")),
        Row("this project, Agent SDK", ours("agent-sdk")),
        Row("Agent SDK alone, `max_budget_usd`", engine_alone),
    ]
    if python is not None:
        rows.append(Row("pydantic-ai, `cost_limit`", elsewhere(python), own_tools=True))
    else:
        print("pydantic-ai is left out: name an interpreter that has it with --pydantic-ai", file=sys.stderr)
    asyncio.run(compare(rows, [loop(random.Random(f"{seed}/{at}")) for at in range(count)]))
    print("| | bill above the cap | by, in the median | of the cap spent, median | answers from sources |")
    print("|---|---|---|---|---|")
    print("\n".join(row.line() for row in rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--loops", type=int, default=10)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--pydantic-ai", type=Path, metavar="PYTHON")
    given = parser.parse_args()
    main(given.loops, given.seed, given.pydantic_ai)
