"""The stand-in of Exa's search server, shaped differently in everything.

Other tool names and arguments, results as plain text with links and no structured content, no reported price,
a bad key told only when a tool is called, answers as event streams.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from orchestrator.offline import endpoint, search_faults
from orchestrator.offline.corpus import Corpus, Hit
from orchestrator.offline.endpoint import Access, access_of, is_bad_key
from orchestrator.offline.search_faults import ENVELOPES, FINDINGS, GIANT_CHARS, SURROGATE
from orchestrator.offline.search_state import Call, SearchState

SERVER: Final = "exa"

_USD_PER_SEARCH: Final = 0.007
_USD_PER_EXTRA_RESULT: Final = 0.001
_USD_PER_URL: Final = 0.001
_INCLUDED_RESULTS: Final = 10
_HIGHLIGHT_CHARS: Final = 2_000


class _Arguments(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


class WebSearchExa(_Arguments):
    query: str = Field(description="What the ideal page says, in natural language.")
    num_results: int = Field(default=10, ge=1, le=100, description="Number of results (default: 10).")
    objective: str | None = Field(default=None, max_length=4096, description="The goal of this search.")


class WebFetchExa(_Arguments):
    urls: list[str] = Field(description="URLs to read; several in one call.")
    max_characters: int = Field(default=3_000, ge=1, description="Characters per page (default: 3000).")


_ANNOTATIONS: Final = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, open_world_hint=True, idempotent_hint=True
)
TOOLS: Final = [
    Tool(
        name="web_search_exa",
        description="Search the web for any topic and get clean text of the best pages.",
        input_schema=WebSearchExa.model_json_schema(),
        annotations=_ANNOTATIONS,
    ),
    Tool(
        name="web_fetch_exa",
        description="Read the text of pages by URL.",
        input_schema=WebFetchExa.model_json_schema(),
        annotations=_ANNOTATIONS,
    ),
]


def alternative_app(corpus: Corpus, state: SearchState) -> Starlette:
    """The stand-in as an ASGI application with `/mcp`; served, configured and billed like `search_app`.

    The key may stand in `Authorization: Bearer`, `x-api-key` or `?exaApiKey=`; `?tools=a,b` picks the tools.
    """
    server: Server[Any] = Server(
        "exa-search-server",
        version="3.2.1",
        on_list_tools=_list,
        on_call_tool=partial(_call, corpus, state),
    )
    return endpoint.app({"/mcp": (server, _admit)}, state, sse=True)


def _admit(request: Request) -> Access | Response:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    bearer = token if scheme.lower() == "bearer" else ""
    key = bearer or request.headers.get("x-api-key") or request.query_params.get("exaApiKey") or ""
    wanted = request.query_params.get("tools")
    pinned = {"tools": wanted.split(",")} if wanted else {}
    return Access(keyed=bool(key), bad_key=is_bad_key(key), pinned=pinned)


def _tools(access: Access) -> list[Tool]:
    wanted = access.pinned.get("tools")
    return [tool for tool in TOOLS if wanted is None or tool.name in wanted]


async def _list(
    ctx: ServerRequestContext[Any, Request], params: PaginatedRequestParams | None
) -> ListToolsResult:
    access = access_of(ctx)
    return search_faults.listing(access.fault, _tools(access), params.cursor if params else None)


async def _call(
    corpus: Corpus, state: SearchState, ctx: ServerRequestContext[Any, Request], params: CallToolRequestParams
) -> CallToolResult:
    access = access_of(ctx)
    arguments = params.arguments or {}
    result, usd = _answer(corpus, state, access, params.name, arguments)
    if access.fault in ENVELOPES:
        result = ENVELOPES[access.fault](result)
    state.record(
        Call(
            SERVER,
            params.name,
            arguments,
            access.keyed,
            access.pinned,
            result.is_error,
            0.0 if result.is_error else usd,
        )
    )
    return result


def _answer(
    corpus: Corpus, state: SearchState, access: Access, tool: str, arguments: dict[str, Any]
) -> tuple[CallToolResult, float]:
    """The result of a call, and its price if it is no error."""
    if tool not in {known.name for known in _tools(access)}:
        return search_faults.error(f"MCP error -32602: Tool {tool} not found"), 0.0
    if access.bad_key:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return search_faults.error(f"{tool} error (401): Invalid API key\nTimestamp: {now}"), 0.0
    try:
        if tool == "web_search_exa":
            text, usd = _search(corpus, access, WebSearchExa.model_validate(arguments))
        else:
            text, usd = _fetch(corpus, access, WebFetchExa.model_validate(arguments))
    except ValidationError as error:
        message = f"MCP error -32602: Input validation error: Invalid arguments for tool {tool}: {error}"
        return search_faults.error(message), 0.0
    except _NothingFetchedError as error:
        return search_faults.error(str(error)), 0.0
    chars = GIANT_CHARS if access.fault == "giant" else state.faults.chars(len(state.calls))
    text += search_faults.filler(text, (chars or 0) - len(text))
    if access.fault == "escaped_surrogates":
        text = text.replace(SURROGATE, r"\ud83d")
    return CallToolResult(content=[TextContent(text=text, _meta={"searchTime": 0.0})]), usd


class _NothingFetchedError(Exception):
    """No page at all could be read."""


def _search(corpus: Corpus, access: Access, asked: WebSearchExa) -> tuple[str, float]:
    query = re.sub(r"\bcategory:\w+", "", asked.query)
    hits = corpus.search(f"{query} {asked.objective or ''}", limit=asked.num_results)
    hits = _found(hits, query, access)
    usd = _USD_PER_SEARCH + _USD_PER_EXTRA_RESULT * max(0, len(hits) - _INCLUDED_RESULTS)
    if not hits:
        return "No search results found. Please try a different query.", usd
    return "\n\n---\n\n".join(map(_search_block, hits)), usd


def _search_block(hit: Hit) -> str:
    highlights = "\n...\n".join(hit.excerpts)[:_HIGHLIGHT_CHARS]
    published = f"{hit.page.published}T00:00:00.000Z" if hit.page.published else "N/A"
    head = f"Title: {hit.page.title}\nURL: {hit.page.url}\nPublished: {published}\nAuthor: N/A"
    return f"{head}\nHighlights:\n{highlights}"


def _fetch(corpus: Corpus, access: Access, asked: WebFetchExa) -> tuple[str, float]:
    pages = {url: corpus.page(url) for url in asked.urls}
    hits = [
        Hit(replace(page, url=url), (page.text[: asked.max_characters],))
        for url, page in pages.items()
        if page is not None
    ]
    hits = _found(hits, "", access)
    failed = [url for url, page in pages.items() if page is None]
    if failed and not hits:
        listed = "; ".join(f"{url}: CRAWL_NOT_FOUND" for url in failed)
        raise _NothingFetchedError(f"Error fetching URL(s): {listed}")
    blocks = [_fetch_block(hit) for hit in hits]
    errors = [f"Error fetching {url}: CRAWL_NOT_FOUND" for url in failed]
    text = "\n".join([*blocks, *errors]).strip()
    return text or "No content found for the provided URL(s).", _USD_PER_URL * len(asked.urls)


def _fetch_block(hit: Hit) -> str:
    text = "\n\n".join(hit.excerpts)
    return f"# {hit.page.title}\nURL: {hit.page.url}\n\n{text}\n"


def _found(hits: list[Hit], query: str, access: Access) -> list[Hit]:
    return FINDINGS[access.fault](hits, query) if access.fault in FINDINGS else hits
