"""The two tools of Parallel's search server: what they take and what they return."""

from __future__ import annotations

from typing import Any, Final, Literal

from mcp_types import Tool, ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field


class WebSearch(BaseModel):
    model_config = ConfigDict(title="web_searchArguments")

    objective: str = Field(description="What is to be found out, as one self-contained question or goal.")
    search_queries: list[str] = Field(
        min_length=1, description="2-3 diverse keyword queries of 3-6 words each."
    )
    session_id: str | None = Field(
        default=None, max_length=100, description="A stable id of the conversation."
    )
    model_name: str | None = Field(
        default=None, max_length=100, description="The calling model, for analytics only."
    )


class WebFetch(BaseModel):
    model_config = ConfigDict(title="web_fetchArguments")

    urls: list[str] = Field(max_length=20, description="Pages to read.")
    objective: str | None = Field(default=None, max_length=200, description="What to look for in them.")
    search_queries: list[str] | None = Field(default=None, description="The queries that led there.")
    full_content: bool = Field(
        default=False, description="Return whole pages, not only the relevant excerpts."
    )
    session_id: str | None = Field(
        default=None, max_length=100, description="A stable id of the conversation."
    )
    model_name: str | None = Field(
        default=None, max_length=100, description="The calling model, for analytics only."
    )
    allow_live_fetch: bool = Field(
        default=True, description="Fetch a page anew where no fresh copy is stored."
    )


class WarningItem(BaseModel):
    model_config = ConfigDict(title="Warning")

    type: Literal["spec_validation_warning", "input_validation_warning", "warning"]
    message: str
    detail: dict[str, Any] | None = None


class UsageItem(BaseModel):
    name: str
    count: int


class SearchResult(BaseModel):
    url: str
    title: str | None = None
    publish_date: str | None = Field(default=None, description="YYYY-MM-DD")
    excerpts: list[str]


class FetchResult(SearchResult):
    full_content: str | None = None


class FetchError(BaseModel):
    url: str
    error_type: str
    http_status_code: int | None = None
    content: str | None = None


class V1SearchResponse(BaseModel):
    search_id: str
    results: list[SearchResult]
    session_id: str
    warnings: list[WarningItem] | None = None
    usage: list[UsageItem] | None = None


class V1ExtractResponse(BaseModel):
    extract_id: str
    results: list[FetchResult]
    errors: list[FetchError]
    session_id: str
    warnings: list[WarningItem] | None = None
    usage: list[UsageItem] | None = None


_ANNOTATIONS: Final = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=True)
TOOLS: Final = [
    Tool(
        name="web_search",
        description="Search the web. Returns ranked pages with excerpts that bear on the objective.",
        input_schema=WebSearch.model_json_schema(),
        output_schema=V1SearchResponse.model_json_schema(),
        annotations=_ANNOTATIONS,
    ),
    Tool(
        name="web_fetch",
        description="Read pages by URL. Returns excerpts that bear on the objective, or whole pages.",
        input_schema=WebFetch.model_json_schema(),
        output_schema=V1ExtractResponse.model_json_schema(),
        annotations=_ANNOTATIONS,
    ),
]
