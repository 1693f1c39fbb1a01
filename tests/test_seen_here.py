"""What the bundled command line of the Agent SDK was seen to do, each sentence a test.

Nothing of this is promised by its makers, and the backend stands on all of it: a release that differs is
noticed here. The sentences are those noted
when the command line was first run against a loopback service; where this version does otherwise, the test
says what it does.
"""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    Message,
    ResultError,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    ToolResultBlock,
    UserMessage,
    query,
)

from orchestrator.offline import StandIns

pytestmark = pytest.mark.engine

TOOL = "mcp__parallel-search__web_search"
CALL = {
    "server": "parallel-search",
    "tool": "web_search",
    "input": {"objective": "with statement", "search_queries": ["with statement"]},
}
ANSWER = {"text": "An answer."}
Hook = Callable[..., Any]


@dataclass
class Engine:
    """The bundled command line with the fewest options that keep it on loopback."""

    stand_ins: StandIns
    home: Path

    def options(self, env: dict[str, str] | None = None, **given: Any) -> ClaudeAgentOptions:
        self.home.mkdir(exist_ok=True)
        work = self.home.parent / "work"
        work.mkdir(exist_ok=True)
        server = {"type": "http", "url": self.stand_ins.mcp_url}
        return ClaudeAgentOptions(
            **{
                "tools": [],
                "setting_sources": [],
                "strict_mcp_config": True,
                "mcp_servers": {"parallel-search": server},
                "allowed_tools": [TOOL],
                "model": "claude-opus-5-5",
                "system_prompt": "Answer.",
                "include_partial_messages": True,
                "cwd": work,
                **given,
            },
            env={
                "ANTHROPIC_BASE_URL": self.stand_ins.anthropic_base_url,
                "ANTHROPIC_API_KEY": "offline",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CONFIG_DIR": str(self.home),
                "ENABLE_TOOL_SEARCH": "false",
                **(env or {}),
            },
        )

    async def ask(self, options: ClaudeAgentOptions, prompt: str = "What is it?") -> list[Message]:
        """One question once the servers are connected; the messages up to the result."""
        client = ClaudeSDKClient(options)
        await client.connect()
        try:
            await connected(client)
            await client.query(prompt)
            return [message async for message in client.receive_response()]
        finally:
            await client.disconnect()

    def bodies(self) -> list[dict[str, Any]]:
        self.stand_ins.settle()
        return [r["body"] for r in self.stand_ins.requests() if r["path"] == "/v1/messages"]


async def connected(client: ClaudeSDKClient) -> None:
    """Wait until no server is pending any more; nobody tells us."""
    with anyio.fail_after(30):
        while any(s["status"] == "pending" for s in (await client.get_mcp_status())["mcpServers"]):  # noqa: ASYNC110
            await anyio.sleep(0.02)


@pytest.fixture
def engine(stand_ins: StandIns, tmp_path: Path) -> Engine:
    return Engine(stand_ins, tmp_path / "home")


def hooks(**by_event: Hook) -> dict[Any, list[HookMatcher]]:
    return {event: [HookMatcher(hooks=[hook])] for event, hook in by_event.items()}


def result_of(messages: list[Message]) -> ResultMessage:
    assert isinstance(messages[-1], ResultMessage)
    return messages[-1]


def starts(messages: list[Message]) -> int:
    return sum(isinstance(m, StreamEvent) and m.event["type"] == "message_start" for m in messages)


def subtypes(messages: list[Message]) -> set[str]:
    return {message.subtype for message in messages if isinstance(message, SystemMessage)}


def results_shown(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        block
        for message in body["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else [])
        if block["type"] == "tool_result"
    ]


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


async def test_it_works_without_any_internet(engine: Engine) -> None:
    dead = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    engine.stand_ins.script([{"calls": [CALL]}, ANSWER])
    messages = await engine.ask(engine.options(env={**dead, "NO_PROXY": "127.0.0.1"}))
    assert result_of(messages).result == "An answer."
    assert len(engine.stand_ins.bill()["tool_calls"]) == 1


async def test_total_cost_usd_is_the_list_price_to_the_cent(engine: Engine) -> None:
    messages = await engine.ask(engine.options())
    assert result_of(messages).total_cost_usd == pytest.approx(engine.stand_ins.bill()["model_usd"])


# --- hooks ---


@pytest.mark.parametrize("shape", ["str", "blocks"])
async def test_a_post_tool_use_hook_s_updated_tool_output_replaces_what_the_model_sees(
    engine: Engine, shape: str
) -> None:
    text = "[S1] " + "x" * 30_000
    shown: Any = text if shape == "str" else [{"type": "text", "text": text}]

    async def after(*_: Any) -> Any:
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": shown}}

    engine.stand_ins.script([{"calls": [CALL]}, ANSWER])
    await engine.ask(engine.options(hooks=hooks(PostToolUse=after)))
    assert text_of(results_shown(engine.bodies()[1])[0]["content"]) == text


async def test_tool_response_is_the_structured_content_as_compact_json_and_meta_is_in_no_hook(
    engine: Engine,
) -> None:
    given: list[Any] = []

    async def after(hook_input: Any, *_: Any) -> Any:
        given.append(hook_input)
        return {}

    engine.stand_ins.script([{"calls": [CALL]}, ANSWER])
    await engine.ask(engine.options(hooks=hooks(PostToolUse=after)))
    response = given[0]["tool_response"]
    assert isinstance(response, str)
    assert response == json.dumps(json.loads(response), separators=(",", ":"), ensure_ascii=False)
    assert "parallel/usage" not in json.dumps(given)
    assert given[0]["duration_ms"] >= 0


async def test_tool_response_is_a_list_of_text_blocks_where_nothing_is_structured(engine: Engine) -> None:
    given: list[Any] = []

    async def after(hook_input: Any, *_: Any) -> Any:
        given.append(hook_input)
        return {}

    exa = {"exa": {"type": "http", "url": engine.stand_ins.server_urls["exa"]}}
    call = {"server": "exa", "tool": "web_search_exa", "input": {"query": "with statement"}}
    engine.stand_ins.script([{"calls": [call]}, ANSWER])
    await engine.ask(
        engine.options(
            mcp_servers=exa, allowed_tools=["mcp__exa__web_search_exa"], hooks=hooks(PostToolUse=after)
        )
    )
    assert [block["type"] for block in given[0]["tool_response"]] == ["text"]


@pytest.mark.parametrize("raised", [False, True])
async def test_a_result_above_max_mcp_output_tokens_reaches_the_hook_as_an_error_text_with_a_path(
    engine: Engine, raised: bool
) -> None:
    given: list[str] = []

    async def after(hook_input: Any, *_: Any) -> Any:
        given.append(json.dumps(hook_input["tool_response"]))
        return {}

    engine.stand_ins.configure(search={"result_chars": 300_000})
    engine.stand_ins.script([{"calls": [CALL]}, ANSWER])
    env = {"MAX_MCP_OUTPUT_TOKENS": "1000000"} if raised else {}
    await engine.ask(engine.options(env=env, hooks=hooks(PostToolUse=after)))
    assert (len(given[0]) > 300_000) is raised
    assert (str(engine.home) in given[0]) is not raised


@pytest.mark.parametrize(("units", "whole"), [(50_000, True), (50_002, False)])
async def test_what_a_hook_returns_above_50_000_utf_16_units_is_replaced_by_a_preview(
    engine: Engine, units: int, whole: bool
) -> None:
    """Noted first as about 100 KB."""
    shown = "\U0001f600" * (units // 2)

    async def after(*_: Any) -> Any:
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": shown}}

    engine.stand_ins.script([{"calls": [CALL]}, ANSWER])
    options = engine.options(env={"MAX_MCP_OUTPUT_TOKENS": "1000000"}, hooks=hooks(PostToolUse=after))
    await engine.ask(options)
    content = text_of(results_shown(engine.bodies()[1])[0]["content"])
    assert (content == shown) is whole
    assert content.startswith("<persisted-output>") is not whole


def denying(*, ending: bool) -> Hook:
    async def before(*_: Any) -> Any:
        verdict = {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "no money left",
        }
        return {"hookSpecificOutput": verdict, **({"continue_": False} if ending else {})}

    return before


async def test_a_denial_reaches_the_model_as_an_error_tool_result_and_does_not_end_the_loop(
    engine: Engine,
) -> None:
    engine.stand_ins.script([{"calls": [CALL]}, {"calls": [CALL]}, {"calls": [CALL]}, ANSWER])
    await engine.ask(engine.options(hooks=hooks(PreToolUse=denying(ending=False))))
    bodies = engine.bodies()
    assert len(bodies) == 4
    (told, *_) = results_shown(bodies[-1])
    assert told["is_error"] and "no money left" in text_of(told["content"])
    assert engine.stand_ins.bill()["tool_calls"] == []


async def test_a_hook_s_continue_false_ends_the_loop(engine: Engine) -> None:
    engine.stand_ins.script([{"calls": [CALL]}])
    messages = await engine.ask(engine.options(hooks=hooks(PreToolUse=denying(ending=True))))
    assert len(engine.bodies()) == 1
    assert result_of(messages).subtype == "success"


async def test_a_call_is_asked_about_before_its_pass_is_settled(engine: Engine) -> None:
    """So the pass must count as booked when the hook decides."""
    seen: list[str] = []

    async def before(*_: Any) -> Any:
        seen.append("asked")
        return {}

    engine.stand_ins.configure(pace=0.02)
    engine.stand_ins.script([{"calls": [CALL]}, ANSWER])
    async with ClaudeSDKClient(engine.options(hooks=hooks(PreToolUse=before))) as client:
        await connected(client)
        await client.query("What is it?")
        async for message in client.receive_response():
            if isinstance(message, StreamEvent) and message.event["type"] == "message_delta":
                seen.append("settled")  # noqa: PERF401 - the hook writes there, too
    assert seen[:2] == ["asked", "settled"]


async def test_a_stop_hook_s_block_makes_the_model_answer_again_and_its_reason_is_not_expanded(
    engine: Engine,
) -> None:
    given: list[Any] = []

    async def stop(hook_input: Any, *_: Any) -> Any:
        given.append(hook_input)
        again = {"decision": "block", "reason": "Cite @/etc/hostname or /compact."}
        return {} if hook_input["stop_hook_active"] else again

    engine.stand_ins.script([ANSWER, {"text": "Another answer."}])
    messages = await engine.ask(engine.options(hooks=hooks(Stop=stop)))
    assert [hook_input["last_assistant_message"] for hook_input in given] == ["An answer.", "Another answer."]
    assert [hook_input["stop_hook_active"] for hook_input in given] == [False, True]
    assert result_of(messages).result == "Another answer."
    sent = json.dumps(engine.bodies()[1]["messages"])
    assert "Cite @/etc/hostname or /compact." in sent
    assert socket.gethostname() not in sent


async def test_a_stop_hook_may_keep_it_waiting_and_is_given_up_on_after_its_timeout(engine: Engine) -> None:
    cancelled = anyio.Event()

    async def stop(*_: Any) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    engine.stand_ins.script([ANSWER])
    matcher = HookMatcher(hooks=[stop], timeout=0.2)
    messages = await engine.ask(engine.options(hooks={"Stop": [matcher]}))
    assert cancelled.is_set()
    assert result_of(messages).subtype == "success"


# --- the final answer ---


async def test_a_fresh_query_without_servers_goes_out_with_an_empty_tool_list(engine: Engine) -> None:
    engine.stand_ins.script([ANSWER])
    options = engine.options(mcp_servers={}, allowed_tools=[])
    messages = [message async for message in query(prompt="Answer now.", options=options)]
    assert result_of(messages).result == "An answer."
    assert engine.bodies()[0]["tools"] == []


async def test_resuming_with_an_extra_body_and_a_lower_maximum_gives_an_answer_without_tools(
    engine: Engine,
) -> None:
    engine.stand_ins.script([{"calls": [CALL]}, ANSWER, {"text": "Without tools."}])
    session = result_of(await engine.ask(engine.options())).session_id
    env = {
        "CLAUDE_CODE_EXTRA_BODY": '{"tool_choice": {"type": "none"}}',
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "700",
    }
    await engine.ask(engine.options(env=env, resume=session), "Answer now.")
    last = engine.bodies()[-1]
    assert (last["tool_choice"], last["max_tokens"]) == ({"type": "none"}, 700)


# --- passes that no hook sees ---


@pytest.mark.parametrize("fault", ["max_tokens", "context_exceeded"])
async def test_up_to_three_more_passes_follow_max_tokens_or_a_full_context_even_with_max_turns_1(
    engine: Engine, fault: str
) -> None:
    engine.stand_ins.configure(fault=fault)
    messages = await engine.ask(engine.options(max_turns=1))
    assert starts(messages) == len(engine.bodies()) == 4


async def test_a_refusal_is_followed_by_one_more_pass_and_by_one_of_another_model(engine: Engine) -> None:
    """Noted first as one more pass: with a refusal of the second one this version changes the model, too."""
    engine.stand_ins.configure(fault="refusal")
    messages = await engine.ask(engine.options())
    models = [body["model"] for body in engine.bodies()]
    assert starts(messages) == len(models) == 3
    assert models[:2] == ["claude-opus-5-5"] * 2
    assert models[2] != "claude-opus-5-5"
    assert {"informational", "model_refusal_fallback", "model_refusal_no_fallback"} <= subtypes(messages)


async def test_two_variables_keep_it_from_going_on_after_a_refusal(engine: Engine) -> None:
    engine.stand_ins.configure(fault="refusal")
    off = {"CLAUDE_CODE_DISABLE_REFUSAL_RETRY": "1", "CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK": "1"}
    messages = await engine.ask(engine.options(env=off))
    assert starts(messages) == len(engine.bodies()) == 1
    assert result_of(messages).stop_reason == "refusal"


@pytest.mark.parametrize("fallback", [True, False])
async def test_a_dropped_stream_is_silently_repeated_even_without_retries_unless_a_variable_stops_it(
    engine: Engine, fallback: bool
) -> None:
    """The repeat does not stream, so that no stream event shows it."""
    engine.stand_ins.script([{"text": "One.", "fault": "dropped_stream"}, *([{"text": "Two."}] * fallback)])
    env = {"CLAUDE_CODE_MAX_RETRIES": "0"}
    if not fallback:
        env["CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK"] = "1"
    await engine.ask(engine.options(env=env))

    assert [bool(body.get("stream")) for body in engine.bodies()] == [True, *([False] * fallback)]


async def test_killing_it_when_a_stop_reason_is_read_comes_before_the_next_request(engine: Engine) -> None:
    """SIGTERM does not: 20 ms pass until it is gone, and the next request is out. The pid is not public."""
    engine.stand_ins.configure(fault="max_tokens")
    client = ClaudeSDKClient(engine.options())
    await client.connect()
    transport: Any = client._transport
    process = transport._process
    await client.query("What is it?")
    with pytest.raises(Exception, match="exit code"):
        async for message in client.receive_messages():
            if isinstance(message, StreamEvent) and message.event["type"] == "message_delta":
                process.kill()
    await client.disconnect()
    assert len(engine.bodies()) == 1


# --- the prompt is not just text ---


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret.txt"
    file.write_text("the secret word is xylophone", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("env", "verbatim", "read"),
    [
        ({}, False, True),
        ({"CLAUDE_CODE_DISABLE_ATTACHMENTS": "1", "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1"}, False, False),
        ({}, True, False),
    ],
)
async def test_a_path_in_a_question_makes_it_send_that_file_unless_two_variables_or_verbatim_stop_it(
    engine: Engine, secret: Path, env: dict[str, str], verbatim: bool, read: bool
) -> None:
    engine.stand_ins.script([ANSWER])
    await engine.ask(engine.options(env=env, verbatim_prompts=verbatim), f"@{secret} what is this?")
    assert ("xylophone" in json.dumps(engine.bodies())) is read


@pytest.mark.parametrize(
    ("prompt", "verbatim", "requests"),
    [("/compact", False, 0), (" /compact", False, 1), ("/compact", True, 1)],
)
async def test_compact_as_a_question_gives_no_request_and_a_success_unless_anything_stands_before_it(
    engine: Engine, prompt: str, verbatim: bool, requests: int
) -> None:
    engine.stand_ins.script([ANSWER] * requests)
    messages = await engine.ask(engine.options(verbatim_prompts=verbatim), prompt)
    assert result_of(messages).subtype == "success"
    assert len(engine.bodies()) == requests


# --- results, sessions, environment ---


async def test_pause_turn_comes_back_as_success(engine: Engine) -> None:
    engine.stand_ins.script([{"text": "Half.", "stop_reason": "pause_turn"}])
    result = result_of(await engine.ask(engine.options()))
    assert (result.subtype, result.is_error, result.stop_reason) == ("success", False, "pause_turn")


async def test_401_is_retried_like_429(engine: Engine) -> None:
    engine.stand_ins.configure(fault="401")
    messages = await engine.ask(engine.options(env={"CLAUDE_CODE_MAX_RETRIES": "1"}))
    assert len(engine.bodies()) == 2
    assert "api_retry" in subtypes(messages)
    result = result_of(messages)
    assert (result.subtype, result.is_error, result.api_error_status) == ("success", True, 401)


async def test_after_a_resume_total_cost_usd_is_cumulative_while_max_budget_usd_counts_the_new_call(
    engine: Engine,
) -> None:
    engine.stand_ins.script([{"text": "One.", "thinking": 2_000}, {"text": "Two."}])
    first = result_of(await engine.ask(engine.options()))
    second = result_of(await engine.ask(engine.options(resume=first.session_id, max_budget_usd=0.03)))
    assert first.total_cost_usd is not None and first.total_cost_usd > 0.03
    assert second.subtype == "success"
    assert second.total_cost_usd == pytest.approx(engine.stand_ins.bill()["model_usd"])


async def test_session_files_survive_another_working_directory_and_a_copy_and_hold_every_page(
    engine: Engine, tmp_path: Path
) -> None:
    engine.stand_ins.script([{"calls": [CALL]}, ANSWER, {"text": "Two."}])
    session = result_of(await engine.ask(engine.options())).session_id
    (file,) = engine.home.glob(f"projects/*/{session}.jsonl")
    assert "docs.python.org" in file.read_text(encoding="utf-8")
    other = replace(engine, home=tmp_path / "other")
    options = other.options(resume=session, fork_session=True)
    copied = other.home / "projects" / "copied"
    copied.mkdir(parents=True)
    shutil.copy(file, copied)
    result = result_of(await other.ask(options, "And now?"))
    assert result.session_id != session
    assert "What is it?" in json.dumps(engine.bodies()[-1]["messages"])


@pytest.mark.parametrize("lost", ["another CLAUDE_CONFIG_DIR", "CLAUDE_CODE_SKIP_PROMPT_HISTORY"])
async def test_a_session_is_lost_with_another_config_dir_or_without_history(
    engine: Engine, tmp_path: Path, lost: str
) -> None:
    engine.stand_ins.script([ANSWER])
    env = {lost: "1"} if lost.startswith("CLAUDE_CODE") else {}
    session = result_of(await engine.ask(engine.options(env=env))).session_id
    home = engine.home if env else tmp_path / "other"
    with pytest.raises(ResultError, match="No conversation found"):
        await replace(engine, home=home).ask(replace(engine, home=home).options(resume=session))


class Hearing:
    """A service that hears one request's head and hangs up."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.heads.append(connection.recv(65_536).decode("latin-1").lower())
            connection.sendall(
                b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
            )
            connection.close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
async def hearing() -> AsyncIterator[Hearing]:
    heard = Hearing()
    yield heard
    heard.close()


async def test_it_sends_the_key_as_x_api_key(engine: Engine, hearing: Hearing) -> None:
    await engine.ask(engine.options(env={"ANTHROPIC_BASE_URL": hearing.address}))
    head = next(head for head in hearing.heads if "/v1/messages" in head)
    assert "x-api-key: offline" in head
    assert "authorization:" not in head


async def test_the_parent_s_environment_always_reaches_the_child_and_an_empty_variable_counts_as_unset(
    engine: Engine, hearing: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-inherited: yes")
    for emptied in ({}, {"ANTHROPIC_CUSTOM_HEADERS": ""}):
        await engine.ask(engine.options(env={"ANTHROPIC_BASE_URL": hearing.address, **emptied}))
    heads = [head for head in hearing.heads if "/v1/messages" in head]
    assert "x-inherited: yes" in heads[0]
    assert "x-inherited" not in heads[-1]


async def test_too_low_a_max_budget_usd_gives_no_result_and_query_raises(engine: Engine) -> None:
    engine.stand_ins.script([{"calls": [CALL]}] * 1)
    messages: list[Message] = []
    with pytest.raises(ResultError):
        async for message in query(prompt="What is it?", options=engine.options(max_budget_usd=0.001)):
            messages.append(message)  # noqa: PERF401 - it raises at its end
    result = result_of(messages)
    assert (result.subtype, result.result) == ("error_max_budget_usd", None)


async def test_an_assistant_message_s_usage_is_only_the_first_of_the_response(engine: Engine) -> None:
    engine.stand_ins.script([{"text": "A long answer. " * 50}])
    messages = await engine.ask(engine.options())
    usages = [m.usage for m in messages if isinstance(m, AssistantMessage)]
    assert usages and all(usage and usage["output_tokens"] == 1 for usage in usages)
    (settled,) = (m for m in messages if isinstance(m, StreamEvent) and m.event["type"] == "message_delta")
    assert settled.event["usage"]["output_tokens"] > 100


async def test_it_sends_max_tokens_128000_unless_told_less_and_adds_an_environment_message(
    engine: Engine,
) -> None:
    engine.stand_ins.script([ANSWER, ANSWER])
    await engine.ask(engine.options(verbatim_prompts=True))
    await engine.ask(engine.options(env={"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "900"}))
    first, second = engine.bodies()
    assert (first["max_tokens"], second["max_tokens"]) == (128_000, 900)
    question, environment = first["messages"]
    assert question["content"] == "What is it?"
    added = text_of(environment["content"])
    assert str(engine.home.parent / "work") in added
    assert len(added) < 2_000


async def test_hidden_thinking_is_estimated_in_the_stream(engine: Engine) -> None:
    engine.stand_ins.script([{"thinking": 400, "text": "An answer."}])
    messages = await engine.ask(engine.options())
    events = [m.event for m in messages if isinstance(m, StreamEvent)]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert sum(delta.get("estimated_tokens", 0) for delta in deltas) > 0


async def test_a_tool_that_does_not_exist_is_answered_without_asking_a_hook(engine: Engine) -> None:
    asked: list[Any] = []

    async def before(hook_input: Any, *_: Any) -> Any:
        asked.append(hook_input)
        return {}

    bash = {"server": None, "tool": "Bash", "input": {"command": "ls"}}
    engine.stand_ins.script([{"calls": [bash]}, ANSWER])
    messages = await engine.ask(engine.options(hooks=hooks(PreToolUse=before)))
    blocks = [b for m in messages if isinstance(m, UserMessage) for b in m.content]
    (told,) = (block for block in blocks if isinstance(block, ToolResultBlock))
    assert told.is_error and "No such tool available" in str(told.content)
    assert asked == []
