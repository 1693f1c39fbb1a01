"""The search stand-ins misbehave as told, and only as told."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from orchestrator.errors import UsageError
from orchestrator.offline.corpus import Corpus
from orchestrator.offline.hosting import address, listen, serving
from orchestrator.offline.search import search_app
from orchestrator.offline.search_faults import HOSTILE_TITLE, HOSTILE_URL
from orchestrator.offline.search_state import FAULTS, SearchState

SEARCH = {"objective": "How does the with statement work?", "search_queries": ["with statement"]}
FETCH = {"urls": ["https://docs.python.org/3/reference/compound_stmts.html#the-with-statement"]}
HEADERS = {"Accept": "application/json, text/event-stream"}


@dataclass(frozen=True)
class Service:
    url: str
    state: SearchState

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient() as http,
            Client(streamable_http_client(self.url, http_client=http)) as client,
        ):
            yield client

    async def post(
        self, method: str, params: dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        async with httpx2.AsyncClient() as http:
            return await http.post(self.url, json=message, headers=HEADERS | (headers or {}))

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        async with self.client() as client:
            result = await client.call_tool(tool, arguments)
            assert isinstance(result, CallToolResult)
            return result

    async def search(self) -> CallToolResult:
        return await self.call("web_search", SEARCH)


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    state = SearchState()
    bound = listen()
    with serving([(search_app(Corpus.load(), state), bound)]):
        yield Service(f"{address(bound)}/mcp", state)


@pytest.fixture
def service(running: Service) -> Service:
    running.state.reset()
    return running


def text_of(result: CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


# --- the control side ------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"fault": "no-such-fault"}, {"no_such_setting": 1}])
def test_an_unknown_fault_or_setting_is_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no such"):
        SearchState().configure(**changes)


async def test_a_fault_hits_as_often_as_told_and_the_service_is_healthy_again(service: Service) -> None:
    service.state.configure(fault="tool_error", fault_times=2)
    assert [(await service.search()).is_error for _ in range(3)] == [True, True, False]
    service.state.configure(fault="empty")
    service.state.configure()
    assert (await service.search()).structured_content["results"]


async def test_a_fault_hits_only_the_method_it_is_told_to(service: Service) -> None:
    service.state.configure(fault="429", fault_method="tools/call")
    assert (await service.post("tools/list")).status_code == 200
    assert (await service.post("tools/call", {"name": "web_search", "arguments": SEARCH})).status_code == 429


async def test_calls_and_their_prices_are_kept_until_the_reset(service: Service) -> None:
    await service.search()
    await service.call("web_fetch", FETCH)
    await service.call("web_fetch", {})
    calls = service.state.calls
    assert [(call.tool, call.is_error, call.usd) for call in calls] == [
        ("web_search", False, 0.001),
        ("web_fetch", False, 0.001),
        ("web_fetch", True, 0.0),
    ]
    assert service.state.usd == pytest.approx(0.002)
    assert (calls[0].server, calls[0].arguments, calls[0].keyed) == ("parallel-search", SEARCH, False)
    service.state.reset()
    assert (service.state.usd, service.state.calls, service.state.requests) == (0, [], [])


async def test_the_log_of_requests_holds_no_key(service: Service) -> None:
    await service.post(
        "tools/list", headers={"Authorization": "Bearer secret-key-1", "x-api-key": "secret-key-2"}
    )
    (request,) = service.state.requests
    assert (request["method"], request["path"], request["body"]["method"]) == ("POST", "/mcp", "tools/list")
    assert "secret-key" not in json.dumps(service.state.requests)


async def test_a_page_that_the_user_has_open_cannot_use_it(service: Service) -> None:
    assert (
        await service.post("tools/list", headers={"Origin": "https://attacker.example"})
    ).status_code == 403
    assert (await service.post("tools/list", headers={"Host": "attacker.example"})).status_code == 421


# --- refusals of the whole request -----------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "status"), [("down", 503), ("401", 401), ("402", 402), ("429", 429)])
@pytest.mark.parametrize("method", ["initialize", "tools/list", "tools/call"])
async def test_the_service_refuses_every_request(
    service: Service, fault: str, status: int, method: str
) -> None:
    service.state.configure(fault=fault)
    assert (await service.post(method, {})).status_code == status
    assert service.state.usd == 0


async def test_a_hanging_service_answers_nobody_and_lets_go_when_healthy_again(service: Service) -> None:
    service.state.configure(fault="hanging")
    with pytest.raises(TimeoutError), anyio.fail_after(0.3):
        await service.post("tools/list")
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            assert (await service.post("tools/list")).status_code == 503

        tasks.start_soon(wait)
        with anyio.fail_after(5):
            while len(service.state.requests) < 2:
                await anyio.lowlevel.checkpoint()
        service.state.reset()
    assert (await service.post("tools/list")).status_code == 200


async def test_a_dropped_answer_ends_in_the_middle(service: Service) -> None:
    service.state.configure(fault="drop", fault_times=1)
    with pytest.raises(httpx2.RemoteProtocolError):
        await service.post("tools/call", {"name": "web_search", "arguments": SEARCH})
    assert (await service.search()).is_error is False


async def test_a_restarted_service_does_not_know_its_sessions_and_opens_new_ones(service: Service) -> None:
    """Cases I076, I077."""
    client = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    old = (await service.post("initialize", hello)).headers["mcp-session-id"]
    assert (await service.post("tools/list", headers={"mcp-session-id": old})).status_code == 200
    service.state.configure(fault="session_lost")
    for _ in range(2):
        assert (await service.post("tools/list", headers={"mcp-session-id": old})).status_code == 404
    new = (await service.post("initialize", hello)).headers["mcp-session-id"]
    assert (await service.post("tools/list", headers={"mcp-session-id": new})).status_code == 200


async def test_latency_is_waited_before_each_answer(service: Service) -> None:
    service.state.configure(latency_ms=60_000)
    with pytest.raises(TimeoutError), anyio.fail_after(0.2):
        await service.post("tools/list")


# --- tools/list ------------------------------------------------------------------------------------------


async def test_tools_come_in_pages(service: Service) -> None:
    service.state.configure(fault="paginated")
    async with service.client() as client:
        first = await client.list_tools()
        assert first.next_cursor is not None
        second = await client.list_tools(cursor=first.next_cursor)
    assert [tool.name for tool in first.tools + second.tools] == ["web_search", "web_fetch"]
    assert second.next_cursor is None


async def test_a_tool_appears_that_nobody_asked_for(service: Service) -> None:
    service.state.configure(fault="extra_tool")
    async with service.client() as client:
        *_, extra = (await client.list_tools()).tools
    assert extra.annotations is not None
    assert (extra.name, extra.annotations.read_only_hint) == ("delete_everything", False)


async def test_a_tool_changes_its_description(service: Service) -> None:
    """Case I149."""
    async with service.client() as client:
        before = (await client.list_tools()).tools[0]
    service.state.configure(fault="changed_tool")
    async with service.client() as client:
        after = (await client.list_tools()).tools[0]
    assert after.name == before.name and after.description != before.description


async def test_a_tool_has_a_schema_without_a_type(service: Service) -> None:
    """Case I086; the SDK's own server does not publish such a tool."""
    service.state.configure(fault="odd_tool")
    tools = (await service.post("tools/list")).json()["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["web_search", "web_fetch", "odd"]
    assert "type" not in tools[2]["inputSchema"]


# --- results ---------------------------------------------------------------------------------------------


async def test_nothing_is_found(service: Service) -> None:
    service.state.configure(fault="empty")
    result = await service.search()
    assert (result.is_error, result.structured_content["results"]) == (False, [])
    assert service.state.usd == 0.001


@pytest.mark.parametrize("tool", ["web_search", "web_fetch"])
async def test_a_hostile_page_stands_first_and_answers_the_question(service: Service, tool: str) -> None:
    """Case I148."""
    service.state.configure(fault="hostile")
    arguments = SEARCH if tool == "web_search" else FETCH | {"objective": SEARCH["objective"]}
    page = (await service.call(tool, arguments)).structured_content["results"][0]
    assert (page["url"], page["title"]) == (HOSTILE_URL, HOSTILE_TITLE)
    text = "\n".join(page["excerpts"])
    assert text.startswith("How does the with statement work?")
    for trick in (
        "[S1]",
        "</tool_result>",
        "Ignore the budget",
        '"source_id": "S1"',
        "[1]: https://",
        "<script>",
    ):
        assert trick in text


@pytest.mark.parametrize("chars", [30_000, 123_457])
async def test_a_result_is_padded_to_so_many_characters(service: Service, chars: int) -> None:
    service.state.configure(result_chars=chars)
    result = await service.search()
    assert len(text_of(result)) == chars
    assert json.loads(text_of(result)) == result.structured_content


async def test_a_giant_result_has_two_million_characters(service: Service) -> None:
    service.state.configure(fault="giant")
    assert len(text_of(await service.search())) == 2_000_000


async def test_lone_surrogates_are_on_the_wire(service: Service) -> None:
    """Case I133; the SDK's own client cannot read such a result at all."""
    service.state.configure(fault="lone_surrogates")
    response = await service.post("tools/call", {"name": "web_search", "arguments": SEARCH})
    result = json.loads(response.content)["result"]
    assert "\ud83d" in result["content"][0]["text"]
    assert "\ud83d" in result["structuredContent"]["results"][0]["excerpts"][0]


async def test_escaped_surrogates_are_in_the_text_and_an_emoji_beside_them_is_whole(service: Service) -> None:
    """Cases I133, I134."""
    service.state.configure(fault="escaped_surrogates")
    result = await service.search()
    assert r"\ud83d" in text_of(result)
    excerpt = json.loads(text_of(result))["results"][0]["excerpts"][0]
    assert excerpt.endswith("\ud83d \N{SNAKE}")


async def test_a_tool_fails_and_is_not_billed(service: Service) -> None:
    service.state.configure(fault="tool_error")
    result = await service.search()
    assert (result.is_error, service.state.usd) == (True, 0)
    assert text_of(result).startswith("Error executing tool")


async def test_a_result_breaks_its_own_schema(service: Service) -> None:
    service.state.configure(fault="off_schema")
    response = await service.post("tools/call", {"name": "web_search", "arguments": SEARCH})
    assert response.json()["result"]["structuredContent"] == {"results": "none", "search_id": 7}


async def test_a_result_holds_blocks_of_every_kind(service: Service) -> None:
    service.state.configure(fault="media")
    kinds = [block.type for block in (await service.search()).content]
    assert kinds == ["text", "image", "audio", "resource_link", "resource"]


async def test_a_result_holds_a_block_that_nobody_knows(service: Service) -> None:
    service.state.configure(fault="odd_content")
    response = await service.post("tools/call", {"name": "web_search", "arguments": SEARCH})
    assert response.json()["result"]["content"][1] == {"type": "hologram", "shape": "cube"}


def test_every_fault_is_tested_here() -> None:
    """A fault that no test names is one that nobody can rely on."""
    source = Path(__file__).read_text(encoding="utf-8")
    assert [fault for fault in FAULTS if f'"{fault}"' not in source] == []


def test_nobody_listens_where_a_stand_in_was_stopped() -> None:
    """What `down` cannot show: a refused connection."""
    bound = listen()
    place = bound.getsockname()
    with serving([(search_app(Corpus([]), SearchState()), bound)]):
        socket.create_connection(place).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place)
