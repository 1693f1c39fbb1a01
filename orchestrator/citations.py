"""The check: does the source behind each marker say what the sentence beside it says?

A marker counts only if a tool returned its source. `check` compares, `correction` asks the model to mend.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Literal

from orchestrator.citing.markers import Marker
from orchestrator.citing.nearest import Nearest
from orchestrator.citing.reading import Cited, Named, Reading, read, without_markers
from orchestrator.claims.support import Excerpts, Support, is_factual
from orchestrator.events import Coverage, Source, Verdict
from orchestrator.harvesting.pagetext import harmless
from orchestrator.sources import Registry
from orchestrator.text.sentences import Span, spans
from orchestrator.text.urls import spelled

_LISTED: Final = 60
"""Markers, and sources, named in a correction prompt."""
_QUOTED: Final = 300
_GAP = re.compile(r" ([.,;:!?)\]。，；：！？])")
_EMPTIED = re.compile(r" ?(?:\( ?\)|\[ ?\]|（ ?）)")
"""What blanking a marker out leaves behind."""
_REQUEST: Final = (
    "Write the whole answer again. Put a citation behind each sentence that states a fact; take out or reword"
    " what no source backs, and say what is missing. Write no list of references, no word about this check."
)


@dataclass(frozen=True)
class Checked:
    """One verdict for each source that a marker names, in order, and what stands without a marker."""

    verdicts: tuple[Verdict, ...]
    coverage: Coverage
    ids_shown: bool = False

    @property
    def dangling(self) -> tuple[Verdict, ...]:
        """Markers under which no tool returned anything."""
        return tuple(verdict for verdict in self.verdicts if verdict.verdict == "dangling")

    @property
    def unsupported(self) -> tuple[Verdict, ...]:
        """Markers whose source does not say what the sentence says."""
        return tuple(verdict for verdict in self.verdicts if verdict.verdict == "unsupported")

    def judged(self, said: Mapping[Verdict, bool | None]) -> Checked:
        """Put in what a model said of verdicts that words could not settle; dangling ones stay so."""
        return replace(self, verdicts=tuple(_judged(verdict, said.get(verdict)) for verdict in self.verdicts))


def _judged(verdict: Verdict, supported: bool | None) -> Verdict:
    if supported is None or verdict.verdict not in ("unsupported", "unknown"):
        return verdict
    settled: Literal["supported", "unsupported"] = "supported" if supported else "unsupported"
    return verdict.model_copy(update={"verdict": settled, "judged": True})


def check(text: str, registry: Registry, *, ids_shown: bool) -> Checked:
    """Check every marker of an answer against what the tools returned; deterministic, linear in the text."""
    return _Check(read(text, registry, ids_shown=ids_shown), registry, ids_shown).checked()


class _Check:
    def __init__(self, reading: Reading, registry: Registry, ids_shown: bool) -> None:
        self.reading, self.registry, self.ids_shown = reading, registry, ids_shown
        self.plain = without_markers(reading)
        self.spans = spans(self.plain)
        self.starts = [span.start for span in self.spans]
        self.sentences: dict[int, str] = {}
        self.excerpts: dict[str, Excerpts] = {}
        self.nearest: Nearest | None = None

    def checked(self) -> Checked:
        verdicts: list[Verdict] = []
        backed: set[int] = set()
        for index, group in groupby(self.reading.cited, self._sentence):
            for cited, claim in self._claims(index, list(group)):
                for named in cited.named:
                    verdicts.append(self._verdict(cited.marker, named, claim, index))
                    if named.source and index is not None:
                        backed.add(index)
        return Checked(tuple(verdicts), self._coverage(backed), self.ids_shown)

    def _coverage(self, backed: set[int]) -> Coverage:
        factual = [
            index
            for index, span in enumerate(self.spans)
            if span.kind != "heading" and is_factual(self._whole(index))
        ]
        uncited = tuple(self._whole(index) for index in factual if index not in backed)
        return Coverage(factual=len(factual), cited=len(factual) - len(uncited), uncited=uncited)

    def _whole(self, index: int | None) -> str:
        if index is None:
            return ""
        if index not in self.sentences:
            self.sentences[index] = self._text(self.spans[index].start, self.spans[index].end)
        return self.sentences[index]

    def _text(self, start: int, end: int) -> str:
        words = " ".join(self.plain[start:end].split())
        return _GAP.sub(r"\1", _EMPTIED.sub("", words)).strip(" |")

    def _sentence(self, cited: Cited) -> int | None:
        """Return the sentence that a marker stands in or behind; one that opens a line goes with the next."""
        index = bisect_right(self.starts, cited.marker.start) - 1
        following = index + 1 if index + 1 < len(self.spans) else None
        if index < 0:
            return following
        between = self.plain[self.spans[index].end : cited.marker.start]
        if following is not None and "\n" in between:
            gap = self.plain[cited.marker.end : self.spans[following].start]
            if "\n" not in gap:
                return following
        return index

    def _claims(self, index: int | None, group: list[Cited]) -> Iterator[tuple[Cited, str]]:
        """Pair each marker with its claim: the sentence, or its own part where several share one."""
        if index is None:
            yield from ((cited, "") for cited in group)
            return
        span = self.spans[index]
        whole = self._whole(index)
        parts = list(self._parts(span, group))
        several = len(parts) > 1 and all(is_factual(claim) for _, claim in parts)
        for clustered, claim in parts:
            yield from ((cited, claim if several else whole) for cited in clustered)

    def _parts(self, span: Span, group: list[Cited]) -> Iterator[tuple[list[Cited], str]]:
        """Cut a sentence behind each cluster of markers; what follows the last one belongs to it."""
        clusters: list[list[Cited]] = []
        for cited in group:
            words = self.plain[clusters[-1][-1].marker.end : cited.marker.start] if clusters else "first"
            if any(char.isalnum() for char in words):
                clusters.append([cited])
            else:
                clusters[-1].append(cited)
        start = span.start
        for number, cluster in enumerate(clusters, start=1):
            end = span.end if number == len(clusters) else max(min(cluster[-1].marker.end, span.end), start)
            yield cluster, self._text(start, end)
            start = end

    def _verdict(self, marker: Marker, named: Named, claim: str, index: int | None) -> Verdict:
        source = named.source
        found = self._support(source, claim) if source else None
        return Verdict(
            marker=self.reading.text[marker.start : marker.end],
            source=source.id if source else None,
            url=source.url if source else marker.url,
            title=source.title if source else None,
            sentence=self._whole(index),
            verdict=found.verdict if found else "dangling",
            evidence=found.evidence if found else self._known(named),
        )

    def _support(self, source: Source, claim: str) -> Support:
        if source.id not in self.excerpts:
            self.excerpts[source.id] = Excerpts(source.excerpts)
        return self.excerpts[source.id].support(claim) if claim else Support("unknown", None)

    def _known(self, named: Named) -> str:
        """Say what a dangling marker may have meant."""
        if not len(self.registry):
            return "no source was found in this conversation"
        if self.nearest is None:
            self.nearest = Nearest(self.registry)
        near = self.nearest(named.ref)
        if near is not None:
            return f"no tool returned this; the nearest known source is {near.id}: {near.url}"
        if not self.ids_shown and "://" not in named.ref:
            return "this names no URL, and only URLs name sources here"
        return f"no tool returned this; known are {len(self.registry)} sources"


def correction(checked: Checked, registry: Registry, *, strict: bool) -> str | None:
    """Return the prompt of the one correction turn, None when nothing is to be corrected.

    Dangling markers are, an answer that states facts and cites nothing, and with `strict` unsupported ones.
    """
    wrong = list(checked.dangling) + (list(checked.unsupported) if strict else [])
    uncited = checked.coverage.factual > 0 and checked.coverage.cited == 0
    if not wrong and not uncited:
        return None
    lines = ["Your answer was checked against what the tools returned in this conversation.", ""]
    if uncited and not wrong:
        lines += ["It states facts and cites no source for any of them.", ""]
    if wrong:
        lines.append("These citations do not hold:")
        lines += [f"- {_quoted(v.marker)} in {_quoted(v.sentence)}: {_reason(v)}" for v in wrong[:_LISTED]]
        if len(wrong) > _LISTED:
            lines.append(f"- and {len(wrong) - _LISTED} more")
        lines.append("")
    return "\n".join([*lines, *_known(registry, checked.ids_shown), _REQUEST])


def _reason(verdict: Verdict) -> str:
    reason = harmless(verdict.evidence or "not backed")
    return reason if verdict.verdict == "dangling" else f"{verdict.source} does not say so: {reason}"


def _quoted(text: str) -> str:
    short = " ".join(text.split())
    return f'"{short if len(short) <= _QUOTED else short[: _QUOTED - 1] + "…"}"'


def _known(registry: Registry, ids_shown: bool) -> list[str]:
    listed = list(registry)[:_LISTED]
    if not listed:
        return ["No tool has returned any source: cite nothing, and say that nothing was found.", ""]
    if ids_shown:
        names = [f"- [{source.id}] {harmless(source.title)}" for source in listed]
        how = "These sources exist; cite them by id in square brackets behind the sentence, as in [S1]:"
    else:
        names = [f"- {spelled(source.url)} {harmless(source.title)}" for source in listed]
        how = "These sources exist; cite them as Markdown links with exactly these URLs:"
    more = (
        [f"- and {len(registry) - _LISTED} more that the tools returned"] if len(registry) > _LISTED else []
    )
    return [how, *names, *more, ""]
