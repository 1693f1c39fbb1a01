"""Search results written as Markdown or plain text: which links head a result, and which text is theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.citing.markers import scan
from orchestrator.harvesting.pagetext import clean, one_line
from orchestrator.text.urls import may_be_source


def _words(listed: str) -> tuple[str, ...]:
    return tuple(listed.split())


URL_KEYS = _words(
    "url link href uri source_url sourceurl page_url pageurl web_url weburl permalink canonical_url source"
)
TITLE_KEYS = _words("title name headline heading page_title")
TEXT_KEYS = _words(
    """excerpts excerpt text content full_content contents snippet snippets description summary abstract body
    highlights passages passage chunks chunk extract markdown raw_content rawcontent page_content
    extra_snippets"""
)
DATE_KEYS = _words(
    """publish_date published_date publisheddate published publication_date published_at publishedat date
    datepublished page_age"""
)
"""How servers call these fields, in lower case, best first."""
_LABELLED = re.compile(
    r"[\s>#*_\-\[(|]{0,12}(?:\d{1,3}[.)]\s*)?(?P<key>[A-Za-z][\w ]{0,20}?)[*_]{0,2}\s*[:=][*_]{0,2}\s*"
)
_NUMBER = re.compile(r"^\s*(?:\d{1,3}[.)]|\[\d{1,3}\])\s+")
_FIRST = re.compile(r"[\s>#*_\-+|<(\[]{0,12}(?:\d{1,3}[.)\]]+\s*|\[\d{1,3}\]:?\s*)?[\s*_<(]{0,6}")


class Found(NamedTuple):
    """One source as a result names it: texts are cleaned, the URL is as given."""

    url: str
    title: str | None = None
    published: str | None = None
    texts: tuple[str, ...] = ()


class _Place(NamedTuple):
    url: str
    title: str | None
    start: int
    end: int
    leads: bool
    """Whether it stands where a result begins: a heading, an item, a line `URL: ...` or a line of its own."""


def records(text: str) -> Iterator[tuple[Found, int]]:
    """Yield the sources of a text, each with the offset behind its URL, its own text cut out around it."""
    places = list(_places(text))
    if any(place.leads for place in places):
        places = [place for place in places if place.leads]
    before = [0, *(place.end for place in places)]
    starts = [_record_start(text, place, after) for place, after in zip(places, before, strict=False)]
    for place, start, end in zip(places, starts, [*starts[1:], len(text)], strict=False):
        if place.leads:
            yield _record(text[start : place.start], text[place.end : end], place), place.end
        else:
            yield _record(*_paragraph(text, place), place), place.end


def _paragraph(text: str, place: _Place) -> tuple[str, str]:
    end = text.find("\n\n", place.end)
    start = text.rfind("\n\n", 0, place.start) + 1
    return text[start : place.start], text[place.end : end if end >= 0 else len(text)]


def _places(text: str) -> Iterator[_Place]:
    for marker in scan(text):
        if marker.kind != "link" or marker.image or not marker.url or not may_be_source(marker.url):
            continue
        line_start = text.rfind("\n", 0, marker.start) + 1
        lead = text[line_start : marker.start]
        labelled = _LABELLED.fullmatch(lead)
        leads = bool(_FIRST.fullmatch(lead)) or bool(labelled and labelled["key"].lower() in URL_KEYS)
        label = one_line(text[slice(*marker.label)]) if marker.label else ""
        title = label if label and label != marker.url else None
        yield _Place(marker.url, title, marker.start, marker.end, leads)


def _record_start(text: str, place: _Place, after: int) -> int:
    """A record begins at its URL's line, or at the title's line when that stands above it."""
    start = text.rfind("\n", 0, place.start) + 1
    above = text.rfind("\n", 0, max(start - 1, 0)) + 1
    if place.title is None and above >= after and start > 0:
        line = text[above : start - 1]
        labelled = _LABELLED.match(line)
        if line.lstrip().startswith("#") or (labelled and labelled["key"].lower() in TITLE_KEYS):
            return above
    return max(start, after)


def _record(before: str, after: str, place: _Place) -> Found:
    """Read the lines around a URL; the URL itself is no part of the excerpt, its title in a sentence is."""
    title, published, kept = place.title, None, []
    for line in f"{before}{place.title or ''}{after}".splitlines():
        labelled = _LABELLED.match(line)
        key = labelled["key"].lower().replace(" ", "_") if labelled else ""
        rest = line[labelled.end() :] if labelled else line
        bare = _NUMBER.sub("", line).strip("#*_<>|- ")
        if key in TITLE_KEYS and title is None:
            title = one_line(rest)
        elif key in DATE_KEYS and published is None:
            published = one_line(rest)
        elif bare == title or (title is None and line.lstrip().startswith("#")):
            title = one_line(bare)
        elif key in TEXT_KEYS:
            kept.append(rest)
        elif not (key in URL_KEYS and not rest.strip("<>() ")):
            kept.append(line)
    body = clean("\n".join(kept)).strip()
    has_words = any(char.isalnum() for char in body) and body != title
    return Found(place.url, title, published, (body,) if has_words else ())
