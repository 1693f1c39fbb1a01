"""The Agent SDK backend over its real command line, against the stand-ins."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from claude_agent_sdk import ClaudeAgentOptions, query
from pydantic import SecretStr

from orchestrator import prompts
from orchestrator.backends import RunContext
from orchestrator.backends.agent_sdk import AgentSdk, SessionLost
from orchestrator.backends.engine import descendants, environment
from orchestrator.backends.hooks import Governor, Passes, matcher
from orchestrator.budget import Budget
from orchestrator.errors import (
    BackendError,
    LimitExceeded,
    McpUnavailable,
    RateLimited,
    Refused,
    RunError,
)
from orchestrator.events import (
    Checkpoint,
    Event,
    PassFinished,
    PassStarted,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolsListed,
)
from orchestrator.offline import StandIns
from orchestrator.prices import Prices
from orchestrator.settings import Options
from orchestrator.sources import Registry

pytestmark = [pytest.mark.engine, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

T = TypeVar("T")
HOST_NAME = socket.gethostname()
QUESTION = "How does the with statement handle exceptions?"
SEARCH = {
    "server": "parallel-search",
    "tool": "web_search",
    "input": {"objective": "with statement", "search_queries": ["with statement"]},
}


def search(words: str) -> dict[str, Any]:
    return {**SEARCH, "input": {"objective": words, "search_queries": [words]}}


@dataclass
class Running:
    """One run's context, and what a runner does with the events: record, fold, judge."""

    context: RunContext
    events: list[Event] = field(default_factory=list)

    @property
    def backend(self) -> AgentSdk:
        return AgentSdk(self.context)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.all(TextDelta))

    @property
    def spent(self) -> float:
        self._fold(*self.context.budget.settle_open())
        return self.context.budget.charged

    @property
    def estimated(self) -> bool:
        return any(line.estimated for line in self.context.budget.lines)

    def all(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    async def take(self, events: AsyncGenerator[Event]) -> None:
        async with aclosing(events):
            async for event in events:
                self._fold(event)
                self.context.budget.judge(event)

    async def ask(self, question: str = QUESTION) -> None:
        async with self.backend.conversation() as conversation:
            await self.take(conversation.turn(question))

    def _fold(self, *events: Event) -> None:
        for event in events:
            self.events.append(event)
            self.context.registry.see(event)
            self._fold(*self.context.budget.see(event))


def running(
    stand_ins: StandIns,
    folder: Path | None = None,
    earlier: tuple[Checkpoint, ...] = (),
    opened: Options | None = None,
    **options: Any,
) -> Running:
    chosen = opened or Options(offline=True, **options).with_stand_ins(
        stand_ins.anthropic_base_url, stand_ins.server_urls
    )
    servers = chosen.servers()
    registry = Registry()
    budget = Budget(
        limits=chosen.limits,
        prices=Prices(servers={server.name: server for server in servers}, price_call=chosen.price_call),
        model=chosen.model,
        question_bytes=len(QUESTION),
        opening_bytes=14_000,
        unseen_passes=1,
        sources_in=lambda content: len(registry.add(content)),
    )
    run_id = folder.name if folder else "run"
    system = prompts.system(ids_shown=True)
    return Running(RunContext(run_id, system, chosen, servers, budget, registry, earlier, folder))


def asked(stand_ins: StandIns) -> list[dict[str, Any]]:
    """The bodies of all requests for an answer, in order."""
    stand_ins.settle()
    return [request["body"] for request in stand_ins.requests() if request["path"] == "/v1/messages"]


def user_texts(body: dict[str, Any]) -> list[str]:
    """What the request's user turns say, tool results left out."""
    texts: list[str] = []
    for message in body["messages"]:
        if message["role"] == "user":
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            texts += [block["text"] for block in blocks if block["type"] == "text"]
    return texts


def shown_results(body: dict[str, Any]) -> list[str]:
    """The tool results of a request as the model reads them."""
    results = []
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else []:
            if block["type"] == "tool_result":
                content = block["content"]
                results.append(content if isinstance(content, str) else "".join(b["text"] for b in content))
    return results


def children() -> list[int]:
    """The processes that this one has started and not reaped."""
    return descendants(os.getpid())


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    """Case I119: whatever a test does, the command line is gone after it."""
    yield
    assert children() == []


# --- an ordinary run ---


async def test_an_answer_comes_with_sources_and_a_ledger_that_equals_the_bill(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    run = running(stand_ins, tmp_path / "one")
    await run.ask()
    assert "[S" in run.text
    assert run.spent == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)
    assert not run.estimated
    assert [event.stop_reason for event in run.all(PassFinished)] == ["tool_use", "end_turn"]
    (listed,) = run.all(ToolsListed)
    assert [tool.name for tool in listed.tools] == ["web_search", "web_fetch"]
    assert isinstance(run.events[-1], Checkpoint)


async def test_every_result_follows_its_call_and_every_call_its_pass(stand_ins: StandIns) -> None:
    stand_ins.script([{"calls": [search("a"), search("b")]}, {"calls": [search("c")]}, {"text": "Done."}])
    run = running(stand_ins, max_usd=None)
    await run.ask()
    order = [event for event in run.events if isinstance(event, PassStarted | ToolCall | ToolResult)]
    assert isinstance(order[0], PassStarted)
    calls = [event.id for event in order if isinstance(event, ToolCall)]
    results = [event.id for event in order if isinstance(event, ToolResult)]
    assert sorted(results) == sorted(calls)
    assert all(
        order.index(call) < order.index(result)
        for call in run.all(ToolCall)
        for result in run.all(ToolResult)
        if call.id == result.id
    )


async def test_a_call_reaches_its_server_only_after_its_event_was_taken(stand_ins: StandIns) -> None:
    run = running(stand_ins)
    before: list[int] = []
    async with run.backend.conversation() as conversation, aclosing(conversation.turn(QUESTION)) as events:
        async for event in events:
            if isinstance(event, ToolCall):
                before.append(len(stand_ins.bill()["tool_calls"]))
            await run.take(_one(event))
    assert before == [0]
    assert len(stand_ins.bill()["tool_calls"]) == 1


async def _one(event: Event) -> AsyncGenerator[Event]:
    yield event


async def test_the_model_is_shown_source_ids_and_the_record_holds_the_original(stand_ins: StandIns) -> None:
    run = running(stand_ins)
    await run.ask()
    (result,) = run.all(ToolResult)
    assert "source_id" not in json.dumps(result.content)
    (shown,) = shown_results(asked(stand_ins)[1])
    labelled = [entry["source_id"] for entry in json.loads(shown)["results"]]
    assert list(dict.fromkeys(labelled)) == [source.id for source in run.context.registry]
    assert (result.chars, result.bytes) == (len(shown), len(shown.encode()))
    assert result.ms is not None


async def test_a_server_that_answers_in_plain_text_is_labelled_too(stand_ins: StandIns) -> None:
    run = running(stand_ins, server=("exa",))
    await run.ask()
    (result,) = run.all(ToolResult)
    assert isinstance(result.content, str)
    assert "[S1]" in shown_results(asked(stand_ins)[1])[0]
    assert "[S" in run.text
    assert run.spent == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)


async def test_results_are_cut_to_max_chars_and_say_so(stand_ins: StandIns) -> None:
    run = running(stand_ins, max_chars=3_000)
    await run.ask()
    (shown,) = shown_results(asked(stand_ins)[1])
    assert len(shown) == 3_000
    assert shown.endswith("of which --max-chars shows 3,000.]")
    assert run.all(ToolResult)[0].bytes == len(shown.encode())


async def test_a_giant_result_is_seen_whole_and_shown_in_part(stand_ins: StandIns) -> None:
    """Cases I088 and I089: neither the reader nor the model chokes on it."""
    stand_ins.configure(search={"result_chars": 400_000})
    run = running(stand_ins, max_usd=None)
    await run.ask()
    (result,) = run.all(ToolResult)
    assert len(json.dumps(result.content)) > 300_000
    (shown,) = shown_results(asked(stand_ins)[1])
    assert len(shown) == 50_000
    assert "[Cut here:" in shown


@pytest.mark.parametrize("fault", ["lone_surrogates", "escaped_surrogates"])
async def test_lone_surrogates_in_question_and_results_break_nothing(stand_ins: StandIns, fault: str) -> None:
    """Cases I133 and I134."""
    stand_ins.configure(search={"fault": fault})
    run = running(stand_ins)
    await run.ask(f"{QUESTION} \ud83d and \U0001f600")
    assert run.text
    json.dumps([event.model_dump(mode="json") for event in run.events], ensure_ascii=False).encode()
    assert "\ufffd and \U0001f600" in user_texts(asked(stand_ins)[0])[0]


@pytest.mark.parametrize("fault", ["media", "odd_content", "off_schema", "empty", "hostile"])
async def test_no_shape_of_result_breaks_the_loop(stand_ins: StandIns, fault: str) -> None:
    stand_ins.configure(search={"fault": fault})
    stand_ins.script([{"calls": [SEARCH]}, {"text": "Nothing was found."}])
    run = running(stand_ins)
    await run.ask()
    assert len(run.all(ToolResult)) == 1
    assert run.text == "Nothing was found."


async def test_a_hook_of_ours_that_fails_ends_the_run_with_its_own_error(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running(stand_ins)
    monkeypatch.setattr(run.context.registry, "label", None)
    with pytest.raises(TypeError):
        await run.ask()


# --- the question is data ---


@pytest.mark.parametrize(
    "question", ["@/etc/hostname what is this?", "/compact", "/code-review now", "!ls", "#remember this"]
)
async def test_nothing_in_a_question_is_a_command(stand_ins: StandIns, question: str) -> None:
    stand_ins.script([{"text": "Nothing was found."}])
    await running(stand_ins).ask(question)
    (body,) = asked(stand_ins)
    assert user_texts(body) == [question]
    assert HOST_NAME not in json.dumps(body["messages"])


# --- what the budget does not let through ---


async def test_a_denied_call_is_told_to_the_model_and_the_loop_goes_on(stand_ins: StandIns) -> None:
    stand_ins.script([{"calls": [search("a")]}, {"calls": [search("b")]}, {"text": "Nothing was found."}])
    run = running(stand_ins, max_usd=None, max_calls={"web_search": 1})
    await run.ask()
    first, second = run.all(ToolResult)
    assert (first.denied, second.denied) == (False, True)
    assert "may be called 1 times" in shown_results(asked(stand_ins)[2])[1]
    assert len(stand_ins.bill()["tool_calls"]) == 1
    assert run.spent == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)


async def test_a_limit_ends_the_loop_once_the_pass_is_settled_and_before_another(stand_ins: StandIns) -> None:
    stand_ins.script([{"calls": [SEARCH], "thinking": 300}] * 3)
    run = running(stand_ins)
    with pytest.raises(LimitExceeded) as raised:
        await run.ask()
    assert raised.value.limit == "repeated_calls"
    assert len(asked(stand_ins)) == 3
    assert run.spent == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)
    assert not run.estimated


async def test_a_call_that_was_let_through_comes_back_before_the_loop_ends(stand_ins: StandIns) -> None:
    stand_ins.configure(search={"latency_ms": 300})
    stand_ins.script([{"calls": [search("a"), search("b"), search("c")]}])
    run = running(stand_ins, max_usd=0.5, worst_case=True, max_output_tokens=1_000)
    with pytest.raises(LimitExceeded) as raised:
        await run.ask()
    assert raised.value.limit == "max_usd"
    results = run.all(ToolResult)
    assert [result.denied for result in results].count(False) == len(stand_ins.bill()["tool_calls"]) == 1
    assert len(results) == 3


async def test_a_tool_that_does_not_exist_is_on_record_and_never_reached_a_server(
    stand_ins: StandIns,
) -> None:
    bash = {"server": None, "tool": "Bash", "input": {"command": "ls"}}
    stand_ins.script([{"calls": [bash]}, {"text": "Nothing was found."}])
    run = running(stand_ins)
    await run.ask()
    (call,), (result,) = run.all(ToolCall), run.all(ToolResult)
    assert (call.server, call.tool, call.id) == ("", "Bash", result.id)
    assert result.denied


# --- stop reasons ---


@pytest.mark.parametrize(
    ("fault", "error", "limit"),
    [
        ("max_tokens", LimitExceeded, "max_tokens"),
        ("context_exceeded", LimitExceeded, "context"),
        ("refusal", Refused, None),
    ],
)
async def test_a_stop_that_the_engine_would_go_on_from_ends_it_at_once_and_all_it_began_is_on_the_ledger(
    stand_ins: StandIns, fault: str, error: type[RunError], limit: str | None
) -> None:
    stand_ins.configure(fault=fault)
    run = running(stand_ins)
    with pytest.raises(error) as raised:
        await run.ask()
    assert getattr(raised.value, "limit", None) == limit
    # left alone it makes up to four; on a busy machine one more may go out before it is stopped
    assert len(asked(stand_ins)) <= 2
    assert run.spent >= stand_ins.bill()["usd"] - 1e-9


async def test_a_refusal_names_its_category(stand_ins: StandIns) -> None:
    stand_ins.configure(fault="refusal")
    with pytest.raises(Refused, match="cyber") as raised:
        await running(stand_ins).ask()
    assert raised.value.category == "cyber"


async def test_a_paused_turn_is_gone_on_with(stand_ins: StandIns) -> None:
    stand_ins.script([{"text": "First half.", "stop_reason": "pause_turn"}, {"text": "Second half."}])
    run = running(stand_ins)
    await run.ask()
    assert run.text == "First half.Second half."
    assert run.spent == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)


# --- requests that nobody asked for ---


async def test_a_repeat_after_a_dropped_stream_is_booked_and_never_below_the_bill(
    stand_ins: StandIns,
) -> None:
    stand_ins.configure(fault="dropped_stream", fault_times=1)
    run = running(stand_ins, max_usd=None)
    await run.ask()
    assert len(run.all(PassFinished)) == len(asked(stand_ins)) == 3
    assert run.estimated
    assert stand_ins.bill()["usd"] <= run.spent


async def test_a_stream_that_always_drops_ends_the_run_with_everything_booked(stand_ins: StandIns) -> None:
    stand_ins.configure(fault="dropped_stream", thinking=0)
    run = running(stand_ins)
    with pytest.raises(BackendError, match="try again"):
        await run.ask()
    assert stand_ins.bill()["usd"] <= run.spent


async def test_a_request_that_broke_off_unseen_is_booked(stand_ins: StandIns) -> None:
    with _resetting() as address:
        run = running(stand_ins, opened=_elsewhere(stand_ins, address))
        with pytest.raises(BackendError, match="broke off"):
            await run.ask()
    assert len(run.all(PassFinished)) == 3  # one request and two retries
    assert run.spent > 0
    assert run.estimated


async def test_a_request_that_cannot_have_been_sent_costs_nothing(stand_ins: StandIns) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        run = running(stand_ins, opened=_elsewhere(stand_ins, address))
        with pytest.raises(BackendError, match="ANTHROPIC_BASE_URL"):
            await run.ask()
    assert run.spent == 0


def _elsewhere(stand_ins: StandIns, address: str) -> Options:
    return Options(offline=True).with_stand_ins(address, stand_ins.server_urls)


class _resetting:  # noqa: N801 - reads as a function
    """A service that takes requests and resets the connection, as a broken network does."""

    def __enter__(self) -> str:
        self._socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.recv(65_536)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()


# --- what can go wrong around it ---


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("401", BackendError, "refused the key: check ANTHROPIC_API_KEY"),
        ("429", RateLimited, "limits the rate of requests"),
        ("529", BackendError, "overloaded"),
    ],
)
async def test_what_the_service_refuses_is_said_in_words(
    stand_ins: StandIns, fault: str, error: type[RunError], words: str
) -> None:
    stand_ins.configure(fault=fault)
    run = running(stand_ins)
    with pytest.raises(error, match=words):
        await run.ask()
    assert run.spent == stand_ins.bill()["usd"] == 0


async def test_a_far_retry_after_is_not_waited_for(stand_ins: StandIns) -> None:
    stand_ins.configure(fault="429", retry_after=30)
    with anyio.fail_after(10), pytest.raises(RateLimited) as raised:
        await running(stand_ins).ask()
    assert (raised.value.retry_after or 0) >= 30


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("down", McpUnavailable, "cannot be reached"),
        ("401", McpUnavailable, "refused its key"),
        ("402", McpUnavailable, "wants payment"),
        ("429", RateLimited, "limits the rate"),
        ("hanging", McpUnavailable, "timed out"),
    ],
)
async def test_a_search_server_that_cannot_be_used_ends_the_run_before_the_first_request(
    stand_ins: StandIns, fault: str, error: type[RunError], words: str
) -> None:
    """Case I079: never an answer without sources."""
    stand_ins.configure(search={"fault": fault})
    run = running(stand_ins, max_seconds=2)
    with anyio.fail_after(10), pytest.raises(error, match=words):
        await run.ask()
    assert asked(stand_ins) == []


async def test_a_tool_error_is_told_to_the_model_as_it_is(stand_ins: StandIns) -> None:
    stand_ins.configure(search={"fault": "tool_error"})
    stand_ins.script([{"calls": [SEARCH]}, {"text": "Nothing was found."}])
    run = running(stand_ins)
    await run.ask()
    (result,) = run.all(ToolResult)
    assert result.is_error and not result.denied
    assert shown_results(asked(stand_ins)[1]) == [result.content]


async def test_a_tool_that_the_notes_do_not_name_is_not_offered(stand_ins: StandIns) -> None:
    stand_ins.configure(search={"fault": "extra_tool"})
    run = running(stand_ins)
    await run.ask()
    offered = [tool["name"] for tool in asked(stand_ins)[0]["tools"]]
    assert sorted(offered) == ["mcp__parallel-search__web_fetch", "mcp__parallel-search__web_search"]
    (listed,) = run.all(ToolsListed)
    assert len(listed.tools) == 3


async def test_a_server_without_notes_offers_what_it_marks_read_only(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    config = tmp_path / "servers.json"
    entry = {"type": "http", "url": stand_ins.mcp_url}
    name = "a-server-with-quite-a-long-name"
    config.write_text(json.dumps({"mcpServers": {name: entry}}), encoding="utf-8")
    opened = Options(mcp_config=config, price_call={name: 0.0}, max_usd=None).with_stand_ins(
        stand_ins.anthropic_base_url, {name: stand_ins.mcp_url}
    )
    run = running(stand_ins, opened=opened)
    await run.ask()
    assert {call.server for call in run.all(ToolCall)} == {name}
    assert "[S" in run.text


async def test_more_tools_than_allowed_end_the_run(stand_ins: StandIns) -> None:
    run = running(stand_ins)
    async with run.backend.conversation() as conversation:
        conversation._tools.names.clear()
        with pytest.raises(BackendError, match="tools that nobody allowed: mcp__parallel-search__"):
            await run.take(conversation.turn(QUESTION))


async def test_a_tool_that_ran_without_a_hook_ends_the_run_loudly(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case I113: an engine that has stopped calling its hooks."""
    from claude_agent_sdk import ClaudeSDKClient

    connect = ClaudeSDKClient.connect

    async def without_hooks(self: ClaudeSDKClient) -> None:
        self.options.hooks = None
        await connect(self)

    monkeypatch.setattr(ClaudeSDKClient, "connect", without_hooks)
    run = running(stand_ins)
    with pytest.raises(BackendError, match="Governance bypassed"):
        await run.ask()


# --- the child ---


async def test_closing_the_iterator_ends_the_child_at_once(stand_ins: StandIns) -> None:
    """Case I119."""
    stand_ins.configure(pace=0.2)
    run = running(stand_ins)
    async with run.backend.conversation() as conversation:
        events = conversation.turn(QUESTION)
        assert len(children()) == 1
        async for event in events:
            if isinstance(event, PassStarted):
                break
        with anyio.fail_after(2):
            await events.aclose()
            await _gone()
    assert len(asked(stand_ins)) == 1


async def _gone() -> None:
    """Wait until no child runs any more; one that is not reaped yet counts as gone."""
    while any(_state(pid) != "Z" for pid in children()):  # noqa: ASYNC110 - nobody tells us
        await anyio.sleep(0.01)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


@pytest.mark.parametrize("moment", [ToolsListed, PassStarted, ToolCall])
async def test_a_cancelled_run_leaves_no_child(stand_ins: StandIns, moment: type[Event]) -> None:
    stand_ins.configure(pace=0.05)
    run = running(stand_ins)
    reached = asyncio.Event()

    async def ask() -> None:
        async with run.backend.conversation() as conversation:
            async for event in conversation.turn(QUESTION):
                if isinstance(event, moment):
                    reached.set()
                await asyncio.sleep(0)

    task = asyncio.create_task(ask())
    with anyio.fail_after(10):
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_error_in_the_block_leaves_no_child(stand_ins: StandIns) -> None:
    with anyio.fail_after(10), pytest.raises(ZeroDivisionError):
        async with running(stand_ins).backend.conversation():
            raise ZeroDivisionError


async def test_a_stdio_server_dies_with_the_child_even_when_it_does_not_want_to(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    stubborn = (
        "import os, signal, sys, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"
    )
    pid_file = tmp_path / "pid"
    config = tmp_path / "servers.json"
    entry = {"command": sys.executable, "args": ["-c", stubborn, str(pid_file)]}
    config.write_text(json.dumps({"mcpServers": {"stubborn": entry}}), encoding="utf-8")
    opened = Options(
        mcp_config=config,
        price_call={"stubborn": 0.0},
        max_seconds=1,
        anthropic_base_url=stand_ins.anthropic_base_url,
        anthropic_api_key=SecretStr("offline"),
    )
    with anyio.fail_after(10), pytest.raises(McpUnavailable, match="stubborn"):
        await running(stand_ins, opened=opened).ask()
    assert _state(int(pid_file.read_text(encoding="ascii"))) == "Z"


async def test_no_key_stands_on_the_command_line(stand_ins: StandIns) -> None:
    opened = Options(offline=True, parallel_api_key=SecretStr("x")).with_stand_ins(
        stand_ins.anthropic_base_url, stand_ins.server_urls
    )
    async with running(stand_ins, opened=opened).backend.conversation():
        (pid,) = children()
        command = _command(pid)
    assert b"offline" not in command
    assert b"Bearer" not in command


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_nothing_inherited_redirects_the_child(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case I121, and what FACTS lists: another service, model, header or body."""
    foreign = {
        "ANTHROPIC_AUTH_TOKEN": "foreign",
        "ANTHROPIC_MODEL": "claude-haiku-4-5",
        "ANTHROPIC_SMALL_FAST_MODEL": "claude-haiku-4-5",
        "ANTHROPIC_CUSTOM_HEADERS": "x-foreign: yes",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        "CLAUDE_CODE_EXTRA_BODY": '{"metadata": {"user_id": "foreign"}}',
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "CLAUDE_CODE_USE_VERTEX": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "99",
        "CLAUDECODE": "1",
        "MAX_THINKING_TOKENS": "0",
    }
    opened = running(stand_ins).context.options
    for name, value in foreign.items():
        monkeypatch.setenv(name, value)
    run = running(stand_ins, opened=opened)
    await run.ask()
    request = next(r for r in stand_ins.requests() if r["path"] == "/v1/messages")
    assert request["body"]["model"] == "claude-opus-5-5"
    assert request["body"]["max_tokens"] == 16_000
    assert "foreign" not in json.dumps(request)


async def test_the_child_is_told_how_much_it_may_write_and_think(stand_ins: StandIns) -> None:
    stand_ins.script([{"text": "Nothing was found."}])
    await running(stand_ins, effort="high", max_output_tokens=3_000).ask()
    (body,) = asked(stand_ins)
    assert (body["max_tokens"], body["output_config"]["effort"]) == (3_000, "high")


# --- a second turn, and a later run ---


async def test_the_correction_is_the_answer_to_the_stop_hook(stand_ins: StandIns) -> None:
    stand_ins.script([{"text": "It does."}, {"text": "It does [S1]."}])
    run = running(stand_ins)
    async with run.backend.conversation() as conversation:
        await run.take(conversation.turn(QUESTION))
        (pid,) = children()
        await run.take(conversation.turn("Cite @/etc/hostname, please.", "correction"))
        assert children() == [pid]
    assert [event.purpose for event in run.all(PassFinished)] == ["answer", "correction"]
    first, second = asked(stand_ins)
    assert second["messages"][: len(first["messages"])] != []
    assert "Stop hook feedback:\nCite @/etc/hostname, please." in user_texts(second)[-1]
    assert run.spent == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)


async def test_another_question_is_a_user_turn_of_its_own(stand_ins: StandIns) -> None:
    stand_ins.script([{"text": "One."}, {"text": "Two."}])
    run = running(stand_ins)
    async with run.backend.conversation() as conversation:
        await run.take(conversation.turn("First?"))
        await run.take(conversation.turn("Second?"))
    assert user_texts(asked(stand_ins)[1]) == ["First?", "Second?"]


async def test_a_later_run_carries_the_conversation_on(stand_ins: StandIns, tmp_path: Path) -> None:
    first = running(stand_ins, tmp_path / "first")
    await first.ask()
    second = running(stand_ins, tmp_path / "second", tuple(first.all(Checkpoint)))
    stand_ins.script([{"text": "Shorter."}])
    await second.ask("Shorter, please.")
    assert user_texts(asked(stand_ins)[-1]) == [QUESTION, "Shorter, please."]
    (before,), (after,) = first.all(Checkpoint), second.all(Checkpoint)
    assert after.blocks[0]["session_id"] != before.blocks[0]["session_id"]
    third = running(stand_ins, tmp_path / "third", (*first.all(Checkpoint), after))
    stand_ins.script([{"text": "Shortest."}])
    await third.ask("Shorter still.")
    assert user_texts(asked(stand_ins)[-1]) == [QUESTION, "Shorter, please.", "Shorter still."]


async def test_a_lost_session_is_said_before_anything_is_sent(stand_ins: StandIns, tmp_path: Path) -> None:
    gone = Checkpoint(backend="agent-sdk", blocks=({"session_id": "0", "run": "gone"},))
    run = running(stand_ins, tmp_path / "now", (gone,))
    with pytest.raises(SessionLost):
        await run.ask()
    assert asked(stand_ins) == []


async def test_without_a_folder_nothing_is_kept(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = running(stand_ins)
    await run.ask()
    assert run.all(Checkpoint) == []
    assert os.listdir(tmp_path) == []  # noqa: PTH208


# --- somebody else's options ---


async def test_anyone_s_own_options_can_hold_the_hooks_and_the_fold(stand_ins: StandIns) -> None:
    stand_ins.script([{"calls": [SEARCH]}] * 3)
    run = running(stand_ins, max_usd=None)
    context = run.context

    async def publish(event: Event) -> None:
        await run.take(_one(event))

    governor = Governor(context.budget, context.registry, publish)
    passes = Passes(context.budget, "answer", context.options.model, 2_000, counts_thinking=False)
    own = ClaudeAgentOptions(
        mcp_servers={"parallel-search": {"type": "http", "url": stand_ins.mcp_url}},
        allowed_tools=["mcp__parallel-search__web_search"],
        hooks={event: [matcher(hook)] for event, hook in governor.hooks().items()},
        include_partial_messages=True,
        env={
            "ANTHROPIC_BASE_URL": stand_ins.anthropic_base_url,
            "ANTHROPIC_API_KEY": "offline",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "MCP_CONNECTION_NONBLOCKING": "false",
        },
        tools=[],
        setting_sources=[],
        model=context.options.model,
    )
    async for message in query(prompt=QUESTION, options=own):
        for event in passes.read(message):
            await run.take(_one(event))
    assert governor.limit is not None and governor.limit.limit == "repeated_calls"
    assert len(asked(stand_ins)) == 3
    assert len(context.registry) > 0
    assert run.spent == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)


# --- the final request ---


async def test_the_final_request_has_no_tools_and_is_the_only_one(stand_ins: StandIns) -> None:
    stand_ins.script([{"text": "It calls __exit__ [S1]."}])
    run = running(stand_ins)
    await run.take(run.backend.answer("Answer now: @/etc/hostname", 1_234))
    (body,) = asked(stand_ins)
    assert (body["tools"], body["max_tokens"], body["output_config"]["effort"]) == ([], 1_234, "low")
    assert user_texts(body) == ["Answer now: @/etc/hostname"]
    assert run.text == "It calls __exit__ [S1]."
    assert [event.purpose for event in run.all(PassFinished)] == ["final"]
    assert run.spent == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("max_tokens", lambda error: error.limit == "max_tokens"),
        ("refusal", lambda error: isinstance(error, Refused)),
    ],
)
async def test_a_final_request_that_fails_is_not_repeated(
    stand_ins: StandIns, fault: str, check: Callable[[Any], bool]
) -> None:
    stand_ins.configure(fault=fault)
    run = running(stand_ins)
    with pytest.raises(RunError) as raised:
        await run.take(run.backend.answer("Answer now.", 1_000))
    assert check(raised.value)
    assert len(asked(stand_ins)) == 1
    assert run.spent == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)


async def test_a_repeat_that_is_not_paid_for_ends_the_final_request(stand_ins: StandIns) -> None:
    stand_ins.configure(fault="dropped_stream")
    run = running(stand_ins, max_usd=0.025)
    with pytest.raises(LimitExceeded) as raised:
        await run.take(run.backend.answer("Answer now.", 600))
    assert raised.value.limit == "max_usd"
    assert stand_ins.bill()["usd"] <= run.spent


async def test_leaving_the_final_request_early_ends_its_child(stand_ins: StandIns) -> None:
    stand_ins.configure(pace=0.2)
    run = running(stand_ins)
    with anyio.fail_after(5):
        async with aclosing(run.backend.answer("Answer now.", 1_000)) as events:
            async for event in events:
                if isinstance(event, PassStarted):
                    break


def test_a_proxy_certificate_reaches_the_child(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Case I137: the command line reads NODE_EXTRA_CA_CERTS alone."""
    context = replace(running(stand_ins).context)
    monkeypatch.delenv("NODE_EXTRA_CA_CERTS", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", "/certificates/own.pem")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("OTHER_API_KEY", "secret")
    child = environment(context, tmp_path, 1_000)
    assert child["NODE_EXTRA_CA_CERTS"] == "/certificates/own.pem"
    assert "HTTPS_PROXY" not in child
    assert child["OTHER_API_KEY"] == ""
