"""An answer's markers as numbered citations, and the bibliography that belongs to them, made in one pass.

The result is Markdown in which every citation is `[[1]](url)`: a form that means the same when it is read
again, so rewriting twice changes nothing. Whatever names no source is dropped with the space before it; a
link to an unknown page loses its address and keeps its words; lists that the model wrote are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from orchestrator.citing import markers
from orchestrator.citing.markers import scan
from orchestrator.citing.reading import Cited, Reading, is_claim, names_source, read
from orchestrator.events import Source
from orchestrator.harvesting.pagetext import clean, harmless, one_line
from orchestrator.sources import Registry
from orchestrator.text.markdown import structure
from orchestrator.text.urls import spelled

_PASSES: Final = 6
"""Taking markers out can leave new ones behind (`[S[S9]1]`): passes until nothing changes, at most."""
_GAP = re.compile(r"[ \t]*(?:[,;，、；&]|\band\b)?[ \t]*")
_SPACE = re.compile(r"[ \t]+")
_SCHEMES = re.compile(r"(?:https?|file):/+(?:www\.)?", re.IGNORECASE)
_LINE_START = re.compile(r"(?:^|\n)[ \t]*(?:(?:[-*+>|#]+|\d{1,3}[.)])[ \t]*)*\Z")
_OPENED = re.compile(r"(?:\[|【|［)[ \t]*\Z")
_CLOSED = re.compile(r"[ \t]*(?:\]|】|］)")
_EMPTY_OPENED = re.compile(
    r"(?:[(（][ \t]*(?:(?:see|sources?|refs?|cf\.?|via|from|citations?)[ \t]*:?[ \t]*)?"
    r"|<sup>[ \t]*|(?<![*_\\])[*_]{1,3})\Z",
    re.IGNORECASE,
)
_EMPTY_CLOSED = re.compile(r"[ \t]*(?:[)）]|</sup>)|[*_]{1,3}(?![*_])", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(`{3,}|~{3,})", re.MULTILINE)


class Entry(NamedTuple):
    """One line of the bibliography."""

    number: int
    id: str
    url: str
    title: str
    """On one line, with nothing in it that reads as a marker."""


class Rewritten(NamedTuple):
    """The answer without its bibliography, and the bibliography, numbered by first use."""

    body: str
    entries: tuple[Entry, ...]
    warning: str | None = None


def entry(number: int, source: Source) -> Entry:
    """Return a source as a line of the bibliography."""
    return Entry(number, source.id, source.url, harmless(one_line(source.title)) or spelled(source.url))


def rewrite(text: str, registry: Registry, *, ids_shown: bool) -> Rewritten:
    """Rewrite an answer; code, and all text outside markers and lists, stays as it is to the character."""
    original = body = clean(text)
    entries: tuple[Entry, ...] = ()
    for _ in range(_PASSES):
        before = body
        body, entries = _Pass(read(body, registry, ids_shown=ids_shown)).result()
        if body == before:
            break
    else:  # no text is known to get here; one that did must not show what nobody checked
        return Rewritten(
            bare(original), (), "the citations of this answer could not be placed: it is shown without"
        )
    if not entries and body.strip() != original.strip() and not _has_words(body):
        return Rewritten(
            original, (), "nothing but citations stood in the answer: it is shown as it was written"
        )
    return Rewritten(_with_fence_closed(body) if entries else body, entries)


def bare(text: str) -> str:
    """Return text in which nothing cites: markers are gone, links are their words."""
    if not markers.may_cite(text):
        return text
    pieces, position = [], 0
    for marker in scan(text):
        kept = bare(text[slice(*marker.label)]) if marker.label and marker.label != marker[:2] else ""
        if marker.label == marker[:2]:
            kept = without_schemes(text[marker.start : marker.end])
        pieces += [text[position : marker.start], kept]
        position = marker.end
    return without_schemes("".join([*pieces, text[position:]]))


def without_schemes(text: str) -> str:
    """Return an address that nothing turns into a link."""
    while (shorter := _SCHEMES.sub("", text)) != text:
        text = shorter
    return text


class _Piece(NamedTuple):
    """What becomes of one marker: `cites` are the sources named, `words` what stays of its text."""

    start: int
    end: int
    words: str
    cites: tuple[Source, ...]


class _Pass:
    def __init__(self, reading: Reading) -> None:
        self.text, self.reading = reading.text, reading
        self.numbers: dict[str, Entry] = {}
        self.out: list[str] = []
        self.position = 0

    def result(self) -> tuple[str, tuple[Entry, ...]]:
        """Return the rewritten text and the entries that it needs."""
        left_out = [
            *self.reading.lists,
            *(c.marker[:2] for c in self.reading.cited if c.marker.kind == "tag"),
        ]
        edits: list[tuple[int, int, list[_Piece]]] = [(start, end, []) for start, end in left_out]
        edits += [(cluster[0].start, cluster[-1].end, cluster) for cluster in self._clusters()]
        for start, end, cluster in sorted(edits, key=lambda edit: edit[0]):
            if cluster:
                self._cluster(cluster)
            elif start >= self.position:
                self._upto(start)
                self.position = end
        self._upto(len(self.text))
        text = "".join(self.out)
        return text.rstrip() if self.reading.lists else text, tuple(self.numbers.values())

    def _upto(self, end: int) -> None:
        self.out.append(self.text[self.position : end])
        self.position = end

    def _clusters(self) -> Iterator[list[_Piece]]:
        """Group markers with nothing but separators between them."""
        cluster: list[_Piece] = []
        for cited in self.reading.cited:
            if cited.marker.kind == "tag":
                continue
            piece = self._piece(cited)
            if cluster and not _GAP.fullmatch(self.text, cluster[-1].end, piece.start):
                yield cluster
                cluster = []
            cluster.append(piece)
        if cluster:
            yield cluster

    def _piece(self, cited: Cited) -> _Piece:
        marker = cited.marker
        sources = tuple(named.source for named in cited.named if named.source)
        return _Piece(marker.start, marker.end, self._words(cited, bool(sources)), sources)

    def _words(self, cited: Cited, known: bool) -> str:
        marker = cited.marker
        if marker.kind != "link" or marker.label is None:
            return ""
        label = self.text[slice(*marker.label)]
        if marker.label == marker[:2] or label == marker.url:
            return "" if known else without_schemes(label)
        if markers.names_only(label):
            return ""
        if known and not is_claim(self.text, cited) and names_source(label, cited):
            return ""
        return bare(label).removeprefix("citation:")

    def _cluster(self, cluster: Sequence[_Piece]) -> None:
        start, end = self._bracketed(cluster[0].start, cluster[-1].end)
        written, position, seen = "", cluster[0].start, set[str]()
        for piece in cluster:
            cites = [self._cite(source) for source in piece.cites if source.id not in seen]
            seen.update(source.id for source in piece.cites)
            shown = " ".join(filter(None, [piece.words, "".join(cites)]))
            if shown:
                written += (self.text[position : piece.start] if written else "") + shown
            position = piece.end
        if written:
            self._upto(start)
            # Behind these the brackets would be escaped, or an image.
            self.out.append(f" {written}" if self.text.endswith(("!", "\\"), 0, start) else written)
            self.position = end
        else:
            self._drop(start, end)

    def _bracketed(self, start: int, end: int) -> tuple[int, int]:
        """Widen a cluster by brackets around it: `[[S1], [S2]]`."""
        opened = _OPENED.search(self.text, max(self.position, start - 5), start)
        closed = _CLOSED.match(self.text, end)
        return (opened.start(), closed.end()) if opened and closed else (start, end)

    def _drop(self, start: int, end: int) -> None:
        """Leave a cluster out, with brackets that held nothing else and the space before it."""
        opened = _EMPTY_OPENED.search(self.text, max(self.position, start - 30), start)
        closed = _EMPTY_CLOSED.match(self.text, end)
        if opened and closed and _mirrored(opened[0][:1], closed[0].strip()):
            start, end = opened.start(), closed.end()
        line = self.text[max(self.position, start - 40) : start]
        if _LINE_START.search(("\n" if self.position == 0 and start <= 40 else "") + line):
            after = _SPACE.match(self.text, end)
            self._upto(start)
            self.position = after.end() if after else end
            return
        self._upto(self._before_space(start))
        self.position = end
        if self.text[start - 1 : start] == "`" == self.text[end : end + 1]:
            self.out.append(" ")  # two runs of backticks that grow together would end other code

    def _before_space(self, start: int) -> int:
        while start > self.position and self.text[start - 1] in " \t":
            start -= 1
        return start

    def _cite(self, source: Source) -> str:
        known = self.numbers.get(source.id) or entry(len(self.numbers) + 1, source)
        self.numbers[source.id] = known
        return f"[[{known.number}]]({spelled(source.url)})"


def _mirrored(opened: str, closed: str) -> bool:
    return closed[:1] in {"(": ")）", "（": ")）", "<": "<"}.get(opened, opened)


def _has_words(text: str) -> bool:
    return any(char.isalnum() for char in bare(text))


def _with_fence_closed(body: str) -> str:
    """Close a code fence that the answer left open, so that what is put behind it is not code."""
    blocks = structure(body).code_blocks
    if not blocks or blocks[-1][1] < len(body):
        return body
    probe = body + "\n\n."
    if structure(probe).code_blocks[-1][1] < len(probe):
        return body
    fence = _FENCE.search(body, blocks[-1][0])
    return body.rstrip("\n") + f"\n{fence[1]}" if fence else body
