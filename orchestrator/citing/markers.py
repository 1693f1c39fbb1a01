"""Citation markers in a text, as models really write them.

    [S1]  [S1, S2]  [S1-S3]  [1]  [1, 2]  [1–3]  [[1]]  [^1]  [source 1]  【1】  【1†source】  ［1］
    [title](url)  <url>  url  <cite ...>…</cite>  <a href="url">…</a>  and artefacts such as 【turn0search1】

What is code is left alone, as are array indexes, years and brackets that are just text. The scanner is one
pass over the text; every pattern it tries is bounded, so the time is linear whatever the input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from typing import Literal, NamedTuple

from orchestrator.text.markdown import Structure, inside, structure

Kind = Literal["id", "link", "tag", "junk"]

LONGEST_RANGE = 60
"""Sources that one range may name; a longer one is no citation but a mistake."""
LONGEST_BODY = 200
"""Characters between the brackets of a marker."""
LONGEST_CITED = 2_000
"""Characters that one `<cite>` may hold."""


class Marker(NamedTuple):
    """One marker, `text[start:end]`.

    An `id` has `refs` (`S1`, `3`, `^note`), a `link` a `url` and the stretch of its visible `label`; a `tag`
    is markup around cited words that says nothing by itself; `junk` is an artefact that can name no source.
    """

    start: int
    end: int
    kind: Kind
    refs: tuple[str, ...] = ()
    url: str | None = None
    label: tuple[int, int] | None = None
    image: bool = False


_PREFIX = r"(?:(?:sources?|src|refs?|references?|citations?|cite)\s*[:#]?\s*)?"
_REF = r"\^?(?:[Ss]\s?)?\d{1,6}(?:†[^,;，、\n]{0,60})?"
_SEPARATOR = r"\s*(?:[,;，、；&]|[-–—‑−~]|\band\b|\bto\b)\s*|\s+"
_LIST = re.compile(rf"\s*{_PREFIX}{_REF}(?:(?:{_SEPARATOR}){_REF})*\s*", re.IGNORECASE)
_ITEM = re.compile(r"\^?(?P<s>[Ss]?)\s?(?P<number>\d+)(?:†[^,;，、\n]*)?")
_RANGE = re.compile(r"\s*(?:[-–—‑−~]|\bto\b)\s*", re.IGNORECASE)
_JUNK = re.compile(
    r"(?:\d+:)?\d+†.*|(?:\W|cite|citation|source|navlist)*(?:turn\d+[a-z]+\d+\W*)+|oaicite:.*|cite(?:_start|_end)?",
    re.IGNORECASE,
)
_BRACKETS = re.compile(
    rf"\\?(?:\[([^\[\]\n]{{1,{LONGEST_BODY}}}?)\\?\]|［([^［］\n]{{1,{LONGEST_BODY}}})］"
    rf"|【([^【】\n]{{1,{LONGEST_BODY}}})】)"
)
_OPENING = re.compile(
    r"\\?[\[［【]|https?://|file:///|</?cite\b|<a\s|[\ue200-\ue20f]|:contentReference\[|\bcite(?=turn\d)",
    re.IGNORECASE,
)
_ARTEFACT = re.compile(
    r"\ue200[^\ue200\ue201\n]{0,300}\ue201|[\ue200-\ue20f]+"
    r"|:contentReference\[oaicite:\d{1,6}\](?:\{index=\d{1,6}\})?|cite(?:turn\d{1,4}[a-z]{1,12}\d{1,4})+",
    re.IGNORECASE,
)
_CITE = re.compile(r"<cite\b([^<>\n]{0,400})>(?:([^<>]{0,60})</cite\s*>)?|</cite\s*>", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    r"(?:id|ids|source|src|ref|refs|index|doc|url|href)\s*=\s*[\"']?([^\"'>]{1,300})", re.I
)
_ANCHOR = re.compile(
    r"<a\s(?:[^<>]{0,400}?\s)?href\s*=\s*[\"']?([^\"'\s<>]{1,2000})[\"']?[^<>]{0,400}>(.{0,500}?)</a\s*>",
    re.IGNORECASE | re.DOTALL,
)
_WHOLE_LINK = re.compile(
    r"\[((?>[^\[\]\n]{1,300}|\[[^\[\]\n]{0,80}\]){0,8})\]"
    r"\((https?://[^\s()<>]{1,2000}(?>\([^\s()<>]{0,300}\)[^\s()<>]{0,300}){0,8})\)",
    re.IGNORECASE,
)
_INDEXED = re.compile(
    r"(?:(?<![\w'’])[a-z]|[A-Za-z0-9]_\w*|(?<![^\W_])(?:arr|argv|args|lst|vec|mat|buf|nums|ptr|idx|tmp))$"
)
_USED = re.compile(r" ?(?:[-+*/]?=(?!>)|\.\w{1,40}\()")
_URL_STOP = re.compile(r"[\s<>\"`|\\^{}“”„«»「」『』（）【】《》［］，。；：！？、…]|[\ue200-\ue20f]")
_URL_TAIL = ".,;:!?'’*_~(["
_OPENER = {")": "(", "]": "["}
_OWN_NUMBER = re.compile(r"\[\d{1,6}\]")
_LISTED_NUMBER = re.compile(r"^ {0,3}\[(\d{4,6})\]", re.MULTILINE)
"""A number that would be a year, but for a list in the same text that has an entry of this number."""
_DEFINED_FOOTNOTE = re.compile(r"^ {0,3}\[(\^[^\]\s]{1,60})\]:", re.MULTILINE)


def may_cite(text: str) -> bool:
    """Tell quickly whether there can be a marker of a common form in a text; False is certain."""
    return _OPENING.search(text) is not None


def scan(text: str, ids: Set[str] = frozenset()) -> list[Marker]:
    """Return all markers in order, none overlapping. `ids` are known ids of a form of their own (`doc-7`)."""
    names = frozenset(_DEFINED_FOOTNOTE.findall(text)) if "[^" in text else frozenset()
    ids = {*ids, *_LISTED_NUMBER.findall(text)}
    return list(_Scanner(text, structure(text), ids, names).markers())


def names_only(label: str, ids: Set[str] = frozenset()) -> bool:
    """Tell whether a link's label is nothing but ids or a number: `S1`, `[S1]`, `1`, or our own `[1234]`."""
    return bool(references(label.strip(" *_[]()"), ids) or _OWN_NUMBER.fullmatch(label))


def url_end(text: str, start: int) -> int:
    """Return where the bare URL at `start` ends: brackets in it balance, punctuation after it is not its."""
    open_brackets: list[int] = []
    stop = _URL_STOP.search(text, start)
    limit = stop.start() if stop else len(text)
    end = start
    while end < limit:
        char = text[end]
        if char == "[" and _as_marker(text, end):
            break
        if char in "([":
            open_brackets.append(end)
        elif char in ")]" and (not open_brackets or text[open_brackets.pop()] != _OPENER[char]):
            break
        end += 1
    # A square bracket that is not closed belongs to the sentence, as does punctuation at the end.
    end = min([at for at in open_brackets if text[at] == "["], default=end)
    while end > start and text[end - 1] in _URL_TAIL:
        end -= 1
    return end


class _Scanner:
    def __init__(self, text: str, found: Structure, ids: Set[str], footnotes: Set[str]) -> None:
        self.text, self.code, self.links = text, found.code, found.links
        self.ids, self.footnotes = ids, footnotes
        self._index_end = -1
        """Where the last array index ended: a bracket right behind it is one more."""
        self._cited: Marker | None = None
        """What the open `<cite>` names."""

    def markers(self) -> Iterator[Marker]:
        position = 0
        for link in self.links:
            if link.start < position or inside(self.code, link.start):
                continue  # part of an HTML link that was read already, or between tags of code
            yield from self._plain(position, link.start)
            position = link.start
            # A link within the document or to a person cites nothing, but its label may.
            if link.image or not link.href.startswith(("#", "mailto:")):
                yield Marker(link.start, link.end, "link", (), link.href, link.label, link.image)
                position = link.end
        yield from self._plain(position, len(self.text))

    def _plain(self, position: int, end: int) -> Iterator[Marker]:
        while (opening := _OPENING.search(self.text, position, end)) is not None:
            position = opening.end()
            if inside(self.code, opening.start()):
                continue
            marker = self._at(opening.start(), opening[0].lower(), end)
            if marker:
                yield marker
                position = max(marker.end, position)

    def _at(self, start: int, opening: str, end: int) -> Marker | None:
        """Return the marker that begins here, if one does."""
        if opening[-1] in "[［【" and opening[0] != ":":
            # In cells beyond a table's last column the library looks for no links.
            if link := _WHOLE_LINK.match(self.text, start, end):
                return Marker(*link.span(), "link", (), link[2], link.span(1))
            return self._brackets(start, end)
        if opening[-1] == "/":
            stop = min(url_end(self.text, start), end)
            url = Marker(start, stop, "link", (), self.text[start:stop], (start, stop))
            return url if stop > start + len(opening) else None
        if opening in ("<cite", "</cite"):
            return self._cite(start, end)
        if opening.startswith("<a"):
            anchor = _ANCHOR.match(self.text, start, end)
            return anchor and Marker(start, anchor.end(), "link", (), anchor[1], anchor.span(2))
        artefact = _ARTEFACT.match(self.text, start, end)
        return artefact and Marker(start, artefact.end(), "junk")

    def _brackets(self, start: int, end: int) -> Marker | None:
        found = _BRACKETS.match(self.text, start, end)
        if found is None or inside(self.code, found.end() - 1):
            return None
        body = found[found.lastindex or 1]
        if _is_index(self.text, start, found.end(), body) or (start == self._index_end and body.isdigit()):
            self._index_end = found.end()
            return None
        escaped = self.text[start] == "\\"
        refs = references(body, self.ids)
        if refs and not (escaped and body.strip()[0] not in "Ss^"):
            return Marker(start, found.end(), "id", refs)
        if body in self.footnotes or (body[0] == "^" and body[1:] in self.ids):
            return Marker(start, found.end(), "id", (body,))
        return Marker(start, found.end(), "junk") if _JUNK.fullmatch(body.strip()) else None

    def _cite(self, start: int, end: int) -> Marker | None:
        tag = _CITE.match(self.text, start, end)
        if tag is None:
            return None
        opened_end = self.text.index(">", start) + 1
        if tag[1] is None:  # what the opening tag named is cited where it closes
            cited, self._cited = self._cited, None
            return cited._replace(start=start, end=tag.end()) if cited else Marker(start, tag.end(), "tag")
        if tag[2] is not None and (refs := references(tag[2].strip(" []"), self.ids)):
            return Marker(start, tag.end(), "id", refs)
        attribute = _ATTRIBUTE.search(tag[1])
        value = attribute[1].strip() if attribute else ""
        cited = None
        if value.lower().startswith(("http://", "https://")):
            cited = Marker(start, opened_end, "link", (), value)
        elif value and (refs := references(value, self.ids)):
            cited = Marker(start, opened_end, "id", refs)
        if cited and "</cite" not in self.text[opened_end : opened_end + LONGEST_CITED].lower():
            return cited
        self._cited = cited
        return Marker(start, opened_end, "tag")


def references(body: str, ids: Set[str] = frozenset()) -> tuple[str, ...]:
    """Read what stands between the brackets of a marker; empty when it is no list of references."""
    if body.strip() in ids:
        return (body.strip(),)
    if ids and all(part.strip() in ids for part in re.split("[,;]", body)):
        return tuple(part.strip() for part in re.split("[,;]", body))
    if len(body) > LONGEST_BODY or not _LIST.fullmatch(body):
        return ()
    refs: list[str] = []
    last: re.Match[str] | None = None
    for item in _ITEM.finditer(body):
        letter, number = item["s"].upper() or (last["s"].upper() if last else ""), int(item["number"])
        if number == 0 or (not letter and len(item["number"]) > 3):
            return ()  # an array index; a year or another large number
        between = body[last.end() : item.start()] if last else ""
        first = int(last["number"]) + 1 if last and _RANGE.fullmatch(between) else number
        if not 0 <= number - first < LONGEST_RANGE:
            first = number  # backwards or too long: only its ends are named
        refs.extend(f"{letter}{n}" for n in range(first, number + 1))
        last = item
    return tuple(dict.fromkeys(refs))


def disarmed(text: str) -> str:
    """Return a page's text with round brackets where it has what would be read as one of our markers.

    The length stays the same. Code is not looked for: a marker that is shown in a fence is copied out of it.
    """

    def disarm(found: re.Match[str]) -> str:
        body = found[found.lastindex or 1]
        if _is_index(text, found.start(), found.end(), body):
            return found[0]
        if not (references(body) or _JUNK.fullmatch(body.strip())):
            return found[0]
        lead = found[0][: found.start(found.lastindex or 1) - found.start() - 1]
        return f"{lead}({found[0][len(lead) + 1 : -1]})"

    return _BRACKETS.sub(disarm, text) if any(bracket in text for bracket in "[［【") else text


def _as_marker(text: str, start: int) -> bool:
    found = _BRACKETS.match(text, start)
    body = found[found.lastindex or 1].strip() if found else ""
    return bool(references(body) or _JUNK.fullmatch(body))


def _is_index(text: str, start: int, end: int, body: str) -> bool:
    """Tell whether a number in square brackets indexes the name before it rather than cites."""
    if text[start] != "[" or start == 0 or not text[start - 1].isalnum() or not body.strip().isdigit():
        return False
    return bool(_INDEXED.search(text, max(0, start - 40), start)) or bool(_USED.match(text, end))
