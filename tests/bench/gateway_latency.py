"""Added latency per call and memory: this server, FastMCP's proxy and PyPI's mcp-proxy, side by side.

    python -m venv A; A/bin/pip install "fastmcp>=4"
    python -m venv B; B/bin/pip install mcp-proxy "mcp<2"
    python -m tests.bench.gateway_latency --fastmcp A/bin/python --mcp-proxy B/bin/mcp-proxy [--calls 200]

One search server, one client library, one run: the contenders take turns of ten calls, so whatever else the
machine does hits all of them. No call is made twice, so nothing is answered from memory. Ours numbers the
sources, checks the schema, keeps the ledger and writes the record meanwhile; the others only pass on.
Processor time per call is the server process's own, and says the same on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvicorn
from mcp import Client, StdioServerParameters
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from tests.bench.gateway_load import resident
from tests.conformance.run import ROOT, free_port, say, wait_for

TURN: Final = 10
"""Calls in a row to one contender; the first is not counted."""
RESULTS: Final = 10
EXCERPTS: Final = 3
TEXT: Final = "the search result has words like these, and each page a few paragraphs of them; "
FASTMCP: Final = """
import sys
from fastmcp.server import create_proxy
proxy = create_proxy(sys.argv[1])
if len(sys.argv) > 2:
    proxy.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
else:
    proxy.run(show_banner=False)
"""
SOURCE: Final = {
    "type": "object",
    "properties": {
        "url": {"type": "string"},
        "title": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "publish_date": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "excerpts": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["url", "excerpts"],
}
OUTPUT: Final = {
    "type": "object",
    "properties": {
        "search_id": {"type": "string"},
        "results": {"type": "array", "items": {"$ref": "#/$defs/Source"}},
        "session_id": {"type": "string"},
    },
    "required": ["search_id", "results", "session_id"],
    "$defs": {"Source": SOURCE},
}
INPUT: Final = {
    "type": "object",
    "properties": {
        "objective": {"type": "string"},
        "search_queries": {"type": "array", "items": {"type": "string"}},
        "session_id": {"type": "string"},
    },
    "required": ["objective", "search_queries"],
}


# --- the search server ------------------------------------------------------------------------------------


def found(asked: str, session: str) -> CallToolResult:
    """Ten results of about 25,000 characters together, as the live server returns them."""
    text = TEXT * (25_000 // RESULTS // EXCERPTS // len(TEXT))
    results = [
        {
            "url": f"https://example.org/{number}/{abs(hash(asked)) % 1000}",
            "title": f"Page {number}",
            "publish_date": None,
            "excerpts": [f"{asked}: {text}"] * EXCERPTS,
        }
        for number in range(RESULTS)
    ]
    told = {"search_id": "search", "results": results, "session_id": session}
    return CallToolResult(content=[TextContent(text=json.dumps(told, indent=2))], structured_content=told)


def serve(port: int) -> None:
    async def list_tools(
        _ctx: ServerRequestContext[Any, Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        reads = ToolAnnotations(read_only_hint=True)
        search = Tool(
            name="web_search",
            description="Search.",
            input_schema=INPUT,
            output_schema=OUTPUT,
            annotations=reads,
        )
        return ListToolsResult(tools=[search])

    async def call_tool(
        _ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult:
        arguments = params.arguments or {}
        return found(arguments["objective"], arguments.get("session_id", "none"))

    server = Server("search", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="critical")


# --- the contenders ---------------------------------------------------------------------------------------


@dataclass
class Contender:
    name: str
    target: str | StdioServerParameters
    pid: int | None = None
    """Of a server over HTTP; one over stdio is found as our child."""
    ms: list[float] = field(default_factory=list)
    calls: int = 0
    memory: int = 0
    cpu_ms: float = 0.0
    """Processor time of the server process per call."""

    @asynccontextmanager
    async def client(self, mode: str) -> AsyncIterator[Client]:
        before = children()
        async with Client(self.target, mode=mode) as client:
            await client.list_tools()
            if not isinstance(self.target, str):
                (self.pid,) = children() - before
            spent = cpu_ms(self.pid)
            yield client
            if self.pid is not None:
                self.memory = resident(self.pid)
                self.cpu_ms = (cpu_ms(self.pid) - spent) / self.calls


def cpu_ms(pid: int | None) -> float:
    """Processor time that a process has used, in milliseconds."""
    if pid is None:
        return 0.0
    told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def children() -> set[int]:
    told = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(encoding="utf-8")
    return {int(pid) for pid in told.split()}


@contextmanager
def contenders(fastmcp: Path | None, mcp_proxy: Path | None) -> Iterator[list[Contender]]:
    with tempfile.TemporaryDirectory() as folder:
        upstream, ours, theirs = free_port(), free_port(), free_port()
        url = f"http://127.0.0.1:{upstream}/mcp"
        file = Path(folder) / "servers.json"
        file.write_text(json.dumps({"mcpServers": {"search": {"url": url}}}), encoding="utf-8")
        own = {
            "PYTHONPATH": str(ROOT),
            "HOME": folder,
            "ORCHESTRATOR_MCP_CONFIG": str(file),
            "ORCHESTRATOR_PRICE_CALL": "search=0.0001",
        }
        mcp = ["-m", "orchestrator", "mcp"]
        started = [
            _start([sys.executable, "-m", "tests.bench.gateway_latency", "--serve", str(upstream)], own),
            _start([sys.executable, *mcp, "--http", f"127.0.0.1:{ours}"], own),
        ]
        found_here = [
            Contender("direct", url),
            Contender("ours, HTTP", f"http://127.0.0.1:{ours}/mcp", started[1].pid),
            Contender("ours, stdio", StdioServerParameters(command=sys.executable, args=mcp, env=own)),
        ]
        if fastmcp:
            started.append(_start([str(fastmcp), "-c", FASTMCP, url, str(theirs)], {}))
            over_stdio = StdioServerParameters(command=str(fastmcp), args=["-c", FASTMCP, url])
            found_here += [
                Contender("FastMCP, HTTP", f"http://127.0.0.1:{theirs}/mcp", started[-1].pid),
                Contender("FastMCP, stdio", over_stdio),
            ]
        if mcp_proxy:
            args = ["--transport", "streamablehttp", url]
            found_here.append(
                Contender("mcp-proxy, stdio", StdioServerParameters(command=str(mcp_proxy), args=args))
            )
        try:
            for port in (upstream, ours, *([theirs] if fastmcp else [])):
                wait_for(port)
            yield found_here
        finally:
            for process in started:
                process.terminate()
                process.wait(30)


def _start(command: Sequence[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, env=os.environ | env, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


# --- the run ----------------------------------------------------------------------------------------------


async def measure(field_of: list[Contender], mode: str, calls: int) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(contender.client(mode)) for contender in field_of]
        for turn in range(-1, calls // TURN):  # the first turn only warms up
            for contender, client in zip(field_of, clients, strict=True):
                for call in range(TURN):
                    took = await timed(client, f"{contender.name} {mode} {turn} {call}")
                    contender.calls += 1
                    if turn >= 0 and call:
                        contender.ms.append(took)


async def timed(client: Client, objective: str) -> float:
    """Milliseconds of one call."""
    began = time.perf_counter()
    result = await client.call_tool("web_search", {"objective": objective, "search_queries": ["a b c"]})
    took = (time.perf_counter() - began) * 1000
    assert isinstance(result, CallToolResult) and not result.is_error, result
    return took


def report(field_of: list[Contender], mode: str) -> float | None:
    """The table of one mode; the larger of our shares of FastMCP's added latency."""
    floor = statistics.median(field_of[0].ms)
    added = {each.name: statistics.median(each.ms) - floor for each in field_of}
    say(f"\n{mode}: medians of {len(field_of[0].ms)} calls; direct {floor:.1f} ms")
    for each in field_of[1:]:
        slow = statistics.quantiles(each.ms, n=10)[-1]
        holds = f"{each.cpu_ms:4.1f} ms of processor, {each.memory / 1e6:4.0f} MB"
        say(f"  {each.name:18} +{added[each.name]:5.1f} ms, nine in ten below {slow:5.1f} ms, {holds}")
    shares = [
        added[f"ours, {way}"] / added[f"FastMCP, {way}"]
        for way in ("HTTP", "stdio")
        if f"FastMCP, {way}" in added
    ]
    if shares:
        say(f"  our share of FastMCP's added latency: {', '.join(f'{share:.2f}' for share in shares)}")
    return max(shares, default=None)


def main() -> int:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    given.add_argument("--fastmcp", type=Path, help="a Python that has fastmcp")
    given.add_argument("--mcp-proxy", type=Path, help="the mcp-proxy command")
    given.add_argument("--calls", type=int, default=200)
    given.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = given.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    for mode in ("legacy", "auto"):
        with contenders(options.fastmcp, options.mcp_proxy) as field_of:
            asyncio.run(measure(field_of, mode, options.calls))
            report(field_of, mode)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
