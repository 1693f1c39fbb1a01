"""Does an excerpt back a sentence? A deterministic check of what words can settle, and of nothing else.

A sentence is `supported` when one place of the excerpts (a sentence with its neighbours) holds most of its
content words, each of its numbers, dates, names, identifiers and quotations stands there in the role that
the rest of the sentence gives it, and neither a negation nor a direction is turned round.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from orchestrator.sentences import sentences
from orchestrator.values import Reading, Value, plain, read, says
from orchestrator.words import EMPTY, NEGATIONS, axes, concept, stem

_LONGEST_CLAIM = 400
"""Words of a sentence beyond which it is not checked: no reader would call it one sentence."""
_UNIT_WORDS = 120
"""Words after which a text without full stops is cut into units all the same."""
_PLACES = 8
"""How many of the best matching sentences are looked at closely."""
_COVERED = 0.6
"""Share of the content, by weight, that the place must hold."""
_RIVAL = 0.8
"""A value must fit its role at least this well, compared with the best other value of its kind."""


class Support(NamedTuple):
    """The verdict, and the excerpt's sentence that carries it or what is missing; None when unknown."""

    verdict: Literal["supported", "unsupported", "unknown"]
    evidence: str | None


class _Unit(NamedTuple):
    """One sentence of an excerpt, or the sentence to be checked."""

    excerpt: int
    reading: Reading
    concepts: list[str]
    places: dict[str, list[int]]
    negated: frozenset[int]


class Excerpts:
    """The excerpts of one source, read once; many sentences can be checked against them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._units: list[_Unit] = []
        for number, text in enumerate(texts):
            for piece in sentences(text):
                reading = read(plain(piece))
                self._units.extend(_cut(number, reading))
        self._found: dict[str, list[int]] = defaultdict(list)
        for at, unit in enumerate(self._units):
            for word in unit.places:
                self._found[word].append(at)

    def support(self, sentence: str) -> Support:
        """Check one sentence, markers and Markdown in it or not."""
        if not self._units:
            return Support("unknown", None)
        claim = _unit(-1, read(plain(sentence)))
        if len(claim.concepts) > _LONGEST_CLAIM:
            return Support("unsupported", "too long to be checked as one sentence")
        return _Check(self, claim).verdict()


def support(sentence: str, excerpts: Sequence[str]) -> Support:
    """Say whether the excerpts state what the sentence claims; `unknown` when there is no text to compare."""
    return Excerpts(excerpts).support(sentence)


def _unit(excerpt: int, reading: Reading) -> _Unit:
    concepts = [_concept(word) for word in reading.words]
    places: dict[str, list[int]] = defaultdict(list)
    for at, word in enumerate(concepts):
        if word:
            places[word].append(at)
    return _Unit(excerpt, reading, concepts, dict(places), _negated(reading))


@lru_cache(maxsize=1 << 16)
def _concept(word: str) -> str:
    return "" if word in EMPTY else concept(stem(word))


def _cut(excerpt: int, reading: Reading) -> Iterator[_Unit]:
    """Yield the reading as one unit, or as several when it has no full stops for too long."""
    if len(reading.words) <= _UNIT_WORDS:
        if reading.words:
            yield _unit(excerpt, reading)
        return
    pieces = reading.text.split(" ")
    for start in range(0, len(pieces), _UNIT_WORDS // 2):
        yield _unit(excerpt, read(" ".join(pieces[start : start + _UNIT_WORDS])))


def _negated(reading: Reading) -> frozenset[int]:
    """Return the positions of the words that a negation governs: the next few of its clause with content."""
    negated: set[int] = set()
    for cue, word in enumerate(reading.words):
        if word not in NEGATIONS:
            continue
        reach = 3
        for at in range(cue + 1, len(reading.words)):
            if reading.clauses[at] != reading.clauses[cue] or not reach:
                break
            if reading.words[at] not in EMPTY or axes(reading.words[at]):
                negated ^= {at}
                reach -= 1
    return frozenset(negated)


class _Problem(NamedTuple):
    """Why a place does not back the claim; the lower the rank, the nearer it came."""

    rank: int
    message: str


class _Check:
    """One sentence against one source."""

    def __init__(self, source: Excerpts, claim: _Unit) -> None:
        self.source, self.claim = source, claim
        in_values = {
            at for v in claim.reading.values if v.kind != "quote" for at in range(v.first, v.last + 1)
        }
        self.names = [v for v in claim.reading.values if v.kind in ("name", "code")]
        named = {at for v in self.names for at in range(v.first, v.last + 1)}
        self.weights = {
            word: self.weight(word)
            for at, word in enumerate(claim.concepts)
            if word and (at not in in_values or at in named)
        }
        self.pool = self.candidates()

    def weight(self, word: str) -> float:
        units = len(self.source._units)
        found = len(self.source._found.get(word, ()))
        return 0.4 + 0.6 * math.log(1 + units / max(found, 1)) / math.log(1 + units)

    def candidates(self) -> list[int]:
        """Return the units that share most with the claim, best first."""
        scores: dict[int, float] = defaultdict(float)
        for word in self.claim.places:
            found = self.source._found.get(word, ())
            if len(found) < 500:
                for at in found:
                    scores[at] += self.weights.get(word, 1.0)
        return sorted(scores, key=lambda at: (-scores[at], at))[:_PLACES]

    def verdict(self) -> Support:
        if not self.claim.places:
            return Support("unsupported", "nothing in it that could be compared")
        problems = []
        for at in self.pool:
            problem = self.problem(at)
            if problem is None:
                return Support("supported", self.source._units[at].reading.text)
            problems.append(problem)
        if not problems:
            return Support("unsupported", "no sentence of the excerpts is about this")
        return Support("unsupported", min(problems, key=lambda p: p.rank).message)

    def around(self, at: int) -> list[int]:
        units = self.source._units
        return [
            n for n in (at, at - 1, at + 1) if 0 <= n < len(units) and units[n].excerpt == units[at].excerpt
        ]

    def problem(self, at: int) -> _Problem | None:
        """Return what keeps this unit and its neighbours from backing the claim, None when they do."""
        window = [self.source._units[n] for n in self.around(at)]
        missing = [
            v.text for v in self.claim.reading.values if not any(self.spots(v, unit) for unit in window)
        ]
        if missing:
            return _Problem(4, "not in the excerpts: " + ", ".join(dict.fromkeys(missing)))
        held = sum(w for word, w in self.weights.items() if word in window[0].places)
        held += 0.6 * sum(
            w
            for word, w in self.weights.items()
            if word not in window[0].places and any(word in u.places for u in window)
        )
        total = sum(self.weights.values())
        if held < _COVERED * total:
            absent = [word for word in self.weights if not any(word in u.places for u in window)]
            return _Problem(3, "too little of it is in the excerpts: " + ", ".join(absent))
        for value in self.claim.reading.values:
            if value.kind != "quote" and not self.fits(value, window):
                return _Problem(2, f"stands elsewhere in the excerpts: {value.text}")
        return self.turned(window)

    def spots(self, value: Value, unit: _Unit) -> list[int]:
        """Return where a unit states the value."""
        if value.kind == "quote":
            wanted = " ".join(value.words)
            return [0] if wanted in " ".join(unit.reading.words) else []
        if value.kind in ("name", "code"):
            if value.unit == "initial":
                lower = self.source._found.get(self.claim.concepts[value.first])
                if not lower and re.search(r"(s|ing|ed|ly|tion|ment|ity|ness|ism)$", value.words[0]):
                    return [0]
            words = unit.reading.words
            return [at for at, word in enumerate(words) if stem(word) == stem(value.words[-1])]
        return [v.last for v in unit.reading.values if says(v, value)]

    def fits(self, value: Value, window: list[_Unit]) -> bool:
        own = max(
            (self.role(value, unit, at) for unit in window for at in self.spots(value, unit)), default=0.0
        )
        rival = 0.0
        for n in self.pool:
            unit = self.source._units[n]
            for other in unit.reading.values:
                if other.kind == value.kind and other.unit == value.unit and not self.same(other, value):
                    if not any(self.same(other, v) for v in self.claim.reading.values if v is not value):
                        rival = max(rival, self.role(value, unit, other.last))
        return own >= _RIVAL * rival

    @staticmethod
    def same(other: Value, value: Value) -> bool:
        if value.kind in ("name", "code"):
            return bool(set(other.words) & set(value.words))
        return says(other, value)

    def role(self, value: Value, unit: _Unit, spot: int) -> float:
        """Score how well the rest of the claim stands around a spot."""
        score = 0.0
        for at, word in enumerate(self.claim.concepts):
            if not word or value.first <= at <= value.last:
                continue
            places = unit.places.get(word)
            if not places:
                continue
            near = abs(at - value.first) + 3 * abs(
                self.claim.reading.clauses[at] - self.claim.reading.clauses[value.first]
            )
            clauses = unit.reading.clauses
            best = 0.0
            for place in places:
                if place == spot:
                    continue
                away = abs(place - spot) + 3 * abs(clauses[place] - clauses[spot])
                order = 1.0 if (place < spot) == (at < value.first) else 0.85
                best = max(best, order / (1 + away / 3))
            score += self.weights.get(word, 1.0) * best / (1 + near / 8)
        return score

    def turned(self, window: list[_Unit]) -> _Problem | None:
        """Return the negation or direction that the place has the other way round."""
        claim, unit = self.claim, window[0]
        for at, word in enumerate(claim.reading.words):
            for axis, sign in axes(word):
                sign = -sign if at in claim.negated else sign
                found = [
                    (self.closeness(at, unit, place), s if place not in unit.negated else -s, other)
                    for place, other in enumerate(unit.reading.words)
                    for a, s in axes(other)
                    if a == axis
                ]
                if found:
                    best = max(found)
                    if best[1] != sign:
                        return _Problem(1, f"direction differs: {word} / {best[2]}: {unit.reading.text}")
        mine = {claim.concepts[at] for at in claim.negated} - {""}
        theirs = {unit.concepts[at] for at in unit.negated} - {""}
        straight = {c for at, c in enumerate(claim.concepts) if c and at not in claim.negated}
        straight_unit = {c for at, c in enumerate(unit.concepts) if c and at not in unit.negated}
        if mine and not mine & theirs and (mine & straight_unit or not theirs):
            return _Problem(1, f"negation differs: {unit.reading.text}")
        if theirs and not theirs & mine and theirs & straight:
            return _Problem(1, f"negation differs: {unit.reading.text}")
        return None

    def closeness(self, at: int, unit: _Unit, place: int) -> float:
        score = 0.0
        for other, word in enumerate(self.claim.concepts):
            if word and other != at and word in unit.places:
                away = min(abs(p - place) for p in unit.places[word])
                score += 1 / (1 + away / 3) / (1 + abs(other - at) / 8)
        return score


_OPENING = re.compile(
    r"(?i)(?:i |we )?(?:could|can|did|do|was|were|am|are)(?: not|n't) (?:be )?(?:find|found|able|determine|verify|confirm|locate)\b"
)


def is_factual(sentence: str) -> bool:
    """Tell whether a sentence makes a claim that a source could back."""
    text = plain(sentence)
    reading = read(text)
    content = [word for word in reading.words if word not in EMPTY]
    return (
        len(content) >= 2
        and len(reading.words) >= 4
        and not text.endswith(("?", ":"))
        and not _OPENING.search(text)
    )
