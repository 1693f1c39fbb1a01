"""The connector against the stand-in: what goes over the wire, what is remembered, how each thing ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pytest
from anthropic.types.anthropic_beta_param import AnthropicBetaParam
from anthropic.types.beta import BetaMCPToolsetParam, BetaRequestMCPServerURLDefinitionParam
from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming
from pydantic import SecretStr, TypeAdapter

from orchestrator.backends import request
from orchestrator.backends.connector import Connector
from orchestrator.errors import BackendError, LimitExceeded, McpUnavailable, RateLimited, Refused, RunError
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
from orchestrator.settings import Server, ToolNotes
from tests.replay import context, drive, drive_into, error, replaying, sse, text_of

Json = dict[str, Any]
QUESTION = "How does the with statement handle exceptions?"
CALL = {
    "server": "parallel-search",
    "tool": "web_search",
    "input": {"objective": "with statement", "search_queries": ["with statement exceptions"]},
}


def search(number: int) -> Json:
    """A pass that searches for something else each time."""
    asked = {"objective": f"with statement {number}", "search_queries": [f"with statement {number}"]}
    return {"calls": [{**CALL, "input": asked}]}


def bodies(stand_ins: StandIns) -> list[Json]:
    return [entry["body"] for entry in stand_ins.requests()]


def betas(stand_ins: StandIns) -> list[set[str]]:
    return [set(entry["headers"].get("anthropic-beta", "").split(",")) for entry in stand_ins.requests()]


async def ask(stand_ins: StandIns, *questions: str, **options: Any) -> list[Event]:
    """All events of one conversation with these questions."""
    of = context(stand_ins, **options)
    seen: list[Event] = []
    async with Connector(of).conversation() as conversation:
        for question in questions or (QUESTION,):
            await drive_into(seen, of, conversation.turn(question))
    return seen


# --- the request ----------------------------------------------------------------------------------


async def test_a_request_is_what_the_sdks_own_types_describe(stand_ins: StandIns) -> None:
    await ask(stand_ins)
    [body] = bodies(stand_ins)
    TypeAdapter(MessageCreateParamsStreaming).validate_python(body)
    assert body.keys() <= MessageCreateParamsStreaming.__annotations__.keys()
    assert body["mcp_servers"][0].keys() <= BetaRequestMCPServerURLDefinitionParam.__annotations__.keys()
    assert body["tools"][0].keys() <= BetaMCPToolsetParam.__annotations__.keys()
    known = set(get_args(get_args(AnthropicBetaParam)[1]))
    assert betas(stand_ins)[0] <= known


async def test_a_request_holds_nothing_that_the_service_refuses(stand_ins: StandIns) -> None:
    """FACTS 0 and 3: no sampling parameters, no switch for thinking, no forced tool, a user message last."""
    await ask(stand_ins, QUESTION, "Shorter, please.")
    for body in bodies(stand_ins):
        assert not body.keys() & {
            "temperature",
            "top_p",
            "top_k",
            "thinking",
            "tool_choice",
            "stop_sequences",
        }
        assert body["messages"][-1]["role"] == "user"
        assert all("citations" not in block for block in body["messages"][-1]["content"])
        assert str(body).count("cache_control") <= 4
        names = [server["name"] for server in body["mcp_servers"]]
        assert [tool["mcp_server_name"] for tool in body["tools"]] == names


async def test_a_toolset_allows_the_tools_of_the_notes_and_no_others(stand_ins: StandIns) -> None:
    await ask(stand_ins)
    [toolset] = bodies(stand_ins)[0]["tools"]
    assert toolset["default_config"] == {"enabled": False}
    assert toolset["configs"] == {"web_search": {"enabled": True}, "web_fetch": {"enabled": True}}


async def test_a_server_without_notes_is_allowed_what_it_marks_as_read_only(stand_ins: StandIns) -> None:
    """DESIGN, Configuration of servers."""
    stand_ins.configure(search={"fault": "extra_tool"})
    bare = Server(name="parallel-search", url=stand_ins.mcp_url)
    of = context(stand_ins, servers=(bare,), price_call={"parallel-search": 0.001})
    async with Connector(of).conversation() as conversation:
        await drive(of, conversation.turn(QUESTION))
    [toolset] = bodies(stand_ins)[0]["tools"]
    assert toolset["configs"] == {"web_search": {"enabled": True}, "web_fetch": {"enabled": True}}


async def test_a_servers_key_goes_with_its_entry_and_its_other_headers_nowhere() -> None:
    keyed = Server(
        name="echo",
        url="https://echo.example/mcp?mode=fast",
        authorization_token=SecretStr("psk-1"),
        tools={"echo": ToolNotes(role="search", usd_per_call=0)},
    )
    assert request.mcp_server(keyed) == {
        "type": "url",
        "name": "echo",
        "url": "https://echo.example/mcp?mode=fast",
        "authorization_token": "psk-1",
    }


async def test_old_results_are_cleared_on_the_services_side_with_the_values_of_the_settings(
    stand_ins: StandIns,
) -> None:
    await ask(stand_ins)
    await ask(stand_ins, clear_trigger=50_000, clear_keep=2, clear_at_least=0)
    await ask(stand_ins, clear_trigger=None)
    standard, own, off = bodies(stand_ins)
    assert standard["context_management"]["edits"] == [
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": 40_000},
            "keep": {"type": "tool_uses", "value": 4},
            "clear_at_least": {"type": "input_tokens", "value": 8_000},
        }
    ]
    assert own["context_management"]["edits"] == [
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": 50_000},
            "keep": {"type": "tool_uses", "value": 2},
        }
    ]
    assert "context_management" not in off
    assert [request.CLEARING_BETA in sent for sent in betas(stand_ins)] == [True, True, False]


@pytest.mark.parametrize(("setting", "asked"), [("auto", True), ("on", True), ("off", False)])
async def test_a_fallback_is_asked_for_as_the_setting_says(
    stand_ins: StandIns, setting: str, asked: bool
) -> None:
    """`auto` asks where the service is known to have it."""
    await ask(stand_ins, fallbacks=setting, offline=True)
    [body] = bodies(stand_ins)
    assert body.get("fallbacks") == ("default" if asked else None)
    assert (request.FALLBACK_BETA in betas(stand_ins)[0]) == asked


async def test_effort_and_output_are_explicit(stand_ins: StandIns) -> None:
    await ask(stand_ins, effort="low", max_output_tokens=3_000)
    [body] = bodies(stand_ins)
    assert body["output_config"] == {"effort": "low"}
    assert body["max_tokens"] == 3_000


async def test_the_output_shrinks_to_what_the_budget_can_pay(stand_ins: StandIns) -> None:
    """DESIGN, Budget 1."""
    stand_ins.script([{"text": "Nothing to say."}])
    await ask(stand_ins, max_usd=0.12)
    [body] = bodies(stand_ins)
    assert 512 <= body["max_tokens"] < 0.12 / 20e-6


async def test_a_prompt_without_room_in_the_budget_is_not_sent(stand_ins: StandIns) -> None:
    with pytest.raises(LimitExceeded) as caught:
        await ask(stand_ins, max_usd=0.001)
    assert caught.value.limit == "max_usd"
    assert bodies(stand_ins) == []


async def test_lone_surrogates_never_reach_the_wire(stand_ins: StandIns) -> None:
    """Cases I133 and I134."""
    await ask(stand_ins, "What is a \ud83d statement? 😀")
    [body] = bodies(stand_ins)
    assert body["messages"][0]["content"] == [{"type": "text", "text": "What is a \ufffd statement? 😀"}]


# --- the conversation -----------------------------------------------------------------------------


async def test_history_is_appended_to_and_goes_back_as_it_came(stand_ins: StandIns) -> None:
    """FACTS 0: replayed thinking is bound to the bytes before it, and the stand-in checks it."""
    seen = await ask(stand_ins, QUESTION, "Shorter, please.", "In one sentence.")
    first, second, third = bodies(stand_ins)
    for earlier, later in ((first, second), (second, third)):
        assert later["messages"][: len(earlier["messages"])] == earlier["messages"]
        for fixed in ("system", "tools", "mcp_servers", "model", "output_config"):
            assert later[fixed] == earlier[fixed]
    points = [event for event in seen if isinstance(event, Checkpoint)]
    sent = [message for point in points[:2] for message in point.blocks]
    assert third["messages"][:-1] == sent
    types = [block["type"] for block in sent[1]["content"]]
    assert types[0] == "mcp_tool_listing"
    assert {"thinking", "mcp_tool_use", "mcp_tool_result", "text"} <= set(types)


async def test_a_conversation_goes_on_from_earlier_checkpoints(stand_ins: StandIns) -> None:
    seen = await ask(stand_ins)
    points = tuple(event for event in seen if isinstance(event, Checkpoint))
    await ask(stand_ins, "Shorter, please.", earlier=points)
    first, second = bodies(stand_ins)
    assert second["messages"][0] == first["messages"][0]
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]


async def test_a_pause_that_was_left_cannot_be_carried_on_and_is_cut_back(stand_ins: StandIns) -> None:
    """Case I031: a call without a result, and the thinking before it, do not go into the next request."""
    stand_ins.configure(pause_after=2, pause_open=True)
    stand_ins.script([search(1), search(2)])
    of = context(stand_ins)
    seen: list[Event] = []
    async with Connector(of).conversation() as conversation, aclosing(conversation.turn(QUESTION)) as events:
        async for event in events:
            seen.append(event)
            of.budget.see(event)
            if isinstance(event, Checkpoint):
                break
    point = seen[-1]
    assert isinstance(point, Checkpoint)
    assert point.blocks[-1]["content"][-1]["type"] == "mcp_tool_use"
    stand_ins.configure(pause_after=10, pause_open=False)
    stand_ins.script([{"text": "Found."}])
    later = await ask(stand_ins, "Go on.", earlier=(point,))
    assert text_of(later) == "Found."
    assert bodies(stand_ins)[-1]["messages"][1]["content"][-1]["type"] == "mcp_tool_result"


async def test_a_pause_is_carried_on_and_its_passes_are_steps(stand_ins: StandIns) -> None:
    """Case I032: bounded, counted as steps."""
    stand_ins.configure(pause_after=2)
    stand_ins.script([search(1), search(2), search(3), search(4), {"text": "Found."}])
    seen = await ask(stand_ins)
    assert text_of(seen) == "Found."
    finished = [event for event in seen if isinstance(event, PassFinished)]
    assert [event.steps for event in finished] == [(1, 2), (3, 4), (5,)]
    assert [event.stop_reason for event in finished] == ["pause_turn", "pause_turn", "end_turn"]
    assert [len(body["messages"]) for body in bodies(stand_ins)] == [1, 2, 3]


async def test_a_pause_with_an_open_call_is_carried_on_unchanged(stand_ins: StandIns) -> None:
    """Case I029."""
    stand_ins.configure(pause_after=1, pause_open=True)
    stand_ins.script([search(1), {"text": "Found."}])
    seen = await ask(stand_ins)
    [call] = [event for event in seen if isinstance(event, ToolCall)]
    [result] = [event for event in seen if isinstance(event, ToolResult)]
    assert call.id == result.id
    assert text_of(seen) == "Found."


async def test_pauses_are_carried_on_five_times_and_no_more(stand_ins: StandIns) -> None:
    stand_ins.configure(pause_after=1)
    stand_ins.script([search(number) for number in range(6)])
    with pytest.raises(LimitExceeded) as caught:
        await ask(stand_ins, max_steps=None, max_usd=None)
    assert caught.value.limit == "max_steps"
    assert len(bodies(stand_ins)) == 6


async def test_a_pause_that_the_budget_cannot_carry_on_ends_the_loop(stand_ins: StandIns) -> None:
    stand_ins.configure(pause_after=1, search={"result_chars": 400_000})
    stand_ins.script([search(1)])
    with pytest.raises(LimitExceeded) as caught:
        await ask(stand_ins)
    assert caught.value.limit == "max_usd"
    assert len(bodies(stand_ins)) == 1


async def test_the_tools_of_each_server_are_listed_once(stand_ins: StandIns) -> None:
    """With the newer beta by the service itself, with the older one as we allow them."""
    seen = await ask(stand_ins, QUESTION, "Shorter, please.")
    older = await ask(stand_ins, mcp_beta=request.OLDER_MCP_BETA)
    [theirs] = [event for event in seen if isinstance(event, ToolsListed)]
    [ours] = [event for event in older if isinstance(event, ToolsListed)]
    assert [tool.name for tool in theirs.tools] == [tool.name for tool in ours.tools]
    assert all(tool.digest for tool in theirs.tools)
    assert not any(tool.digest for tool in ours.tools)


# --- closing --------------------------------------------------------------------------------------


async def test_a_call_that_the_budget_does_not_admit_closes_the_stream(stand_ins: StandIns) -> None:
    """DESIGN, Budget 2: no further pass begins, and none is billed."""
    stand_ins.configure(call_delay=0.3)
    stand_ins.script([search(1)])
    seen: list[Event] = []
    of = context(stand_ins, max_steps=2)
    with pytest.raises(LimitExceeded) as caught:
        async with Connector(of).conversation() as conversation:
            await drive_into(seen, of, conversation.turn(QUESTION))
    assert caught.value.limit == "max_steps"
    assert isinstance(seen[-1], ToolCall)
    assert len(stand_ins.bill()["passes"]) == 1
    assert of.budget.spent >= stand_ins.bill()["usd"]


async def test_a_consumer_that_leaves_ends_the_loop_at_the_service(stand_ins: StandIns) -> None:
    stand_ins.configure(call_delay=0.3)
    stand_ins.script([search(1)])
    of = context(stand_ins)
    async with Connector(of).conversation() as conversation, aclosing(conversation.turn(QUESTION)) as events:
        async for event in events:
            of.budget.see(event)
            if isinstance(event, ToolCall):
                break
    assert len(stand_ins.bill()["passes"]) == 1


async def test_cancellation_ends_the_loop_at_the_service(stand_ins: StandIns) -> None:
    stand_ins.configure(fault="silent")
    of = context(stand_ins)
    began = asyncio.Event()

    async def run() -> None:
        async with Connector(of).conversation() as conversation:
            async for event in conversation.turn(QUESTION):
                assert isinstance(event, PassStarted)
                began.set()

    task = asyncio.create_task(run())
    async with asyncio.timeout(20):
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(stand_ins.bill()["passes"]) == 1


# --- endings --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ending:
    """What the service does, and how the turn ends."""

    name: str
    told: Json
    error: type[RunError]
    says: str
    """A part of the message."""
    check: Callable[[Any], bool] = lambda _: True
    options: Mapping[str, Any] = field(default_factory=dict)
    settled: bool = True
    """Whether the service has said what the passes cost."""

    def __str__(self) -> str:
        return self.name


ENDINGS = [
    Ending("401", {"fault": "401"}, BackendError, "ANTHROPIC_API_KEY"),
    Ending("403", {"fault": "403"}, BackendError, "ANTHROPIC_API_KEY"),
    Ending("413", {"fault": "413"}, LimitExceeded, "context window", lambda e: e.limit == "context"),
    Ending(
        "429",
        {"fault": "429", "retry_after": 0.01},
        RateLimited,
        "resume",
        lambda e: e.retry_after == 0.01,
    ),
    Ending("500", {"fault": "500"}, BackendError, "try again"),
    Ending("529", {"fault": "529"}, BackendError, "overloaded"),
    Ending("dropped stream", {"fault": "dropped_stream"}, BackendError, "resume", settled=False),
    Ending("error in the stream", {"fault": "error_event"}, BackendError, "overloaded", settled=False),
    Ending("refusal", {"fault": "refusal"}, Refused, "declined", lambda e: e.category == "cyber"),
    Ending("refusal half way", {"fault": "partial_refusal"}, Refused, "cyber content"),
    Ending(
        "max_tokens",
        {"fault": "max_tokens"},
        LimitExceeded,
        "--max-output-tokens",
        lambda e: e.limit == "max_tokens" and e.status == "max_tokens",
    ),
    Ending(
        "a full context window",
        {"fault": "context_exceeded"},
        LimitExceeded,
        "context window",
        lambda e: e.limit == "context" and e.status == "context_exceeded",
    ),
    Ending(
        "a prompt that is too long",
        {"context_window": 300},
        LimitExceeded,
        "context window",
        lambda e: e.limit == "context" and e.ceiling == 300 and e.value > 300,
    ),
    Ending("server down", {"search": {"fault": "down"}}, McpUnavailable, "parallel-search cannot be reached"),
    Ending("server refuses the key", {"search": {"fault": "401"}}, McpUnavailable, "PARALLEL_API_KEY"),
    Ending("server limits the rate", {"search": {"fault": "429"}}, RateLimited, "parallel-search"),
    Ending(
        "server hangs",
        {"search": {"fault": "hanging"}, "mcp_timeout": 0.2},
        McpUnavailable,
        "parallel-search cannot be reached",
    ),
    Ending(
        "unknown model",
        {},
        BackendError,
        "--model",
        options={"model": "claude-opus-9", "price_in": 1, "price_out": 2},
    ),
]


@pytest.mark.parametrize("ending", ENDINGS, ids=str)
async def test_each_failure_has_an_ending_of_its_own(stand_ins: StandIns, ending: Ending) -> None:
    """Case I035: one branch per stop reason; a message in words with what to do."""
    stand_ins.configure(**ending.told)
    seen: list[Event] = []
    prices = {name: ending.options[name] for name in ("price_in", "price_out") if name in ending.options}
    of = context(stand_ins, **ending.options)
    of.budget.prices = replace(of.budget.prices, **prices)
    async with asyncio.timeout(30):
        with pytest.raises(ending.error, match=ending.says) as caught:
            async with Connector(of).conversation() as conversation:
                await drive_into(seen, of, conversation.turn(QUESTION))
    assert ending.check(caught.value)
    finished = [event for event in seen if isinstance(event, PassFinished)]
    began = {event.step for event in seen if isinstance(event, PassStarted)}
    if ending.settled:
        assert len(finished) == (1 if began else 0)
        assert of.budget.charged == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)
    else:
        assert not finished
        assert of.budget.spent >= stand_ins.bill()["usd"] > 0
    if isinstance(caught.value, Refused):
        assert not any(isinstance(event, Checkpoint) for event in seen)


async def test_a_server_that_fails_inside_the_loop_is_an_error_result_and_the_loop_goes_on(
    stand_ins: StandIns,
) -> None:
    """FACTS 2: failure inside the loop is a result with is_error."""
    stand_ins.configure(search={"fault": "tool_error"})
    stand_ins.script([search(1), {"text": "The search failed."}])
    seen = await ask(stand_ins)
    [result] = [event for event in seen if isinstance(event, ToolResult)]
    assert result.is_error
    assert text_of(seen) == "The search failed."


async def test_what_was_said_before_a_stream_broke_off_stays(stand_ins: StandIns) -> None:
    stand_ins.configure(fault="dropped_stream")
    stand_ins.script([{"thinking": 0, "text": "It is closed by its exit method, whatever happens. " * 10}])
    of = context(stand_ins)
    seen: list[Event] = []
    with pytest.raises(BackendError):
        async with Connector(of).conversation() as conversation:
            await drive_into(seen, of, conversation.turn(QUESTION))
    assert [event for event in seen if isinstance(event, TextDelta)]


async def test_an_unknown_beta_is_replaced_by_the_older_one_and_remembered(stand_ins: StandIns) -> None:
    """FACTS 2: an unknown or not enabled beta is a 400; the header is a setting with a fallback."""
    stand_ins.configure(refused_betas=("mcp-client-2026-09-15",))
    seen = await ask(stand_ins, QUESTION, "Shorter, please.")
    assert [request.OLDER_MCP_BETA in sent for sent in betas(stand_ins)] == [False, True, True]
    assert len([event for event in seen if isinstance(event, Checkpoint)]) == 2


async def test_optional_betas_are_done_without_where_they_are_refused(stand_ins: StandIns) -> None:
    optional = (request.CLEARING_BETA, request.FALLBACK_BETA, request.THINKING_COUNT_BETA)
    stand_ins.configure(refused_betas=optional)
    await ask(stand_ins, offline=True, max_usd=5)
    last = bodies(stand_ins)[-1]
    assert not last.keys() & {"context_management", "fallbacks"}
    assert betas(stand_ins)[-1] == {"mcp-client-2026-09-15"}
    assert len(bodies(stand_ins)) == 2


@pytest.mark.parametrize(
    ("refused", "options", "says"),
    [
        (("mcp-client-2026-09-15", request.OLDER_MCP_BETA), {}, "--backend agent-sdk"),
        ((request.FALLBACK_BETA,), {"fallbacks": "on"}, request.FALLBACK_BETA),
    ],
)
async def test_what_cannot_be_done_without_is_an_error(
    stand_ins: StandIns, refused: tuple[str, ...], options: Json, says: str
) -> None:
    stand_ins.configure(refused_betas=refused)
    with pytest.raises(BackendError, match=says):
        await ask(stand_ins, **options)


FOREIGN = [
    (
        error(400, "invalid_request_error", "mcp_servers: Extra inputs are not permitted"),
        "--backend agent-sdk",
    ),
    (
        error(422, "invalid_request_error", "tools.0: Input tag 'mcp_toolset' is unknown"),
        "--backend agent-sdk",
    ),
    (error(404, "not_found_error", "Not Found"), "ANTHROPIC_BASE_URL"),
    (error(400, "invalid_request_error", "Your credit balance is too low"), "payment"),
    (error(402, "billing_error", "Payment required"), "payment"),
    (error(400, "invalid_request_error", "max_tokens: 9 > 8"), "max_tokens: 9 > 8"),
    (
        error(400, "invalid_request_error", "Invalid authorization token for MCP server 'echo'. Sign in."),
        "echo refused its key",
    ),
    (
        error(500, "api_error", "Connection error while communicating with MCP server"),
        "echo cannot be reached",
    ),
]


@pytest.mark.parametrize(("answer", "says"), FOREIGN, ids=[says for _, says in FOREIGN])
async def test_what_a_foreign_service_says_is_an_ending_in_words(answer: Any, says: str) -> None:
    """Published error texts, and those of a service that has no connector."""
    with replaying(answer) as service:
        of = context(service)
        with pytest.raises(RunError, match=says):
            async with Connector(of).conversation() as conversation:
                await drive(of, conversation.turn(QUESTION))


async def test_a_far_retry_after_is_not_waited_for() -> None:
    """The SDK waits as long as it is told; the user is told instead."""
    with replaying(error(429, "rate_limit_error", "Slow down", **{"retry-after": "3600"})) as service:
        of = context(service)
        with pytest.raises(RateLimited, match="3600 s") as caught:
            async with Connector(of).conversation() as conversation:
                await drive(of, conversation.turn(QUESTION))
    assert caught.value.retry_after == 3600
    assert len(service.requests) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_address_that_cannot_be_reached_is_named(scheme: str) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"{scheme}://127.0.0.1:{bound.getsockname()[1]}"
        with replaying(sse([])) as service:
            of = context(service, anthropic_base_url=url)
            with pytest.raises(BackendError, match=url):
                async with Connector(of).conversation() as conversation:
                    await drive(of, conversation.turn(QUESTION))


async def test_an_untrusted_certificate_names_the_variable() -> None:
    """Case I137; here the other end speaks no TLS at all."""
    with replaying(sse([])) as service:
        of = context(service, anthropic_base_url=service.url.replace("http:", "https:"))
        with pytest.raises(BackendError, match="SSL_CERT_FILE"):
            async with Connector(of).conversation() as conversation:
                await drive(of, conversation.turn(QUESTION))


async def test_a_key_goes_to_the_service_and_nowhere_else() -> None:
    with replaying(error(401, "authentication_error", "invalid x-api-key")) as service:
        of = context(service)
        with pytest.raises(BackendError) as caught:
            async with Connector(of).conversation() as conversation:
                await drive(of, conversation.turn(QUESTION))
    assert "sk-test" in service.headers[0]["authorization"]
    assert "sk-test" not in str(caught.value)


# --- money ----------------------------------------------------------------------------------------


BILLED = [
    {},
    {"caching": "uncached"},
    {"iterations": False},
    {"fault": "fallback"},
    {"fault": "sticky_fallback"},
    {"fault": "compaction"},
    {"thinking": 700},
    {"pause_after": 1},
]


@pytest.mark.parametrize("told", BILLED, ids=str)
async def test_the_ledger_is_the_bill(stand_ins: StandIns, told: Json) -> None:
    """Whatever the service does, its bill and our ledger are the same to 1e-9."""
    stand_ins.configure(**told)
    of = context(stand_ins, offline=True, max_usd=5)
    async with Connector(of).conversation() as conversation:
        await drive(of, conversation.turn(QUESTION))
        await drive(of, conversation.turn("Shorter, please."))
    assert of.budget.charged == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)
    assert of.budget.spent == pytest.approx(of.budget.charged)


# --- the final request ----------------------------------------------------------------------------


async def test_the_final_request_has_no_tools_and_stands_alone(stand_ins: StandIns) -> None:
    """DESIGN, Budget 4."""
    of = context(stand_ins)
    seen = await drive(of, Connector(of).answer("Answer from this: nothing.", 700))
    [body] = bodies(stand_ins)
    assert not body.keys() & {"tools", "mcp_servers", "system", "context_management", "cache_control"}
    assert body["messages"] == [request.user("Answer from this: nothing.")]
    assert (body["max_tokens"], body["output_config"]) == (700, {"effort": "low"})
    assert [event.purpose for event in seen if isinstance(event, PassFinished)] == ["final"]
    assert text_of(seen)
    assert of.budget.charged == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)


async def test_the_judge_is_asked_with_its_own_model(stand_ins: StandIns) -> None:
    of = context(stand_ins, judge_model="claude-haiku-5-5")
    seen = await drive(of, Connector(of).answer("Is it so?", 700, "judge"))
    [body] = bodies(stand_ins)
    assert body["model"] == "claude-haiku-5-5"
    assert [event.purpose for event in seen if isinstance(event, PassFinished)] == ["judge"]
    assert of.budget.charged == pytest.approx(stand_ins.bill()["usd"], abs=1e-9)


@pytest.mark.parametrize(
    ("fault", "expected"), [("refusal", Refused), ("max_tokens", LimitExceeded), ("529", BackendError)]
)
async def test_the_final_request_ends_as_the_loop_does(
    stand_ins: StandIns, fault: str, expected: type[RunError]
) -> None:
    stand_ins.configure(fault=fault)
    of = context(stand_ins)
    with pytest.raises(expected):
        await drive(of, Connector(of).answer("Answer from this: nothing.", 700))


# --- fragments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ([], []),
        (["text"], ["text"]),
        (["thinking", "text", "thinking"], ["thinking", "text"]),
        (["thinking", "open", "open"], []),
        (["call", "result", "thinking", "open"], ["call", "result"]),
        (["empty", "text"], ["text"]),
        (["text", "thinking", "open", "empty"], ["text"]),
    ],
)
def test_content_that_is_cut_short_ends_with_what_is_complete(content: list[str], kept: list[str]) -> None:
    """FACTS 3: no open call, no thinking at the end, no empty text."""
    blocks: dict[str, Json] = {
        "text": {"type": "text", "text": "a"},
        "empty": {"type": "text", "text": ""},
        "thinking": {"type": "thinking", "thinking": "", "signature": "s"},
        "call": {"type": "mcp_tool_use", "id": "1"},
        "open": {"type": "mcp_tool_use", "id": "2"},
        "result": {"type": "mcp_tool_result", "tool_use_id": "1"},
    }
    assert request.complete([blocks[name] for name in content]) == [blocks[name] for name in kept]
