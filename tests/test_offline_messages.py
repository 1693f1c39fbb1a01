"""The stand-in of the Messages API, driven by the real SDK: streams, the hosted loop, the bill."""

from __future__ import annotations

import json
import socket
import urllib.request
from typing import Any

import anthropic
import pytest

from orchestrator import offline
from orchestrator.offline import StandIns

QUESTION = "How does the with statement handle exceptions?"
MODEL = "claude-opus-5-5"
MCP_BETA = "mcp-client-2025-11-20"
LISTING_BETA = "mcp-client-2026-09-15"
Json = dict[str, Any]


def hosted(stand_ins: StandIns, server: str = "parallel-search", **more: Any) -> Json:
    """A request that lets the service search."""
    return {
        "model": MODEL,
        "max_tokens": 4_000,
        "messages": [{"role": "user", "content": QUESTION}],
        "mcp_servers": [{"type": "url", "name": server, "url": stand_ins.server_urls[server]}],
        "tools": [{"type": "mcp_toolset", "mcp_server_name": server}],
        "betas": [MCP_BETA],
        **more,
    }


def plain(text: str = QUESTION, **more: Any) -> Json:
    """A request without tools."""
    return {"model": MODEL, "max_tokens": 4_000, "messages": [{"role": "user", "content": text}], **more}


def events(client: Any, request: Json) -> list[Json]:
    with client.beta.messages.create(**request, stream=True) as stream:
        return [event.to_dict() for event in stream]


def kinds(content: list[Json]) -> list[str]:
    return [block["type"] for block in content]


def search(text: str, server: str = "parallel-search") -> Json:
    """A scripted call of the search tool."""
    return {
        "server": server,
        "tool": "web_search",
        "input": {"objective": text, "search_queries": [text]},
    }


# --- streams and whole messages ----------------------------------------------------------------------------


def test_a_hosted_search_streams_in_the_order_of_the_recordings(client: Any, stand_ins: StandIns) -> None:
    """Issue text and recordings: use opened empty, input as deltas, result whole, usage only at the end."""
    seen = events(client, hosted(stand_ins))
    starts = [e["content_block"] for e in seen if e["type"] == "content_block_start"]
    assert kinds(starts) == ["thinking", "mcp_tool_use", "mcp_tool_result", "thinking", "text"]
    assert starts[1]["input"] == {}
    assert starts[1]["id"].startswith("mcptoolu_")
    pieces = [
        e["delta"]["partial_json"]
        for e in seen
        if e["type"] == "content_block_delta" and e["delta"]["type"] == "input_json_delta"
    ]
    assert pieces[0] == ""
    assert json.loads("".join(pieces))["objective"] == QUESTION
    assert starts[2]["content"][0]["type"] == "text"
    assert starts[2]["is_error"] is False
    assert "structuredContent" not in json.dumps(starts[2])
    assert [e["type"] for e in seen[-2:]] == ["message_delta", "message_stop"]
    start, end = seen[0]["message"]["usage"], seen[-2]["usage"]
    assert start["output_tokens"] == 1
    assert start["input_tokens"] == end["iterations"][0]["input_tokens"] < end["input_tokens"]
    assert end["output_tokens"] == sum(each["output_tokens"] for each in end["iterations"])


def test_a_whole_message_says_the_same_as_the_stream(client: Any, stand_ins: StandIns) -> None:
    """Both forms come from one response."""
    stand_ins.configure(caching="uncached")
    with client.beta.messages.stream(**hosted(stand_ins)) as stream:
        streamed = stream.get_final_message().to_dict()
    whole = client.beta.messages.create(**hosted(stand_ins)).to_dict()
    for message in (streamed, whole):
        for block in message["content"]:
            # Ids of searches are drawn anew by the search server.
            if block["type"] == "mcp_tool_result":
                block["content"] = "..."
            block.pop("signature", None)
            block.pop("parsed_output", None)
    assert streamed["content"] == whole["content"]
    assert streamed["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    assert streamed["stop_reason"] == whole["stop_reason"] == "end_turn"


def test_the_answer_cites_what_the_search_returned(client: Any, stand_ins: StandIns) -> None:
    """The stand-in model copies sentences and links the exact URL."""
    message = client.beta.messages.create(**hosted(stand_ins))
    result = json.loads(message.content[2].content[0].text)
    urls = {each["url"] for each in result["results"]}
    answer = message.content[-1].text
    cited = [url for url in urls if f"]({url})" in answer]
    assert cited
    excerpts = " ".join(" ".join(each["excerpts"]) for each in result["results"])
    first = answer.partition(" [")[0]
    assert first in " ".join(excerpts.split())


def test_another_server_of_another_shape_is_searched_as_well(client: Any, stand_ins: StandIns) -> None:
    """Other tool names, plain text with links."""
    message = client.beta.messages.create(**hosted(stand_ins, "exa"))
    assert message.content[1].name == "web_search_exa"
    assert "](https://docs.python.org/3/" in message.content[-1].text


def test_source_ids_are_cited_where_they_were_shown(client: Any) -> None:
    """A final request carries excerpts under ids and no tools."""
    prompt = (
        f"Answer now, from the excerpts below. Cite ids like [S1].\n\nQuestion: {QUESTION}\n\n"
        '<source id="S3" url="https://docs.python.org/3/x.html">\n'
        "The with statement hands an exception that its block raises to the exit method.\n</source>"
    )
    message = client.messages.create(**plain(prompt))
    assert message.content[-1].text == (
        "The with statement hands an exception that its block raises to the exit method [S3]."
    )


def test_nothing_found_is_said(client: Any, stand_ins: StandIns) -> None:
    """After two searches that found nothing."""
    stand_ins.configure(search={"fault": "empty"})
    message = client.beta.messages.create(**hosted(stand_ins))
    assert kinds([b.to_dict() for b in message.content]).count("mcp_tool_use") == 2
    assert message.content[-1].text.startswith("Nothing was found")


def test_a_follow_up_for_a_shorter_answer_is_answered_from_the_last_one(
    client: Any, stand_ins: StandIns
) -> None:
    """No search, and no more than the first sentence."""
    request = hosted(stand_ins)
    first = client.beta.messages.create(**request)
    turns = [
        *request["messages"],
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "shorter, please"},
    ]
    second = client.beta.messages.create(**{**request, "messages": turns})
    assert first.content[-1].text.startswith(second.content[-1].text)
    assert len(second.content[-1].text) < len(first.content[-1].text)


def test_a_correction_is_answered_with_citations_and_without_searching(
    client: Any, stand_ins: StandIns
) -> None:
    """The prompt of a correction turn names markers."""
    stand_ins.script([{"calls": [search(QUESTION)]}, {"text": "It handles them somehow [S9]."}])
    request = hosted(stand_ins)
    first = client.beta.messages.create(**request)
    fix = "These markers name no source that a tool returned: [S9]. Write the answer again with citations."
    turns = [
        *request["messages"],
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": fix},
    ]
    second = client.beta.messages.create(**{**request, "messages": turns})
    assert kinds([b.to_dict() for b in second.content]) == ["thinking", "text"]
    assert "](https://docs.python.org/3/" in second.content[-1].text


def test_hidden_thinking_is_billed_signed_and_not_shown(client: Any, stand_ins: StandIns) -> None:
    """FACTS: billed, not streamed; the amount stands in output_tokens_details."""
    stand_ins.configure(thinking=777)
    seen = events(client, plain())
    deltas = [e["delta"] for e in seen if e["type"] == "content_block_delta" and e["index"] == 0]
    assert [delta["type"] for delta in deltas] == ["signature_delta"]
    assert seen[-2]["usage"]["output_tokens_details"] == {"thinking_tokens": 777}
    assert stand_ins.bill()["passes"][0]["output_tokens"] > 777


def test_the_thinking_count_beta_gives_a_lossy_estimate(client: Any, stand_ins: StandIns) -> None:
    """Increments are multiples of a quantum, and their sum is off by the factor that was told."""
    stand_ins.configure(thinking=1_000, thinking_estimate=(0.5, 0.5))
    seen = events(client, plain(betas=["thinking-token-count-2026-05-13"]))
    steps = [
        e["delta"]["estimated_tokens"]
        for e in seen
        if e["type"] == "content_block_delta" and e["delta"]["type"] == "thinking_delta"
    ]
    assert sum(steps) == 500
    assert all(step % 10 == 0 for step in steps)


def test_more_effort_thinks_more(client: Any) -> None:
    """The default amount follows output_config.effort."""
    thought = {}
    for effort in ("low", "max"):
        message = client.messages.create(**plain(output_config={"effort": effort}))
        thought[effort] = message.usage.output_tokens_details.thinking_tokens
    assert thought["low"] < thought["max"]


def test_a_listing_opens_the_response_under_the_newer_beta(client: Any, stand_ins: StandIns) -> None:
    """FACTS: content[0] is then the listing; sent back, the server is not asked again."""
    request = hosted(stand_ins, betas=[LISTING_BETA])
    first = client.beta.messages.create(**request)
    assert first.content[0].type == "mcp_tool_listing"
    assert [tool.name for tool in first.content[0].tools] == ["web_search", "web_fetch"]
    turns = [
        *request["messages"],
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "What is a generator expression?"},
    ]
    second = client.beta.messages.create(**{**request, "messages": turns})
    assert "mcp_tool_listing" not in kinds([b.to_dict() for b in second.content])


def test_structured_output_satisfies_its_schema(client: Any) -> None:
    """A judge or a planner gets JSON of the right shape."""
    schema = {
        "type": "object",
        "properties": {
            "verdict": {"enum": ["supported", "unsupported"]},
            "score": {"type": "integer", "minimum": 1},
            "why": {"type": "string"},
        },
        "required": ["verdict", "score", "why"],
        "additionalProperties": False,
    }
    message = client.messages.create(
        **plain("Is it so?", output_config={"format": {"type": "json_schema", "schema": schema}})
    )
    assert json.loads(message.content[-1].text) == {"verdict": "supported", "score": 1, "why": "Is it so?"}


def test_a_judge_is_answered_line_by_line(client: Any) -> None:
    """What the words carry is supported, a number that stands nowhere is not."""
    item = (
        '<item number="{}">\n<sentence>{}</sentence>\n'
        "<excerpt>The tower opened in 1889 and is 330 metres high.</excerpt>\n</item>"
    )
    claims = ["The tower opened in 1889.", "The tower opened in 1890.", "Cats sleep all day long."]
    prompt = "Judge these.\n" + "\n".join(item.format(n, claim) for n, claim in enumerate(claims))
    lines = client.messages.create(**plain(prompt)).content[-1].text.splitlines()
    assert [json.loads(line)["supported"] for line in lines] == [True, False, False]


# --- the connector -----------------------------------------------------------------------------------------


def test_the_allow_list_decides_which_tools_there_are(client: Any, stand_ins: StandIns) -> None:
    """default_config off and one tool on: another tool's call fails inside the loop."""
    stand_ins.script(
        [
            {
                "calls": [
                    {"server": "parallel-search", "tool": "web_fetch", "input": {"urls": ["https://a.b"]}}
                ]
            },
            {"text": "Done."},
        ]
    )
    toolset = {
        "type": "mcp_toolset",
        "mcp_server_name": "parallel-search",
        "default_config": {"enabled": False},
        "configs": {"web_search": {"enabled": True}},
    }
    message = client.beta.messages.create(**hosted(stand_ins, tools=[toolset]))
    result = next(block for block in message.content if block.type == "mcp_tool_result")
    assert result.is_error
    assert "web_fetch" in result.content[0].text
    assert stand_ins.bill()["tool_calls"] == []


def test_a_failure_inside_the_loop_is_an_error_result_and_the_loop_goes_on(
    client: Any, stand_ins: StandIns
) -> None:
    """FACTS: failure within the loop -> mcp_tool_result with is_error."""
    stand_ins.configure(search={"fault": "down", "fault_method": "tools/call"})
    message = client.beta.messages.create(**hosted(stand_ins))
    results = [block for block in message.content if block.type == "mcp_tool_result"]
    assert [result.is_error for result in results] == [True, True]
    assert message.stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("fault", "words"),
    [("down", "Connection error while communicating"), ("401", "Authentication error while communicating")],
)
def test_a_server_that_cannot_be_opened_is_a_400(
    client: Any, stand_ins: StandIns, fault: str, words: str
) -> None:
    """User reports in FACTS: 400 invalid_request_error, before anything is sampled or billed."""
    stand_ins.configure(search={"fault": fault})
    with pytest.raises(anthropic.BadRequestError, match=words):
        client.beta.messages.create(**hosted(stand_ins))
    assert stand_ins.bill()["usd"] == 0


def test_the_authorization_token_goes_to_the_server_as_a_bearer(client: Any, stand_ins: StandIns) -> None:
    """A keyed call is the search server's own word for it."""
    request = hosted(stand_ins)
    request["mcp_servers"][0]["authorization_token"] = "wrong-key"
    with pytest.raises(anthropic.BadRequestError, match="check your authorization token"):
        client.beta.messages.create(**request)


def test_a_loop_pauses_after_ten_passes_and_goes_on_from_the_unchanged_content(
    client: Any, stand_ins: StandIns
) -> None:
    """FACTS: re-send user and assistant content unchanged, no extra message."""
    stand_ins.script([{"calls": [search(f"topic {n}")]} for n in range(12)] + [{"text": "Done at last."}])
    request = hosted(stand_ins)
    first = client.beta.messages.create(**request)
    assert first.stop_reason == "pause_turn"
    assert len(first.usage.iterations) == 10
    turns = [*request["messages"], {"role": "assistant", "content": first.content}]
    second = client.beta.messages.create(**{**request, "messages": turns})
    assert second.stop_reason == "end_turn"
    assert second.content[-1].text == "Done at last."
    assert len(stand_ins.bill()["passes"]) == 13


def test_a_pause_may_leave_its_last_call_to_the_continuation(client: Any, stand_ins: StandIns) -> None:
    """A dangling call is legal in a genuine replay only, and is then carried out first."""
    stand_ins.configure(pause_after=2, pause_open=True)
    stand_ins.script([{"calls": [search("a")]}, {"calls": [search("b")]}, {"text": "Done."}])
    request = hosted(stand_ins)
    first = client.beta.messages.create(**request)
    assert first.content[-1].type == "mcp_tool_use"
    turns = [*request["messages"], {"role": "assistant", "content": first.content}]
    second = client.beta.messages.create(**{**request, "messages": turns})
    assert second.content[0].type == "mcp_tool_result"
    assert second.content[0].tool_use_id == first.content[-1].id


def test_a_client_tool_ends_the_response_with_tool_use(client: Any) -> None:
    """The shape that the Agent SDK's engine relies on."""
    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tool = {"name": "mcp__any__search", "description": "Search the web", "input_schema": schema}
    request = plain(tools=[tool])
    first = client.messages.create(**request)
    assert first.stop_reason == "tool_use"
    call = first.content[-1]
    assert call.input == {"query": QUESTION}
    found = "[Page](https://example.org/a)\n\nThe with statement handles exceptions by calling exit first."
    turns = [
        *request["messages"],
        {"role": "assistant", "content": first.content},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call.id, "content": found}],
        },
    ]
    second = client.messages.create(**{**request, "messages": turns})
    assert second.content[-1].text == (
        "The with statement handles exceptions by calling exit first [Page](https://example.org/a)."
    )


# --- money -------------------------------------------------------------------------------------------------


def test_an_uncached_pass_costs_its_tokens_at_list_price(client: Any, stand_ins: StandIns) -> None:
    """Opus 5.5: 4 and 20 dollars per million."""
    stand_ins.configure(caching="uncached", thinking=100)
    usage = client.messages.create(**plain()).usage
    bill = stand_ins.bill()
    assert bill["model_usd"] == pytest.approx(
        (usage.input_tokens * 4 + usage.output_tokens * 20) / 1e6, abs=1e-12
    )
    assert bill["usd"] == bill["model_usd"]


def test_a_hosted_loop_without_cache_control_reads_its_context_again_in_full(
    client: Any, stand_ins: StandIns
) -> None:
    """The recording of a connector call: the input of both passes is added up, nothing is cached."""
    usage = client.beta.messages.create(**hosted(stand_ins)).usage
    first, second = usage.iterations
    assert usage.cache_read_input_tokens == usage.cache_creation_input_tokens == 0
    assert second.input_tokens > first.input_tokens + first.output_tokens
    assert usage.input_tokens == first.input_tokens + second.input_tokens


def test_a_cached_hosted_loop_reads_the_old_and_writes_the_new(client: Any, stand_ins: StandIns) -> None:
    """Reading at 0.20, writing at 5 dollars per million; the bill is the sum over the passes."""
    stand_ins.script([{"calls": [search("exceptions")]}, {"calls": [search("with")]}, {"text": "Done."}])
    request = hosted(stand_ins, system="Answer. " * 400, cache_control={"type": "ephemeral"})
    usage = client.beta.messages.create(**request).usage
    first, second, third = usage.iterations
    assert (first.cache_read_input_tokens, first.input_tokens) == (0, 0)
    assert second.cache_read_input_tokens == first.cache_creation_input_tokens
    assert third.cache_read_input_tokens == (
        second.cache_read_input_tokens + second.cache_creation_input_tokens
    )
    expected = sum(
        each.cache_read_input_tokens * 0.20 + each.cache_creation_input_tokens * 5 + each.output_tokens * 20
        for each in usage.iterations
    )
    assert stand_ins.bill()["model_usd"] == pytest.approx(expected / 1e6, abs=1e-12)
    assert stand_ins.bill()["tools_usd"] == pytest.approx(0.002)


def test_a_second_request_reads_the_prefix_of_the_first(client: Any, stand_ins: StandIns) -> None:
    """Across requests; another effort or another tool choice finds less or nothing."""
    system = [{"type": "text", "text": "Answer. " * 400, "cache_control": {"type": "ephemeral"}}]
    first = client.messages.create(**plain(system=system)).usage
    again = client.messages.create(**plain("Something else?", system=system)).usage
    other = client.messages.create(**plain(system=system, output_config={"effort": "low"})).usage
    assert again.cache_read_input_tokens == first.cache_creation_input_tokens > 512
    assert other.cache_read_input_tokens == 0


def test_a_prefix_below_the_minimum_is_not_cached(client: Any, stand_ins: StandIns) -> None:
    """FACTS: 512 tokens on Opus 5.5."""
    usage = client.messages.create(**plain(cache_control={"type": "ephemeral"})).usage
    assert usage.cache_creation_input_tokens == 0
    assert usage.input_tokens > 0


def test_an_hour_of_caching_costs_more(client: Any, stand_ins: StandIns) -> None:
    """8 instead of 5 dollars per million."""
    mark = {"type": "ephemeral", "ttl": "1h"}
    usage = client.messages.create(**plain("Answer. " * 400, cache_control=mark)).usage
    written = usage.cache_creation.ephemeral_1h_input_tokens
    assert written > 512
    expected = (written * 8 + usage.output_tokens * 20) / 1e6
    assert stand_ins.bill()["model_usd"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("repeat", "input_usd", "output_usd"), [(10, 0.10, 0.50), (60_000, 0.50, 2.50)], ids=["short", "long"]
)
def test_haiku_charges_the_whole_request_more_above_a_hundred_thousand_tokens(
    client: Any, stand_ins: StandIns, repeat: int, input_usd: float, output_usd: float
) -> None:
    """FACTS section 4."""
    usage = client.messages.create(**{**plain("what is it? " * repeat), "model": "claude-haiku-5-5"}).usage
    expected = (usage.input_tokens * input_usd + usage.output_tokens * output_usd) / 1e6
    assert stand_ins.bill()["model_usd"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "tier", "factor"),
    [({"inference_geo": "us"}, "standard", 1.1), ({"speed": "fast"}, "standard", 2.0), ({}, "batch", 0.5)],
    ids=["us", "fast", "batch"],
)
def test_options_multiply_the_price(
    client: Any, stand_ins: StandIns, options: Json, tier: str, factor: float
) -> None:
    """FACTS: inference_geo us x1.1, fast mode 8/40, batch x0.5."""
    stand_ins.configure(service_tier=tier)
    usage = client.beta.messages.create(**plain(**options)).usage
    expected = factor * (usage.input_tokens * 4 + usage.output_tokens * 20) / 1e6
    assert stand_ins.bill()["model_usd"] == pytest.approx(expected, abs=1e-12)
    assert usage.service_tier == tier


def test_context_editing_clears_old_results_from_what_is_read_and_billed(
    client: Any, stand_ins: StandIns
) -> None:
    """Reported in applied_edits; with the edit switched off the same loop costs more."""
    passes: list[Json] = [*({"calls": [search(f"statement {n}")]} for n in range(5)), {"text": "Done."}]
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 10_000},
        "keep": {"type": "tool_uses", "value": 1},
    }
    request = hosted(
        stand_ins,
        betas=[MCP_BETA, "context-management-2025-06-27"],
        context_management={"edits": [edit]},
        cache_control={"type": "ephemeral"},
    )
    tokens = {}
    for clearing in (True, False):
        stand_ins.configure(clearing=clearing)
        stand_ins.script(passes)
        message = client.beta.messages.create(**request)
        edits = message.context_management.applied_edits
        assert [each.cleared_tool_uses for each in edits] == ([4] if clearing else [])
        tokens[clearing] = sum(
            each.input_tokens + each.cache_read_input_tokens + each.cache_creation_input_tokens
            for each in message.usage.iterations
        )
    assert tokens[True] < tokens[False]


def test_a_client_that_leaves_at_a_tool_call_pays_for_no_further_pass(
    client: Any, stand_ins: StandIns
) -> None:
    """The stream is closed where the call opens; the next pass never begins."""
    stand_ins.configure(call_delay=0.5)
    with client.beta.messages.create(**hosted(stand_ins), stream=True) as stream:
        for event in stream:
            if event.type == "content_block_start" and event.content_block.type == "mcp_tool_use":
                break
    bill = stand_ins.bill()
    assert len(bill["passes"]) == 1


def test_a_client_that_leaves_in_the_text_pays_for_what_was_generated(
    client: Any, stand_ins: StandIns
) -> None:
    """The bill grows with the stream and stops with it."""
    long = "A sentence that goes on. " * 2_000
    stand_ins.configure(pace=0.002)
    stand_ins.script([{"thinking": 0, "text": long}])
    with client.beta.messages.create(**plain(max_tokens=100_000), stream=True) as stream:
        for event in stream:
            if event.type == "content_block_delta":
                break
    output = stand_ins.bill()["passes"][0]["output_tokens"]
    assert 0 < output < 5_000


def test_max_tokens_cuts_the_text_and_the_bill(client: Any, stand_ins: StandIns) -> None:
    """Never more output than was allowed."""
    stand_ins.script([{"thinking": 50, "text": "word " * 500}])
    message = client.messages.create(**plain(max_tokens=120))
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens <= 120
    assert message.content[-1].text.startswith("word word")


def test_thinking_alone_can_use_up_max_tokens(client: Any, stand_ins: StandIns) -> None:
    """Thinking counts towards max_tokens; then there is no text at all."""
    stand_ins.configure(thinking=5_000)
    message = client.messages.create(**plain(max_tokens=1_000))
    assert kinds([b.to_dict() for b in message.content]) == ["thinking"]
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 1_000)


def test_usage_shows_iterations_only_where_configured(client: Any, stand_ins: StandIns) -> None:
    """FACTS: their presence is a FLAG, so both must be met."""
    stand_ins.configure(iterations=False)
    assert client.beta.messages.create(**hosted(stand_ins)).usage.iterations is None


# --- the other endpoints, the control, the life of the servers ---------------------------------------------


def test_tokens_are_counted_as_they_are_billed(client: Any, stand_ins: StandIns) -> None:
    """count_tokens of a request is the input of its first pass."""
    request = hosted(stand_ins)
    counted = client.beta.messages.count_tokens(**{k: v for k, v in request.items() if k != "max_tokens"})
    usage = client.beta.messages.create(**request).usage
    assert counted.input_tokens == usage.iterations[0].input_tokens


def test_models_are_listed_and_retrieved(client: Any) -> None:
    """An unknown one is 404."""
    assert MODEL in [model.id for model in client.models.list()]
    assert client.beta.models.retrieve(MODEL).max_input_tokens == 1_000_000
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("claude-nothing")


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
def test_the_key_is_taken_from_either_header(stand_ins: StandIns, header: str) -> None:
    """FACTS: the SDK sends Bearer, the engine x-api-key."""
    key = "Bearer offline" if header == "authorization" else "offline"
    request = urllib.request.Request(f"{stand_ins.anthropic_base_url}/v1/models", headers={header: key})
    with urllib.request.urlopen(request) as response:
        assert response.headers["request-id"].startswith("req_")


def test_the_log_shows_requests_without_the_key(client: Any, stand_ins: StandIns) -> None:
    """What a test looks at, to see what reached the wire."""
    client.messages.create(**plain())
    (entry,) = stand_ins.requests()
    assert (entry["method"], entry["path"]) == ("POST", "/v1/messages")
    assert entry["body"]["messages"] == plain()["messages"]
    assert "authorization" not in entry["headers"]


def test_the_control_endpoint_says_what_the_methods_say(client: Any, stand_ins: StandIns) -> None:
    """For a process that has only the addresses."""

    def call(verb: str, body: Json | None = None) -> Json:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"{stand_ins.control_url}/{verb}", data=data) as response:
            answer: Json = json.load(response)
        return answer

    assert call("configure", {"bytes_per_token": 2.0})["bytes_per_token"] == 2.0
    assert call("script", {"passes": [{"text": "Scripted."}, {"text": "Left over."}]}) == {"queued": 2}
    assert client.messages.create(**plain()).content[-1].text == "Scripted."
    assert call("bill")["model_usd"] == stand_ins.bill()["model_usd"] > 0
    assert len(call("requests")["requests"]) == 1
    assert call("reset", {}) == {"unconsumed": 1}
    assert call("bill")["usd"] == 0


@pytest.mark.parametrize(
    "told", [{"fault": "no such fault"}, {"nonsense": 1}, {"search": {"fault": "nonsense"}}]
)
def test_what_the_control_does_not_know_is_refused(stand_ins: StandIns, told: Json) -> None:
    """A misspelt fault must not look like a healthy service."""
    request = urllib.request.Request(f"{stand_ins.control_url}/configure", data=json.dumps(told).encode())
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(request)


async def test_stand_ins_open_and_close_in_a_running_loop() -> None:
    """The addresses answer inside, and no more afterwards."""
    async with offline.stand_ins() as opened:
        port = int(opened.anthropic_base_url.rpartition(":")[2])
        assert set(opened.addresses()) == {"anthropic_base_url", "mcp_url", "control_url", "server_urls"}
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
