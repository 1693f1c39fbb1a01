"""Does an excerpt back a sentence? A deterministic check of what words can settle, and of nothing else.

A sentence is `supported` when one place of the excerpts (a sentence with its neighbours) holds most of its
content words, each of its numbers, dates, names, identifiers and quotations stands there in the role that
the rest of the sentence gives it, and neither a negation nor a direction is turned round. Read
`Excerpts.support`, then `_problem`; error rates on a labelled set: tests/bench/support_rates.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

from orchestrator.claims.alignment import NAMES, Alignment
from orchestrator.claims.grammar import neighbour
from orchestrator.claims.tokens import plain
from orchestrator.claims.turns import turned
from orchestrator.claims.units import Index, Unit, takes_up, unit
from orchestrator.claims.values import Value, read
from orchestrator.claims.words import EMPTY, is_verbal, kin

_MOST_WORDS, _MOST_VALUES = 200, 40
"""A sentence with more of either is not checked: no reader would call it one sentence."""
_MOST_RIVALS = 12
"""How many values of a sentence compete for one role."""
_COVERED = 0.35
"""Share of the content, by weight, that a place must hold."""
_CLAUSE_COVERED = 0.25
"""Share of each clause that says something of its own."""
_ALIKE = 0.02
"""Places whose coverage differs by no more than this are equally good."""
_MARGIN = 0.15
"""How much less content a place may hold than the best one, if it has all values and the best one has not."""
_RIVAL = {"number": 0.7, "date": 0.8, "time": 0.7, "code": 0.5, "name": 0.3}
"""How well a value must fit its role, compared with the best other value of its kind in the sentence."""
_EXCHANGED = 0.8
"""How well two values must fit their roles, compared with having changed places."""
_IDEAL = 0.8
"""A name that fits this much of a perfect role keeps it against one that stands elsewhere."""
_BESIDE = 0.4
"""How much of a perfect role a name must fit in a sentence beside one in which others stand."""


_OPENING = re.compile(
    r"""(?ix)^(?:(?:please\ )?(?:note|remember)\ that\b
      | it\ (?:is|should\ be)\ (?:also\ )?(?:worth\ noting|noted|important\ to\ note|clear)\ that\b
      | in\ (?:other\ words|addition|fact|particular|short|summary|general|practice|conclusion|contrast),
      | according\ to\ (?:the|this|its|their|these|one)\ (?:[\w'-]+\ ){0,2}
        (?:documentation|docs?|sources?|articles?|pages?|websites?|papers?|guides?|manuals?|authors?|text|report
        |study),
      | (?:however|moreover|furthermore|additionally|overall|notably|importantly|similarly|specifically|also
        |finally|for\ example|for\ instance|as\ a\ result|by\ contrast|on\ the\ other\ hand
        |at\ the\ same\ time),)\s*"""
)
"""How a sentence may begin without saying anything yet."""
_JOINT = re.compile(r"(?:,|;)\s+(?:and|but|while|whereas|yet)\s+(?=\w)|;\s+")
"""Where two sentences are joined to one."""
_HEADING = re.compile(r"\s*#{1,6}\s|\s*(\*\*|__)[^*_\n]{1,120}\1:?\s*$")
_ASIDE = re.compile(
    r"""(?ix)
    ^(?:(?:please|see|try|visit|click|sorry)\b | let\ (?:me|us)\b | feel\ free\b | refer\ to\b | ask\ me\b
      | contact\ (?:me|us)\b | happy\ to\b | hope\ this\b | as\ follows | unfortunately,?\ i\b
      | (?:sources?|references|bibliography|further\ reading)\b:?\ *(?:$|\[|\d)
      | for\ (?:more|further|full|additional)\ (?:details?|information|context)\b
      | (?:here|below)\ (?:is|are)\b | (?:would|do|should)\ you\b | if\ you\ (?:want|need|would)\b
      | the\ following\b(?!\ (?:year|day|week|month|decade|century|season|morning|spring|summer|autumn))
      | i\ (?:hope|can|could|will|would|recommend|suggest|searched|looked)\b | i['’](?:m|ve|ll|d)\b
      | (?:this|the\ above)\ (?:answer|summary|report|response|overview)\b
      | in\ (?:this\ (?:answer|report|section)\b | (?:short|summary|conclusion)[.,:]?$))
    | \b(?:i|we)\ (?:could|can|did|do|was|were|am|are|have|had)(?:\ not|n['’]t|not|\ unable)\b
    | \b(?:could|can)(?:\ not|n['’]t|not)\ be\ (?:found|verified|confirmed|determined|established)\b
    | \b(?:sources?|excerpts?|search(?:es)?|results?|pages?|documents?)\b(?:\ (?:i|we)\ \w+)?(?:\ \w+)?
      \ (?:do|does|did)(?:\ not|n['’]t)\ (?:say|state|mention|specify|give|provide|contain|include|name)\b
    | \bno\ (?:\w+\ ){0,2}(?:information|evidence|sources?|results?|data)\b.{0,40}\b(?:found|available)\b
    | \bfound\ no\ (?:\w+\ ){0,2}(?:information|evidence|sources?|results?|data)\b"""
)
"""What an answer says to the reader, or about itself and its search."""


class Support(NamedTuple):
    """The verdict, and the excerpt's sentence that carries it or what is missing; None when unknown."""

    verdict: Literal["supported", "unsupported", "unknown"]
    evidence: str | None


class Excerpts:
    """The excerpts of one source, read once; many sentences can be checked against them."""

    def __init__(self, texts: Iterable[str], title: str = "") -> None:
        """Read the excerpts; the names in the page's title need not be repeated in them."""
        self._index = Index(texts, title)

    def support(self, sentence: str) -> Support:
        """Say whether the excerpts state what a sentence claims; `unknown` without text to compare."""
        if not self._index.units:
            return Support("unknown", None)
        text = _OPENING.sub("", plain(sentence))
        whole = self._check(text)
        parts = _JOINT.split(text)
        if whole.verdict == "supported" or len(parts) == 1 or not all(map(_stands_alone, parts)):
            return whole
        found = [self._check(part) for part in parts]
        if any(part.verdict != "supported" for part in found):
            return next(part for part in found if part.verdict != "supported")
        return Support("supported", " … ".join(dict.fromkeys(part.evidence or "" for part in found)))

    def _check(self, text: str) -> Support:
        reading = read(text)
        if len(reading.words) > _MOST_WORDS or len(reading.values) > _MOST_VALUES:
            return Support("unsupported", "too long to be checked as one sentence")
        claim = unit(reading)
        if not claim.places:
            return Support("unsupported", "nothing in it that could be compared")
        return _verdict(Alignment(self._index, claim))


def support(sentence: str, excerpts: Sequence[str], title: str = "") -> Support:
    """Check one sentence against the excerpts of one source."""
    return Excerpts(excerpts, title).support(sentence)


def _stands_alone(part: str) -> bool:
    """Tell whether a part of a sentence has a subject of its own and says something about it."""
    reading = read(part)
    words = reading.words
    content = [word for word in words if word not in EMPTY]
    verb = next((n for n, word in enumerate(words) if is_verbal(word)), 0)
    return len(content) >= 3 and verb > 0 and any(word not in EMPTY for word in words[:verb])


class _Place(NamedTuple):
    """A unit with its neighbours, and how much of the claim it holds."""

    window: list[Unit]
    missing: list[Value]
    content: float
    covered: float

    @property
    def score(self) -> float:
        return self.content + self.covered


def _verdict(claim: Alignment) -> Support:
    """Let the place decide that holds most of the claim: a worse one cannot make good what it contradicts."""
    numbers = claim.candidates()
    if not numbers:
        return Support("unsupported", "no sentence of the excerpts is about this")
    for number in numbers:
        if claim.index.units[number].reading.words == claim.claim.reading.words:
            return Support("supported", claim.index.units[number].reading.text)
    places = [_place(claim, number) for number in numbers]
    content = max(place.content for place in places) - _MARGIN
    covered = max(place.covered for place in places) - 2 * _MARGIN
    whole = [p for p in places if not p.missing and p.content >= content and p.covered >= covered]
    places = sorted(whole or places, key=lambda p: (-p.score, len(p.missing), p.window[0].number))
    problems = []
    for place in places:
        if place.score < places[0].score - _ALIKE:
            break
        problem = _problem(claim, place)
        if problem is None:
            return Support("supported", place.window[0].reading.text)
        problems.append(problem)
    return Support("unsupported", problems[0])


def _place(claim: Alignment, number: int) -> _Place:
    window = claim.index.around(number)
    missing = [
        v
        for v in claim.values
        if not any(claim.spots(v, one) for one in window) and not _understood(claim, v, window[0])
    ]
    return _Place(window, missing, claim.covered(window, claim.content), claim.covered(window, claim.wanted))


def _problem(claim: Alignment, place: _Place) -> str | None:
    """Return what keeps a place from backing the claim, None when nothing does."""
    window = place.window
    if place.missing:
        return "not in the excerpts: " + ", ".join(dict.fromkeys(v.text for v in place.missing))
    if place.covered < _COVERED or _has_bare_clause(claim, window):
        return "too little of it is in the excerpts, not: " + ", ".join(claim.lacking(window))
    for value in claim.values:
        if value.kind != "quote" and not _fits(claim, value, window):
            return f"stands elsewhere in the excerpts: {value.text}"
    if exchanged := _exchanged(claim, window[0]) or _paired(claim, window[0]):
        return f"do not go together in the excerpts: {exchanged}"
    return turned(claim, window)


def _has_bare_clause(claim: Alignment, window: list[Unit]) -> bool:
    """Tell whether the window has next to nothing of one clause of the claim."""
    clauses: dict[int, dict[str, float]] = defaultdict(dict)
    for word, clause in zip(claim.claim.stems, claim.claim.reading.clauses, strict=True):
        if word in claim.wanted:
            clauses[clause][word] = claim.wanted[word]
    return any(
        max(words.values()) > 0.5
        and sum(words.values()) > 1.0
        and claim.covered(window, words) < _CLAUSE_COVERED
        for words in clauses.values()
    )


def _fits(claim: Alignment, value: Value, window: list[Unit]) -> bool:
    """Tell whether the value has in the window the role that the claim gives it, and no other value has."""
    here = window[0]
    quoted = {at for v in here.reading.values if v.kind == "quote" for at in range(v.first, v.last + 1)}
    spots = claim.spots(value, here)
    rivals = [
        v
        for v in here.reading.values
        if _rival(claim, v, value, here)
        and not (v.kind == "name" and v.first in quoted)
        and not any(_listed(here, v, at) for at in spots)
    ]
    if not rivals:
        return True
    rival = max(claim.closeness(value, here, v.last) for v in rivals[:_MOST_RIVALS])
    if spots:
        return max(claim.closeness(value, here, at) for at in spots) >= _RIVAL[value.kind] * rival
    before = any(claim.spots(value, one) for one in window[1:] if one.number < here.number)
    meant = before and takes_up(here)
    if value.kind in NAMES and (meant or _understood(claim, value, here)):
        return rival < _IDEAL * claim.ideal(value)
    beside = [claim.closeness(value, one, at) for one in window[1:] for at in claim.spots(value, one)]
    least = _BESIDE * claim.ideal(value) if value.kind in NAMES else 0.0
    return max(beside, default=0.0) > max(rival, least)


def _listed(unit: Unit, other: Value, spot: int) -> bool:
    """Tell whether two names stand in one list, so that what is said of one is said of the other."""
    names = {at for v in unit.reading.values if v.kind == "name" for at in range(v.first, v.last + 1)}
    between = range(min(other.last, spot) + 1, max(other.first, spot))
    return other.kind == "name" and all(
        at in names or unit.reading.words[at] in ("and", "or") for at in between
    )


def _paired(claim: Alignment, here: Unit) -> str | None:
    """Return two values of the claim each of which goes with another value in the place."""
    values = [v for v in claim.values if v.kind in ("number", "date", "time")][:_MOST_RIVALS]
    for one, other in combinations(values, 2):
        ones, others = claim.spots(one, here), claim.spots(other, here)
        apart = min((_distance(here, a, b) for a in ones for b in others), default=0)
        if apart and _nearer(claim, here, one, others, apart) and _nearer(claim, here, other, ones, apart):
            return f"{one.text}, {other.text}"
    return None


def _nearer(claim: Alignment, here: Unit, value: Value, spots: list[int], apart: int) -> bool:
    """Tell whether a rival of a value stands nearer than the value itself."""
    rivals = [v for v in here.reading.values if v.kind == value.kind and _rival(claim, v, value, here)]
    return any(_distance(here, v.last, spot) < apart for v in rivals[:_MOST_RIVALS] for spot in spots)


def _distance(unit: Unit, one: int, other: int) -> int:
    clauses = unit.reading.clauses
    return abs(one - other) + 3 * abs(clauses[one] - clauses[other])


def _exchanged(claim: Alignment, here: Unit) -> str | None:
    """Return two values of the claim that would fit better in each other's place."""
    values = [v for v in claim.values if v.kind in ("number", "date", "time")][:_MOST_RIVALS]
    for one, other in combinations(values, 2):
        ones, others = claim.spots(one, here), claim.spots(other, here)
        if one.kind == other.kind and len(ones) == len(others) == 1 and ones != others:
            straight = claim.closeness(one, here, ones[0]) + claim.closeness(other, here, others[0])
            crossed = claim.closeness(one, here, others[0]) + claim.closeness(other, here, ones[0])
            if straight < _EXCHANGED * crossed:
                return f"{one.text}, {other.text}"
    return None


def _rival(claim: Alignment, other: Value, value: Value, here: Unit) -> bool:
    """Tell whether a value of the source could be meant where the claim has another."""
    if other.kind != value.kind and not (other.kind in NAMES and value.kind in NAMES):
        return False
    if value.kind == "number" and other.unit and value.unit and other.unit != value.unit:
        return False
    if value.kind == other.kind == "number" and _counts_other(claim, other, value, here):
        return False
    return not any(claim.same(other, own) for own in claim.values)


def _counts_other(claim: Alignment, other: Value, value: Value, here: Unit) -> bool:
    """Tell whether a number counts what the claim has too, but does not count: the first of two spans."""
    counted, mine = neighbour(here, other.last, 1), neighbour(claim.claim, value.last, 1)
    if counted < 0 or mine < 0 or counted > other.last + 1 or mine > value.last + 1:
        return False
    forms = {here.stems[counted], *kin(here.stems[counted])}
    return claim.claim.stems[mine] not in forms and bool(forms & set(claim.claim.stems))


def _understood(claim: Alignment, name: Value, here: Unit) -> bool:
    """Tell whether a name need not be repeated: the source is about it, or it alone came before."""
    if name.kind not in NAMES or (name.kind == "code" and len(name.words) == 1):
        return False
    forms = claim.forms(claim.claim.stems[name.last])
    if claim.titled(name) or claim.index.is_topic(*forms):
        return True
    others = any(
        v.kind == name.kind and not any(claim.same(v, own) for own in claim.values)
        for v in here.reading.values
    )
    found = {n for form in forms for n in claim.index.found.get(form, ())}
    return not others and any(n < here.number and claim.index.units[n].excerpt == here.excerpt for n in found)


def is_factual(sentence: str) -> bool:
    """Tell whether a sentence makes a claim that a source could back.

    No claim: questions, headings, leads to a list, requests and offers to the reader, and what an answer says
    about itself or its search ("I could not find", "the sources do not say").
    """
    text = plain(sentence).strip(" -–—")
    if _HEADING.match(sentence) or text.endswith(("?", ":", "？", "：")) or _ASIDE.search(text):
        return False
    reading = read(text)
    content = [word for word in reading.words if word not in EMPTY]
    if text.endswith((".", "!", "。", "！")) or any(
        v.kind in ("number", "date", "time") for v in reading.values
    ):
        return len(content) >= 2 and len(reading.words) >= 3
    return len(content) >= 3 and len(reading.words) >= 5  # a list item, a cell, or a heading without marks
