"""The MCP server as a process: what is on its standard output, how it ends, who may reach it over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult
from pydantic import SecretStr

from orchestrator.errors import UsageError
from orchestrator.offline import StandIns
from orchestrator.serving import doors, hosts
from orchestrator.serving.hosts import Machine
from orchestrator.settings import Options
from tests.odd_server import CHILD

ROOT = Path(__file__).parents[1]
SEARCH = {"objective": "How does the with statement work?", "search_queries": ["with statement"]}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Process:
    """The server over stdio, line by line."""

    def __init__(self, command: Sequence[str], **env: str) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=Path.cwd(),
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, message: Any) -> None:
        line = message if isinstance(message, str) else json.dumps(message)
        assert self.process.stdin
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout
        line = json.loads(self.process.stdout.readline())
        assert isinstance(line, dict)
        return line

    def ask(self, number: int, method: str, **params: Any) -> dict[str, Any]:
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while (answer := self.receive()).get("id") != number:
            pass
        return answer

    def greet(self) -> None:
        self.send(INITIALIZE)
        assert self.receive()["result"]["serverInfo"]["name"] == "orchestrator"
        self.send(INITIALIZED)

    def end(self) -> tuple[int, str, str]:
        """Close its input; exit code, and what is left on standard output and error."""
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out.decode(), err.decode("utf-8", "replace")


@contextmanager
def serving(*arguments: str, code: str | None = None, **env: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "orchestrator", "mcp", *arguments]
    process = Process([sys.executable, "-c", code] if code else command, **env)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.process.kill()
        with suppress(ValueError):
            process.process.communicate()


def before_child(folder: Path) -> list[str]:
    """Options for a gateway before a search server that is a child process."""
    entry = {"command": sys.executable, "args": ["-c", CHILD.replace('"inputSchema": {}', READS)]}
    file = folder / "child.json"
    file.write_text(json.dumps({"mcpServers": {"child": entry}}), encoding="utf-8")
    return ["--mcp-config", str(file), "--price-call", "child=0"]


READS = '"inputSchema": {}, "annotations": {"readOnlyHint": True}'
SAY = {"name": "say", "arguments": {"text": "hello"}}


# --- standard input and output ----------------------------------------------------------------------------


def test_nothing_but_json_rpc_is_on_standard_output_whatever_is_printed() -> None:
    """Case I106: clean by default; prints, writes to the descriptor and children's output go elsewhere."""
    code = textwrap.dedent("""
        import asyncio, os, subprocess, sys, threading
        from orchestrator.serving import doors
        from orchestrator.settings import Options

        def noise():
            while "orchestrator.gateway" not in sys.modules:
                pass
            while True:
                print("noise from print", flush=True)
                os.write(1, b"noise from the descriptor\\n")
                sys.__stdout__.write("noise from the original\\n")
                subprocess.run([sys.executable, "-S", "-c", "print('noise from a child')"])

        threading.Thread(target=noise, daemon=True).start()
        asyncio.run(doors.serve(Options(offline=True)))
    """)
    with serving(code=code) as server:
        server.greet()
        for number in range(2, 12):
            answer = server.ask(number, "tools/call", name="web_search", arguments=SEARCH)
            assert not answer["result"]["isError"]
        _, out, err = server.end()
    assert out == ""
    assert "noise from the descriptor" in err and "noise from a child" in err


def test_it_ends_in_good_order_when_the_host_goes_away(tmp_path: Path) -> None:
    """And so does the child it had started."""
    with serving(*before_child(tmp_path)) as server:
        server.greet()
        text = server.ask(2, "tools/call", **SAY)["result"]["content"][0]["text"]
        code, out, _ = server.end()
    assert (code, out) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(text.split()[0]), 0)


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_ends_it_with_everything_it_started(tmp_path: Path, name: str) -> None:
    """No orphans, though it waits for a line that will never come."""
    with serving(*before_child(tmp_path)) as server:
        server.greet()
        text = server.ask(2, "tools/call", **SAY)["result"]["content"][0]["text"]
        server.process.send_signal(getattr(signal, name))
        server.process.wait(20)
    with pytest.raises(ProcessLookupError):
        os.kill(int(text.split()[0]), 0)


def test_a_message_that_is_no_json_and_one_with_half_a_character_do_no_harm() -> None:
    """Case I133: hosts have sent lone surrogates, too."""
    with serving("--offline") as server:
        server.greet()
        server.send("this is not JSON")
        server.send("")
        half = json.dumps({"objective": "x \ud83d y", "search_queries": ["with statement"]})
        server.send(
            '{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"web_search","arguments":'
            f"{half}}}}}"
        )
        while (answer := server.receive()).get("id") != 5:
            pass
        assert not answer["result"]["isError"]


def test_a_console_of_one_code_page_does_not_matter() -> None:
    """Case I109: emoji from pages on a cp1252 console."""
    with serving("--offline", PYTHONIOENCODING="cp1252") as server:
        server.greet()
        arguments = SEARCH | {"objective": "\N{SNAKE} \N{CHECK MARK} with statement"}
        answer = server.ask(2, "tools/call", name="web_search", arguments=arguments)
        assert not answer["result"]["isError"]
        code, _, err = server.end()
    assert code == 0 and "Traceback" not in err


def test_input_from_a_file_works_too(tmp_path: Path) -> None:
    """Not only pipes: what a shell redirects is read by a thread."""
    file = tmp_path / "requests.jsonl"
    file.write_text(f"{json.dumps(INITIALIZE)}\n", encoding="utf-8")
    with file.open("rb") as stdin:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "mcp", "--offline"],
            stdin=stdin,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=60,
            check=True,
        )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1]


def test_what_it_logs_goes_to_standard_error_and_a_file(nothing_from_outside: Path) -> None:
    with serving("--server", "parallel-search", "--offline") as server:
        server.greet()
        server.end()
    (file,) = nothing_from_outside.rglob("mcp.log")
    assert file.is_file()


def test_nothing_of_the_current_directory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host decides where we start, and what lies there is not ours."""
    (tmp_path / "orchestrator.toml").write_text("this is not toml [", encoding="utf-8")
    (tmp_path / ".env").write_text("ORCHESTRATOR_OFFLINE=nonsense\n", encoding="utf-8")
    (tmp_path / "mcp.py").write_text("raise SystemExit('foreign code ran')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    machine = Machine()
    command = hosts.entry("claude-desktop", machine)
    process = Process([command["command"], *command["args"], "--offline"])
    process.greet()
    assert process.end()[0] == 0


def test_no_model_sdk_is_imported_before_research_is_called() -> None:
    """Hosts wait for the start: 1 to 2 seconds are `anthropic` alone."""
    code = textwrap.dedent("""
        import sys
        import orchestrator.serving.doors, orchestrator.gateway
        print([name for name in ("anthropic", "claude_agent_sdk", "rich") if name in sys.modules])
    """)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


async def test_the_entry_that_install_writes_starts_and_serves(tmp_path: Path) -> None:
    """What `doctor` asks later."""
    entry = hosts.entry("claude-code", Machine(), {"ORCHESTRATOR_OFFLINE": "true"})
    assert await hosts.fault(entry) is None
    broken = entry | {"args": ["-c", "raise SystemExit(3)"]}
    assert await hosts.fault(broken)
    missing = entry | {"command": str(tmp_path / "python")}
    assert "could not be started" in (await hosts.fault(missing) or "")


async def test_the_sdks_own_client_speaks_to_it_over_stdio() -> None:
    entry = hosts.entry("claude-code", Machine(), {"ORCHESTRATOR_OFFLINE": "true"})
    home = {name: os.environ[name] for name in ("HOME", "USERPROFILE")}
    started = StdioServerParameters(
        command=entry["command"], args=entry["args"], env={**home, **entry["env"]}
    )
    for mode in ("auto", "legacy"):
        async with Client(started, mode=mode) as client:
            result = await client.call_tool("web_search", SEARCH)
            assert isinstance(result, CallToolResult) and not result.is_error


# --- HTTP -------------------------------------------------------------------------------------------------


@contextmanager
def over_http(*arguments: str, address: str = "127.0.0.1:0", **env: str) -> Iterator[str]:
    with serving("--http", address, "--offline", *arguments, **env) as server:
        assert server.process.stderr
        while not (found := re.search(rb"http://\S+", server.process.stderr.readline())):
            pass
        yield found[0].decode()


async def post(url: str, **headers: str) -> int:
    accept = {"accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient() as http:
        return (await http.post(url, json=INITIALIZE, headers=accept | headers)).status_code


async def test_it_serves_http_on_loopback_to_who_asks_for_loopback() -> None:
    """A web page must not reach it by a name of its own that points here."""
    with over_http() as url:
        assert await post(url) == 200
        assert await post(url, origin="http://localhost:3000") == 200
        assert await post(url, host="evil.example") == 421
        assert await post(url, origin="https://evil.example") == 403
        assert await post(url, origin="null") == 403
        for mode in ("auto", "legacy"):
            async with Client(url, mode=mode) as client:
                first = await client.call_tool("web_search", SEARCH)
                second = await client.call_tool("web_search", SEARCH)
            names = {each.structured_content["session_id"] for each in (first, second)}
            assert len(names) == 2


async def test_a_token_is_needed_where_one_is_set() -> None:
    with over_http(address="0.0.0.0:0", ORCHESTRATOR_HTTP_TOKEN="a-long-token") as url:
        local = url.replace("0.0.0.0", "127.0.0.1")
        assert await post(local) == 401
        assert await post(local, authorization="Bearer wrong") == 401
        assert await post(local, authorization="Bearer a-long-token") == 200


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("0.0.0.0:8000", "give a token"),
        ("192.168.1.5:8000", "give a token"),
        ("example.org:8000", "give a token"),
        ("::8000", "give a token"),
        ("127.0.0.1", "is no address"),
        ("127.0.0.1:99999", "is no address"),
        ("http://127.0.0.1:80/x", "is no address"),
        (":8000", "is no address"),
    ],
)
async def test_an_address_that_others_reach_or_that_is_none_is_refused(address: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        await doors.serve(Options(), address)


async def test_a_port_that_is_taken_is_said(stand_ins: StandIns) -> None:
    port = stand_ins.mcp_url.split(":")[2].split("/")[0]
    done = await anyio.run_process(
        [sys.executable, "-m", "orchestrator", "mcp", "--http", f"127.0.0.1:{port}", "--offline"],
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 2 and b"cannot be served" in done.stderr


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "[::1]:0"])
def test_every_spelling_of_loopback_is_loopback(address: str) -> None:
    host, _ = doors._address(address, None)
    assert doors._is_loopback(host)
    assert doors._address("0.0.0.0:1", SecretStr("t")) == ("0.0.0.0", 1)
