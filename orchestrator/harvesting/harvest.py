"""Sources in a tool's result, whatever its shape, and the same result with their ids written in.

One walk serves both: it calls `name(found)` for every source in order, and builds what the model is to see
from the ids it gets back. In JSON only structure names sources: an object with a URL of its own, and the text
beside it. What stands inside a page's text names none, so a page can neither forge a source nor add words to
another's. Only a result without such structure, Markdown or plain text, is read for its links.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from pydantic_core import from_json

from orchestrator.harvesting.pagetext import clean, harmless, one_line
from orchestrator.harvesting.records import DATE_KEYS, TEXT_KEYS, TITLE_KEYS, URL_KEYS, Found, records
from orchestrator.text.urls import may_be_source, spelled

_DEEPEST = 50
_WRAPPING_KEYS = frozenset((*TEXT_KEYS, "result", "results", "output", "data", "response", "answer"))
_NOT_PAGES = re.compile(
    r"(?:images?|icons?|favicons?|thumbnails?|logos?|avatars?|img|errors?|failed|failures)$"
)
_BLOCKS = frozenset(("text", "image", "audio", "resource", "resource_link", "search_result", "document"))
"""Content blocks of MCP and of the Messages API."""
_URL = re.compile(r"(?:https?://|file:)\S+", re.IGNORECASE)
_REGRET = re.compile(
    r"\W*(?:error|fail|could ?n.t|cannot|can't|unable|not found|forbidden|access denied|timed|[45]\d\d\b)",
    re.IGNORECASE,
)
_SHORT = 500
"""A text below this that begins with a regret is an error message, not a page."""


class Written(NamedTuple):
    """An id and its ready citation, as the model is to see them."""

    id: str
    cite: str


Name = Callable[[Found], Written]


def walk(content: Any, name: Name, page: str | None = None) -> Any:
    """Name every source in `content` and return it as the model is to see it.

    `page` is the one URL that was asked for: a result that names no source itself is that page's text.
    """
    return _Walk(name, page).value(content)


class _Walk:
    def __init__(self, name: Name, page: str | None) -> None:
        self.name, self.page = name, page

    def value(self, content: Any) -> Any:
        if isinstance(content, str):
            return self._string(content)
        if isinstance(content, list) and all(map(_is_block, content)):
            return [shown for block in content for shown in self._block(block)]
        return self._json(content)

    def _block(self, block: dict[str, Any]) -> list[Any]:
        """A block stays as it is; one that is no text but names a source is followed by its id as text."""
        if isinstance(block.get("text"), str) and block["type"] == "text":
            return [{**block, "text": self._string(block["text"])}]
        cites: list[str] = []

        def name(found: Found) -> Written:
            written = self.name(found)
            cites.append(f"{written.cite} {spelled(found.url)}")
            return written

        _Structure(name).value(block, 0)
        notes = [{"type": "text", "text": "\n".join(cites)}] if cites else []
        return [_strings(block, harmless, 0), *notes]

    def _string(self, text: str) -> str:
        parsed = _parsed(text)
        if parsed is not None:
            indent = 2 if "\n" in text.strip() else None
            return json.dumps(self._json(parsed), ensure_ascii=False, indent=indent)
        return self._text(clean(text))

    def _json(self, value: Any) -> Any:
        counted = _Counted(self.name)
        labelled = _Structure(counted).value(value, 0)
        return labelled if counted.number else self._wrapped(value, 0)

    def _wrapped(self, value: Any, depth: int) -> Any:
        """JSON that names no source may be the wrapping of a text that does, as `{"result": "..."}` is."""
        if isinstance(value, str) and (_URL.search(value) or self.page) and not _URL.fullmatch(value.strip()):
            return self._string(value)
        if isinstance(value, list) and depth < _DEEPEST:
            return [self._wrapped(item, depth + 1) for item in value]
        if isinstance(value, dict) and depth < _DEEPEST and not _failed(value):
            return {
                harmless(clean(key)): self._wrapped(item, depth + 1)
                if key.lower() in _WRAPPING_KEYS
                else _strings(item, harmless, depth + 1)
                for key, item in value.items()
            }
        return _strings(value, harmless, depth)

    def _text(self, text: str) -> str:
        if self.page is not None and may_be_source(self.page):
            if _REGRET.match(text) and len(text) < _SHORT:
                return harmless(text)
            written = self.name(Found(self.page, texts=(text.strip(),)))
            return f"{written.cite} {spelled(self.page)}\n\n{harmless(text)}"
        pieces, position = [], 0
        shown = harmless(text)
        for found, end in records(text):
            pieces += [shown[position:end], " ", self.name(found).cite]
            position = end
        return "".join([*pieces, shown[position:]])


class _Counted:
    def __init__(self, name: Name) -> None:
        self.name, self.number = name, 0

    def __call__(self, found: Found) -> Written:
        self.number += 1
        return self.name(found)


class _Structure:
    """Sources by the structure of JSON alone; all strings are page text."""

    def __init__(self, name: Name) -> None:
        self.name = name

    def value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return harmless(clean(value))
        if depth > _DEEPEST:
            return None
        if isinstance(value, list):
            return [self._item(item, depth) for item in value]
        return self._object(value, depth) if isinstance(value, dict) else value

    def _item(self, item: Any, depth: int) -> Any:
        if isinstance(item, str) and _URL.fullmatch(item.strip()) and may_be_source(item):
            return f"{spelled(item)} {self.name(Found(item.strip())).cite}"
        return self.value(item, depth + 1)

    def _object(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        found = None if _failed(value) else _found(value)
        written = self.name(found) if found else None
        shown: dict[str, Any] = {}
        for key, item in value.items():
            if found and item == found.url:
                shown[key] = spelled(found.url)
            elif _NOT_PAGES.match(key.lower()) or (found and key.lower() in TEXT_KEYS):
                shown[harmless(clean(key))] = _strings(item, harmless, depth + 1)
            else:
                shown[harmless(clean(key))] = self.value(item, depth + 1)
        if written:
            shown |= {"source_id": written.id, "cite": written.cite}
        return shown


def _found(value: Mapping[str, Any]) -> Found | None:
    """Read an object that has a URL, its own or (as crawlers write it) its metadata's."""
    fields = {key.lower(): item for key, item in value.items()}
    metadata = fields.get("metadata")
    if isinstance(metadata, dict):
        fields = {key.lower(): item for key, item in metadata.items() if isinstance(item, str)} | fields
    urls = (item.strip() for key in URL_KEYS if isinstance(item := fields.get(key), str) and _URL.match(item))
    others = (item.strip() for key in ("uri", "url") if isinstance(item := fields.get(key), str))
    url = next((url for url in chain(urls, others) if may_be_source(url)), None)
    if url is None:
        return None
    texts = [text for key in TEXT_KEYS for text in _texts(fields.get(key), 0)]
    return Found(url, _first(fields, TITLE_KEYS), _first(fields, DATE_KEYS), _distinct(texts))


def _failed(value: Mapping[str, Any]) -> bool:
    code = value.get("http_status_code")
    bad = isinstance(code, int) and code >= 400
    return (
        bad
        or bool(value.get("error_type") or value.get("error"))
        or value.get("status") in ("error", "failed")
    )


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip():
            yield clean(value).strip()
    elif isinstance(value, list) and depth < _DEEPEST:
        for item in value:
            yield from _texts(item, depth + 1)
    elif isinstance(value, dict) and depth < _DEEPEST:
        for key in TEXT_KEYS:
            yield from _texts(value.get(key), depth + 1)


def _distinct(texts: list[str]) -> tuple[str, ...]:
    """Drop what is empty, said twice, or contained in the full text beside it."""
    longest = max(texts, key=len, default="")
    return tuple(dict.fromkeys(text for text in texts if text is longest or text not in longest))


def _first(fields: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    return next(
        (one_line(item) for key in keys if isinstance(item := fields.get(key), str) and item.strip()), None
    )


def _strings(value: Any, change: Callable[[str], str], depth: int) -> Any:
    if isinstance(value, str):
        return change(clean(value))
    if isinstance(value, list) and depth < _DEEPEST:
        return [_strings(item, change, depth + 1) for item in value]
    if isinstance(value, dict) and depth < _DEEPEST:
        return {harmless(clean(key)): _strings(item, change, depth + 1) for key, item in value.items()}
    return None if isinstance(value, (list, dict)) else value


def _is_block(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") in _BLOCKS


def _parsed(text: str) -> Any:
    """Read JSON, also JSON that was cut off at the end; None when nothing comes out."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        try:
            parsed = from_json(clean(text), allow_partial="trailing-strings")
        except (ValueError, RecursionError):
            return None
    return parsed if isinstance(parsed, (dict, list)) and parsed else None
