"""Ten thousand calls from fifty concurrent HTTP clients: nothing lost, nothing mixed, memory flat.

    python -m tests.bench.gateway_load [--calls 10000] [--clients 50]

Each client holds conversations of twenty calls; every answer must be the one asked for, and the sources of a
conversation its own, numbered without a gap. Resident memory of the server is read after each tenth.
Ends 1 when an answer is lost or mixed, or memory grew by more than a tenth from the first to the last tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mcp import Client
from mcp_types import CallToolResult, TextResourceContents

from tests.conformance.run import ROOT, free_port, say, wait_for
from tests.odd_server import OddServer, running, tool

CONVERSATION: Final = 20
"""Calls of one conversation."""
RESULTS: Final = 3
GROWTH: Final = 1.1


def answer(arguments: dict[str, Any]) -> dict[str, Any]:
    """What the search server says: words about this question, and about no other."""
    asked = arguments["objective"]
    pages = [
        {"url": page(asked, n), "title": page(asked, n), "excerpts": [f"{asked} says {n}. " * 20]}
        for n in range(RESULTS)
    ]
    found = {"results": pages, "session_id": arguments["session_id"]}
    return {"content": [{"type": "text", "text": json.dumps(found)}], "structuredContent": found}


def page(asked: str, number: int) -> str:
    """The same pages come back in each of a client's conversations, with other words."""
    client, _, turn = asked.split("-")
    return f"https://example.org/{client}/{turn}/{number}"


def entry() -> dict[str, Any]:
    source = {
        "type": "object",
        "properties": {
            "url": {"type": "string"},
            "title": {"type": "string"},
            "excerpts": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["url", "excerpts"],
    }
    properties = {"results": {"type": "array", "items": source}, "session_id": {"type": "string"}}
    asked = {"objective": {"type": "string"}, "session_id": {"type": "string"}}
    return tool("web_search") | {
        "inputSchema": {"type": "object", "properties": asked, "required": ["objective"]},
        "outputSchema": {"type": "object", "properties": properties, "required": ["results", "session_id"]},
    }


@contextmanager
def gateway(upstream: str) -> Iterator[tuple[str, int]]:
    """The server before this upstream: its URL and its process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "servers.json"
        file.write_text(json.dumps({"mcpServers": {"double": {"url": upstream}}}), encoding="utf-8")
        env = os.environ | {
            "PYTHONPATH": str(ROOT),
            "HOME": folder,
            "ORCHESTRATOR_MCP_CONFIG": str(file),
            "ORCHESTRATOR_PRICE_CALL": "double=0.0001",
            "ORCHESTRATOR_HOURLY_USD": "none",
        }
        port = free_port()
        command = [sys.executable, "-m", "orchestrator", "mcp", "--http", f"127.0.0.1:{port}"]
        process = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.DEVNULL)
        try:
            wait_for(port)
            yield f"http://127.0.0.1:{port}/mcp", process.pid
        finally:
            process.terminate()
            process.wait(30)


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"no memory figure for process {pid}")


@dataclass
class Load:
    url: str
    pid: int
    calls: int
    done: int = 0
    wrong: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    async def client(self, number: int, calls: int) -> None:
        async with Client(self.url) as client:
            for start in range(0, calls, CONVERSATION):
                await self.conversation(client, f"client{number}-{start}", min(CONVERSATION, calls - start))

    async def conversation(self, client: Client, name: str, calls: int) -> None:
        for turn in range(calls):
            asked = f"{name}-{turn}"
            result = await client.call_tool("web_search", {"objective": asked, "session_id": name})
            self.judge(asked, name, turn, result)
            self.count()
        (told,) = (await client.read_resource(f"orchestrator://sources/{name}")).contents
        assert isinstance(told, TextResourceContents)
        seen = [(source["url"], source["excerpts"]) for source in json.loads(told.text)]
        own = [
            (each["url"], [each["excerpts"][0].strip()])
            for turn in range(calls)
            for each in answer({"objective": f"{name}-{turn}", "session_id": name})["structuredContent"][
                "results"
            ]
        ]
        if seen != own:
            self.wrong.append(f"{name}: its sources are {seen[:2]}...")

    def judge(self, asked: str, name: str, turn: int, result: Any) -> None:
        found = result.structured_content if isinstance(result, CallToolResult) else None
        if not found or result.is_error or found["session_id"] != name:
            self.wrong.append(f"{asked}: {str(result)[:200]}")
            return
        first = turn * RESULTS + 1
        for n, each in enumerate(found["results"]):
            if (each["url"], each["source_id"]) != (page(asked, n), f"S{first + n}"):
                self.wrong.append(f"{asked}: {each}")
            if not each["excerpts"][0].startswith(f"{asked} says {n}."):
                self.wrong.append(f"{asked}: {each}")

    def count(self) -> None:
        self.done += 1
        if self.done % (self.calls // 10) == 0:
            self.memory.append(resident(self.pid))
            rate = self.done / (time.perf_counter() - self.started)
            say(f"{self.done:6} calls, {rate:5.0f} a second, {self.memory[-1] / 1e6:6.1f} MB")


async def load(calls: int, clients: int) -> Load:
    with running(OddServer([entry()], {"web_search": answer})) as upstream, gateway(upstream) as (url, pid):
        running_load = Load(url, pid, calls)
        await asyncio.gather(*(running_load.client(number, calls // clients) for number in range(clients)))
        return running_load


def main() -> int:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    given.add_argument("--calls", type=int, default=10_000)
    given.add_argument("--clients", type=int, default=50)
    options = given.parse_args()
    done = asyncio.run(load(options.calls, options.clients))
    growth = done.memory[-1] / done.memory[0]
    say(
        f"{done.done} answers, {len(done.wrong)} lost or mixed, memory {growth:.2f}x from first to last tenth"
    )
    for line in done.wrong[:10]:
        say(line)
    return 1 if done.wrong or done.done != options.calls or growth > GROWTH else 0


if __name__ == "__main__":
    raise SystemExit(main())
