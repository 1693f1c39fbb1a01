"""What a keyed connection to the search server pins, by URL query or header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.offline.documents import Page


class PinError(ValueError):
    """A pin that the service refuses; the message says which."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SourcePolicy(_Strict):
    include_domains: list[str] | None = None
    exclude_domains: list[str] | None = None
    after_date: str | None = Field(default=None, pattern=r"\d{4}-\d{2}-\d{2}")

    def accepts(self, page: Page) -> bool:
        """Whether a page may be among the results; one without a date counts as new."""
        if self.include_domains and not any(_within(page.url, domain) for domain in self.include_domains):
            return False
        if any(_within(page.url, domain) for domain in self.exclude_domains or ()):
            return False
        return not (self.after_date and page.published and page.published < self.after_date)


class ExcerptSettings(_Strict):
    max_chars_per_result: int | None = Field(default=None, ge=1)


class FetchPolicy(_Strict):
    max_age_seconds: int | None = Field(default=None, ge=600)
    timeout_seconds: float | None = Field(default=None, gt=0)
    disable_cache_fallback: bool | None = None


class AdvancedSettings(_Strict):
    max_results: int | None = Field(default=None, ge=1, le=20)
    excerpt_settings: ExcerptSettings = ExcerptSettings()
    source_policy: SourcePolicy = SourcePolicy()
    fetch_policy: FetchPolicy = FetchPolicy()
    location: str | None = None


class SearchConfig(_Strict):
    """The part of a search request that may be pinned; the question never."""

    mode: Literal["turbo", "fast", "basic", "advanced"] | None = None
    max_chars_total: int | None = Field(default=None, ge=1)
    advanced_settings: AdvancedSettings = AdvancedSettings()


_LISTS = ("include_domains", "exclude_domains")


def pinned(query: Mapping[str, str], header: str | None) -> SearchConfig:
    """The pins of a connection: dotted paths in the URL query over the JSON of the header, field by field.

    Raises `PinError` for an unknown field, a value out of range, malformed JSON or a pinned question.
    """
    config = _from_header(header)
    for path, value in query.items():
        *parents, leaf = path.split(".")
        place = config
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise PinError(f"Invalid search configuration: {path}")
        place[leaf] = value.split(",") if leaf in _LISTS else value
    try:
        return SearchConfig.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        raise PinError(
            f"Invalid search configuration: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from None


def _from_header(header: str | None) -> dict[str, Any]:
    try:
        config = json.loads(header or "{}")
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise PinError("Invalid search configuration: x-parallel-search-config is not a JSON object")
    return config


def _within(url: str, domain: str) -> bool:
    """Whether a URL lies in `a.org`, below `.gov`, or under `a.org/path`."""
    parts = urlsplit(url)
    host, _, path = domain.partition("/")
    own = (parts.hostname or "").lower()
    wanted = host.lower().lstrip(".")
    inside = own == wanted or own.endswith(f".{wanted}")
    return inside and (parts.path == f"/{path}" or parts.path.startswith(f"/{path}".rstrip("/") + "/"))
