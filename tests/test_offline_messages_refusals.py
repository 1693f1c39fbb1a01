"""What the stand-in of the Messages API refuses: one row per rule that FACTS names."""

from __future__ import annotations

import copy
import http.client
import json
from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from orchestrator.offline import StandIns

Json = dict[str, Any]
MCP_BETA = "mcp-client-2025-11-20"
TEXT = {"type": "text", "text": "Hello?"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}}
HOSTED_USE = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "a", "server_name": "s", "input": {}}
TOOL = {"name": "search", "input_schema": {"type": "object"}}
SERVER = {"type": "url", "name": "s", "url": "http://127.0.0.1:9/mcp"}
TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "s"}
MARKED = {**TEXT, "cache_control": {"type": "ephemeral"}}
FOUND = {
    "type": "search_result",
    "source": "https://example.org/",
    "title": "Page",
    "content": [TEXT],
    "citations": {"enabled": True},
}
SCHEMA = {"format": {"type": "json_schema", "schema": {"type": "object"}}}


def base(**more: Any) -> Json:
    return {
        "model": "claude-opus-5-5",
        "max_tokens": 1_000,
        "messages": [{"role": "user", "content": "Hello?"}],
        **more,
    }


def said(*messages: tuple[str, Any]) -> Json:
    return base(messages=[{"role": role, "content": content} for role, content in messages])


def mcp(servers: list[Json], tools: list[Json], betas: str = MCP_BETA) -> Json:
    return base(mcp_servers=servers, tools=tools, betas=[betas])


REFUSED: dict[str, tuple[Json, str]] = {
    "temperature": (base(temperature=1), "temperature"),
    "top_p": (base(top_p=0.9), "top_p"),
    "top_k": (base(top_k=5), "top_k"),
    "unknown field": (base(colour="red"), "colour: Extra inputs are not permitted"),
    "no model": ({k: v for k, v in base().items() if k != "model"}, "model: Field required"),
    "max_tokens zero": (base(max_tokens=0), "greater than or equal to 1"),
    "max_tokens too large": (base(max_tokens=128_001), "128001 > 128000"),
    "unknown beta": (
        base(betas=["no-such-2026-01-01"]),
        r"Unexpected value\(s\) `no-such-2026-01-01` for the `anthropic-beta` header",
    ),
    "thinking disabled": (base(thinking={"type": "disabled"}), "thinking.type"),
    "thinking enabled": (base(thinking={"type": "enabled", "budget_tokens": 2_000}), "thinking.type"),
    "tool_choice any": (base(tools=[TOOL], tool_choice={"type": "any"}), "tool_choice"),
    "tool_choice tool": (base(tools=[TOOL], tool_choice={"type": "tool", "name": "search"}), "tool_choice"),
    "tool_choice without tools": (base(tool_choice={"type": "auto"}), "while providing tools"),
    "effort": (base(output_config={"effort": "heroic"}), "output_config.effort"),
    "task budget without its beta": (
        base(output_config={"task_budget": {"type": "tokens", "total": 20_000}}),
        "task_budget: Extra inputs",
    ),
    "task budget too small": (
        base(
            output_config={"task_budget": {"type": "tokens", "total": 19_999}},
            betas=["task-budgets-2026-03-13"],
        ),
        "greater than or equal to 20000",
    ),
    "document in an assistant message": (
        said(("user", "Hi"), ("assistant", [{"type": "document", "source": {}}]), ("user", "Go on")),
        "`document` blocks",
    ),
    "citations in what the user says": (
        said(("user", [{**TEXT, "citations": [{"type": "char_location"}]}])),
        "non-empty `citations`",
    ),
    "citations in a search result in a tool result": (
        base(
            tools=[TOOL],
            messages=[
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [USE]},
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "toolu_1",
                            "content": [{**FOUND, "content": [{**TEXT, "citations": [{"type": "x"}]}]}],
                        }
                    ],
                },
            ],
        ),
        "non-empty `citations`",
    ),
    "structured output with citations": (
        {**said(("user", [FOUND])), "output_config": SCHEMA},
        "citations cannot be enabled",
    ),
    "five breakpoints": (said(("user", [MARKED] * 5)), "maximum of 4 blocks with cache_control"),
    "four breakpoints and the automatic one": (
        {**said(("user", [MARKED] * 4)), "cache_control": {"type": "ephemeral"}},
        "Found 5",
    ),
    "empty text": (said(("user", [{"type": "text", "text": ""}])), "text content blocks must be non-empty"),
    "blank text": (said(("user", [{"type": "text", "text": " \n"}])), "non-whitespace"),
    "empty message": (said(("user", "")), "non-empty content"),
    "no message": (base(messages=[]), "messages: List should have at least 1 item"),
    "assistant first": (said(("assistant", "Hi"), ("user", "Hello")), "first message"),
    "unknown role": (said(("tool", "Hi")), "role"),
    "prefill": (said(("user", "Hi"), ("assistant", "The answer is")), "must end with a user message"),
    "assistant message ends in thinking": (
        said(
            ("user", "Hi"),
            ("assistant", [TEXT, {"type": "thinking", "thinking": "", "signature": "c2ln"}]),
            ("user", "Go on"),
        ),
        "thinking",
    ),
    "open tool_use": (
        {**said(("user", "Hi"), ("assistant", [USE]), ("user", "Go on")), "tools": [TOOL]},
        "without `tool_result` blocks immediately after: toolu_1",
    ),
    "tool_result without its use": (
        said(("user", [{"type": "tool_result", "tool_use_id": "toolu_9", "content": "x"}])),
        "unexpected `tool_use_id`",
    ),
    "open mcp_tool_use": (
        said(("user", "Hi"), ("assistant", [TEXT, HOSTED_USE]), ("user", "Go on")),
        "without `mcp_tool_result` blocks: mcptoolu_1",
    ),
    "false pause": (
        said(("user", "Hi"), ("assistant", [TEXT, HOSTED_USE])),
        "`mcp_tool_use` ids were found",
    ),
    "forged thinking": (
        said(
            ("user", "Hi"),
            ("assistant", [{"type": "thinking", "thinking": "", "signature": "Zm9yZ2Vk"}, TEXT]),
            ("user", "Go on"),
        ),
        "Invalid `signature` in `thinking` block",
    ),
    "a block of no known type": (said(("user", [{"type": "hologram"}])), "Input tag 'hologram' found"),
    "an unknown field in a block": (said(("user", [{**TEXT, "colour": 1}])), "text.colour: Extra inputs"),
    "a tool name with a dot": (base(tools=[{**TOOL, "name": "web.search"}]), "tools.0.custom.name: String"),
    "a tool name too long": (base(tools=[{**TOOL, "name": "a" * 65}]), "tools.0.custom.name: String"),
    "a tool schema without a type": (base(tools=[{**TOOL, "input_schema": {}}]), "type: Field required"),
    "a tool schema that begins with anyOf": (
        base(tools=[{**TOOL, "input_schema": {"type": "object", "anyOf": []}}]),
        "does not support oneOf, allOf, or anyOf",
    ),
    "an edit of no known type": (
        base(context_management={"edits": [{"type": "forget"}]}, betas=["context-management-2025-06-27"]),
        "Input tag 'forget' found",
    ),
    "server without toolset": (mcp([SERVER], [TOOL]), "exactly one mcp_toolset"),
    "server with two toolsets": (mcp([SERVER], [TOOLSET, TOOLSET]), "found 2"),
    "toolset without server": (base(tools=[TOOLSET], betas=[MCP_BETA]), "not defined in mcp_servers"),
    "two servers of one name": (mcp([SERVER, SERVER], [TOOLSET]), "must be unique"),
    "server of another kind": (mcp([{**SERVER, "url": "stdio:server"}], [TOOLSET]), "mcp_servers.0.url"),
    "servers without the beta": (
        base(mcp_servers=[SERVER], tools=[TOOLSET]),
        "mcp_servers: Extra inputs are not permitted",
    ),
    "context management without the beta": (
        base(context_management={"edits": []}),
        "context_management: Extra inputs are not permitted",
    ),
    "fallbacks without the beta": (base(fallbacks="default"), "fallbacks: Extra inputs are not permitted"),
    "fallbacks of another kind": (
        base(fallbacks="all", betas=["server-side-fallback-2026-07-01"]),
        "fallbacks",
    ),
    "a list of fallbacks on Haiku 5.5": (
        {
            **base(fallbacks=[{"model": "claude-opus-4-8"}], betas=["server-side-fallback-2026-07-01"]),
            "model": "claude-haiku-5-5",
        },
        "fallbacks: not supported",
    ),
    "fast on a model that is not": ({**base(speed="fast"), "model": "claude-haiku-5-5"}, "speed"),
}


def send(client: Any, request: Json) -> Any:
    """As given, and not through a signature of the SDK that would refuse it first."""
    body = {name: value for name, value in request.items() if name != "betas"}
    headers = {"anthropic-beta": ",".join(request["betas"])} if "betas" in request else {}
    return client.post("/v1/messages?beta=true", body=body, options={"headers": headers}, cast_to=object)


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED.keys())
def test_what_the_service_refuses_is_refused_in_its_words(
    client: Any, stand_ins: StandIns, row: tuple[Json, str]
) -> None:
    """400 invalid_request_error, nothing sampled, nothing billed."""
    request, words = row
    with pytest.raises(anthropic.BadRequestError, match=words) as caught:
        send(client, request)
    body = caught.value.body
    assert isinstance(body, dict)
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert body["request_id"] == caught.value.request_id
    assert stand_ins.bill()["usd"] == 0


def test_the_plain_request_behind_the_table_is_accepted(client: Any) -> None:
    """So that each row is refused for its own reason."""
    assert send(client, base())["type"] == "message"


@pytest.mark.parametrize("key", ["bad-key", "bogus"])
def test_a_wrong_key_is_401_in_the_services_shape(stand_ins: StandIns, key: str) -> None:
    """The error body, and the request id in the header."""
    with (
        anthropic.Anthropic(base_url=stand_ins.anthropic_base_url, api_key=key, max_retries=0) as client,
        pytest.raises(anthropic.AuthenticationError) as caught,
    ):
        client.messages.create(**base())
    body = caught.value.body
    assert isinstance(body, dict)
    assert body["error"] == {"type": "authentication_error", "message": "invalid x-api-key"}
    assert caught.value.request_id == body["request_id"]


def raw(stand_ins: StandIns, body: bytes, **headers: str) -> tuple[int, Json]:
    """A request without the SDK's help."""
    connection = http.client.HTTPConnection(stand_ins.anthropic_base_url.removeprefix("http://"), timeout=10)
    try:
        connection.request("POST", "/v1/messages", body, {k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        return response.status, json.load(response)
    finally:
        connection.close()


def test_a_missing_key_is_401(stand_ins: StandIns) -> None:
    """Neither header."""
    assert raw(stand_ins, b"{}")[0] == 401


def test_a_request_says_for_which_version_it_was_written(stand_ins: StandIns) -> None:
    """The header is required, and an older version still takes a temperature."""
    body = json.dumps(base(temperature=0.5)).encode()
    assert raw(stand_ins, body, x_api_key="k")[0] == 400
    assert raw(stand_ins, body, x_api_key="k", anthropic_version="1999-01-01")[0] == 400
    assert raw(stand_ins, body, x_api_key="k", anthropic_version="2023-06-01")[0] == 200


def test_a_body_that_is_no_json_is_400(stand_ins: StandIns) -> None:
    """In the service's shape, not a traceback."""
    status, answer = raw(stand_ins, b"{nonsense", x_api_key="k", anthropic_version="2026-10-21")
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


def test_a_lone_surrogate_is_400(stand_ins: StandIns) -> None:
    """Case I133: one in a tool result makes every later request fail; a real pair does not."""
    lone, pair = (json.dumps(said(("user", text))).encode() for text in ("a \ud83d b", "a \U0001f40d b"))
    headers = {"x_api_key": "k", "anthropic_version": "2026-10-21"}
    assert raw(stand_ins, lone, **headers)[0] == 400
    assert raw(stand_ins, pair, **headers)[0] == 200


def test_an_unknown_model_and_an_unknown_path_are_404(client: Any) -> None:
    """not_found_error names the model."""
    with pytest.raises(anthropic.NotFoundError, match="model: claude-nothing"):
        client.messages.create(**{**base(), "model": "claude-nothing"})
    with pytest.raises(anthropic.NotFoundError):
        client.get("/v1/nothing", cast_to=object)


def test_a_prompt_above_the_window_is_too_long(client: Any, stand_ins: StandIns) -> None:
    """FACTS: 400 'prompt is too long', which is not the stop reason of the same cause."""
    stand_ins.configure(context_window=1_000)
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: [0-9]+ tokens > 1000 maximum"):
        client.messages.create(**{**base(), "messages": [{"role": "user", "content": "word " * 2_000}]})


def test_a_beta_that_the_account_does_not_have_is_refused(client: Any, stand_ins: StandIns) -> None:
    """FACTS: make the header a setting and fall back."""
    stand_ins.configure(refused_betas=["mcp-client-2026-09-15"])
    with pytest.raises(anthropic.BadRequestError, match="`mcp-client-2026-09-15` for the `anthropic-beta`"):
        client.beta.messages.create(**base(betas=["mcp-client-2026-09-15"]))
    assert client.beta.messages.create(**base(betas=[MCP_BETA])).stop_reason == "end_turn"


# --- thinking is bound to what came before it --------------------------------------------------------------


def _conversation(client: Any) -> Json:
    """A request whose history holds a thinking block, and that is accepted as it is."""
    request = base(system="Be brief.", tools=[TOOL], tool_choice={"type": "none"})
    first = client.messages.create(**request)
    assistant = [block.to_dict() for block in first.content]
    assert assistant[0]["type"] == "thinking"
    turns = [
        *request["messages"],
        {"role": "assistant", "content": assistant},
        {"role": "user", "content": "Go on."},
    ]
    return {**request, "messages": turns}


def test_a_changed_prefix_is_refused_in_a_hosted_conversation_too(client: Any, stand_ins: StandIns) -> None:
    """The same rule where MCP servers are open while it is looked at."""
    request = mcp([{**SERVER, "url": stand_ins.mcp_url}], [TOOLSET])
    first = client.beta.messages.create(**request)
    turns = [
        *request["messages"],
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "Go on."},
    ]
    assert client.beta.messages.create(**{**request, "messages": turns}).stop_reason == "end_turn"
    with pytest.raises(anthropic.BadRequestError, match="Invalid `signature` in `thinking` block"):
        client.beta.messages.create(**{**request, "messages": turns, "system": "Changed."})


CHANGES: dict[str, Callable[[Json], Any]] = {
    "system": lambda r: r.update(system="Be long."),
    "tools": lambda r: r.update(tools=[{**TOOL, "description": "changed"}]),
    "earlier message": lambda r: r["messages"][0].update(content="Hello!"),
    "model": lambda r: r.update(model="claude-sonnet-5-5"),
    "signature": lambda r: r["messages"][1]["content"][0].update(
        signature="A" + r["messages"][1]["content"][0]["signature"][1:]
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_prefix_under_thinking_is_refused(client: Any, change: Callable[[Json], Any]) -> None:
    """FACTS: bound to model and byte-identical prefix."""
    request = _conversation(client)
    changed = copy.deepcopy(request)
    change(changed)
    with pytest.raises(anthropic.BadRequestError, match="Invalid `signature` in `thinking` block"):
        client.messages.create(**changed)


def test_an_unchanged_history_is_accepted_whatever_its_cache_marks(client: Any) -> None:
    """Cache marks, the tool choice and the spelling of text content are no part of the prefix."""
    request = _conversation(client)
    assert client.messages.create(**request).stop_reason == "end_turn"
    request["messages"][0]["content"] = [MARKED]
    request["tool_choice"] = {"type": "auto"}
    assert client.messages.create(**request).stop_reason in ("end_turn", "tool_use")


def test_a_mismatch_may_be_dropped_where_the_request_says_so(client: Any) -> None:
    """thinking.block_binding under its beta."""
    request = _conversation(client)
    request["system"] = "Be long."
    request["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    answer = client.beta.messages.create(**request, betas=["thinking-binding-controls-2026-08-01"])
    assert answer.stop_reason == "end_turn"
