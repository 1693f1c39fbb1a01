"""Reference lists and footnotes that a model wrote itself: what their numbers mean, and where they stand.

Ours replace them. A list is a section under a heading such as "Sources" whose lines are entries, lines
`[1] ... URL` one below the other, Markdown's link definitions `[1]: url`, or footnotes `[^1]: ...`. Words
that stand between such a heading and its list stay, and the heading with them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence, Set
from itertools import pairwise
from typing import Literal, NamedTuple

from orchestrator.citing import markers
from orchestrator.citing.markers import Marker
from orchestrator.text.markdown import inside, joined, structure


class References(NamedTuple):
    """`targets` tells what a reference (`1`, `S2`, `^note`) means, `stretches` where the lists stand."""

    targets: dict[str, str]
    """A URL, or an id where the list names its source by one."""
    stretches: tuple[tuple[int, int], ...]


_NAMED = r"""
    sources? references? reference\slist bibliography citations? works\scited footnotes endnotes
    quellen(?:verzeichnis|angaben)? literaturverzeichnis referenzen einzelnachweise références bibliographie
    fuentes referencias bibliografía fonti riferimenti bibliografia fontes referências bronnen źródła
    источники 参考(?:文献|资料|資料|来源|链接)? 引用(?:文献|来源)? 资料来源 来源 出典 參考(?:文獻|資料)?
    資料來源 참고\s?문헌 출처 المراجع المصادر
"""
_UNSURE = r"notes|works|literature|links|further\sreading|literatur|литература|ссылки"
"""Headings of lists that may as well be part of the answer: only numbered entries make them ours."""
_MORE = r"list|cited|used|consulted|and|&|et|und|y|references?|sources?|notes|links|further|reading"
_HEADING = re.compile(
    r"[ ]{0,3}(?P<level>#{1,6}[ \t]+)?(?P<bold>[*_]{2,3})?"
    r"(?:(?:\d{1,2}|[IVX]{1,5}|[一二三四五六七八九十]{1,3})[.、)]?[ \t]*)?[*_]{0,3}"
    r"(?:(?:key|main|primary|selected|all|cited|web|online|full|list of|主要|相关)[ \t]*){0,2}"
    rf"(?:{'|'.join(_NAMED.split())}|(?P<unsure>{_UNSURE}))(?:[ \t]+(?:{_MORE})){{0,4}}"
    r"[ \t]*(?P<colon>[:：])?(?:[*_]{2,3})?[ \t]*(?P<after>[:：])?[ \t]*#{0,6}[ \t]*",
    re.IGNORECASE,
)
_ANY_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(?:={2,}|-{2,})[ \t]*$")
_KEYED = re.compile(
    r"[ \t]{0,6}(?:>[ \t]?)?(?:[-*+•][ \t]+)?[*_]{0,3}\\?"
    r"(?:\[(?P<key>[^\[\]\s]{1,40}?)\\?\](?!\()|【(?P<wide>[^【】\s]{1,40})】|［(?P<full>[^［］\s]{1,40})］)"
)
_LOOSE = re.compile(
    r"[ \t]{0,6}(?:\|(?:[ \t]*\[?\^?(?P<cell>\d{1,4})\]?[ \t]*\|)?"
    r"|[-*+•][ \t]|[*_]{0,3}\^?(?P<number>\d{1,4})(?:[.):]|[ \t]*[-–—])[ \t])"
)
_FOOTNOTE = re.compile(r" {0,3}\[(\^[^\]\s]{1,60})\]:")
_RULE = re.compile(r" {0,3}(?:[-*_][ \t]*){3,}$")

Kind = Literal["code", "blank", "rule", "heading", "sources", "notes", "keyed", "loose", "linked", "text"]
"""`keyed` lines begin with `[n]`, `loose` ones with a bullet, number or table's bar, `linked` hold a URL;
`sources` head a list for sure, `notes` only if its entries are keyed."""


class _Line(NamedTuple):
    start: int
    end: int
    kind: Kind
    key: str = ""
    """The number or name of an entry."""
    level: int = 0
    """Of a heading: 1 to 6, and 7 for a line that only looks like one."""
    linked: bool = False
    listed: bool = False
    """Whether a link in it is not itself a citation such as `[[1]](url)`."""
    indented: bool = False


def find(text: str, found: Sequence[Marker], ids: Set[str] = frozenset()) -> References:
    """Find all lists in a text; `found` are its markers."""
    links = [marker for marker in found if marker.kind == "link" and marker.url]
    lines = list(_lines(text, links, ids))
    targets: dict[str, str] = {}
    stretches: list[tuple[int, int]] = []
    for label, (href, start, end) in structure(text).definitions.items():
        for key in _keys(label.lower() if label.startswith("^") else label, ids):
            targets.setdefault(key, href)
        stretches.append((start, end))
    starts = [marker.start for marker in found]
    for first, last, entries in _lists(lines):
        stretches.append((lines[first].start, lines[last - 1].end))
        for number, (at, after) in enumerate(entries, start=1):
            begins, ends = (bisect_left(starts, place) for place in (lines[at].start, lines[after - 1].end))
            keys = _keys(lines[at].key or str(number), ids)
            target = _target(found[begins:ends], keys)
            for key in keys if target else ():
                targets.setdefault(key, target)
    return References(targets, joined(stretches))


def _target(entry: Sequence[Marker], keys: Sequence[str]) -> str:
    """Return what an entry names: its first URL, else an id in it that is not its own number."""
    urls = [marker.url for marker in entry if marker.kind == "link" and marker.url]
    others = [ref for marker in entry for ref in marker.refs if ref not in keys and not ref.isdigit()]
    return (urls + others + [""])[0]


def _keys(key: str, ids: Set[str]) -> tuple[str, ...]:
    return markers.references(key, ids) or (key,)


def _lines(text: str, links: Sequence[Marker], ids: Set[str]) -> Iterator[_Line]:
    code = structure(text).code_blocks
    linked = [link.start for link in links]
    listed = [
        link.start for link in links if not (link.label and markers.names_only(text[slice(*link.label)]))
    ]
    pieces = text.splitlines(keepends=True)
    position = 0
    for piece, following in pairwise([*pieces, ""]):
        start, position = position, position + len(piece)
        line = piece.rstrip()
        if inside(code, start):
            yield _Line(start, position, "code")
            continue
        has_link, lists_link = (bisect_left(at, start) < bisect_left(at, position) for at in (linked, listed))
        kind, key, level = _classified(line, following.rstrip(), ids)
        if kind == "text" and has_link:
            kind = "linked"
        indented = line.startswith(("  ", "\t"))
        yield _Line(start, position, kind, key, level, has_link, lists_link, indented)


def _classified(line: str, following: str, ids: Set[str]) -> tuple[Kind, str, int]:
    """Return a line's kind, the key of an entry, the level of a heading."""
    if key := _key(line, ids):
        return "keyed", key, 0
    if found := _HEADING.fullmatch(line):
        level = len((found["level"] or "").strip()) or (1 if _UNDERLINE.match(following) else 7)
        sure = level < 7 or found["bold"] or found["colon"] or found["after"] or _KEYED.match(following)
        return ("text" if not sure else "notes" if found["unsure"] else "sources"), "", level
    if found := _ANY_HEADING.match(line):
        return "heading", "", len(found[1])
    if not line or _RULE.match(line) or _UNDERLINE.match(line):
        return ("rule" if line else "blank"), "", 0
    if found := _LOOSE.match(line):
        return "loose", found["number"] or found["cell"] or "", 0
    return "text", "", 0


def _key(line: str, ids: Set[str]) -> str:
    """Return the number or name with which an entry begins, empty where the line begins otherwise."""
    if footnote := _FOOTNOTE.match(line):
        return footnote[1]
    found = _KEYED.match(line)
    key = (found["key"] or found["wide"] or found["full"]).lstrip("^") if found else ""
    return key if markers.references(key, ids) or (key.isdigit() and len(key) <= 6) else ""


_List = tuple[int, int, list[tuple[int, int]]]
"""First line, the line after the last, and the (first, after) lines of each entry."""


def _lists(lines: Sequence[_Line]) -> Iterator[_List]:
    at = 0
    while at < len(lines):
        found = None
        if lines[at].kind in ("sources", "notes"):
            found = _section(lines, at)
        elif lines[at].kind == "keyed":
            found = _run(lines, at)
        if found:
            yield found
        at = found[1] if found else at + 1


def _section(lines: Sequence[_Line], heading: int) -> _List | None:
    """A heading of sources and the entries below it, up to prose after a blank line or the next heading."""
    first, last, at = heading, heading, heading + 1
    entries: list[tuple[int, int]] = []
    while at < len(lines):
        kind, level = lines[at].kind, lines[at].level
        if kind in ("keyed", "loose", "linked"):
            after = _entry_end(lines, at)
            entries.append((at, after))
            at = last = after
            continue
        words_before = entries or first > heading
        if kind == "code" or (kind == "heading" and level <= lines[heading].level):
            break
        if words_before and kind in ("text", "sources", "notes"):
            break
        if kind == "text":
            first = at + 1  # words about the list stay, and its heading with them
        at += 1
    sure = lines[heading].kind == "sources"
    if not entries:
        return (heading, at, []) if sure and at == len(lines) and first == heading else None
    if not (sure or all(lines[entry].kind == "keyed" for entry, _ in entries)):
        return None
    return (first if first == heading else entries[0][0]), last, entries


def _run(lines: Sequence[_Line], first: int) -> _List | None:
    """Lines `[n] ... URL` one below the other, or the last line of all; definitions of footnotes, too."""
    at, last, sure = first, first, False
    entries: list[tuple[int, int]] = []
    while at < len(lines) and lines[at].kind in ("keyed", "blank"):
        if lines[at].kind == "blank":
            at += 1
            continue
        after = _entry_end(lines, at)
        footnote = lines[at].key.startswith("^")
        if not footnote and not any(line.listed for line in lines[at:after]):
            break
        entries.append((at, after))
        sure = sure or footnote or len(entries) > 1
        last = at = after
    alone = first == 0 or lines[first - 1].kind in ("blank", "rule")
    ends = all(line.kind == "blank" for line in lines[last:])
    return (first, last, entries) if entries and (sure or (alone and ends)) else None


def _entry_end(lines: Sequence[_Line], at: int) -> int:
    """Return the line after an entry; lines that go on with it stand right below it or are indented."""
    after = at + 1
    while after < len(lines):
        line = lines[after]
        if line.kind == "linked":
            goes_on = line.indented or not any(before.linked for before in lines[at:after])
        elif line.kind == "blank":
            goes_on = after + 1 < len(lines) and lines[after + 1].indented and lines[after + 1].kind == "text"
        else:
            goes_on = line.kind == "text" or (line.indented and line.kind == "loose" and not line.key)
        if not goes_on:
            break
        after += 1
    return after
