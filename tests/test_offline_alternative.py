"""The second provider's stand-in is shaped differently, as its published source describes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from orchestrator.offline.alternative import alternative_app
from orchestrator.offline.corpus import Corpus
from orchestrator.offline.hosting import address, listen, serving
from orchestrator.offline.search_faults import HOSTILE_TITLE
from orchestrator.offline.search_state import SearchState

QUESTION = "How does the with statement handle exceptions?"
PAGE = "https://docs.python.org/3/reference/compound_stmts.html#the-with-statement"
NOWHERE = "https://docs.python.org/3/nowhere.html"


@dataclass(frozen=True)
class Service:
    url: str
    state: SearchState

    @asynccontextmanager
    async def client(self, query: str = "", headers: dict[str, str] | None = None) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(self.url + query, http_client=http)) as client,
        ):
            yield client

    async def call(
        self, tool: str, arguments: dict[str, Any], query: str = "", **headers: str
    ) -> CallToolResult:
        async with self.client(query, headers) as client:
            result = await client.call_tool(tool, arguments)
            assert isinstance(result, CallToolResult)
            return result


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    state = SearchState()
    bound = listen()
    with serving([(alternative_app(Corpus.load(), state), bound)]):
        yield Service(f"{address(bound)}/mcp", state)


@pytest.fixture
def service(running: Service) -> Service:
    running.state.reset()
    return running


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_its_tools_have_other_names_and_arguments_and_declare_no_output(service: Service) -> None:
    async with service.client() as client:
        search, fetch = (await client.list_tools()).tools
        assert client.server_info is not None and client.server_info.name == "exa-search-server"
    assert (search.name, fetch.name) == ("web_search_exa", "web_fetch_exa")
    assert search.input_schema["required"] == ["query"]
    assert set(search.input_schema["properties"]) == {"query", "numResults", "objective"}
    assert set(fetch.input_schema["properties"]) == {"urls", "maxCharacters"}
    for tool in (search, fetch):
        assert tool.output_schema is None
        assert tool.annotations is not None and tool.annotations.read_only_hint is True


async def test_results_are_blocks_of_plain_text_without_structured_content(service: Service) -> None:
    result = await service.call("web_search_exa", {"query": QUESTION, "numResults": 3})
    assert (result.is_error, result.structured_content, result.meta) == (False, None, None)
    blocks = text_of(result).split("\n\n---\n\n")
    assert len(blocks) == 3
    for block in blocks:
        title, url, published, author, highlights = block.split("\n")[:5]
        assert title.startswith("Title: ") and url.startswith("URL: https://docs.python.org/3/")
        assert (published, author, highlights) == ("Published: N/A", "Author: N/A", "Highlights:")
    assert service.state.usd == pytest.approx(0.007)


async def test_results_beyond_ten_cost_extra(service: Service) -> None:
    result = await service.call("web_search_exa", {"query": QUESTION, "numResults": 13})
    assert text_of(result).count("\nURL: ") == 13
    assert service.state.usd == pytest.approx(0.010)


async def test_a_search_without_results_says_so(service: Service) -> None:
    result = await service.call("web_search_exa", {"query": "?!"})
    assert result.is_error is False
    assert text_of(result) == "No search results found. Please try a different query."


async def test_pages_are_read_as_text_cut_at_a_length_and_billed_by_the_url(service: Service) -> None:
    result = await service.call("web_fetch_exa", {"urls": [PAGE, NOWHERE], "maxCharacters": 200})
    text = text_of(result)
    assert text.startswith(f"# The with statement — Python language reference\nURL: {PAGE}\n\n")
    assert text.endswith(f"Error fetching {NOWHERE}: CRAWL_NOT_FOUND")
    assert len(text) < 500 and service.state.usd == pytest.approx(0.002)


async def test_a_fetch_that_reads_nothing_is_an_error_and_free(service: Service) -> None:
    result = await service.call("web_fetch_exa", {"urls": [NOWHERE]})
    assert (result.is_error, service.state.usd) == (True, 0)
    assert text_of(result) == f"Error fetching URL(s): {NOWHERE}: CRAWL_NOT_FOUND"


@pytest.mark.parametrize(
    ("query", "headers"),
    [("", {"Authorization": "Bearer bogus"}), ("", {"x-api-key": "bogus"}), ("?exaApiKey=bogus", {})],
)
async def test_a_wrong_key_is_told_only_when_a_tool_is_called(
    service: Service, query: str, headers: dict[str, str]
) -> None:
    result = await service.call("web_search_exa", {"query": QUESTION}, query, **headers)
    assert result.is_error is True
    assert text_of(result).startswith("web_search_exa error (401): Invalid API key\nTimestamp: ")
    assert "bogus" not in str(service.state.requests)


async def test_the_address_chooses_the_tools(service: Service) -> None:
    async with service.client("?tools=web_search_exa") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["web_search_exa"]
        result = await client.call_tool("web_fetch_exa", {"urls": [PAGE]})
    assert isinstance(result, CallToolResult)
    assert result.is_error is True and "web_fetch_exa not found" in text_of(result)


async def test_a_wrong_argument_is_a_result_that_says_so(service: Service) -> None:
    result = await service.call("web_search_exa", {})
    assert result.is_error is True and "query" in text_of(result)


async def test_answers_come_as_event_streams(service: Service) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with httpx2.AsyncClient(headers={"Accept": "application/json, text/event-stream"}) as http:
        response = await http.post(service.url, json=message)
    assert response.headers["content-type"].startswith("text/event-stream")


async def test_it_misbehaves_as_told(service: Service) -> None:
    service.state.configure(fault="hostile")
    assert text_of(await service.call("web_search_exa", {"query": QUESTION})).startswith(
        f"Title: {HOSTILE_TITLE}\n"
    )
    service.state.configure(fault="tool_error")
    assert (await service.call("web_search_exa", {"query": QUESTION})).is_error is True
    service.state.configure(result_chars=50_000)
    assert len(text_of(await service.call("web_search_exa", {"query": QUESTION}))) == 50_000
    service.state.configure(fault="escaped_surrogates")
    assert r"\ud83d" in text_of(await service.call("web_search_exa", {"query": QUESTION}))
