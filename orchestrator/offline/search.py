"""The stand-in of Parallel's search server: `web_search` and `web_fetch` over the corpus.

It says what published probes and documentation say the live server says; prices are written down here once
more, so that its bill is an independent check of ours.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import uuid4

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from orchestrator.offline import endpoint, search_faults
from orchestrator.offline.corpus import Corpus, Hit
from orchestrator.offline.documents import Page
from orchestrator.offline.endpoint import Access, access_of, is_bad_key
from orchestrator.offline.pinning import PinError, SearchConfig, pinned
from orchestrator.offline.search_faults import ENVELOPES, FINDINGS, GIANT_CHARS, SURROGATE
from orchestrator.offline.search_state import Call, SearchState
from orchestrator.offline.search_tools import (
    TOOLS,
    FetchError,
    FetchResult,
    SearchResult,
    UsageItem,
    V1ExtractResponse,
    V1SearchResponse,
    WarningItem,
    WebFetch,
    WebSearch,
)

SERVER: Final = "parallel-search"
MAX_CALL_CHARS: Final = 25_000
"""Characters of excerpts in one tool call."""

_USD_PER_SEARCH: Final = {"turbo": 0.001, "fast": 0.001, "basic": 0.005, "advanced": 0.005}
_USD_PER_EXTRA_RESULT: Final = 0.001
_USD_PER_URL: Final = 0.001
_EXCERPTS: Final = {"turbo": 2, "fast": 4, "basic": 4, "advanced": 6}
"""Excerpts per result by mode: slower modes bring more."""
_DEFAULT_MODE: Final = "fast"
_DEFAULT_RESULTS: Final = 10


def search_app(corpus: Corpus, state: SearchState) -> Starlette:
    """The stand-in as an ASGI application: `/mcp` (anonymous or keyed) and `/mcp-oauth` (keyed only).

    Serve it with its lifespan (uvicorn does; a mount in another application does not by itself). Every
    key is good but one that holds the word `bogus`, `invalid` or `wrong`. `state` is asked on each request:
    faults may be set while it runs, from any thread; it holds the log and the bill.
    """
    server: Server[Any] = Server(
        "Parallel Web Search MCP Server",
        version="1.27.0",
        on_list_tools=_list,
        on_call_tool=partial(_call, corpus, state),
    )
    paths = {"/mcp": (server, partial(_admit, False)), "/mcp-oauth": (server, partial(_admit, True))}
    return endpoint.app(paths, state, sse=False)


def _admit(key_required: bool, request: Request) -> Access | Response:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        if key_required:
            return endpoint.rpc_error(
                401, -32000, "Authentication required. Sign in with Parallel to continue."
            )
        return Access()
    if is_bad_key(key):
        return JSONResponse({"code": 16, "message": "Invalid API key (C.1)"}, 401)
    try:
        config = pinned(request.query_params, request.headers.get("x-parallel-search-config"))
    except PinError as error:
        return search_faults.refusal(400, str(error))
    return Access(keyed=True, pinned=config.model_dump(exclude_unset=True))


async def _list(
    ctx: ServerRequestContext[Any, Request], params: PaginatedRequestParams | None
) -> ListToolsResult:
    return search_faults.listing(access_of(ctx).fault, TOOLS, params.cursor if params else None)


async def _call(
    corpus: Corpus, state: SearchState, ctx: ServerRequestContext[Any, Request], params: CallToolRequestParams
) -> CallToolResult:
    access = access_of(ctx)
    answer = _Answer(corpus, state, access)
    arguments = params.arguments or {}
    try:
        match params.name:
            case "web_search":
                result = answer.search(WebSearch.model_validate(arguments))
            case "web_fetch":
                result = answer.fetch(WebFetch.model_validate(arguments))
            case _:
                result = search_faults.error(f"Unknown tool: {params.name}")
    except ValidationError as error:
        result = search_faults.error(f"Error executing tool {params.name}: {error}")
    if access.fault in ENVELOPES:
        result = ENVELOPES[access.fault](result)
    usd = 0.0 if result.is_error else answer.usd
    state.record(Call(SERVER, params.name, arguments, access.keyed, access.pinned, result.is_error, usd))
    return result


class _Answer:
    """One tool call: what is found, in which envelope, and what it costs."""

    def __init__(self, corpus: Corpus, state: SearchState, access: Access) -> None:
        self._corpus = corpus
        self._chars = state.faults.chars(len(state.calls))
        self._access = access
        self._config = SearchConfig.model_validate(access.pinned)
        self.usd = 0.0

    def search(self, asked: WebSearch) -> CallToolResult:
        query = " ".join([asked.objective, *asked.search_queries])
        advanced = self._config.advanced_settings
        mode = self._config.mode or _DEFAULT_MODE
        limit = advanced.max_results or _DEFAULT_RESULTS
        hits = self._corpus.search(
            query, limit=limit, passages=_EXCERPTS[mode], accepts=advanced.source_policy.accepts
        )
        hits = self._found(hits, query)
        total = min(self._config.max_chars_total or MAX_CALL_CHARS, MAX_CALL_CHARS)
        share = min(advanced.excerpt_settings.max_chars_per_result or total, total // max(1, len(hits)))
        skus = [("sku_search", 1, _USD_PER_SEARCH[mode])]
        if extra := max(0, len(hits) - _DEFAULT_RESULTS):
            skus.append(("sku_search_additional_results", extra, extra * _USD_PER_EXTRA_RESULT))
        response = V1SearchResponse(
            search_id=f"search_{uuid4().hex}",
            results=[SearchResult(**_result(hit, share)) for hit in hits],
            session_id=self._session(asked.session_id),
            warnings=_warnings(asked.search_queries),
            usage=[UsageItem(name=name, count=count) for name, count, _ in skus],
        )
        return self._envelope(response, skus)

    def fetch(self, asked: WebFetch) -> CallToolResult:
        query = " ".join([asked.objective or "", *(asked.search_queries or [])])
        pages = {url: self._corpus.page(url) for url in asked.urls}
        hits = [
            Hit(replace(page, url=url), self._reading(page, query, asked))
            for url, page in pages.items()
            if page is not None
        ]
        hits = self._found(hits, query)
        share = MAX_CALL_CHARS // max(1, len(hits))
        skus = [("sku_extract_excerpts", len(asked.urls), len(asked.urls) * _USD_PER_URL)]
        response = V1ExtractResponse(
            extract_id=f"extract_{uuid4().hex}",
            results=[
                FetchResult(**_result(hit, share), full_content=hit.page.text if asked.full_content else None)
                for hit in hits
            ],
            errors=[_fetch_error(url) for url, page in pages.items() if page is None],
            session_id=self._session(asked.session_id),
            usage=[UsageItem(name=name, count=count) for name, count, _ in skus],
        )
        return self._envelope(response, skus)

    def _reading(self, page: Page, query: str, asked: WebFetch) -> tuple[str, ...]:
        """A whole page stands in its excerpts as well."""
        return (page.text,) if asked.full_content else tuple(self._corpus.excerpts(page, query))

    def _found(self, hits: list[Hit], query: str) -> list[Hit]:
        fault = self._access.fault
        return FINDINGS[fault](hits, query) if fault in FINDINGS else hits

    def _session(self, given: str | None) -> str:
        """An anonymous caller's id comes back as it was; on a key the service makes its own."""
        return given if given and not self._access.keyed else f"session_{uuid4().hex}"

    def _envelope(self, response: BaseModel, skus: list[tuple[str, int, float]]) -> CallToolResult:
        self.usd = sum(usd for _, _, usd in skus)
        chars = GIANT_CHARS if self._access.fault == "giant" else self._chars
        payload = search_faults.padded(response.model_dump(mode="json"), chars, _pretty)
        text = _pretty(payload)
        if self._access.fault == "escaped_surrogates":
            text = text.replace(SURROGATE, r"\ud83d")
            payload = json.loads(_pretty(payload).replace(SURROGATE, "\N{REPLACEMENT CHARACTER}"))
        return CallToolResult(
            content=[TextContent(text=text)],
            structured_content=payload,
            is_error=False,
            _meta={"parallel/usage": [{"name": n, "count": c, "cost_usd": usd} for n, c, usd in skus]},
        )


def _pretty(payload: Any) -> str:
    return json.dumps(payload, indent=2, ensure_ascii=False)


def _result(hit: Hit, chars: int) -> dict[str, Any]:
    page = hit.page
    return {
        "url": page.url,
        "title": page.title,
        "publish_date": page.published,
        "excerpts": cut(hit.excerpts, chars),
    }


def cut(excerpts: tuple[str, ...], chars: int) -> list[str]:
    """As much of the excerpts, in their order, as `chars` characters hold."""
    kept = []
    for text in excerpts:
        if chars <= 0:
            break
        kept.append(text[:chars])
        chars -= len(text)
    return kept


def _fetch_error(url: str) -> FetchError:
    if not re.match(r"(https?|file)://", url):
        return FetchError(url=url, error_type="invalid_url")
    return FetchError(url=url, error_type="fetch_error", http_status_code=404)


def _warnings(queries: list[str]) -> list[WarningItem] | None:
    long = [query for query in queries if len(query) > 200]
    if not long:
        return None
    message = "search_queries should be keyword queries of 3-6 words; longer ones are cut to 200 characters."
    return [
        WarningItem(type="input_validation_warning", message=message, detail={"search_queries": len(long)})
    ]
