"""Where code and links stand in a Markdown text, as offsets into the source.

markdown-it-py decides what is code and what is a link (CommonMark, with tables); it tells the place of blocks
by line only, and of inline elements not at all. So its own inline rules are wrapped to write down the stretch
that they consumed, and each block's content is found again in its source lines.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

_LINE_END = re.compile(r"\r\n|\r|\n")
_INLINE = re.compile(r"[`\[<]")
_FAR = sys.maxsize
_CODE_BLOCKS = ("fence", "code_block")
_CODE_TAG = re.compile(r"<(pre|code)\b[^<>]{0,200}>", re.IGNORECASE)


class Link(NamedTuple):
    """`text[start:end]` is the whole element, `label` the stretch that a reader sees, `href` as written."""

    start: int
    end: int
    label: tuple[int, int]
    href: str
    image: bool = False


class Structure(NamedTuple):
    """All stretches are (start, end) offsets, in order, none overlapping another of its kind."""

    code: tuple[tuple[int, int], ...]
    """Code spans and code blocks."""
    code_blocks: tuple[tuple[int, int], ...]
    links: tuple[Link, ...]
    definitions: dict[str, tuple[str, int, int]]
    """Link reference definitions: label in capitals -> target and stretch."""


class _Markdown(MarkdownIt):
    """CommonMark with tables, which shows targets as they were written and refuses none."""

    def __init__(self) -> None:
        super().__init__("commonmark")
        # HTML is text to us, as in our own rendering: a link between two tags is a link.
        self.enable("table").disable(["emphasis", "entity", "newline", "html_block", "html_inline"])
        self.core.ruler.enableOnly(["normalize", "block"])
        rules = self.inline.ruler
        for rule in list(rules.__rules__):
            if rule.name in _BEGINS:
                rules.at(rule.name, _recording(rule.name, rule.fn))

    def normalizeLink(self, url: str) -> str:  # noqa: N802 - the library's name
        return url

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        return True


_BEGINS = {"backticks": "`", "link": "[", "image": "!", "autolink": "<"}


def _recording(name: str, rule: Any) -> Any:
    first = _BEGINS[name]

    def recorded(state: StateInline, silent: bool) -> bool:
        start, before = state.pos, len(state.tokens)
        if state.src[start] != first:
            return False
        nested = state.env["nested"]
        state.env["nested"] = nested or name == "image"  # its label is parsed as a text of its own
        matched: bool = rule(state, silent)
        state.env["nested"] = nested
        if matched and not silent and not nested:
            tokens = [token for token in state.tokens[before : before + 2] if token.type != "text"]
            if tokens:  # an unmatched run of backticks matches, too, and pushes none
                attrs = tokens[0].attrs
                href = str(attrs.get("href") or attrs.get("src") or "")
                state.env["found"].append(
                    _Found(name, start, state.pos, _label_end(state, name, start), href)
                )
        return matched

    return recorded


def _label_end(state: StateInline, name: str, start: int) -> int:
    if name in ("link", "image"):
        end: int = state.md.helpers.parseLinkLabel(state, start + (name == "image"), name == "link")
        return end
    return state.pos - 1


class _Found(NamedTuple):
    name: str
    start: int
    end: int
    label_end: int
    href: str


_MARKDOWN = _Markdown()


@lru_cache(maxsize=8)
def structure(text: str) -> Structure:
    """Find code and links; linear in the text."""
    env: dict[str, Any] = {}
    tokens = _MARKDOWN.parse(text, env)
    lines = _Lines(text)
    blocks = [lines.stretch(token.map) for token in tokens if token.map and token.type in _CODE_BLOCKS]
    tagged = list(_tagged(text))
    blocks += [(start, end) for tag, start, end in tagged if tag == "pre"]
    code, links = blocks + [(start, end) for _, start, end in tagged], []
    cursor = 0
    for before, token in pairwise(tokens):
        if token.type != "inline" or not token.map or not token.content:
            continue
        content = _Content(lines, token, cursor if before.type in ("th_open", "td_open") else None)
        cursor = content.end
        for found in _inline(token.content, env):
            start, end, label_end = map(content.at, found[1:4])
            if found.name == "backticks":
                code.append((start, end))
            else:
                label = (start + 1 + (found.name == "image"), label_end)
                links.append(Link(start, end, label, found.href, found.name == "image"))
    return Structure(joined(code), joined(blocks), tuple(sorted(links)), _definitions(env, lines))


def inside(stretches: Sequence[tuple[int, int]], position: int) -> bool:
    """Tell whether a position lies in one of the sorted stretches."""
    index = bisect_right(stretches, (position, _FAR)) - 1
    return index >= 0 and stretches[index][0] <= position < stretches[index][1]


def joined(stretches: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sort stretches and join those that touch or overlap."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)


def _tagged(text: str) -> Iterator[tuple[str, int, int]]:
    """Code between HTML's own tags."""
    position, unclosed = 0, set[str]()
    while (opening := _CODE_TAG.search(text, position)) is not None:
        tag, position = opening[1].lower(), opening.end()
        closing = None if tag in unclosed else re.compile(f"</{tag}", re.IGNORECASE).search(text, position)
        if closing is None:
            unclosed.add(tag)
        else:
            yield tag, opening.start(), closing.start()
            position = closing.end()


def _inline(content: str, env: dict[str, Any]) -> list[_Found]:
    if not _INLINE.search(content):
        return []
    found: list[_Found] = []
    own = {"references": env.get("references", {}), "found": found, "nested": False}
    _MARKDOWN.inline.parse(content, _MARKDOWN, own, [])
    return found


def _definitions(env: dict[str, Any], lines: _Lines) -> dict[str, tuple[str, int, int]]:
    return {
        label: (reference["href"], *lines.stretch(reference["map"]))
        for label, reference in env.get("references", {}).items()
    }


class _Lines:
    """The source by lines, as the library counts them."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\0", "\ufffd")
        ends = [found.end() for found in _LINE_END.finditer(text)]
        self.starts = [0, *ends, len(text)]

    def stretch(self, lines: Sequence[int]) -> tuple[int, int]:
        last = len(self.starts) - 1
        return self.starts[min(lines[0], last)], self.starts[min(lines[1], last)]


class _Content:
    """One inline token's content, with the way back to the source."""

    def __init__(self, lines: _Lines, token: Token, cell_after: int | None) -> None:
        assert token.map is not None
        self._offsets: list[tuple[int, int]] = []
        """(offset in the content, offset in the source) of each piece that stands there unbroken."""
        offset, number = 0, token.map[0]
        for line in token.content.split("\n"):
            bare = line.strip()
            start, end = lines.stretch((number, number + 1))
            while bare not in lines.text[start:end] and cell_after is None and number + 1 < token.map[1]:
                number += 1  # lines of nothing but odd spaces are not in the content
                start, end = lines.stretch((number, number + 1))
            at = offset + len(line) - len(line.lstrip())
            if cell_after is None:  # a line of content ends where its source line ends
                self._offsets.append((at, max(lines.text.rfind(bare, start, end), start)))
            else:
                self._locate_cell(lines.text, bare, (max(start, cell_after), end))
            offset += len(line) + 1
            number += 1
        self.end = self._offsets[-1][1] + len(token.content) - self._offsets[-1][0]

    def _locate_cell(self, text: str, cell: str, within: tuple[int, int]) -> None:
        # A table's cell stands behind the cell before it; its source escapes each "|" in it.
        (start, end), at = within, 0
        for piece in [cell] if text.find(cell, start, end) >= 0 else cell.split("|"):
            place = max(text.find(piece, start, end), start)
            self._offsets.append((at, place))
            start = place + len(piece)
            at += len(piece) + 1

    def at(self, offset: int) -> int:
        content, source = self._offsets[max(bisect_right(self._offsets, (offset, _FAR)) - 1, 0)]
        return source + offset - content
