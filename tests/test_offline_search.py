"""The search server, sentence by sentence as published probes and documentation describe it.

By default the sentences are tried on the stand-in. `ORCHESTRATOR_TEST_SEARCH_URL` points the same tests at a
real address (ending in /mcp), `PARALLEL_API_KEY` is then the key; that costs a few cents.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent, Tool

from orchestrator.offline.corpus import Corpus
from orchestrator.offline.hosting import address, listen, serving
from orchestrator.offline.search import search_app
from orchestrator.offline.search_state import SearchState

REAL_URL = os.environ.get("ORCHESTRATOR_TEST_SEARCH_URL")
QUESTION = "How does the with statement handle exceptions?"
SEARCH = {"objective": QUESTION, "search_queries": ["python with statement exceptions"]}
PAGE = "https://docs.python.org/3/reference/compound_stmts.html"
NOWHERE = "https://docs.python.org/3/no-such-page-at-all.html"


@dataclass(frozen=True)
class Service:
    """The server under test."""

    url: str
    key: str | None
    state: SearchState
    """Of the stand-in; of no use against a real address."""

    def headers(self, keyed: bool) -> dict[str, str]:
        if keyed and self.key is None:
            pytest.skip("PARALLEL_API_KEY is not set")
        return {"Authorization": f"Bearer {self.key}"} if keyed else {}

    @asynccontextmanager
    async def client(
        self, query: str = "", *, keyed: bool = False, headers: dict[str, str] | None = None
    ) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers=self.headers(keyed) | (headers or {}), timeout=60) as http,
            Client(streamable_http_client(self.url + query, http_client=http)) as client,
        ):
            yield client

    async def post(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        path: str = "",
        headers: dict[str, str] | None = None,
    ) -> httpx2.Response:
        """One JSON-RPC request without any session."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        accept = {"Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(timeout=60) as http:
            return await http.post(self.url + path, json=message, headers=accept | (headers or {}))


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    if REAL_URL:
        yield Service(REAL_URL, os.environ.get("PARALLEL_API_KEY"), SearchState())
        return
    state = SearchState()
    bound = listen()
    with serving([(search_app(Corpus.load(), state), bound)]):
        yield Service(f"{address(bound)}/mcp", "some-key", state)


@pytest.fixture
def service(running: Service) -> Service:
    running.state.reset()
    return running


async def tools_of(service: Service) -> dict[str, Tool]:
    async with service.client() as client:
        return {tool.name: tool for tool in (await client.list_tools()).tools}


async def call(
    service: Service, tool: str, arguments: dict[str, Any], query: str = "", **how: Any
) -> CallToolResult:
    async with service.client(query, **how) as client:
        result = await client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        return result


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def rpc_result(response: httpx2.Response) -> Any:
    """The JSON-RPC message of an answer, which may come as JSON or as an event stream."""
    body = response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        body = next(line[5:] for line in body.splitlines() if line.startswith("data:"))
    return json.loads(body)


def kinds(schema: dict[str, Any]) -> set[str]:
    """The JSON types that a property may have."""
    options = schema.get("anyOf", [schema])
    return {option["type"] for option in options if "type" in option}


# --- tools and schemas -----------------------------------------------------------------------------------


async def test_there_are_exactly_two_tools(service: Service) -> None:
    assert list(await tools_of(service)) == ["web_search", "web_fetch"]


async def test_the_server_names_itself(service: Service) -> None:
    async with service.client() as client:
        assert client.server_info is not None
        assert client.server_info.name == "Parallel Web Search MCP Server"
        assert REAL_URL or client.server_info.version == "1.27.0"


async def test_web_search_takes_an_objective_and_queries_and_nothing_about_mode_results_or_domains(
    service: Service,
) -> None:
    schema = (await tools_of(service))["web_search"].input_schema
    assert schema["type"] == "object"
    assert sorted(schema["required"]) == ["objective", "search_queries"]
    assert set(schema["properties"]) == {"objective", "search_queries", "session_id", "model_name"}
    assert kinds(schema["properties"]["objective"]) == {"string"}
    assert kinds(schema["properties"]["search_queries"]) == {"array"}


async def test_web_fetch_takes_urls_and_options(service: Service) -> None:
    """FLAG: `allow_live_fetch` is in the live schema of September 2026 and in no documentation."""
    schema = (await tools_of(service))["web_fetch"].input_schema
    assert schema["required"] == ["urls"]
    properties = schema["properties"]
    names = {
        "urls",
        "objective",
        "search_queries",
        "full_content",
        "session_id",
        "model_name",
        "allow_live_fetch",
    }
    assert set(properties) == names
    assert properties["full_content"]["default"] is False
    assert properties["allow_live_fetch"]["default"] is True


@pytest.mark.parametrize("tool", ["web_search", "web_fetch"])
async def test_a_tool_says_that_it_only_reads_an_open_world(service: Service, tool: str) -> None:
    annotations = (await tools_of(service))[tool].annotations
    assert annotations is not None
    assert annotations.read_only_hint is True
    assert annotations.destructive_hint is False
    assert annotations.open_world_hint is True


@pytest.mark.parametrize(
    ("tool", "required", "item", "fields"),
    [
        (
            "web_search",
            {"search_id", "results", "session_id"},
            "results",
            {"url", "title", "publish_date", "excerpts"},
        ),
        (
            "web_fetch",
            {"extract_id", "results", "errors", "session_id"},
            "results",
            {"url", "title", "publish_date", "excerpts", "full_content"},
        ),
        (
            "web_fetch",
            {"extract_id", "results", "errors", "session_id"},
            "errors",
            {"url", "error_type", "http_status_code", "content"},
        ),
    ],
)
async def test_a_tool_declares_what_it_returns(
    service: Service, tool: str, required: set[str], item: str, fields: set[str]
) -> None:
    schema = (await tools_of(service))[tool].output_schema
    assert schema is not None
    assert set(schema["required"]) == required
    assert {"warnings", "usage"} <= set(schema["properties"])
    definition = schema["properties"][item]["items"]["$ref"].rpartition("/")[2]
    declared = schema["$defs"][definition]
    assert set(declared["properties"]) == fields
    assert set(declared["required"]) == ({"url", "error_type"} if item == "errors" else {"url", "excerpts"})


# --- the envelope ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tool", "arguments"), [("web_search", SEARCH), ("web_fetch", {"urls": [PAGE]})])
async def test_a_result_stands_as_pretty_json_in_one_text_block_and_as_structured_content(
    service: Service, tool: str, arguments: dict[str, Any]
) -> None:
    """FLAG: a probe of June 2026 saw only the text block."""
    result = await call(service, tool, arguments)
    assert result.is_error is False
    text = text_of(result)
    assert json.loads(text) == result.structured_content
    assert text.startswith("{\n  ")


async def test_a_search_returns_pages_with_address_title_and_excerpts(service: Service) -> None:
    found = (await call(service, "web_search", SEARCH)).structured_content
    assert found["search_id"].startswith("search_")
    assert 1 <= len(found["results"]) <= 10
    for page in found["results"]:
        assert page["url"].startswith("https://")
        assert page["excerpts"] and all(isinstance(excerpt, str) for excerpt in page["excerpts"])
        assert page["title"] is None or page["title"]


async def test_a_search_says_in_its_meta_what_it_costs(service: Service) -> None:
    """FLAG: an anonymous connection searches in the fast mode, which the reported price shows."""
    result = await call(service, "web_search", SEARCH)
    assert result.meta is not None
    assert result.meta["parallel/usage"] == [{"name": "sku_search", "count": 1, "cost_usd": 0.001}]


async def test_a_fetch_is_billed_by_the_url(service: Service) -> None:
    result = await call(service, "web_fetch", {"urls": [PAGE, f"{PAGE}#the-try-statement"]})
    assert result.meta is not None
    assert sum(item["cost_usd"] for item in result.meta["parallel/usage"]) == pytest.approx(0.002)


async def test_the_excerpts_of_a_call_stay_within_25000_characters(service: Service) -> None:
    for tool, arguments in (("web_search", SEARCH), ("web_fetch", {"urls": [PAGE], "full_content": True})):
        found = (await call(service, tool, arguments)).structured_content
        total = sum(len(excerpt) for page in found["results"] for excerpt in page["excerpts"])
        assert 0 < total <= (25_000 if not REAL_URL else 27_000)


async def test_a_whole_page_comes_on_request_and_is_in_the_excerpts_too(service: Service) -> None:
    plain = (await call(service, "web_fetch", {"urls": [PAGE]})).structured_content["results"][0]
    whole = (await call(service, "web_fetch", {"urls": [PAGE], "full_content": True})).structured_content[
        "results"
    ][0]
    assert plain["full_content"] is None
    assert whole["full_content"].startswith(whole["excerpts"][0][:200])


async def test_a_page_that_cannot_be_read_is_an_entry_in_errors_and_no_error_of_the_call(
    service: Service,
) -> None:
    result = await call(service, "web_fetch", {"urls": [PAGE, NOWHERE]})
    assert result.is_error is False
    found = result.structured_content
    assert [page["url"] for page in found["results"]] == [PAGE]
    (failed,) = found["errors"]
    assert failed["url"] == NOWHERE and failed["error_type"]
    assert set(failed) == {"url", "error_type", "http_status_code", "content"}


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("web_fetch", {}, ["Error executing tool web_fetch: 1 validation error", "urls", "Field required"]),
        (
            "web_search",
            {"objective": "x"},
            ["Error executing tool web_search: 1 validation error", "search_queries"],
        ),
        ("web_search", {"objective": "x", "search_queries": []}, ["search_queries"]),
        ("web_fetch", {"urls": [PAGE] * 21}, ["urls"]),
        ("web_fetch", {"urls": [PAGE], "objective": "x" * 201}, ["objective"]),
        ("web_search", SEARCH | {"session_id": "x" * 101}, ["session_id"]),
        ("web_search", SEARCH | {"model_name": "x" * 101}, ["model_name"]),
        ("no_such_tool", {}, ["no_such_tool"]),
    ],
)
async def test_a_wrong_argument_is_a_result_that_says_so(
    service: Service, tool: str, arguments: dict[str, Any], says: list[str]
) -> None:
    result = await call(service, tool, arguments)
    assert result.is_error is True
    assert all(words in text_of(result) for words in says)


async def test_a_failed_call_is_not_billed(service: Service) -> None:
    result = await call(service, "web_fetch", {})
    assert not (result.meta or {}).get("parallel/usage")
    assert service.state.usd == 0


# --- transport -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_only_post_is_served(service: Service, method: str) -> None:
    async with httpx2.AsyncClient() as http:
        response = await http.request(method, service.url, headers={"Accept": "text/event-stream"})
    assert response.status_code == 405


@pytest.mark.parametrize("path", ["/", "/sse"])
async def test_a_trailing_slash_and_the_old_event_stream_are_not_found(service: Service, path: str) -> None:
    assert (await service.post("tools/list", path=path)).status_code == 404


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_the_protocols_of_2025_are_spoken(service: Service, version: str) -> None:
    client = {"name": "test", "version": "1"}
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
    answer = rpc_result(await service.post("initialize", params))["result"]
    assert answer["protocolVersion"] == version


async def test_a_client_of_a_newer_protocol_falls_back_to_that_of_2025(service: Service) -> None:
    refused = await service.post("server/discover", headers={"MCP-Protocol-Version": "2026-07-28"})
    assert refused.status_code == 400
    async with service.client() as client:
        assert client.protocol_version == "2025-11-25"


async def test_tools_are_listed_and_called_without_initialize(service: Service) -> None:
    listed = rpc_result(await service.post("tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["web_search", "web_fetch"]
    called = rpc_result(await service.post("tools/call", {"name": "web_search", "arguments": SEARCH}))[
        "result"
    ]
    assert called["isError"] is False and called["structuredContent"]["results"]


async def test_initialize_opens_a_session(service: Service) -> None:
    client = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    assert (await service.post("initialize", params)).headers["mcp-session-id"]


# --- keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [False, True])
async def test_the_server_works_without_a_key_and_with_one(service: Service, keyed: bool) -> None:
    assert (await call(service, "web_search", SEARCH, keyed=keyed)).is_error is False


async def test_a_wrong_key_is_401(service: Service) -> None:
    response = await service.post("tools/list", headers={"Authorization": "Bearer bogus-key"})
    assert response.status_code == 401
    assert response.json() == {"code": 16, "message": "Invalid API key (C.1)"}


async def test_the_signed_in_address_answers_a_key_only(service: Service) -> None:
    refused = await service.post("tools/list", path="-oauth")
    assert refused.status_code == 401
    error = refused.json()["error"]
    assert error["code"] == -32000
    assert error["message"] == "Authentication required. Sign in with Parallel to continue."
    served = await service.post("tools/list", path="-oauth", headers=service.headers(keyed=True))
    assert served.status_code == 200


# --- what a connection pins ------------------------------------------------------------------------------

DOMAINS = "advanced_settings.source_policy"


@pytest.mark.parametrize(
    ("mode", "usd"), [("turbo", 0.001), ("fast", 0.001), ("basic", 0.005), ("advanced", 0.005)]
)
async def test_a_keyed_connection_pins_its_mode_and_pays_that_modes_price(
    service: Service, mode: str, usd: float
) -> None:
    result = await call(service, "web_search", SEARCH, f"?mode={mode}", keyed=True)
    assert result.meta is not None
    assert result.meta["parallel/usage"][0]["cost_usd"] == usd


@pytest.mark.parametrize("where", ["query", "header"])
async def test_pins_stand_in_the_query_with_dotted_paths_or_in_a_header_as_json(
    service: Service, where: str
) -> None:
    pins = {
        "advanced_settings": {"max_results": 3, "source_policy": {"include_domains": ["docs.python.org"]}}
    }
    query = f"?advanced_settings.max_results=3&{DOMAINS}.include_domains=docs.python.org"
    how = (
        {"query": query} if where == "query" else {"headers": {"x-parallel-search-config": json.dumps(pins)}}
    )
    found = (await call(service, "web_search", SEARCH, keyed=True, **how)).structured_content["results"]
    assert 1 <= len(found) <= 3
    assert all("//docs.python.org/" in page["url"] for page in found)


async def test_the_query_wins_over_the_header_field_by_field(service: Service) -> None:
    header = {
        "x-parallel-search-config": json.dumps({"mode": "basic", "advanced_settings": {"max_results": 2}})
    }
    result = await call(service, "web_search", SEARCH, "?mode=fast", keyed=True, headers=header)
    assert result.meta is not None
    assert result.meta["parallel/usage"][0]["cost_usd"] == 0.001
    assert len(result.structured_content["results"]) <= 2


@pytest.mark.parametrize(
    "query",
    [
        "?mode=slow",
        "?no_such_field=1",
        "?advanced_settings.max_results=many",
        "?advanced_settings.max_results=21",
        "?mode.deeper=fast",
        "?objective=mine",
        "?search_queries=mine",
    ],
)
async def test_an_unknown_or_impossible_pin_is_400(service: Service, query: str) -> None:
    response = await service.post("tools/list", path=query, headers=service.headers(keyed=True))
    assert response.status_code == 400
    assert "nvalid" in response.text


@pytest.mark.parametrize("header", ["{", "[]", '{"objective": "mine"}', '{"mode": "slow"}'])
async def test_a_malformed_header_of_pins_is_400(service: Service, header: str) -> None:
    how = service.headers(keyed=True) | {"x-parallel-search-config": header}
    assert (await service.post("tools/list", headers=how)).status_code == 400


@pytest.mark.parametrize("query", ["?mode=advanced&advanced_settings.max_results=1", "?mode=slow"])
async def test_an_anonymous_connection_pins_nothing(service: Service, query: str) -> None:
    result = await call(service, "web_search", SEARCH, query)
    assert result.meta is not None
    assert result.meta["parallel/usage"][0]["cost_usd"] == 0.001
    assert len(result.structured_content["results"]) > 1


async def test_pins_hold_for_searches_and_not_for_fetches(service: Service) -> None:
    query = f"?{DOMAINS}.include_domains=example.org"
    assert (await call(service, "web_search", SEARCH, query, keyed=True)).structured_content["results"] == []
    fetched = (await call(service, "web_fetch", {"urls": [PAGE]}, query, keyed=True)).structured_content
    assert [page["url"] for page in fetched["results"]] == [PAGE]


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("include_domains=.org", True),
        ("include_domains=example.com,python.org", True),
        ("include_domains=docs.python.org/3/reference", True),
        ("include_domains=docs.python.org/2", False),
        ("include_domains=ython.org", False),
        ("exclude_domains=python.org", False),
        ("exclude_domains=.com", True),
    ],
)
async def test_domain_filters_act_on_hosts_suffixes_and_paths(
    service: Service, policy: str, kept: bool
) -> None:
    found = (await call(service, "web_search", SEARCH, f"?{DOMAINS}.{policy}", keyed=True)).structured_content
    urls = [page["url"] for page in found["results"]]
    assert any(url.startswith("https://docs.python.org/3/reference/") for url in urls) is kept


async def test_excerpts_are_cut_to_what_is_pinned(service: Service) -> None:
    query = "?advanced_settings.excerpt_settings.max_chars_per_result=300&max_chars_total=1000"
    found = (await call(service, "web_search", SEARCH, query, keyed=True)).structured_content["results"]
    sizes = [sum(map(len, page["excerpts"])) for page in found]
    assert max(sizes) <= 300 and sum(sizes) <= 1_000


async def test_results_above_ten_cost_extra(service: Service) -> None:
    result = await call(service, "web_search", SEARCH, "?advanced_settings.max_results=15", keyed=True)
    extra = len(result.structured_content["results"]) - 10
    assert extra > 0 and result.meta is not None
    assert sum(item["cost_usd"] for item in result.meta["parallel/usage"]) == pytest.approx(
        0.001 + 0.001 * extra
    )


# --- session_id ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["web_search", "web_fetch"])
async def test_an_anonymous_session_id_comes_back_and_a_missing_one_is_made(
    service: Service, tool: str
) -> None:
    arguments: dict[str, Any] = SEARCH if tool == "web_search" else {"urls": [PAGE]}
    given = "0123456789abcdef" * 2
    assert (await call(service, tool, arguments | {"session_id": given})).structured_content[
        "session_id"
    ] == given
    assert (await call(service, tool, arguments)).structured_content["session_id"]


async def test_on_a_key_the_service_makes_its_own_session_id(service: Service) -> None:
    """From a published probe: that is how an authenticated connection can be told."""
    arguments = SEARCH | {"session_id": "0123456789abcdef" * 2}
    made = (await call(service, "web_search", arguments, keyed=True)).structured_content["session_id"]
    assert made.startswith("session_") and made != arguments["session_id"]


# --- limits ----------------------------------------------------------------------------------------------


async def test_a_query_that_is_no_keyword_query_is_answered_with_a_warning(service: Service) -> None:
    long = {"objective": QUESTION, "search_queries": ["with statement " * 20]}
    found = (await call(service, "web_search", long)).structured_content
    for warning in found["warnings"] or []:
        assert warning["type"] in {"spec_validation_warning", "input_validation_warning", "warning"}
        assert warning["message"]
    assert REAL_URL or found["warnings"]


@pytest.mark.skipif(REAL_URL is not None, reason="a real service is not to be driven into its limits")
async def test_too_many_requests_are_429_with_the_time_to_wait(service: Service) -> None:
    service.state.configure(fault="429", retry_after=7)
    response = await service.post("tools/call", {"name": "web_search", "arguments": SEARCH})
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")


@pytest.mark.skipif(REAL_URL is not None, reason="needs an account without credit")
async def test_an_account_without_credit_is_402(service: Service) -> None:
    service.state.configure(fault="402")
    response = await service.post("tools/list")
    assert response.status_code == 402
    assert set(response.json()["error"]) == {"ref_id", "message", "detail"}
