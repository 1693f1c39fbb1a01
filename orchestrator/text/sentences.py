"""Where sentences begin and end, in an answer or in the text of a page.

Lines that are blocks of their own (headings, list items, table rows, quotes) end a sentence whatever their
last character is. Inside a block `sentencex` (Wikimedia's segmenter) knows abbreviations, decimals, initials
and the full stops of other scripts. Offsets are those of the text given, so that a caller may blank out
what must not count (markers, code) by spaces of the same length and still cut from the original.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from sentencex import get_sentence_boundaries  # type: ignore[import-untyped]

Kind = Literal["prose", "item", "row", "heading"]

_LONGEST_PIECE = 4_000
"""Characters given to the segmenter at a time: it is quadratic in unbalanced quotation marks."""
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_ITEM = re.compile(r"[ \t]*(?:>[ \t]?)*(?:[-*+•‣◦–][ \t]+|\(?\d{1,3}[.)][ \t]+|\(?[A-Za-z]\)[ \t]+)")
_QUOTE = re.compile(r"[ \t]*>")
_ROW = re.compile(r"[ \t]*\|")
_RULE = re.compile(r"[\s|:\-=*_+>#]*$")
_BOLD_LINE = re.compile(r"[ \t]*(\*\*|__)[^*_\n]{0,200}[^*_\n.!?。]\1[ \t]*:?[ \t]*$")
_LEAD = re.compile(r"[\s>#|]*")
_KANA = re.compile(r"[\u3040-\u30ff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Span(NamedTuple):
    """One sentence: `text[start:end]`, without the white space around it."""

    start: int
    end: int
    kind: Kind


class _Block(NamedTuple):
    start: int
    end: int
    kind: Kind


def sentences(text: str) -> list[str]:
    """Return the sentences of a text in order; headings, list items and table rows are one each or more."""
    return [text[span.start : span.end] for span in spans(text)]


def spans(text: str) -> list[Span]:
    """Return the place of each sentence, in order and without overlap; time is linear in the text."""
    found: list[Span] = []
    for block in _blocks(_SURROGATE.sub("\ufffd", text)):
        if block.kind in ("row", "heading"):
            found.extend(_trimmed(text, *block))
        else:
            found.extend(_in_block(text, block))
    return found


def _in_block(text: str, block: _Block) -> Iterator[Span]:
    start = block.start
    while start < block.end:
        end = _piece_end(text, start, block.end)
        piece = _SURROGATE.sub("\ufffd", text[start:end])
        language = "ja" if _KANA.search(piece) else "en"
        for found in get_sentence_boundaries(language, piece):
            yield from _trimmed(text, start + found["start_index"], start + found["end_index"], block.kind)
        start = end


def _piece_end(text: str, start: int, end: int) -> int:
    if end - start <= _LONGEST_PIECE:
        return end
    limit = start + _LONGEST_PIECE
    space = max(text.rfind(" ", start, limit), text.rfind("\n", start, limit))
    return space + 1 if space > start else limit


def _trimmed(text: str, start: int, end: int, kind: Kind) -> Iterator[Span]:
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    right = len(piece.rstrip())
    if left < right:
        yield Span(start + left, start + right, kind)


def _blocks(text: str) -> Iterator[_Block]:
    """Group lines: a paragraph's lines belong together, every other line stands alone."""
    open_block: _Block | None = None
    position = 0
    for line in text.splitlines(keepends=True):
        start, position = position, position + len(line)
        kind = _kind(line.rstrip())
        if kind == "lazy" and open_block and open_block.kind != "row":
            open_block = open_block._replace(end=position)
            continue
        if open_block and (
            kind == "underline" or (kind == "rule" and open_block.kind == "row" and "|" in line)
        ):
            open_block = open_block._replace(kind="heading")
        if open_block:
            yield open_block
            open_block = None
        lead = start + _lead_length(line, kind)
        if kind == "heading":
            yield _Block(lead, position, kind)
        elif kind in ("row", "item"):
            open_block = _Block(lead, position, kind)
        elif kind == "lazy":
            open_block = _Block(lead, position, "prose")
    if open_block:
        yield open_block


def _kind(line: str) -> Literal["row", "heading", "item", "lazy", "underline", "rule"]:
    if _UNDERLINE.match(line):
        return "underline"
    if _RULE.match(line):
        return "rule"
    if _HEADING.match(line) or _BOLD_LINE.match(line):
        return "heading"
    if _ROW.match(line):
        return "row"
    if _ITEM.match(line) or _QUOTE.match(line):
        return "item"
    return "lazy"


def _lead_length(line: str, kind: str) -> int:
    found = (_ITEM.match(line) if kind == "item" else None) or _LEAD.match(line)
    return found.end() if found else 0
