"""The MCP server as a host sees it, through the SDK's own client in memory, before the search stand-ins."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from mcp import Client, MCPError
from mcp_types import CallToolResult, TextContent, TextResourceContents, Tool

from orchestrator.gateway import Gateway
from orchestrator.offline import StandIns
from orchestrator.offline.search_faults import HOSTILE_URL
from orchestrator.serving import desk, parts
from orchestrator.serving.caps import Ceiling
from orchestrator.serving.conversation import LIVE, SILENCE_SECONDS
from orchestrator.settings import Options
from orchestrator.text.sentences import sentences
from tests.odd_server import Killable, OddServer, running, text_result, tool

SEARCH = {"objective": "How does the with statement work?", "search_queries": ["with statement"]}
OTHER = {"objective": "What is a generator expression?", "search_queries": ["generator expression"]}
FREE = Ceiling()
FETCH = {"urls": ["https://docs.python.org/3/reference/compound_stmts.html#the-with-statement"]}


@dataclass
class Clock:
    """Seconds that pass when a test says so."""

    at: float = 1000.0

    def __call__(self) -> float:
        return self.at


@dataclass
class Host:
    """A host's client, and what stands behind the server it talks to."""

    client: Client
    options: Options
    clock: Clock

    async def call(self, name: str, /, **arguments: Any) -> CallToolResult:
        result = await self.client.call_tool(name, arguments)
        assert isinstance(result, CallToolResult)
        return result

    async def search(self, **more: Any) -> CallToolResult:
        return await self.call("web_search", **(SEARCH | more))

    async def tools(self) -> dict[str, Tool]:
        return {each.name: each for each in (await self.client.list_tools(cache_mode="bypass")).tools}

    async def read(self, path: str) -> str:
        (contents,) = (await self.client.read_resource(f"orchestrator://{path}")).contents
        assert isinstance(contents, TextResourceContents)
        return contents.text


Open = Callable[..., Any]


@pytest.fixture
def opened(stand_ins: StandIns, nothing_from_outside: Path) -> Open:
    """Opens a gateway before the stand-ins, with a client on it."""

    @asynccontextmanager
    async def opener(
        *,
        private: bool = True,
        hour: Ceiling = FREE,
        day: Ceiling = FREE,
        clock: Clock | None = None,
        **settings: Any,
    ) -> AsyncIterator[Host]:
        plain = Options(offline=True, runs_dir=nothing_from_outside / "runs", **settings)
        options = plain.with_stand_ins(stand_ins.anthropic_base_url, stand_ins.server_urls)
        async with _serving(options, private, hour, day, clock or Clock()) as host:
            yield host

    return opener


@asynccontextmanager
async def _serving(
    options: Options, private: bool, hour: Ceiling, day: Ceiling, clock: Clock
) -> AsyncIterator[Host]:
    async with AsyncExitStack() as stack:
        gateway = Gateway(options, private=private, hour=hour, day=day, now=clock)
        await stack.enter_async_context(gateway)
        yield Host(await stack.enter_async_context(Client(gateway.server)), options, clock)


@asynccontextmanager
async def before(odd: OddServer, home: Path, **more: Any) -> AsyncIterator[Host]:
    """A gateway before one odd server."""
    with running(odd) as url:
        async with before_url(url, home, **more) as host:
            yield host


@asynccontextmanager
async def before_url(
    url: str, home: Path, *, prices: dict[str, float] | None = None, **more: Any
) -> AsyncIterator[Host]:
    file = home / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"odd": {"url": url}}}), encoding="utf-8")
    given = {"odd": 0.0} if prices is None else prices
    settings: dict[str, Any] = {"mcp_config": file, "runs_dir": home / "runs", "price_call": given} | more
    async with _serving(Options(**settings), True, FREE, FREE, Clock()) as host:
        yield host


@pytest.fixture
async def host(opened: Open) -> AsyncIterator[Host]:
    async with opened() as running_host:
        yield running_host


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def ours(result: CallToolResult) -> dict[str, Any]:
    told = (result.meta or {})["orchestrator"]
    assert isinstance(told, dict)
    return told


def ids(result: CallToolResult) -> list[str]:
    """The ids in a result, once each, in order."""
    return list(dict.fromkeys(each["source_id"] for each in result.structured_content["results"]))


# --- what is published ------------------------------------------------------------------------------------


async def test_tools_are_listed_with_upstreams_own_schemas_and_annotations(
    host: Host, stand_ins: StandIns
) -> None:
    async with Client(stand_ins.mcp_url) as direct:
        own = {each.name: each for each in (await direct.list_tools()).tools}
    listed = await host.tools()
    assert set(listed) == {"web_search", "web_fetch", "check_citations", "research", "research_status"}
    for name, upstream in own.items():
        assert listed[name].annotations == upstream.annotations
        assert upstream.input_schema["properties"].items() <= listed[name].input_schema["properties"].items()
        assert listed[name].input_schema["required"] == upstream.input_schema["required"]
        assert (listed[name].description or "").startswith(upstream.description or "")
    source = (listed["web_search"].output_schema or {})["$defs"]["SearchResult"]["properties"]
    assert {"source_id", "cite", "url", "excerpts"} <= source.keys()


async def test_every_tool_of_ours_says_its_price_and_takes_a_session(host: Host) -> None:
    listed = await host.tools()
    assert "$0.001 per call" in (listed["web_search"].description or "")
    assert "$0.001 per URL" in (listed["web_fetch"].description or "")
    for name in ("web_search", "web_fetch", "check_citations", "research"):
        assert "session_id" in listed[name].input_schema["properties"]


async def test_research_is_offered_only_with_a_key(nothing_from_outside: Path) -> None:
    async with before(OddServer([tool("t")]), nothing_from_outside) as host:
        assert set(await host.tools()) == {"t", "check_citations"}


async def test_only_tools_with_notes_or_marked_read_only_are_relayed(
    opened: Open, stand_ins: StandIns, nothing_from_outside: Path
) -> None:
    """A server may list what changes things; nobody asked for that."""
    stand_ins.configure(search={"fault": "extra_tool"})
    async with opened() as host:
        assert "delete_everything" not in await host.tools()
    writes = tool("write", annotations={"readOnlyHint": False})
    async with before(OddServer([tool("read"), writes]), nothing_from_outside) as host:
        assert set(await host.tools()) == {"read", "check_citations"}


async def test_odd_tools_are_published_valid_and_called_by_their_own_names(
    nothing_from_outside: Path,
) -> None:
    """Cases I082, I083, I085, I086: the SDK's client takes the list, and calls come back mapped."""
    names = ["with.dot", "y" * 80, "union"]
    schema = {"anyOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {}}}]}
    odd = OddServer(
        [tool("with.dot"), tool("y" * 80), {**tool("union"), "inputSchema": schema}],
        {name: text_result(name) for name in names},
    )
    async with before(odd, nothing_from_outside) as host:
        listed = [name for name in await host.tools() if name != "check_citations"]
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,45}", name) for name in listed)
        assert [text_of(await host.call(name)).split()[0] for name in listed] == names


async def test_two_servers_with_the_same_tools_are_both_there(opened: Open) -> None:
    async with opened(parallel_api_key="offline") as host:
        listed = await host.tools()
        assert {"web_search", "parallel-search-advanced_web_search"} <= set(listed)
        result = await host.call("parallel-search-advanced_web_search", **SEARCH)
        assert not result.is_error and ours(result)["usd"] == 0.005


async def test_an_unknown_tool_is_an_error_of_the_protocol(host: Host) -> None:
    with pytest.raises(MCPError, match="Unknown tool: nonsense"):
        await host.call("nonsense")


async def test_a_tool_without_a_known_price_is_denied_with_the_option_that_helps(
    nothing_from_outside: Path,
) -> None:
    """Unknown is not 0: nothing is sent before somebody said what it costs."""
    odd = OddServer([tool("t")], {"t": text_result("x")})
    async with before(odd, nothing_from_outside, prices={}) as host:
        result = await host.call("t")
    assert result.is_error and "--price-call odd/t=USD" in text_of(result)
    assert "tools/call" not in odd.methods()


# --- sources ----------------------------------------------------------------------------------------------


async def test_source_ids_and_links_stand_in_text_and_structured_content(host: Host) -> None:
    """Hosts show their model the one or the other."""
    result = await host.search()
    first = result.structured_content["results"][0]
    assert first["source_id"] == "S1"
    assert first["cite"] in (f"[S1]({first['url']})", f"[S1](<{first['url']}>)")
    assert json.loads(text_of(result)) == result.structured_content


async def test_ids_go_on_counting_and_a_known_page_keeps_its_own(host: Host) -> None:
    first = await host.search()
    second = await host.call("web_search", **OTHER)
    assert ids(first) == [f"S{n + 1}" for n in range(len(ids(first)))]
    known = {each["url"]: each["source_id"] for each in first.structured_content["results"]}
    for each in second.structured_content["results"]:
        assert each["source_id"] == known.get(each["url"], each["source_id"])
    assert set(ids(second)) - set(ids(first))
    assert ids(await host.search()) == ids(first)


async def test_a_conversation_has_its_own_sources_and_is_named_in_each_result(opened: Open) -> None:
    async with opened(private=False) as host:
        a = await host.search(session_id="aaa")
        b = await host.call("web_search", **OTHER, session_id="bbb")
        assert ids(a)[0] == ids(b)[0] == "S1"
        assert a.structured_content["session_id"] == "aaa" == ours(a)["session_id"]
        assert (
            json.loads(await host.read("sources/bbb"))[0]["url"] == b.structured_content["results"][0]["url"]
        )


async def test_over_http_a_call_without_a_name_is_a_conversation_of_its_own(opened: Open) -> None:
    async with opened(private=False) as host:
        first, second = await host.search(), await host.search()
        assert first.structured_content["session_id"] != second.structured_content["session_id"]
        again = await host.call("web_search", **OTHER, session_id=first.structured_content["session_id"])
        assert "S1" not in set(ids(again)) - set(ids(first))


async def test_over_stdio_silence_of_half_an_hour_begins_a_new_conversation(host: Host) -> None:
    first = await host.search()
    host.clock.at += SILENCE_SECONDS
    same = await host.call("web_search", **OTHER)
    host.clock.at += SILENCE_SECONDS + 1
    fresh = await host.call("web_search", **OTHER)
    names = [each.structured_content["session_id"] for each in (first, same, fresh)]
    assert names[0] == names[1] != names[2]
    assert ids(fresh)[0] == "S1"


async def test_a_conversation_that_rested_comes_back_with_its_ids(opened: Open) -> None:
    async with opened(private=False) as host:
        first = await host.search(session_id="old")
        for number in range(LIVE):
            await host.call("web_search", **OTHER, session_id=f"n{number}")
        await host.call("web_search", **OTHER, session_id="old")
        now = [each["id"] for each in json.loads(await host.read("sources/old"))]
        assert now[: len(ids(first))] == ids(first) and len(now) > len(ids(first))
        assert json.loads(await host.read("ledger/old"))["usd"] == pytest.approx(0.001)


@pytest.mark.parametrize("name", ["", "x" * 101, "a b", "ü", 7])
async def test_a_name_that_is_none_is_refused_and_nothing_is_sent(
    host: Host, stand_ins: StandIns, name: Any
) -> None:
    result = await host.search(session_id=name)
    assert result.is_error and "session_id" in text_of(result)
    assert not stand_ins.bill()["tool_calls"]


async def test_the_servers_own_session_id_is_the_conversations(host: Host, stand_ins: StandIns) -> None:
    """Parallel limits free use by it; it is never sent to a tool that does not take it."""
    result = await host.search(session_id="ours")
    (sent,) = [r["body"] for r in stand_ins.search_requests() if r["body"].get("method") == "tools/call"]
    assert sent["params"]["arguments"]["session_id"] == "ours" == result.structured_content["session_id"]


async def test_pages_cannot_forge_ids_or_give_orders(host: Host, stand_ins: StandIns) -> None:
    """Case I148: what pages say is data; ids in their text are defused."""
    stand_ins.configure(search={"fault": "hostile"})
    result = await host.search()
    hostile = result.structured_content["results"][0]
    assert hostile["source_id"] == "S1" and hostile["url"].startswith(HOSTILE_URL[:30])
    said = " ".join([hostile["title"], *hostile["excerpts"]])
    assert "[S1]" not in said and "</tool_result>" not in said and '"source_id"' not in said


# --- caps -------------------------------------------------------------------------------------------------


async def test_calls_per_hour_are_capped_for_everybody_together(opened: Open, stand_ins: StandIns) -> None:
    """A caller widens nothing by inventing a name."""
    async with opened(hour=Ceiling(calls={"web_search": 2})) as host:
        for number in range(2):
            assert not (await host.search(objective=f"q{number}", session_id=f"s{number}")).is_error
        denied = await host.search(objective="q3", session_id="s3")
        assert denied.is_error
        assert "3 of 2 calls of web_search per hour" in text_of(denied)
        assert "Answer from the sources you have" in text_of(denied)
        assert ours(denied)["left"]["hour"]["web_search"] == 0
        assert not (await host.call("web_fetch", **FETCH)).is_error
        host.clock.at += 3601
        assert not (await host.search(objective="q4")).is_error
    assert len(stand_ins.bill()["tool_calls"]) == 4


async def test_money_per_hour_and_day_is_capped(opened: Open) -> None:
    async with opened(hour=Ceiling(usd=0.002), day=Ceiling(calls={"parallel-search": 3})) as host:
        outcomes = [(await host.search(objective=f"q{n}")).is_error for n in range(3)]
        assert outcomes == [False, False, True]
        host.clock.at += 3601
        assert not (await host.search(objective="again")).is_error
        denied = await host.search(objective="and again")
        assert denied.is_error and "per day" in text_of(denied)


async def test_calls_under_way_count_too(opened: Open, stand_ins: StandIns) -> None:
    """A call is booked at its price before it goes out."""
    stand_ins.configure(search={"latency_ms": 50})
    async with opened(hour=Ceiling(usd=0.002)) as host:
        await host.tools()
        outcomes: list[bool] = []

        async def one(number: int) -> None:
            outcomes.append(bool((await host.search(objective=f"q{number}")).is_error))

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(one, number)
    assert sorted(outcomes) == [False, False, True, True, True]
    assert len(stand_ins.bill()["tool_calls"]) == 2


async def test_dollars_of_a_day_are_shared_by_all_processes_of_a_user(opened: Open) -> None:
    async with opened(day=Ceiling(usd=0.002)) as one, opened(day=Ceiling(usd=0.002)) as other:
        assert not (await one.search()).is_error
        assert not (await other.search()).is_error
        denied = await one.call("web_search", **OTHER)
        assert denied.is_error and "today" in text_of(denied)


async def test_a_zero_allows_nothing(opened: Open, stand_ins: StandIns) -> None:
    async with opened(hour=Ceiling(calls={"web_fetch": 0})) as host:
        assert (await host.call("web_fetch", **FETCH)).is_error
    assert not stand_ins.bill()["tool_calls"]


# --- money ------------------------------------------------------------------------------------------------


async def test_the_ledger_says_what_the_bill_says(host: Host, stand_ins: StandIns) -> None:
    await host.search()
    await host.call("web_search", **OTHER)
    await host.call("web_fetch", **FETCH)
    ledger = json.loads(await host.read("ledger"))
    assert ledger["usd"] == pytest.approx(stand_ins.bill()["tools_usd"]) == pytest.approx(0.003)
    (search, fetch) = ledger["lines"]
    assert (search["item"], search["quantity"]) == ("parallel-search/web_search", 2)
    assert (fetch["item"], fetch["quantity"]) == ("parallel-search/web_fetch", 1)


@pytest.mark.parametrize(("fault", "usd"), [("tool_error", 0.0), ("401", 0.0), ("drop", 0.001)])
async def test_what_may_have_been_carried_out_is_booked_and_nothing_else(
    host: Host, stand_ins: StandIns, fault: str, usd: float
) -> None:
    """The ledger never says less than the bill; a refused call costs nothing."""
    await host.tools()
    stand_ins.configure(search={"fault": fault, "fault_method": "tools/call"})
    assert (await host.search()).is_error
    ledger = json.loads(await host.read("ledger"))
    assert ledger["usd"] == pytest.approx(usd)
    assert all(line["estimated"] for line in ledger["lines"])


async def test_a_call_that_the_host_cancels_is_booked(host: Host, stand_ins: StandIns) -> None:
    await host.tools()
    stand_ins.configure(search={"fault": "hanging", "fault_method": "tools/call"})
    with anyio.move_on_after(0.3):
        await host.search()
    stand_ins.configure(search={})
    with anyio.fail_after(5):
        while json.loads(await host.read("ledger"))["usd"] == 0:
            await anyio.lowlevel.checkpoint()
    assert not (await host.search()).is_error


async def test_a_repeated_call_is_answered_from_memory_at_no_cost(host: Host, stand_ins: StandIns) -> None:
    """Case I097: whatever the order of the arguments, whoever asks, and it is marked."""
    first = await host.search()
    turned = dict(reversed(SEARCH.items()))
    again = await host.call("web_search", **turned, session_id="somebody-else", model_name="m")
    assert [ours(first)["from_memory"], ours(again)["from_memory"]] == [False, True]
    assert (ours(first)["usd"], ours(again)["usd"]) == (0.001, 0.0)
    urls = [[each["url"] for each in r.structured_content["results"]] for r in (first, again)]
    assert urls[0] == urls[1]
    assert len(stand_ins.bill()["tool_calls"]) == 1
    (line,) = json.loads(await host.read("ledger/somebody-else"))["lines"]
    assert (line["usd"], line["basis"]) == (0.0, "memory")


async def test_only_successes_are_remembered_and_not_for_ever(host: Host, stand_ins: StandIns) -> None:
    """Case I097: a cached error would stay an error."""
    stand_ins.configure(search={"fault": "tool_error", "fault_times": 1})
    assert (await host.search()).is_error
    assert not (await host.search()).is_error
    host.clock.at += 1801
    assert not ours(await host.search())["from_memory"]


# --- size -------------------------------------------------------------------------------------------------


async def test_a_long_result_is_cut_and_can_be_read_on_for_nothing(host: Host, stand_ins: StandIns) -> None:
    """The cut is said in text and structure, and the parts join up."""
    stand_ins.configure(search={"result_chars": 3 * parts.PART_CHARS})
    pieces: dict[str, int] = {}
    number, result = 1, await host.search()
    while True:
        assert len(text_of(result)) < 1.5 * parts.PART_CHARS
        for each in result.structured_content["results"]:
            pieces[each["url"]] = pieces.get(each["url"], 0) + sum(map(len, each["excerpts"]))
        if "read_on" not in result.structured_content:
            break
        number += 1
        assert f"read_part={number}" in result.structured_content["read_on"]
        assert f"read_part={number}" in text_of(result)
        result = await host.search(read_part=number)
        assert ours(result) | {"usd": 0.0, "from_memory": True} == ours(result)
    assert number >= 3
    beyond = await host.search(read_part=number + 1)
    assert beyond.is_error and f"{number} parts" in text_of(beyond)
    assert len(stand_ins.bill()["tool_calls"]) == 1
    async with Client(stand_ins.mcp_url) as direct:
        same = SEARCH | {"session_id": result.structured_content["session_id"]}
        whole = (await direct.call_tool("web_search", same)).structured_content["results"]
    assert pieces == {each["url"]: sum(map(len, each["excerpts"])) for each in whole}


@pytest.mark.parametrize("wrong", [0, -1, "two", None, 1.5])
async def test_a_part_that_is_none_is_refused(host: Host, wrong: Any) -> None:
    result = await host.search(read_part=wrong)
    assert result.is_error and "read_part" in text_of(result)


@pytest.mark.parametrize("size", [64 * 1024, 1024 * 1024, 10 * 1024 * 1024])
async def test_no_result_is_longer_than_hosts_can_take(host: Host, stand_ins: StandIns, size: int) -> None:
    """Case I088: one line above 1 MiB kills the reader of a host."""
    stand_ins.configure(search={"result_chars": size})
    result = await host.search()
    assert len(result.model_dump_json()) < 1024 * 1024
    assert not result.is_error and "read_on" in result.structured_content


async def test_a_text_without_structure_is_cut_at_lines_and_loses_nothing(nothing_from_outside: Path) -> None:
    """Case I091: compared to the character, white space included."""
    text = "".join(f"line {number}  with\ttwo  spaces\n" for number in range(10_000))
    odd = OddServer([tool("t")], {"t": text_result(text)})
    async with before(odd, nothing_from_outside) as host:
        pieces = []
        for number in range(1, -(-len(text) // parts.PART_CHARS) + 1):
            result = await host.call("t", read_part=number)
            assert isinstance(result.content[0], TextContent)
            pieces.append(result.content[0].text)
        assert "".join(pieces) == text
        assert all(piece.endswith("\n") for piece in pieces)
    assert odd.methods().count("tools/call") == 1


async def test_characters_per_source_are_kept_where_the_server_does_not(opened: Open) -> None:
    async with opened(max_chars=200) as host:
        for each in (await host.search()).structured_content["results"]:
            assert sum(map(len, each["excerpts"])) <= 200


async def test_a_picture_too_large_for_a_host_is_left_out_and_said(nothing_from_outside: Path) -> None:
    picture = {"type": "image", "data": "A" * 2_000_000, "mimeType": "image/png"}
    small = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    odd = OddServer([tool("t")], {"t": {"content": [picture, small]}})
    async with before(odd, nothing_from_outside) as host:
        result = await host.call("t")
    assert "2,000,000 base64 characters left out" in text_of(result)
    assert [block.type for block in result.content].count("image") == 1


# --- what upstream does wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("401", "check the key"),
        ("402", "out of credit"),
        ("429", "Try again in 60 s"),
        ("down", "HTTP 503"),
        ("drop", "may have been carried out"),
        ("tool_error", "504"),
    ],
)
async def test_what_goes_wrong_upstream_is_a_tool_error_that_says_it(
    host: Host, stand_ins: StandIns, fault: str, said: str
) -> None:
    await host.tools()
    stand_ins.configure(search={"fault": fault, "fault_method": "tools/call", "retry_after": 60})
    result = await host.search()
    assert result.is_error and said in text_of(result)
    stand_ins.configure(search={})
    assert not (await host.search()).is_error


async def test_a_search_server_that_is_down_at_first_is_found_when_it_is_back(
    opened: Open, stand_ins: StandIns
) -> None:
    """What needs no search server is there at once."""
    stand_ins.configure(search={"fault": "down"})
    async with opened() as host:
        assert "check_citations" in await host.tools() and "web_search" not in await host.tools()
        stand_ins.configure(search={})
        assert "web_search" in await host.tools()
        assert not (await host.search()).is_error


async def test_tools_that_were_listed_before_stay_listed_while_the_server_is_down(
    opened: Open, stand_ins: StandIns
) -> None:
    """A host lists once, at its start: then the network may not be there yet."""
    async with opened() as host:
        before = await host.tools()
    stand_ins.configure(search={"fault": "down"})
    async with opened() as host:
        assert await host.tools() == before
        down = await host.search()
        assert down.is_error and "HTTP 503" in text_of(down)
        stand_ins.configure(search={})
        assert not (await host.search()).is_error


async def test_a_lost_session_goes_unseen(host: Host, stand_ins: StandIns) -> None:
    """Cases I076, I077, I098."""
    await host.search()
    stand_ins.configure(search={"fault": "session_lost"})
    assert not (await host.call("web_search", **OTHER)).is_error


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
async def test_upstream_may_be_killed_and_restarted_between_calls_and_during_one(
    nothing_from_outside: Path,
) -> None:
    """Cases I076, I098: one slower answer or one clear error, and everything after works."""
    with Killable() as upstream:
        async with before_url(upstream.url, nothing_from_outside) as host:
            assert text_of(await host.call("echo", text="one")).startswith("one")
            upstream.kill()
            upstream.start()
            assert text_of(await host.call("echo", text="two")).startswith("two")
            broken: list[CallToolResult] = []

            async def slow() -> None:
                broken.append(await host.call("slow"))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(slow)
                await anyio.to_thread.run_sync(upstream.wait_for_a_call)
                upstream.kill()
            assert broken[0].is_error and "may have been carried out" in text_of(broken[0])
            upstream.start()
            assert text_of(await host.call("echo", text="three")).startswith("three")


async def test_structure_without_text_is_written_as_text_too(nothing_from_outside: Path) -> None:
    """For hosts that show their model text alone."""
    told = {"content": [], "structuredContent": {"n": 5}}
    async with before(OddServer([tool("t")], {"t": told}), nothing_from_outside) as host:
        assert json.loads(text_of(await host.call("t")))["n"] == 5


async def test_a_disk_that_takes_no_record_fails_no_call(
    opened: Open, nothing_from_outside: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (nothing_from_outside / "runs").write_text("a file where a folder should be", encoding="utf-8")
    async with opened() as host:
        assert not (await host.search()).is_error
        assert not (await host.call("web_search", **OTHER)).is_error
    assert [record.message.endswith("No record is kept.") for record in caplog.records].count(True) == 1


async def test_a_result_that_breaks_its_own_schema_is_an_error_with_its_text(
    host: Host, stand_ins: StandIns
) -> None:
    """The SDK's client would refuse it, and the host's model would see nothing."""
    stand_ins.configure(search={"fault": "off_schema"})
    result = await host.search()
    assert result.is_error and '"results": "none"' in text_of(result)


async def test_parts_that_break_the_schema_cost_only_themselves(nothing_from_outside: Path) -> None:
    source = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}
    schema = {
        "type": "object",
        "properties": {"results": {"type": "array", "items": source}},
        "additionalProperties": False,
    }
    told = {"results": [{"url": "https://a.example/"}, {"url": 7}, "what"]}
    odd = OddServer(
        [tool("t", outputSchema=schema)],
        {"t": {"content": [], "structuredContent": told}},
    )
    async with before(odd, nothing_from_outside) as host:
        await host.tools()
        result = await host.call("t")
    assert [each["url"] for each in result.structured_content["results"]] == ["https://a.example/"]
    assert ids(result) == ["S1"]


async def test_structure_that_only_stands_in_the_text_is_used(nothing_from_outside: Path) -> None:
    """A server that declares a schema and returns JSON text alone was seen."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    odd = OddServer([tool("t", outputSchema=schema)], {"t": text_result('{"n": 5}')})
    async with before(odd, nothing_from_outside) as host:
        await host.tools()
        assert (await host.call("t")).structured_content["n"] == 5


async def test_content_of_every_type_is_relayed(host: Host, stand_ins: StandIns) -> None:
    stand_ins.configure(search={"fault": "media"})
    kinds = [block.type for block in (await host.search()).content]
    assert kinds == ["text", "image", "audio", "resource_link", "resource"]


async def test_upstreams_own_meta_is_kept(host: Host) -> None:
    meta = (await host.search()).meta or {}
    assert meta["parallel/usage"][0]["cost_usd"] == 0.001


async def test_progress_is_relayed(nothing_from_outside: Path) -> None:
    params = {"progressToken": "TOKEN", "progress": 1, "total": 3, "message": "reading"}
    ahead = [{"jsonrpc": "2.0", "method": "notifications/progress", "params": params}]
    odd = OddServer([tool("t")], {"t": text_result("done")}, sse=True, before=ahead)
    told: list[Any] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with before(odd, nothing_from_outside) as host:
        await host.client.call_tool("t", {}, progress_callback=listen)
    assert told == [(1, 3, "reading")]


async def test_a_changed_tool_is_reported_before_it_is_used(
    opened: Open, stand_ins: StandIns, caplog: pytest.LogCaptureFixture
) -> None:
    """Cases I095, I149: descriptions may change after a user looked at them."""
    async with opened() as host:
        await host.search()
    stand_ins.configure(search={"fault": "changed_tool"})
    async with opened() as host:
        await host.tools()
        change = "Tool 'web_search' of server 'parallel-search' was changed since it was last listed here."
        assert change in [record.message for record in caplog.records]
        first, second = await host.call("web_search", **OTHER), await host.search()
        assert first.structured_content["notice"] == change and change in text_of(first)
        assert "notice" not in second.structured_content
    async with opened() as host:
        assert "notice" not in (await host.call("web_search", **OTHER)).structured_content


# --- check_citations --------------------------------------------------------------------------------------


async def test_citations_are_checked_against_this_conversations_sources(host: Host) -> None:
    result = await host.search()
    source = result.structured_content["results"][0]
    paragraph = max(" ".join(source["excerpts"]).split("\n\n"), key=len)
    sentence = max(sentences(paragraph), key=len).replace("\n", " ").rstrip(".")
    text = f"{sentence} {source['cite']}. It was invented in 1492 [S2]. Nobody knows [S99]."
    checked = await host.call("check_citations", text=text)
    told = checked.structured_content
    assert [each["verdict"] for each in told["citations"]] == ["supported", "unsupported", "dangling"]
    assert told["dangling"] == ["[S99]"]
    assert told["bibliography"][0]["url"] == source["url"]
    assert "[[1]](" in told["text"] and "[S99]" not in told["text"]
    assert source["title"] in text_of(checked)
    assert "1492" in text_of(checked).split("Notes")[1]


async def test_the_ids_of_another_conversation_do_not_count(opened: Open) -> None:
    async with opened(private=False) as host:
        await host.search(session_id="a")
        await host.call("web_fetch", **FETCH, session_id="b")
        checked = await host.call("check_citations", text="It is so [S2].", session_id="b")
        assert checked.structured_content["dangling"] == ["[S2]"]


async def test_sentences_without_a_citation_are_named_to_the_model(host: Host) -> None:
    await host.search()
    checked = await host.call("check_citations", text="Python was released in 1991 by Guido van Rossum.")
    assert checked.structured_content["coverage"]["uncited"]
    assert "released in 1991" in text_of(checked).split("Without a citation")[1]


@pytest.mark.parametrize("arguments", [{"text": "x", "session_id": "nobody"}, {"text": ""}, {}])
async def test_a_check_that_cannot_be_made_says_why(host: Host, arguments: dict[str, Any]) -> None:
    await host.search()
    result = await host.call("check_citations", **arguments)
    assert result.is_error and text_of(result)


async def test_a_check_before_any_search_says_to_search(host: Host) -> None:
    assert "search first" in text_of(await host.call("check_citations", text="x [S1]."))


# --- resources and the prompt -----------------------------------------------------------------------------


async def test_sources_ledger_and_runs_are_resources(host: Host) -> None:
    await host.call("research", question="How does the with statement work?")
    uris = [each.uri for each in (await host.client.list_resources()).resources]
    assert uris[:2] == ["orchestrator://sources", "orchestrator://ledger"]
    (run,) = [uri for uri in uris if uri.startswith("orchestrator://runs/")]
    lines = (await host.read(run.removeprefix("orchestrator://"))).splitlines()
    assert json.loads(lines[0])["event"] == "run_started"
    templates = (await host.client.list_resource_templates()).resource_templates
    assert [each.uri_template for each in templates] == [
        "orchestrator://sources/{session_id}",
        "orchestrator://ledger/{session_id}",
        "orchestrator://runs/{run_id}",
    ]


async def test_over_http_nobodys_runs_are_listed(opened: Open) -> None:
    async with opened(private=False) as host:
        await host.call("research", question="How does the with statement work?")
        assert not (await host.client.list_resources()).resources


@pytest.mark.parametrize(
    "path",
    [
        "sources/nobody",
        "runs/../../etc/passwd",
        "runs/last",
        "runs/",
        "nothing",
        "runs/20261130-164312-482-9f3a1c",
    ],
)
async def test_no_address_names_a_file_of_the_machine(host: Host, path: str) -> None:
    with pytest.raises(MCPError, match="Resource not found"):
        await host.read(path)


async def test_the_prompt_tells_how_to_search_cite_and_check(host: Host) -> None:
    (prompt,) = (await host.client.list_prompts()).prompts
    assert prompt.name == "research"
    got = await host.client.get_prompt("research", {"question": "Why is {the} sky blue?"})
    content = got.messages[0].content
    assert isinstance(content, TextContent)
    assert "Why is {the} sky blue?" in content.text and "check_citations" in content.text
    with pytest.raises(MCPError, match="question"):
        await host.client.get_prompt("research", {})


# --- research ---------------------------------------------------------------------------------------------


async def test_research_returns_a_checked_answer(host: Host) -> None:
    result = await host.call("research", question="How does the with statement handle exceptions?")
    told = result.structured_content
    assert told["status"] == "done" and "## Sources" in told["answer"]
    assert told["result"]["citations"][0]["verdict"] == "supported"
    later = (await host.call("research_status", run_id=told["run_id"])).structured_content
    assert later == {key: value for key, value in told.items() if key != "session_id"}


async def test_what_a_job_found_and_cost_joins_the_conversation(host: Host) -> None:
    """So its answer can be checked, and the ledger is whole."""
    searched = await host.search()
    result = await host.call("research", question="How does the with statement handle exceptions?")
    told = result.structured_content
    assert told["session_id"] == searched.structured_content["session_id"]
    checked = (await host.call("check_citations", text=told["answer"])).structured_content
    assert checked["citations"] and not checked["dangling"]
    spent = json.loads(await host.read("ledger"))["usd"]
    assert spent == pytest.approx(0.001 + told["result"]["ledger"]["usd"])


async def test_a_long_job_is_returned_with_what_there_is_and_looked_after(
    host: Host, stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case I107: hosts cut calls at 60 s, so the call returns before and the work goes on."""
    monkeypatch.setattr(desk, "SOFT_SECONDS", 0.5)
    stand_ins.configure(fault="slow")
    told: list[str | None] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    asked = {"question": "How does the with statement work?"}
    result = await host.client.call_tool("research", asked, progress_callback=listen)
    assert isinstance(result, CallToolResult)
    assert result.structured_content["status"] == "running" and told
    run_id = result.structured_content["run_id"]
    stand_ins.configure()
    with anyio.fail_after(60):
        while (await host.call("research_status", run_id=run_id)).structured_content["status"] == "running":
            pass
    done = (await host.call("research_status", run_id=run_id)).structured_content
    assert done["status"] == "done" and done["answer"]


async def test_a_job_is_paid_from_the_operators_money(opened: Open, stand_ins: StandIns) -> None:
    async with opened(hour=Ceiling(usd=0.6), max_usd=0.4) as host:
        first = await host.call("research", question="How does the with statement work?")
        spent = first.structured_content["result"]["ledger"]["usd"]
        left = ours(await host.search())["left"]["hour"]["usd"]
        assert left == pytest.approx(0.6 - spent - 0.001, abs=1e-6)
    async with opened(hour=Ceiling(usd=0.3), max_usd=0.4) as host:
        denied = await host.call("research", question="How does the with statement work?")
        assert denied.is_error and "Denied" in text_of(denied)


@pytest.mark.parametrize("run_id", ["last", "../x", "20261130-164312-482-9f3a1c", ""])
async def test_a_job_that_is_none_is_said(host: Host, run_id: str) -> None:
    result = await host.call("research_status", run_id=run_id)
    assert result.is_error and text_of(result)


async def test_a_job_that_still_runs_when_the_server_ends_is_recorded_as_interrupted(
    opened: Open, stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No orphans: what the job started ends with us, and `resume` can go on."""
    monkeypatch.setattr(desk, "SOFT_SECONDS", 0.5)
    stand_ins.configure(fault="silent")
    async with opened() as host:
        result = await host.call("research", question="How does the with statement work?")
        assert result.structured_content["status"] == "running"
        folder = host.options.runs_folder
    (file,) = folder.glob("*.jsonl")
    assert json.loads(file.read_text(encoding="utf-8").splitlines()[-1])["status"] == "interrupted"


# --- the record -------------------------------------------------------------------------------------------


def record(options: Options) -> list[dict[str, Any]]:
    (file,) = (options.runs_folder / "conversations").glob("*.jsonl")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


async def test_a_conversation_leaves_a_record(opened: Open, stand_ins: StandIns) -> None:
    async with opened(hour=Ceiling(calls={"web_search": 1})) as host:
        await host.search()
        await host.call("web_search", **OTHER)
        await host.call("check_citations", text="So it is [S1].")
    lines = record(host.options)
    assert [line["event"] for line in lines] == [
        "tool_call",
        "tool_result",
        "charge",
        "tool_call",
        "tool_result",
        "limit_reached",
        "citations_checked",
    ]
    assert lines[4]["denied"] and not lines[1]["is_error"] and lines[1]["ms"] > 0


async def test_without_content_no_text_is_kept(opened: Open) -> None:
    async with opened(no_content=True) as host:
        await host.search()
    text = json.dumps(record(host.options))
    assert "with statement" not in text and "docs.python.org" not in text


async def test_keys_never_reach_the_record(opened: Open) -> None:
    """Case I143: masked by value and by shape, in arguments too."""
    shaped = "-".join(["sk", "ant", "a1b2c3d4e5f6g7h8"])
    async with opened(parallel_api_key="parallel-secret-key-123") as host:
        await host.search(objective=f"is {shaped} mine, or offline")
    text = json.dumps(record(host.options))
    assert "a1b2c3d4" not in text and "[masked]" in text
