"""A claim laid beside one source: which words and values of it stand where, and how well a place fits."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from orchestrator.claims.units import Index, Unit
from orchestrator.claims.values import Value, says
from orchestrator.claims.words import (
    EMPTY,
    LIGHT,
    allies,
    home,
    is_common,
    kin,
    of_a_place,
    on_a_scale,
    opposites,
    stem,
)

NAMES = frozenset(("name", "code"))

_PLACES = 8
"""How many of the best matching units are looked at closely."""
_COMMON = 500
"""A word that stands in more units than this leads to no place."""
_SPOTS = 6
"""How many times a word is looked for in one unit: more are no sentence."""
_LIGHT_WEIGHT = 0.3
_BESIDE = 0.5
"""What a word counts that stands in the unit before or behind."""
_SCALE = 0.6
"""What a word counts for another one of the same scale."""
_OPPOSITE = 0.85
"""How readily an opposite is taken for what stands in a word's place, compared with the word itself."""
_NEAR = 3.0
"""Words of distance at which a neighbour counts half."""
_BESIDE_IT = 1.0
"""The same where an opposite competes: there it is the next word that counts."""
_TELLING = 2.0
"""How much more a number or a name tells about a word than others do, which its opposite may share."""
_CLAUSE = 3
"""What the border of a clause adds to a distance, in words."""
_ORDER = 0.8
"""What is left when two words have changed sides."""
_SMALL = 0.3
"""Weight of a preposition or the like right beside a value."""


class Match(NamedTuple):
    """What stands where the claim has a word: that word or its kin (sign 1), or an opposite (-1)."""

    closeness: float
    unit: Unit
    place: int
    sign: int


class _Role(NamedTuple):
    """What is looked at around a word of the claim."""

    first: int
    last: int
    beside: set[int]
    """Positions that do not count: other values of the same kind."""
    scale: float
    values: float
    """How much a number or a name counts, compared with another word."""
    ordered: bool
    """Whether it matters what stands before and what behind."""


class Alignment:
    """One claim against one source."""

    def __init__(self, index: Index, claim: Unit) -> None:
        self.index, self.claim = index, claim
        self.values = [
            v for v in claim.reading.values if not (v.unit == "initial" and is_common(stem(v.words[0])))
        ]
        numbers = _positions(v for v in self.values if v.kind not in (*NAMES, "quote"))
        names = _positions(v for v in self.values if v.kind in NAMES)
        self._telling = numbers | names
        self.weights = {word: self._weight(word) for word in claim.places}
        self.wanted: dict[str, float] = {}
        """Weight of the words with content that are no number, date or time."""
        self.content: dict[str, float] = {}
        """The same without names."""
        for at, (word, stemmed) in enumerate(zip(claim.reading.words, claim.stems, strict=True)):
            if word not in EMPTY and at not in numbers:
                self.wanted[stemmed] = self.weights[stemmed] * (_LIGHT_WEIGHT if stemmed in LIGHT else 1.0)
                if at not in names:
                    self.content[stemmed] = self.wanted[stemmed]
        self._titled = {word for word in self.wanted if word not in self.content and word in index.title}
        self._kin = {word: (word, *kin(word)) for word in self.weights}
        for short, words in self._shortened():
            for word in words:
                self._kin[word] = (*self._kin[word], short)
        self._scale = {word: (*allies(word), *opposites(word)) for word in self.weights}
        self._same: dict[int, dict[int, list[int]]] = {}

    def _weight(self, word: str) -> float:
        units, found = len(self.index.units), len(self.index.found.get(word, ()))
        return 0.4 + 0.6 * math.log(1 + units / max(found, 1)) / math.log(1 + units)

    def _shortened(self) -> Iterator[tuple[str, list[str]]]:
        """Yield acronyms that the source has, with the words of the claim they are short for."""
        words, stems = self.claim.reading.words, self.claim.stems
        content = [at for at, word in enumerate(words) if word not in EMPTY and stems[at] in self.weights]
        for length in (3, 4, 2):
            for start in range(len(content) - length + 1):
                run = content[start : start + length]
                short = stem("".join(words[at][0] for at in run))
                if run[-1] - run[0] < length + 1 and short in self.index.found:
                    yield short, [stems[at] for at in run]

    def candidates(self) -> list[int]:
        """Return the numbers of the units that share most with the claim, best first."""
        scores: dict[int, float] = defaultdict(float)
        for word, weight in self.weights.items():
            for form in self._kin[word]:
                found = self.index.found.get(form, ())
                if len(found) < _COMMON:
                    for at in found:
                        scores[at] += weight if form == word else weight / 2
        return sorted(scores, key=lambda at: (-scores[at], at))[:_PLACES]

    def covered(self, window: list[Unit], wanted: dict[str, float]) -> float:
        """Return the share of some words, by weight, that a window holds."""
        total = sum(wanted.values())
        held = sum(weight * self._held(word, window) for word, weight in wanted.items())
        return held / total if total else 1.0

    def _held(self, word: str, window: list[Unit]) -> float:
        best = _BESIDE if word in self._titled else 0.0
        for unit in window:
            share = 1.0 if unit is window[0] else _BESIDE
            if any(form in unit.places for form in self._kin[word]):
                best = max(best, share)
            elif best < share * _SCALE and any(form in unit.places for form in self._scale[word]):
                best = share * _SCALE
        return best

    def lacking(self, window: list[Unit]) -> list[str]:
        """Return the words of the claim that a window does not have in any form."""
        absent = {
            w for w in self.wanted if not any(form in u.places for u in window for form in self._kin[w])
        }
        words = zip(self.claim.reading.words, self.claim.stems, strict=True)
        return list(dict.fromkeys(word for word, stemmed in words if stemmed in absent))

    def spots(self, value: Value, unit: Unit) -> list[int]:
        """Return where a unit states a value of the claim."""
        if value.kind == "quote":
            return [0] if " ".join(value.words) in " ".join(unit.reading.words) else []
        if value.kind == "code" and len(value.words) > 1:
            ends = unit.places.get(stem(value.words[-1]), ())
            return [at for at in ends if at and unit.reading.words[at - 1] == value.words[0]]
        if value.kind == "code" and value.words[0] in EMPTY:
            return [at for at, word in enumerate(unit.reading.words) if word == value.words[0]][:_SPOTS]
        if value.kind in NAMES:
            return self._named(value, unit)[:_SPOTS]
        return [v.last for v in unit.reading.values if says(v, value)][:_SPOTS]

    def _named(self, value: Value, unit: Unit) -> list[int]:
        """Return where a unit has a name: as it is, as initials, or as the adjective of a place."""
        spots: list[int] = []
        if len(value.words) == 1 or self._written(value):
            at = [n for form in self.forms(self.claim.stems[value.last]) for n in unit.places.get(form, ())]
            spots = [n for n in at if len(value.words) == 1 or not self._namesake(value, unit, n)]
        if len(value.words) > 1:
            spots += unit.places.get(_initials(value), [])
        elif value.text.isupper() and len(value.text) > 1:
            spots += [
                v.last for v in unit.reading.values if v.kind == "name" and _initials(v) == value.words[0]
            ]
        return spots

    def forms(self, stemmed: str) -> set[str]:
        """Return the stems under which the source may have a name."""
        others = self.index.names.get(home(stemmed), ())
        return {stemmed, *kin(stemmed), *(o for o in others if of_a_place(stemmed) or of_a_place(o))}

    def _written(self, value: Value) -> bool:
        """Tell whether the source has the words of a name close together and in order."""
        *firsts, last = (stem(word) for word in value.words)
        for number in self.index.found.get(last, ()):
            unit = self.index.units[number]
            for end in unit.places[last]:
                at = end
                for word in reversed(firsts):
                    at = max((p for p in unit.places.get(word, ()) if p < at), default=-1)
                if at >= 0 and end - at <= len(value.words) + 2:
                    return True
        return False

    def titled(self, name: Value) -> bool:
        """Tell whether the title of the page has the name."""
        return all(self.forms(stem(word)) & self.index.title for word in name.words)

    def _namesake(self, value: Value, unit: Unit, at: int) -> bool:
        """Tell whether the name at a place is another one with the same last word."""
        names = (v for v in unit.reading.values if v.kind == "name" and v.first <= at <= v.last)
        return any(len(name.words) > 1 and not self.same(name, value) for name in names)

    def same(self, other: Value, value: Value) -> bool:
        """Tell whether two values may be meant as one: a surname and the full name are."""
        if "quote" in (other.kind, value.kind) or (value.kind in NAMES) != (other.kind in NAMES):
            return False
        if "code" in (value.kind, other.kind):
            return other.words == value.words
        if value.kind != "name":
            return says(other, value)
        mine, theirs = {stem(w) for w in value.words}, {stem(w) for w in other.words}
        if theirs <= mine or (mine <= theirs and not all(map(is_common, mine))):
            return True
        if any(self.forms(w) & theirs for w in mine if len(mine) == 1):
            return True
        short, long = sorted((value, other), key=lambda v: len(v.words))
        return len(short.words) == 1 < len(long.words) and short.words[0] == _initials(long)

    def _matched(self, unit: Unit) -> dict[int, list[int]]:
        """Return for each compared word of the claim where a unit has it or its kin."""
        if unit.number not in self._same:
            same = {
                at: [place for form in self._kin[word] for place in unit.places.get(form, ())][:_SPOTS]
                for at, word in enumerate(self.claim.stems)
                if word in self.weights
            }
            for value in self.values:
                if value.kind not in (*NAMES, "quote"):
                    same[value.first] = self.spots(value, unit)
            self._same[unit.number] = same
        return self._same[unit.number]

    def places(self, at: int, unit: Unit) -> list[int]:
        """Return where a unit has a word of the claim or its kin, by the word's position."""
        return self._matched(unit).get(at, [])

    def closeness(self, value: Value, unit: Unit, spot: int) -> float:
        """Score how well the rest of the claim stands around a spot, as it does around the value."""
        beside = _positions(v for v in self.values if v.kind == value.kind)
        role = _Role(value.first, value.last, beside, _NEAR, 1.0, value.kind != "date")
        return self._closeness(role, unit, spot)

    def _closeness(self, role: _Role, unit: Unit, spot: int) -> float:
        own, clauses = self.claim.reading.clauses, unit.reading.clauses
        matched = self._matched(unit)
        score = 0.0
        for at, word in enumerate(self.claim.stems):
            if role.first <= at <= role.last or at in role.beside:
                continue
            near = min(abs(at - role.first), abs(at - role.last)) + _CLAUSE * abs(own[at] - own[role.first])
            before = at < role.first
            if word in self.weights:
                best = 0.0
                for place in matched.get(at, ()):
                    if place != spot:
                        away = abs(place - spot) + _CLAUSE * abs(clauses[place] - clauses[spot])
                        kept = not role.ordered or (place < spot) == before
                        best = max(best, (1.0 if kept else _ORDER) / (1 + away / role.scale))
                weight = self.weights[word] * (role.values if at in self._telling else 1.0)
                score += weight * best / (1 + near / role.scale)
            elif near <= 2:
                side = range(max(0, spot - 2), spot) if before else range(spot + 1, spot + 3)
                away = min((abs(n - spot) for n in side if unit.stems[n : n + 1] == [word]), default=0)
                score += _SMALL / (1 + away / role.scale) / (1 + near / role.scale) if away else 0.0
        return score

    def ideal(self, value: Value) -> float:
        """Return the closeness that a place would have which says just what the claim says."""
        return self.closeness(value, self.claim, value.last)

    def match(self, at: int, window: list[Unit], without: Iterable[int] = ()) -> Match | None:
        """Return what stands where the claim has a word, in the first unit of a window that has any of it.

        `without` are positions of the claim that do not tell where that is.
        """
        word = self.claim.stems[at]
        role = _Role(at, at, set(without), _BESIDE_IT, _TELLING, False)
        for unit in window:
            far = opposites(word) if unit is window[0] and (word not in LIGHT or on_a_scale(word)) else ()
            best: Match | None = None
            for sign, factor, forms in (
                (1, 1.0, (word,)),
                (1, 0.9, (*kin(word), *allies(word))),
                (-1, _OPPOSITE, far),
            ):
                for form in forms:
                    for place in unit.places.get(form, ())[:_SPOTS]:
                        close = factor * self._closeness(role, unit, place)
                        if best is None or close > best.closeness:
                            best = Match(close, unit, place, sign)
            if best:
                return best
        return None


def _positions(values: Iterable[Value]) -> set[int]:
    return {at for v in values for at in range(v.first, v.last + 1)}


def _initials(value: Value) -> str:
    return "".join(word[0] for word in value.words)
