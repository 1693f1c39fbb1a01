"""The client side of MCP against servers as they are: lost sessions, refusals, odd lists, odd results."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from orchestrator.errors import McpUnavailable, RateLimited
from orchestrator.mcp_client import mend
from orchestrator.offline import StandIns
from orchestrator.settings import Server
from orchestrator.upstream import CallFailed, Result, Upstream, connect
from tests.odd_server import Killable, OddServer, child, http, running, text_result, tool

SEARCH = {"objective": "How does the with statement work?", "search_queries": ["with statement"]}


@pytest.fixture
async def upstream(stand_ins: StandIns) -> AsyncIterator[Upstream]:
    async with connect(http(stand_ins.mcp_url, "web_search", "web_fetch")) as opened:
        await opened.tools()
        yield opened


def first_text(result: Result) -> str:
    return str(result.content[0]["text"])


# --- what is well -----------------------------------------------------------------------------------------


async def test_a_call_returns_text_structure_usage_and_time(upstream: Upstream) -> None:
    result = await upstream.call("web_search", SEARCH)
    assert result.structured is not None and result.structured["results"]
    assert json.loads(first_text(result)) == result.structured
    assert result.usage == ({"name": "sku_search", "count": 1, "cost_usd": 0.001},)
    assert not result.is_error and result.ms > 0


async def test_a_failure_that_the_tool_reports_is_a_result(upstream: Upstream, stand_ins: StandIns) -> None:
    """Case I094: error results reach the model with their content."""
    stand_ins.configure(search={"fault": "tool_error"})
    result = await upstream.call("web_search", SEARCH)
    assert result.is_error and "504" in first_text(result)


async def test_fifty_calls_at_once_get_each_its_own_answer() -> None:
    odd = OddServer([tool("echo")], {"echo": lambda arguments: text_result(arguments["text"])})
    with running(odd) as url:
        async with connect(http(url)) as opened:

            async def one(number: int) -> None:
                assert first_text(await opened.call("echo", {"text": f"n{number}"})) == f"n{number}"

            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(one, number)
    assert odd.methods().count("initialize") == 1


async def test_progress_of_the_server_is_passed_on() -> None:
    params = {"progressToken": "TOKEN", "progress": 1, "total": 2, "message": "half"}
    ahead = [{"jsonrpc": "2.0", "method": "notifications/progress", "params": params}]
    odd = OddServer([tool("slow")], {"slow": text_result("done")}, sse=True, before=ahead)
    told: list[Any] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    with running(odd) as url:
        async with connect(http(url)) as opened:
            assert first_text(await opened.call("slow", {}, on_progress=listen)) == "done"
    assert told == [(1, 2, "half")]


async def test_what_the_server_asks_of_us_is_passed_over() -> None:
    """We claim no sampling, so a request for it in the stream must not be taken for the answer."""
    ahead = [{"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}}]
    odd = OddServer([tool("asks")], {"asks": text_result("answer")}, sse=True, before=ahead)
    with running(odd) as url:
        async with connect(http(url)) as opened:
            assert first_text(await opened.call("asks", {})) == "answer"


async def test_a_server_of_the_newest_protocol_only_is_spoken_to() -> None:
    """2026-07-28 drops the handshake; every request then says the version."""
    extra = {"resultType": "complete"}
    odd = OddServer([tool("t")], {"t": text_result("new", **extra)}, modern_only=True)
    with running(odd) as url:
        async with connect(http(url)) as opened:
            assert [each.name for each in await opened.tools()] == ["t"]
            assert first_text(await opened.call("t", {})) == "new"
    assert odd.headers[-1]["mcp-protocol-version"] == "2026-07-28"


# --- sessions and connections that end --------------------------------------------------------------------


async def test_a_lost_session_is_reopened_and_the_call_repeated_once(
    upstream: Upstream, stand_ins: StandIns
) -> None:
    """Cases I076, I077: the server restarted and knows no session any more; one call is billed."""
    stand_ins.configure(search={"fault": "session_lost"})
    assert not (await upstream.call("web_search", SEARCH)).is_error
    assert len(stand_ins.bill()["tool_calls"]) == 1
    calls = [r for r in stand_ins.search_requests() if r["body"].get("method") == "tools/call"]
    assert len(calls) == 2


async def test_many_calls_that_lose_the_session_together_share_one_new_one(
    upstream: Upstream, stand_ins: StandIns
) -> None:
    stand_ins.configure(search={"fault": "session_lost"})
    results: list[Result] = []

    async def one(number: int) -> None:
        results.append(await upstream.call("web_search", SEARCH | {"session_id": f"s{number}"}))

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(one, number)
    assert {result.structured["session_id"] for result in results if result.structured} == {
        f"s{number}" for number in range(12)
    }
    opened = [r for r in stand_ins.search_requests() if r["body"].get("method") == "initialize"]
    assert len(opened) == 2


async def test_between_end_and_restart_of_the_server_one_clear_error_and_then_all_is_well() -> None:
    """Case I098: the same object goes on when the server is back."""
    odd = OddServer([tool("echo")], {"echo": text_result("here")})
    with ExitStack() as first:
        url = first.enter_context(running(odd))
        async with connect(http(url)) as opened:
            await opened.call("echo", {})
            first.close()
            with pytest.raises(McpUnavailable, match="cannot be reached"):
                await opened.call("echo", {})
            with running(odd, port_of(url)):
                assert first_text(await opened.call("echo", {})) == "here"


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
async def test_a_server_killed_during_a_call_is_one_clear_error_and_then_all_is_well() -> None:
    """It may have carried the call out, so it is not repeated behind the caller's back."""
    with Killable() as server:
        async with connect(http(server.url)) as opened:
            failed: list[McpUnavailable] = []

            async def call() -> None:
                with pytest.raises(CallFailed) as caught:
                    await opened.call("slow", {})
                failed.append(caught.value)

            await opened.tools()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await anyio.to_thread.run_sync(server.wait_for_a_call)
                server.kill()
            assert "may have been carried out" in str(failed[0])
            with pytest.raises(McpUnavailable, match="cannot be reached"):
                await opened.call("echo", {"text": "x"})
            server.start()
            assert first_text(await opened.call("echo", {"text": "back"})) == "back"


async def test_a_dropped_stream_is_one_failed_call(upstream: Upstream, stand_ins: StandIns) -> None:
    stand_ins.configure(search={"fault": "drop", "fault_times": 1})
    with pytest.raises(CallFailed, match="may have been carried out") as caught:
        await upstream.call("web_search", SEARCH)
    assert caught.value.code is None
    assert not (await upstream.call("web_search", SEARCH)).is_error


async def test_a_call_that_hangs_ends_at_its_tools_own_timeout(stand_ins: StandIns) -> None:
    """Case I092: the notes say how long a tool may take; the server is told that nobody waits."""
    async with connect(http(stand_ins.mcp_url, "web_search", seconds=0.2)) as opened:
        await opened.tools()
        stand_ins.configure(search={"fault": "hanging", "fault_method": "tools/call"})
        with pytest.raises(CallFailed, match=r"did not answer within 0\.2 s"):
            await opened.call("web_search", SEARCH)
        stand_ins.configure(search={})
        assert not (await opened.call("web_search", SEARCH)).is_error
    said = [r["body"] for r in stand_ins.search_requests()]
    (call, *_) = [body for body in said if body.get("method") == "tools/call"]
    cancelled = [body["params"] for body in said if body.get("method") == "notifications/cancelled"]
    assert cancelled == [{"requestId": call["id"]}]


async def test_a_server_that_never_answers_the_handshake_does_not_hang_us(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case I092: bring-up has a timeout."""
    monkeypatch.setattr("orchestrator.upstream.CONNECT_SECONDS", 0.2)
    stand_ins.configure(search={"fault": "hanging"})
    async with connect(http(stand_ins.mcp_url)) as opened:
        with pytest.raises(McpUnavailable, match="did not answer"):
            await opened.tools()


async def test_a_caller_that_gives_up_leaves_the_session_in_order(
    upstream: Upstream, stand_ins: StandIns
) -> None:
    """Case I098: a host may cancel at any time."""
    stand_ins.configure(search={"fault": "hanging", "fault_method": "tools/call"})
    with anyio.move_on_after(0.2):
        await upstream.call("web_search", SEARCH)
    stand_ins.configure(search={})
    assert not (await upstream.call("web_search", SEARCH)).is_error


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("401", r"wants a key, or refuses .*HTTP 401.*Invalid API key"),
        ("402", r"out of credit.*HTTP 402.*Insufficient credit"),
        ("down", r"failed \(HTTP 503\).*Service unavailable"),
    ],
)
async def test_a_refusal_says_what_happened_and_what_to_do(
    upstream: Upstream, stand_ins: StandIns, fault: str, said: str
) -> None:
    """Cases I101, I140: each status has its own remedy."""
    stand_ins.configure(search={"fault": fault})
    with pytest.raises(McpUnavailable, match=said):
        await upstream.call("web_search", SEARCH)
    stand_ins.configure(search={})
    assert not (await upstream.call("web_search", SEARCH)).is_error


async def test_a_short_retry_after_is_waited_for_once(upstream: Upstream, stand_ins: StandIns) -> None:
    """Case I139: Retry-After is honoured."""
    stand_ins.configure(search={"fault": "429", "fault_times": 1, "retry_after": 0})
    assert not (await upstream.call("web_search", SEARCH)).is_error
    stand_ins.configure(search={"fault": "429", "fault_times": 2, "retry_after": 0})
    with pytest.raises(RateLimited):
        await upstream.call("web_search", SEARCH)


async def test_a_long_retry_after_is_named_instead(upstream: Upstream, stand_ins: StandIns) -> None:
    stand_ins.configure(search={"fault": "429", "retry_after": 120})
    with pytest.raises(RateLimited, match=r"429.*Try again in 120 s") as caught:
        await upstream.call("web_search", SEARCH)
    assert (caught.value.retry_after, caught.value.boundary) == (120.0, "mcp")


async def test_nobody_at_the_address_is_said_without_what_may_be_secret() -> None:
    server = Server(name="gone", url="http://user:pass@127.0.0.1:9/mcp?key=secret")
    async with connect(server) as opened:
        with pytest.raises(
            McpUnavailable, match=r"'gone' cannot be reached at http://127\.0\.0\.1:9/mcp:"
        ) as e:
            await opened.tools()
    assert "secret" not in str(e.value) and "pass" not in str(e.value)


async def test_the_wrong_address_is_said(stand_ins: StandIns) -> None:
    """Parallel answers 404 where a slash too many stands at the end."""
    async with connect(http(f"{stand_ins.mcp_url}/")) as opened:
        with pytest.raises(McpUnavailable, match=r"not at this address.*slash"):
            await opened.tools()


@pytest.mark.parametrize(
    "body", [b"<html>hello</html>", b"not json", b"[]", b'{"jsonrpc": "2.0", "id": "ID"}']
)
async def test_an_answer_that_is_no_json_rpc_is_one_failed_call(body: bytes) -> None:
    odd = OddServer([tool("t")], {"t": body})
    with running(odd) as url:
        async with connect(http(url)) as opened:
            await opened.tools()
            with pytest.raises(CallFailed, match="what came is"):
                await opened.call("t", {})


async def test_an_error_of_the_protocol_keeps_its_code() -> None:
    error = {"error": {"code": -32602, "message": "Unknown tool: t"}}
    with running(OddServer([tool("t")], {"t": error})) as url:
        async with connect(http(url)) as opened:
            with pytest.raises(CallFailed, match=r"error -32602.*Unknown tool") as caught:
                await opened.call("t", {})
    assert caught.value.code == -32602


# --- tool lists -------------------------------------------------------------------------------------------


async def test_all_pages_of_the_tool_list_are_read(stand_ins: StandIns) -> None:
    stand_ins.configure(search={"fault": "paginated"})
    async with connect(http(stand_ins.mcp_url)) as opened:
        assert [each.name for each in await opened.tools()] == ["web_search", "web_fetch"]


async def test_a_list_that_never_ends_or_repeats_its_cursor_ends_here() -> None:
    odd = OddServer([tool("t")])
    odd.tools = [tool("a"), tool("b")]
    odd._page = lambda start: {"tools": [tool("a")], "nextCursor": "1"}  # type: ignore[method-assign]
    with running(odd) as url:
        async with connect(http(url)) as opened:
            assert [each.name for each in await opened.tools()] == ["a"]


async def test_one_bad_tool_costs_only_itself_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Cases I085, I086: `mcp`'s client would refuse the whole list."""
    odd = OddServer(
        [
            tool("good"),
            {"name": "untyped", "inputSchema": {"properties": {"q": {}}}},
            {"name": "no_schema"},
            {"inputSchema": {"type": "object"}},
            "not even an object",
            {"name": "odd_output", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}},
            {"name": "bad", "inputSchema": {"type": 7}, "annotations": {"readOnlyHint": "yes"}, "title": 3},
        ]
    )
    with running(odd) as url:
        async with connect(http(url)) as opened:
            await opened.tools()
            listed = {each.name: each.raw for each in await opened.tools()}
    assert list(listed) == ["good", "untyped", "no_schema", "odd_output", "bad"]
    assert listed["untyped"]["inputSchema"] == {"properties": {"q": {}}, "type": "object"}
    assert "outputSchema" not in listed["odd_output"]
    assert listed["bad"] == {"name": "bad", "inputSchema": {"type": "object"}, "annotations": {}}
    said = [record.message for record in caplog.records]
    assert len(said) == len(set(said)) and any("'untyped'" in line for line in said)


async def test_long_and_dotted_names_are_mapped_there_and_back() -> None:
    """Cases I082, I083: model APIs take 64 of [A-Za-z0-9_-], the host's own prefix included."""
    names = ["a.b/c", "a_b_c", "x" * 70, "x" * 69 + "y"]
    odd = OddServer([tool(name) for name in names], {name: text_result(name) for name in names})
    with running(odd) as url:
        async with connect(http(url)) as opened:
            tools = await opened.tools()
            assert [each.upstream_name for each in tools] == names
            assert len({each.name for each in tools}) == 4
            for each in tools:
                assert len(f"mcp__orchestrator__{each.name}") <= 64
                assert first_text(await opened.call(each.name, {})) == each.upstream_name


async def test_two_tools_of_one_name_are_one() -> None:
    odd = OddServer([tool("t", description="first"), tool("t", description="second")])
    with running(odd) as url:
        async with connect(http(url)) as opened:
            assert [each.raw["description"] for each in await opened.tools()] == ["first"]


async def test_a_server_without_tools_is_of_no_use() -> None:
    with running(OddServer()) as url:
        async with connect(http(url)) as opened:
            with pytest.raises(McpUnavailable, match="lists no tools"):
                await opened.tools()


async def test_callers_cannot_change_the_list_of_others(upstream: Upstream) -> None:
    """Case I095."""
    (await upstream.tools()).clear()
    assert len(await upstream.tools()) == 2


@pytest.mark.parametrize(
    ("schema", "flat"),
    [
        (
            {"anyOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]},
            {"properties": {"a": {}, "b": {}}, "required": []},
        ),
        (
            {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"required": ["b"]}]},
            {"properties": {"a": {}}, "required": ["a", "b"]},
        ),
        (
            {"oneOf": [{"$ref": "#/$defs/X"}], "$defs": {"X": {"properties": {"x": {"type": "string"}}}}},
            {"properties": {"x": {"type": "string"}}},
        ),
        ({"$ref": "#/$defs/X", "$defs": {"X": {"properties": {"x": {}}}}}, {"properties": {"x": {}}}),
        (None, {}),
        (True, {}),
    ],
)
def test_an_input_schema_is_one_object_at_its_top(schema: Any, flat: dict[str, Any]) -> None:
    """Case I086: the model API refuses `anyOf` at the top of an input schema."""
    mended = mend.tool_entry({"name": "t", "inputSchema": schema}, lambda _: None)
    assert mended is not None
    told = mended["inputSchema"]
    assert told["type"] == "object" and not {"anyOf", "oneOf", "allOf", "$ref"} & told.keys()
    assert {key: told[key] for key in flat} == flat


# --- results ----------------------------------------------------------------------------------------------


async def test_media_and_links_come_through_as_they_are(upstream: Upstream, stand_ins: StandIns) -> None:
    stand_ins.configure(search={"fault": "media"})
    result = await upstream.call("web_search", SEARCH)
    kinds = ["text", "image", "audio", "resource_link", "resource"]
    assert [block["type"] for block in result.content] == kinds


async def test_a_block_of_an_unknown_type_becomes_json_text(upstream: Upstream, stand_ins: StandIns) -> None:
    """Case I094: serialised as JSON, not dropped, not a Python repr."""
    stand_ins.configure(search={"fault": "odd_content"})
    result = await upstream.call("web_search", SEARCH)
    assert json.loads(result.content[-1]["text"]) == {"type": "hologram", "shape": "cube"}


@pytest.mark.parametrize("fault", ["lone_surrogates", "escaped_surrogates"])
async def test_unpaired_surrogates_are_replaced_and_real_characters_stay(
    upstream: Upstream, stand_ins: StandIns, fault: str
) -> None:
    """Cases I133, I134: one alone makes every later request a 400."""
    stand_ins.configure(search={"fault": fault})
    text = first_text(await upstream.call("web_search", SEARCH))
    text.encode("utf-8")
    assert "\N{SNAKE}" in text


@pytest.mark.parametrize(
    ("source", "read"),
    [
        (r'"\ud83d\ude00"', "\N{GRINNING FACE}"),
        (r'"\ud83d x"', "\ufffd x"),
        (r'"\udc00\ud83d\ude00"', "\ufffd\N{GRINNING FACE}"),
        (r'"\\ud83d"', r"\ud83d"),
        (r'"\\\ud83d"', "\\\ufffd"),
        (r'"\ud83d\\udc00"', "\ufffd\\udc00"),
        (r'"\uD83D\uDE00"', "\N{GRINNING FACE}"),
    ],
)
def test_only_unpaired_escapes_are_replaced(source: str, read: str) -> None:
    assert json.loads(mend.text(source)) == read


@pytest.mark.parametrize("size", [64 * 1024, 1024 * 1024, 10 * 1024 * 1024])
async def test_large_results_come_whole(upstream: Upstream, stand_ins: StandIns, size: int) -> None:
    """Cases I088, I091: no line or event is too long, and no white space is lost on the way."""
    stand_ins.configure(search={"result_chars": size})
    result = await upstream.call("web_search", SEARCH)
    assert len(first_text(result)) >= size
    assert json.loads(first_text(result)) == result.structured


async def test_large_results_come_whole_over_a_stream_of_events() -> None:
    text = "a  b\t " * (1024 * 1024)
    odd = OddServer([tool("t")], {"t": text_result(text)}, sse=True)
    with running(odd) as url:
        async with connect(http(url)) as opened:
            assert first_text(await opened.call("t", {})) == text


@pytest.mark.parametrize(
    ("raw", "mended"),
    [
        ({"content": "plain"}, {"content": [{"type": "text", "text": "plain"}]}),
        ({}, {"content": []}),
        ({"content": [], "structuredContent": None}, {"content": []}),
        ({"content": [], "structuredContent": [1]}, {"content": [{"type": "text", "text": "[1]"}]}),
        ({"content": [], "isError": 1}, {"content": [], "isError": True}),
        ({"content": [], "_meta": 7}, {"content": []}),
        (
            {"content": [{"type": "image", "data": 3}]},
            {"content": [{"type": "text", "text": '{"type": "image", "data": 3}'}]},
        ),
    ],
)
def test_results_are_mended_block_by_block(raw: dict[str, Any], mended: dict[str, Any]) -> None:
    assert mend.call_result(raw, lambda _: None) == mended


SCHEMA = {
    "type": "object",
    "properties": {
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"url": {"type": "string"}, "title": {"type": "string"}},
                "required": ["url"],
            },
        }
    },
    "required": ["results"],
}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"results": [{"url": "a"}]}, {"results": [{"url": "a"}]}),
        ({"results": [{"url": "a", "title": 5}]}, {"results": [{"url": "a"}]}),
        ({"results": [{"title": "no url"}, {"url": "b"}, 7]}, {"results": [{"url": "b"}]}),
        ({"results": "none"}, None),
        ({}, None),
    ],
)
def test_what_breaks_the_output_schema_is_dropped_piece_by_piece(value: Any, kept: Any) -> None:
    assert mend.structured(value, SCHEMA) == kept


@pytest.mark.parametrize("limit", [{"maxLength": 3}, {"enum": ["abc"]}, {"pattern": "^a"}, {"const": "abc"}])
def test_a_schema_that_looks_at_values_is_kept_however_often_a_shape_was_seen(limit: dict[str, Any]) -> None:
    """Results of one shape are not validated again, but where the schema speaks of values."""
    schema = {"type": "object", "properties": {"a": {"type": "string"} | limit}}
    assert mend.structured({"a": "abc"}, schema) == {"a": "abc"}
    assert mend.structured({"a": "xyzzy"}, schema) == {}


def test_shapes_tell_apart_what_schemas_tell_apart() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "l": {"items": {"type": "string"}}}}
    for valid in ({"n": 1}, {"n": 2.0}, {"l": []}, {"l": ["a", "b"]}, {"x": None}):
        assert mend.structured(valid, schema) == valid
    for broken, kept in (({"n": 1.5}, {}), ({"n": True}, {}), ({"l": ["a", 1]}, {"l": ["a"]})):
        assert mend.structured(broken, schema) == kept


# --- over stdio -------------------------------------------------------------------------------------------


async def test_a_child_process_is_spoken_to_and_ends_with_us() -> None:
    """It prints what is no JSON, lists tools without types and says a lone surrogate."""
    async with connect(child()) as opened:
        assert [each.name for each in await opened.tools()] == ["say", "die"]
        text = first_text(await opened.call("say", {"text": "hello"}))
        assert text.endswith("hello \ufffd \N{SNAKE}")
        pid = int(text.split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_child_that_dies_is_started_again() -> None:
    async with connect(child()) as opened:
        before = first_text(await opened.call("say", {"text": "x"})).split()[0]
        with pytest.raises(CallFailed, match="ended before it answered"):
            await opened.call("die", {})
        assert first_text(await opened.call("say", {"text": "x"})).split()[0] != before


async def test_a_command_that_is_not_there_is_said() -> None:
    async with connect(Server(name="none", type="stdio", command="/no/such/program")) as opened:
        with pytest.raises(McpUnavailable, match="could not be started"):
            await opened.tools()


async def test_closing_while_calls_are_under_way_ends_them(stand_ins: StandIns) -> None:
    stand_ins.configure(search={"fault": "hanging", "fault_method": "tools/call"})
    async with connect(http(stand_ins.mcp_url)) as opened:
        await opened.tools()
        call = asyncio.create_task(opened.call("web_search", SEARCH))
        await anyio.lowlevel.checkpoint()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


def port_of(url: str) -> int:
    return int(url.split(":")[2].split("/", maxsplit=1)[0])
