"""What each marker of an answer names, and the answer's text without them.

Where the model was shown ids, they name sources; where it was not, only URLs do, and a number means what the
answer's own reference list says. A list that the model wrote is read for that and cites nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from orchestrator.citing import markers, references
from orchestrator.citing.markers import Marker
from orchestrator.claims.support import is_factual
from orchestrator.events import Source
from orchestrator.harvesting.pagetext import clean
from orchestrator.sources import Registry
from orchestrator.text.markdown import inside, structure
from orchestrator.text.urls import title_of

_WORDS = re.compile(r"\W+")
_BLANK = re.compile(r"[^\n]")
_IN_FLOW = re.compile(r"[*_]*[ \t]*(?:[:,;–—-][ \t]*)?[\w“\"‘]")
_LEADS_ON = re.compile(
    r"\b(?:the|a|an|in|by|to|see|from|on|of|per|at|with|and|or|for|as|than)[ \t]+[*_]*$", re.IGNORECASE
)


class Named(NamedTuple):
    """What one reference of a marker means: `ref` is its part of the marker, `source` None when dangling."""

    ref: str
    source: Source | None


class Cited(NamedTuple):
    """A marker of the answer and the sources it names."""

    marker: Marker
    named: tuple[Named, ...]


class Reading(NamedTuple):
    """An answer with everything that cites in it; offsets are those of `text`, which is cleaned."""

    text: str
    cited: tuple[Cited, ...]
    lists: tuple[tuple[int, int], ...]
    """Where the model wrote reference lists of its own."""


def read(text: str, registry: Registry, *, ids_shown: bool) -> Reading:
    """Find the markers of an answer, outside code and reference lists, and what each names."""
    text = clean(text)
    found = markers.scan(text, registry.ids)
    listed = references.find(text, found, registry.ids)
    resolve = _Resolver(registry, listed.targets, ids_shown)
    outside = (marker for marker in found if not inside(listed.stretches, marker.start))
    return Reading(text, tuple(Cited(marker, resolve(text, marker)) for marker in outside), listed.stretches)


class _Resolver:
    """What references mean in one text: its own list first, then ids where the model was shown them."""

    def __init__(self, registry: Registry, listed: Mapping[str, str], ids_shown: bool) -> None:
        self.registry, self.listed, self.ids_shown = registry, listed, ids_shown

    def __call__(self, text: str, marker: Marker) -> tuple[Named, ...]:
        if marker.kind == "tag":
            return ()
        if marker.kind == "link":
            return (Named(marker.url or "", self._link(text, marker)),)
        return tuple(Named(ref, self._ref(ref)) for ref in marker.refs) or (Named("", None),)

    def _link(self, text: str, marker: Marker) -> Source | None:
        source = self._target(marker.url or "")
        if source or not marker.label:
            return source
        # A URL that was corrupted on the way still has its id beside it: `[S3](https://...)`.
        named = [self._id(ref) for ref in markers.references(text[slice(*marker.label)].strip("[] "))]
        return named[0] if len(named) == 1 else None

    def _ref(self, ref: str) -> Source | None:
        if self.ids_shown and not ref.isdigit() and (source := self.registry.by_id(ref)):
            return source
        target = self.listed.get(ref) or self.listed.get(f"^{ref}")
        return self._target(target) if target else self._id(ref)

    def _target(self, target: str) -> Source | None:
        """Return the source of a URL, or of an id that stands where a URL would."""
        named = [ref for ref in markers.references(target.strip("[] ")) if not ref.isdigit()]
        return self.registry.by_url(target) or (self._id(named[0]) if named else None)

    def _id(self, ref: str) -> Source | None:
        if not self.ids_shown:
            return None
        return self.registry.by_number(int(ref)) if ref.isdigit() else self.registry.by_id(ref)


def without_markers(reading: Reading) -> str:
    """Return the text with markers, code blocks and reference lists blanked out; offsets stay the same."""
    blanks = [*structure(reading.text).code_blocks, *reading.lists]
    for cited in reading.cited:
        start, end = cited.marker[:2]
        kept = cited.marker.label
        if kept and is_claim(reading.text, cited):
            blanks += [(start, kept[0]), (kept[1], end)]
        else:
            blanks.append((start, end))
    pieces, position = [], 0
    for start, end in sorted(blanks):
        if end > position:
            pieces.append(reading.text[position : max(start, position)])
            pieces.append(_BLANK.sub(" ", reading.text[max(start, position) : end]))
            position = end
    return "".join([*pieces, reading.text[position:]])


def is_claim(text: str, cited: Cited) -> bool:
    """Tell whether a link's label is part of what is said, not the mere name of the source behind it."""
    marker = cited.marker
    if marker.kind != "link" or marker.label is None or marker.image:
        return False
    label = text[slice(*marker.label)]
    if not _WORDS.sub("", label) or _is_reference(label):
        return False
    before, after = text[max(marker.start - 20, 0) : marker.start], text[marker.end : marker.end + 20]
    if before.endswith(("(", "（")) and after.startswith((")", "）")):
        return False
    in_flow = _IN_FLOW.match(after) or _LEADS_ON.search(before)
    return bool(in_flow) or (not names_source(label, cited) and is_factual(label))


def names_source(label: str, cited: Cited) -> bool:
    """Tell whether a link's label is an id, a number, a URL, or the name of the source."""
    if _is_reference(label):
        return True
    host = title_of(cited.marker.url or "").partition("/")[0]
    known = {_name(host), *(_name(named.source.title) for named in cited.named if named.source)}
    return _name(label) in known


def _is_reference(label: str) -> bool:
    return markers.names_only(label) or "://" in label


def _name(title: str) -> str:
    plain = _WORDS.sub(" ", title.casefold()).strip()
    return plain.removeprefix("www ").removeprefix("citation ")
