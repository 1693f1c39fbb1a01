"""A rewritten answer and its bibliography as text, Markdown or HTML; read again, each comes out the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from html import escape
from typing import Final, Literal, NamedTuple

from markdown_it import MarkdownIt

from orchestrator.citing.markers import scan
from orchestrator.citing.rewrite import Entry, rewrite, without_schemes
from orchestrator.sources import Registry
from orchestrator.text.urls import spelled

Notation = Literal["text", "markdown", "html"]

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$])")
_CLICKABLE: Final = ("http://", "https://", "file:")
_STICKS: Final = re.compile(r"[\w\]\\!]\Z")
"""Behind these a number in brackets would read as an index or an image."""


class Answer(NamedTuple):
    """An answer in one notation, its bibliography at the end."""

    text: str
    entries: tuple[Entry, ...]
    warning: str | None = None


def answer(
    text: str, registry: Registry, *, ids_shown: bool, notation: Notation, anchor: str = "source"
) -> Answer:
    """Return an answer with numbered citations and its bibliography; HTML comes as a fragment.

    `anchor` begins the ids of a fragment's sources, so that several fit on one page.
    """
    body, entries, warning = rewrite(text, registry, ids_shown=ids_shown)
    if warning:  # nothing in it was made safe
        return Answer(f"<p>{escape(body)}</p>" if notation == "html" else body, entries, warning)
    if notation == "html":
        shown = _MARKDOWN.render(_cited(body, lambda number: f"[[{number}]](#{anchor}-{number})"))
        shown = re.sub(rf'<a (href="#{re.escape(anchor)}-\d+">\[\d+\]</a>)', r'<a class="cite" \1', shown)
        return Answer(shown + _html_list(entries, anchor), entries, warning)
    shown = _cited(body, lambda number: f"[{number}]") if notation == "text" else body
    if entries:
        listed = bibliography(entries, notation)
        shown = f"{shown.rstrip()}\n\n{listed}"
        # Brackets that a link within kept from being one may become one around a bare number.
        if notation == "text" and "](" in shown:
            again = rewrite(shown, registry, ids_shown=ids_shown)
            if again[:2] != (body.rstrip(), entries):
                shown = f"{body.rstrip()}\n\n{listed}"
    return Answer(shown, entries, warning)


def bibliography(entries: Iterable[Entry], notation: Notation, heading: str = "Sources") -> str:
    """Return the list of sources, empty without entries; no title or URL in it can break out of its line."""
    lines = [_line(entry, notation) for entry in entries]
    if not lines:
        return ""
    return "\n".join([f"{heading}:" if notation == "text" else f"## {heading}", "", *lines])


def escaped(text: str, notation: Notation) -> str:
    """Return words of others (titles, sentences) such that nothing in them is a link or markup."""
    plain = without_schemes(text)
    return {"text": plain, "markdown": _SPECIAL.sub(r"\\\1", plain), "html": escape(plain)}[notation]


def _line(entry: Entry, notation: Notation) -> str:
    title = escaped(entry.title, notation)
    if notation == "text":
        return f"[{entry.number}] {title}\n    {spelled(entry.url)}"
    return f"{entry.number}. [{title}]({spelled(entry.url)})"


def _html_list(entries: Iterable[Entry], anchor: str) -> str:
    items = []
    for entry in entries:
        title, url = escape(entry.title), escape(spelled(entry.url))
        link = f'<a href="{url}" rel="noopener noreferrer">{title}</a>' if clickable(entry.url) else title
        items.append(f'<li id="{anchor}-{entry.number}">{link} <span class="url">{url}</span></li>')
    listed = "\n".join(items)
    return f'<section class="sources"><h2>Sources</h2>\n<ol>\n{listed}\n</ol></section>\n' if items else ""


def clickable(url: str) -> bool:
    """Tell whether a reader may be given a link to this: web pages and files, nothing that could run."""
    return url.strip().lower().startswith(_CLICKABLE)


def _cited(body: str, write: Callable[[str], str]) -> str:
    """Put another form in the place of each `[[n]](url)`, apart from what it would grow together with."""
    pieces: list[str] = []
    position, cited = 0, -1
    for marker in scan(body):
        if marker.kind != "link" or marker.label is None:
            continue
        pieces.append(body[position : marker.start])
        if marker.start != cited and _STICKS.search(body, max(marker.start - 1, 0), marker.start):
            pieces.append(" ")
        pieces.append(write(body[slice(*marker.label)].strip("[]")))
        if body.startswith(("(", ":", "["), marker.end) and not body.startswith("[[", marker.end):
            pieces.append(" ")
        position = cited = marker.end
    return "".join([*pieces, body[position:]])


_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
