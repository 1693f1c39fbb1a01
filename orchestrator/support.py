"""Does an excerpt back a sentence? A deterministic check of what words can settle, and of nothing else.

A sentence is `supported` when one place of the excerpts (a sentence with its neighbours) holds most of its
content words, each of its numbers, dates, names, identifiers and quotations stands there in the role that
the rest of the sentence gives it, and neither a negation nor a direction is turned round.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from orchestrator.sentences import sentences
from orchestrator.values import Reading, Value, plain, read, says
from orchestrator.words import (
    EMPTY,
    HARD_NEGATIONS,
    LIGHT,
    SOFT_NEGATIONS,
    allies,
    home,
    is_common,
    kin,
    of_a_place,
    on_a_scale,
    opposites,
    stem,
)

_LONGEST_CLAIM = 300
_UNIT_WORDS = 100
_PLACES = 8
COVERED = 0.5
COVERED_WITH_VALUES = 0.45
RIVAL = {"number": 0.8, "date": 0.8, "time": 0.8, "name": 0.6, "code": 0.7}
DC = 4.0
DS = 3.0
CLAUSE = 3
NEIGHBOUR = 12


class Support(NamedTuple):
    """The verdict, and the excerpt's sentence that carries it or what is missing; None when unknown."""

    verdict: Literal["supported", "unsupported", "unknown"]
    evidence: str | None


class _Unit(NamedTuple):
    excerpt: int
    reading: Reading
    stems: list[str]
    places: dict[str, list[int]]
    cues: list[tuple[int, bool, list[int]]]


class Excerpts:
    """The excerpts of one source, read once; many sentences can be checked against them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.units: list[_Unit] = []
        for number, text in enumerate(texts):
            year = None
            for piece in sentences(text):
                for reading in _cut(plain(piece)):
                    if reading.words:
                        year = _inherit(reading.values, year)
                        self.units.append(_unit(number, reading))
        self.found: dict[str, list[int]] = defaultdict(list)
        self.places_named: dict[str, set[str]] = defaultdict(set)
        for at, unit in enumerate(self.units):
            for word in unit.places:
                self.found[word].append(at)
            for value in unit.reading.values:
                for word in value.words if value.kind == "name" else ():
                    self.places_named[home(stem(word))].add(stem(word))

    def support(self, sentence: str) -> Support:
        """Check one sentence, markers and Markdown in it or not."""
        if not self.units:
            return Support("unknown", None)
        claim = _unit(-1, read(plain(sentence)))
        if len(claim.stems) > _LONGEST_CLAIM:
            return Support("unsupported", "too long to be checked as one sentence")
        return _Check(self, claim).verdict()


def support(sentence: str, excerpts: Sequence[str]) -> Support:
    """Say whether the excerpts state what the sentence claims; `unknown` when there is no text to compare."""
    return Excerpts(excerpts).support(sentence)


def _cut(text: str) -> Iterator[Reading]:
    pieces = text.split(" ")
    if len(pieces) <= _UNIT_WORDS:
        yield read(text)
        return
    for start in range(0, len(pieces), _UNIT_WORDS // 2):
        yield read(" ".join(pieces[start : start + _UNIT_WORDS]))


def _inherit(values: list[Value], year: int | None) -> int | None:
    """Give a date without a year the year named before it, and return the last year named."""
    for n, value in enumerate(sorted(values, key=lambda v: v.first)):
        if value.kind == "date":
            if value.date[0] is None and year:
                values[values.index(value)] = value._replace(date=(year, *value.date[1:]))
            year = value.date[0] or year
    return year


def _unit(excerpt: int, reading: Reading) -> _Unit:
    stems = [stem(word) for word in reading.words]
    places: dict[str, list[int]] = defaultdict(list)
    for at, word in enumerate(reading.words):
        if word not in EMPTY or on_a_scale(stems[at]):
            places[stems[at]].append(at)
    cues = list(_cues(reading))
    return _Unit(excerpt, reading, stems, dict(places), cues)


def _cues(reading: Reading) -> Iterator[tuple[int, bool, list[int]]]:
    """Yield each negation: its position, whether it can be nothing else, and what it governs."""
    for cue, word in enumerate(reading.words):
        hard = word in HARD_NEGATIONS
        if not hard and (stem(word) not in SOFT_NEGATIONS or word.startswith("exception")):
            continue
        reach = 2 if not hard or word == "no" else 3
        governed = []
        for at in range(cue + 1, len(reading.words)):
            if reading.clauses[at] != reading.clauses[cue] or not reach:
                break
            if reading.words[at] not in EMPTY:
                governed.append(at)
                reach -= 1
        if hard and word != "no" and all(reading.words[at] in PREDICATES for at in governed):
            for at in range(cue - 1, -1, -1):
                if reading.clauses[at] != reading.clauses[cue]:
                    break
                if reading.words[at] not in EMPTY:
                    governed.append(at)
        yield cue, hard, governed


class _Match(NamedTuple):
    closeness: float
    unit: _Unit
    place: int
    sign: int


class _Place(NamedTuple):
    at: int
    window: list[_Unit]
    missing: list[Value]
    covered: float
    plain: float


class _Check:
    def __init__(self, source: Excerpts, claim: _Unit) -> None:
        self.source, self.claim = source, claim
        self.values = [v for v in claim.reading.values if not _common(v)]
        inside = {
            at
            for v in self.values
            if v.kind not in ("quote", "name", "code")
            for at in range(v.first, v.last + 1)
        }
        self.weights: dict[str, float] = {}
        self.wanted: dict[str, float] = {}
        for at, (word, stemmed) in enumerate(zip(claim.reading.words, claim.stems, strict=True)):
            if stemmed in claim.places:
                self.weights[stemmed] = self.weight(stemmed)
                if at not in inside and word not in EMPTY:
                    self.wanted[stemmed] = self.weights[stemmed] * (LIGHT_WEIGHT if stemmed in LIGHT else 1.0)
        named = {
            claim.stems[at] for v in self.values for at in range(v.first, v.last + 1) if v.kind != "quote"
        }
        self.content = {w: x for w, x in self.wanted.items() if w not in named}
        self.pool = self.candidates()

    def weight(self, word: str) -> float:
        units = len(self.source.units)
        found = len(self.source.found.get(word, ()))
        return 0.4 + 0.6 * math.log(1 + units / max(found, 1)) / math.log(1 + units)

    def candidates(self) -> list[int]:
        scores: dict[int, float] = defaultdict(float)
        for word, weight in self.weights.items():
            for form in (word, *kin(word)):
                found = self.source.found.get(form, ())
                if len(found) < 500:
                    for at in found:
                        scores[at] += weight if form == word else weight / 2
        return sorted(scores, key=lambda at: (-scores[at], at))[:_PLACES]

    def verdict(self) -> Support:
        if not self.claim.places:
            return Support("unsupported", "nothing in it that could be compared")
        places = []
        for at in self.pool:
            window = self.around(at)
            places.append(
                _Place(
                    at,
                    window,
                    self.missing(at, window),
                    self.covered(window, self.wanted),
                    self.covered(window, self.content),
                )
            )
        if not places:
            return Support("unsupported", "no sentence of the excerpts is about this")
        top = max(p.plain for p in places)
        good = [p for p in places if not p.missing and p.plain >= top - MARGIN] or places
        places = sorted(good, key=lambda p: (-p.plain - p.covered, len(p.missing), p.at))
        problem = None
        for place in places:
            if place.plain + place.covered < places[0].plain + places[0].covered - SLACK:
                break
            found = self.problem(place)
            if found is None:
                return Support("supported", place.window[0].reading.text)
            problem = problem or found
        return Support("unsupported", problem)

    def around(self, at: int) -> list[_Unit]:
        units = self.source.units
        return [
            units[n]
            for n in (at, at - 1, at + 1)
            if 0 <= n < len(units) and units[n].excerpt == units[at].excerpt
        ]

    def missing(self, at: int, window: list[_Unit]) -> list[Value]:
        return [
            v
            for v in self.values
            if not any(self.spots(v, unit) for unit in window) and not self.topical(v, window[0])
        ]

    def topical(self, value: Value, unit: _Unit) -> bool:
        """A name need not be repeated where it is what the source is about, or where no other name could be meant."""
        if value.kind not in NAMES:
            return False
        forms = [
            self.source.found.get(form, ())
            for form in (self.claim.stems[value.last], *kin(self.claim.stems[value.last]))
        ]
        found = {n for units in forms for n in units}
        if not found:
            return False
        if len(found) >= max(3, TOPIC * len(self.source.units)):
            return True
        here = [
            n
            for n in found
            if self.source.units[n].excerpt == unit.excerpt and n < self.source.units.index(unit)
        ]
        others = [
            v
            for v in unit.reading.values
            if v.kind == value.kind and not any(self.same(v, own) for own in self.values)
        ]
        return bool(here) and not others

    def covered(self, window: list[_Unit], wanted: dict[str, float]) -> float:
        total = sum(wanted.values())
        held = 0.0
        for word, weight in wanted.items():
            forms = ((1.0, (word, *kin(word))), (SCALE, (*allies(word), *opposites(word))))
            held += weight * max(
                (
                    share * (1.0 if n == 0 else BESIDE)
                    for n, unit in enumerate(window)
                    for share, some in forms
                    if any(form in unit.places for form in some)
                ),
                default=0.0,
            )
        return held / total if total else 1.0

    def problem(self, place: _Place) -> str | None:
        if place.missing:
            return "not in the excerpts: " + ", ".join(dict.fromkeys(v.text for v in place.missing))
        window = place.window
        if place.covered < (COVERED_WITH_VALUES if self.values else COVERED):
            absent = [w for w in self.wanted if not any(f in u.places for u in window for f in (w, *kin(w)))]
            return f"too little of it is in the excerpts ({place.covered:.2f}): " + ", ".join(absent)
        bare = self.bare_clause(window)
        if bare:
            return "not in the excerpts: " + ", ".join(bare)
        for value in self.values:
            if value.kind != "quote" and not self.fits(value, window):
                return f"stands elsewhere in the excerpts: {value.text}"
        return self.turned(window)

    def bare_clause(self, window: list[_Unit]) -> list[str]:
        """Return the words of a clause of which the window has next to nothing."""
        clauses: dict[int, dict[str, float]] = defaultdict(dict)
        for word, clause in zip(self.claim.stems, self.claim.reading.clauses, strict=True):
            if word in self.wanted:
                clauses[clause][word] = self.wanted[word]
        for words in clauses.values():
            if sum(words.values()) > BARE and self.covered(window, words) < CLAUSE_COVERED:
                return list(words)
        return []

    def spots(self, value: Value, unit: _Unit) -> list[int]:
        if value.kind == "quote":
            return [0] if " ".join(value.words) in " ".join(unit.reading.words) else []
        if value.kind == "code" and len(value.words) > 1:
            return [
                at
                for at in unit.places.get(stem(value.words[-1]), ())
                if at and unit.reading.words[at - 1] == value.words[0]
            ]
        if value.kind in NAMES:
            return self.named(value, unit)
        return [v.last for v in unit.reading.values if says(v, value)]

    def named(self, value: Value, unit: _Unit) -> list[int]:
        """Return where a unit has a name: as it is, as initials, or as the adjective of a place."""
        spots = []
        if len(value.words) == 1 or self.written(value):
            spots = [
                at for form in self.forms(self.claim.stems[value.last]) for at in unit.places.get(form, ())
            ]
        if len(value.words) > 1:
            spots += unit.places.get("".join(word[0] for word in value.words), [])
        elif value.text.isupper() and len(value.text) > 1:
            spots += [
                v.last
                for v in unit.reading.values
                if v.kind == "name" and "".join(w[0] for w in v.words) == value.words[0]
            ]
        return spots

    def forms(self, stemmed: str) -> set[str]:
        return {
            stemmed,
            *kin(stemmed),
            *(
                other
                for other in self.source.places_named.get(home(stemmed), ())
                if of_a_place(stemmed) != of_a_place(other)
            ),
        }

    def written(self, value: Value) -> bool:
        """Tell whether the source has the words of a name close together and in order."""
        wanted = [stem(word) for word in value.words]
        for n in self.source.found.get(wanted[-1], ()):
            unit = self.source.units[n]
            for end in unit.places[wanted[-1]]:
                at = end
                for word in reversed(wanted[:-1]):
                    at = max((p for p in unit.places.get(word, ()) if p < at), default=-1)
                    if at < 0:
                        break
                if at >= 0 and end - at <= len(wanted) + 2:
                    return True
        return False

    def fits(self, value: Value, window: list[_Unit]) -> bool:
        """Tell whether the value has in the window the role that the claim gives it."""
        unit = window[0]
        quoted = {at for v in unit.reading.values if v.kind == "quote" for at in range(v.first, v.last + 1)}
        rivals = [
            v
            for v in unit.reading.values
            if self.rival(v, value) and not (v.kind == "name" and v.first in quoted)
        ]
        if not rivals:
            return True
        rival = max(self.closeness(value.first, value.last, unit, v.last) for v in rivals)
        spots = self.spots(value, unit)
        if spots:
            own = max(self.closeness(value.first, value.last, unit, at) for at in spots)
            return own >= RIVAL[value.kind] * rival
        if value.kind in NAMES:
            pronoun = any(word in PRONOUNS for word in unit.reading.words)
            if (
                self.topical(value, unit)
                or pronoun
                and any(self.spots(value, u) for u in self.before(window))
            ):
                return rival < IDEAL * self.closeness(value.first, value.last, self.claim, value.last)
        own = max(
            (
                self.closeness(value.first, value.last, u, at)
                for u in window[1:]
                for at in self.spots(value, u)
            ),
            default=0.0,
        )
        return own > rival

    def before(self, window: list[_Unit]) -> list[_Unit]:
        units = self.source.units
        return [u for u in window[1:] if units.index(u) < units.index(window[0])]

    def rival(self, other: Value, value: Value) -> bool:
        """Tell whether a value of the source could be meant where the claim has another."""
        if other.kind != value.kind and not (other.kind in NAMES and value.kind in NAMES):
            return False
        if value.kind == "number" and other.unit and value.unit and other.unit != value.unit:
            return False
        return not any(self.same(other, own) for own in self.values)

    def same(self, other: Value, value: Value) -> bool:
        """Tell whether two values may be meant as one: a surname and the full name are."""
        if "quote" in (other.kind, value.kind):
            return False
        if (value.kind in NAMES) != (other.kind in NAMES):
            return False
        if "code" in (value.kind, other.kind):
            return other.words == value.words
        if value.kind == "name":
            mine, theirs = {stem(w) for w in value.words}, {stem(w) for w in other.words}
            if mine <= theirs or theirs <= mine or any(self.forms(w) & theirs for w in mine):
                return True
            short, long = sorted((value.words, other.words), key=len)
            return len(short) == 1 < len(long) and short[0] == "".join(word[0] for word in long)
        return says(other, value)

    def closeness(
        self, first: int, last: int, unit: _Unit, spot: int, dc: float = DC, ds: float = DS
    ) -> float:
        """Score how well the rest of the claim stands around a spot of one unit of a window."""
        score = 0.0
        kind = next((v.kind for v in self.values if v.first == first), None)
        beside = (
            {at for v in self.values if v.kind == kind for at in range(v.first, v.last + 1)}
            if kind
            else set()
        )
        clauses, own = unit.reading.clauses, self.claim.reading.clauses
        for at, word in enumerate(self.claim.stems):
            if first <= at <= last or at in beside:
                continue
            near = min(abs(at - first), abs(at - last)) + CLAUSE * abs(own[at] - own[first])
            if word in self.weights:
                forms, weight = (word, *kin(word)), self.weights[word]
                best = 0.0
                for form in forms:
                    for place in unit.places.get(form, ()):
                        if place != spot:
                            away = abs(place - spot) + CLAUSE * abs(clauses[place] - clauses[spot])
                            order = 1.0 if (place < spot) == (at < first) or kind == "date" else ORDER
                            best = max(best, order / (1 + away / ds))
            elif near <= 2:
                weight = SMALL
                best = 0.0
                for place in range(max(0, spot - 2), min(len(unit.stems), spot + 3)):
                    if unit.stems[place] == word and place != spot and (place < spot) == (at < first):
                        best = max(best, 1 / (1 + abs(place - spot) / ds))
            else:
                continue
            score += weight * best / (1 + near / dc)
        return score

    def match(self, at: int, window: list[_Unit]) -> _Match | None:
        """Return the word that stands in the window where the claim's word does: the same, its kin or its opposite."""
        word = self.claim.stems[at]
        for n, unit in enumerate(window):
            best = None
            far = opposites(word) if n == 0 and (word not in LIGHT or on_a_scale(word)) else ()
            for sign, factor, forms in (
                (1, 1.0, (word,)),
                (1, 0.9, kin(word)),
                (1, 0.9, allies(word)),
                (-1, OPPOSITE, far),
            ):
                for form in forms:
                    for place in unit.places.get(form, ()):
                        close = factor * self.closeness(at, at, unit, place, 2.0, 2.0)
                        if best is None or close > best.closeness:
                            best = _Match(close, unit, place, sign)
            if best:
                return best
        return None

    def turned(self, window: list[_Unit]) -> str | None:
        """Return the negation or direction that the place has the other way round."""
        claim = self.claim
        matches: dict[int, _Match] = {}
        for at, word in enumerate(claim.stems):
            if word in claim.places:
                found = self.match(at, window)
                if found:
                    matches[at] = found
        mine = _negated(claim, window[0])
        theirs = {id(unit): _negated(unit, claim) for unit in window}
        signs = {
            at: m.sign * (-1 if at in mine else 1) * (-1 if m.place in theirs[id(m.unit)] else 1)
            for at, m in matches.items()
        }
        if (
            not self.compared(window)
            or not self.travelled(window[0])
            or not self.agents(window)
            or self.swapped(window[0])
        ):
            return f"order differs: {window[0].reading.text}"
        for at, m in matches.items():
            word = claim.reading.words[at]
            if word in CONNECTORS:
                if self.reversed(at, m, matches):
                    return f"order differs: {word} / {m.unit.reading.words[m.place]}: {m.unit.reading.text}"
            elif m.sign < 0 and signs[at] < 0:
                if word in EMPTY and not self.neighbours(at, m):
                    continue
                return f"direction differs: {word} / {m.unit.reading.words[m.place]}: {m.unit.reading.text}"
        for cue, hard, governed in claim.cues:
            if not hard:
                continue
            heads = [at for at in governed if at in matches]
            if any(signs[at] > 0 for at in heads):
                continue
            if heads or not any(u.cues for u in window):
                return f"negation differs: {claim.reading.words[cue]}: {window[0].reading.text}"
        back = {(id(m.unit), m.place): at for at, m in matches.items()}
        for unit in window:
            for cue, hard, governed in unit.cues:
                for place in governed[: 2 if hard else 1]:
                    at = back.get((id(unit), place))
                    if (
                        at is not None
                        and at not in mine
                        and signs[at] < 0
                        and not any(cue[1] for cue in claim.cues)
                    ):
                        return f"negation differs: {unit.reading.words[cue]}: {unit.reading.text}"
        return None

    def neighbours(self, at: int, m: _Match) -> bool:
        """Tell whether a small word has the same content word behind it in the claim and in the source."""
        mine = next((w for w in self.claim.stems[at + 1 : at + 4] if w in self.wanted), "")
        theirs = [
            w
            for w, word in zip(m.unit.stems[m.place + 1 :], m.unit.reading.words[m.place + 1 :], strict=True)
            if word not in EMPTY
        ]
        return bool(({mine} | kin(mine)) & set(theirs[:2]))

    def reversed(self, at: int, m: _Match, matches: dict[int, _Match]) -> bool:
        """Tell whether what stands behind a `before`, `after` or `than` is not what stands behind it in the source."""
        theirs = set(self.argument(m.unit, m.place))
        held = missed = 0.0
        near = [n for n in self.argument(self.claim, at) if self.claim.reading.words[n] not in EMPTY]
        for rank, n in enumerate(near, 1):
            found = matches.get(n)
            if found and found.unit is m.unit:
                held, missed = (
                    (held + 1 / rank, missed) if found.place in theirs else (held, missed + 1 / rank)
                )
        return held > missed if m.sign < 0 else missed > held

    def compared(self, window: list[_Unit]) -> bool:
        """Tell whether a comparison is with the same thing and in the same direction as in the window."""
        words = self.claim.reading.words
        for at in (n for n, word in enumerate(words) if word == "than"):
            thing = next((s for s in self.claim.stems[at + 1 : at + 4] if s in self.weights), None)
            measure = [s for s in self.claim.stems[max(0, at - 3) : at] if s in self.claim.places]
            seen = False
            for unit in window:
                for place in (n for n, word in enumerate(unit.reading.words) if word == "than"):
                    seen = True
                    after = unit.stems[place + 1 : place + 4]
                    if thing and (thing in after or kin(thing) & set(after)):
                        before = set(unit.stems[max(0, place - 3) : place])
                        return not any(opposites(m) & before and m not in before for m in measure)
            if seen and thing:
                return False
        return True

    def travelled(self, unit: _Unit) -> bool:
        """Tell whether the claim goes from one thing to another the way the unit does."""
        mine, theirs = _journey(self.claim), _journey(unit)
        return not (mine and theirs and mine == theirs[::-1] and mine[0] != mine[1])

    @staticmethod
    def argument(unit: _Unit, at: int) -> range:
        """Return what stands behind a word: as far as its clause goes, and no more than three words with content."""
        end, content = at + 1, 0
        clauses = unit.reading.clauses
        while end < len(clauses) and clauses[end] == clauses[at] and content < 3:
            content += unit.reading.words[end] not in EMPTY
            end += 1
        return range(at + 1, end)

    def agents(self, window: list[_Unit]) -> bool:
        """Tell whether what the claim says was done `by` somebody was done by them in the window."""
        for value in self.values:
            if (
                value.kind not in NAMES
                or value.first < 2
                or self.claim.reading.words[value.first - 1] != "by"
            ):
                continue
            done = self.claim.stems[value.first - 2]
            others = False
            for unit in window:
                spots = self.spots(value, unit)
                for place in unit.places.get(done, ()):
                    by = next(
                        (
                            n
                            for n in range(place + 1, min(place + 4, len(unit.stems)))
                            if unit.reading.words[n] == "by"
                        ),
                        0,
                    )
                    if by:
                        if any(by < spot <= by + 6 for spot in spots):
                            return True
                        others = True
            if others:
                return False
        return True

    def swapped(self, unit: _Unit) -> bool:
        """Tell whether two names have changed places around the same word."""
        names = [v for v in self.values if v.kind == "name"]
        for one in names:
            for other in names:
                between = range(one.last + 1, other.first)
                if not 1 <= len(between) <= 4:
                    continue
                for at in between:
                    word = self.claim.stems[at]
                    if word in self.wanted and self._crossed(
                        unit, one, other, word, "by" in self.claim.reading.words[at : other.first]
                    ):
                        return True
        return False

    def _crossed(self, unit: _Unit, one: Value, other: Value, word: str, passive: bool) -> bool:
        for place in unit.places.get(word, ()):
            behind = [n for n in self.spots(one, unit) if place < n <= place + 6]
            before = [n for n in self.spots(other, unit) if place - 6 <= n < place]
            straight = [n for n in self.spots(one, unit) if n < place] and [
                n for n in self.spots(other, unit) if n > place
            ]
            if behind and before and not straight:
                return passive == ("by" in unit.reading.words[place : behind[0]])
        return False


def _journey(unit: _Unit) -> tuple[str, str] | None:
    """Return the first words with content behind a `from` and the `to` that follows it."""
    words = unit.reading.words
    for start in (n for n, word in enumerate(words) if word == "from"):
        for middle in range(start + 2, min(start + 8, len(words) - 1)):
            if words[middle] == "to":
                ends = [
                    next(
                        (
                            s
                            for s, w in zip(unit.stems[n : n + 4], words[n : n + 4], strict=True)
                            if w not in EMPTY
                        ),
                        "",
                    )
                    for n in (start + 1, middle + 1)
                ]
                return ends[0], ends[1]
    return None


def _negated(unit: _Unit, other: _Unit) -> set[int]:
    """Return the places under a negation; words like `ignore` count only where the other side lacks them."""
    negated: set[int] = set()
    for cue, hard, governed in unit.cues:
        if hard or unit.stems[cue] not in other.stems:
            negated ^= set(governed)
    return negated


def _common(value: Value) -> bool:
    """A capital at the start of a sentence makes no name of a word that the dictionary has."""
    return value.unit == "initial" and is_common(stem(value.words[0]))


PREDICATES = frozenset(
    "allowed permitted possible supported required valid legal run runs apply applies exist exists available needed done used".split()
)
NAMES = frozenset(("name", "code"))
CONNECTORS = frozenset("before after until since following prior preceding subsequent".split())
PRONOUNS = frozenset("he she it they his her its their him them who this that these those".split())
LIGHT_WEIGHT = 0.3
SLACK = 0.02
MARGIN = 0.15
BESIDE = 0.5
IDEAL = 0.8
SCALE = 0.6
BARE = 1.0
CLAUSE_COVERED = 0.3
TOPIC = 0.2
ORDER = 0.8
SMALL = 0.3
OPPOSITE = 0.85


def is_factual(sentence: str) -> bool:
    """Tell whether a sentence makes a claim that a source could back."""
    text = plain(sentence)
    reading = read(text)
    content = [word for word in reading.words if word not in EMPTY]
    return len(content) >= 2 and len(reading.words) >= 4 and not text.endswith(("?", ":"))
