"""The excerpts of one source, read once: sentences with their words, values and negations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from orchestrator.claims.tokens import plain
from orchestrator.claims.values import Reading, Value, read
from orchestrator.claims.words import (
    EMPTY,
    HARD_NEGATIONS,
    PREDICATES,
    PRONOUNS,
    SOFT_NEGATIONS,
    SUBORDINATE,
    home,
    on_a_scale,
    stem,
)
from orchestrator.text.sentences import sentences

_LONGEST = 100
"""Words after which a text without full stops is cut all the same, half of each part in the next."""

_TOPIC = 0.2
"""Share of the sentences with a word above which a source is about it."""

_SUBJECT = 15
"""How many words before a negation may be what it is about."""


class Cue(NamedTuple):
    """A negation at a position, and the positions of the words it governs, the nearest first."""

    at: int
    hard: bool
    """False where the word only may stand for a negation: `lack`, `refuse`."""
    governed: list[int]


class Unit(NamedTuple):
    """One sentence of an excerpt, or the sentence to be checked."""

    excerpt: int
    number: int
    reading: Reading
    stems: list[str]
    places: dict[str, list[int]]
    """Positions of each stem that has content or stands on a scale."""
    cues: list[Cue]


class Index:
    """The units of a source in order, and in which of them each stem stands."""

    def __init__(self, texts: Iterable[str], title: str = "") -> None:
        self.units: list[Unit] = []
        for excerpt, text in enumerate(texts):
            year: int | None = None
            for sentence in sentences(text):
                for piece in _pieces(plain(sentence)):
                    reading = read(piece)
                    year = _inherit(reading.values, year)
                    if reading.words:
                        self.units.append(unit(reading, excerpt, len(self.units)))
        self.title = frozenset(stem(word) for word in read(plain(title)).words)
        self.found: dict[str, list[int]] = defaultdict(list)
        self.names: dict[str, set[str]] = defaultdict(set)
        """Stems of capitalised words by what the name of a place and its adjective have in common."""
        for one in self.units:
            for word in one.places:
                self.found[word].append(one.number)
            for value in one.reading.values:
                for word in value.words if value.kind == "name" else ():
                    self.names[home(stem(word))].add(stem(word))

    def is_topic(self, *words: str) -> bool:
        """Tell whether so many sentences have one of some stems that the source is about it."""
        found = {number for word in words for number in self.found.get(word, ())}
        return len(found) >= max(3, _TOPIC * len(self.units))

    def around(self, number: int) -> list[Unit]:
        """Return a unit, the one before it and the one behind it, as far as they are of one excerpt."""
        units, excerpt = self.units, self.units[number].excerpt
        near = (n for n in (number, number - 1, number + 1) if 0 <= n < len(units))
        return [units[n] for n in near if units[n].excerpt == excerpt]


def unit(reading: Reading, excerpt: int = -1, number: int = -1) -> Unit:
    """Prepare a sentence for comparison."""
    stems = [stem(word) for word in reading.words]
    places: dict[str, list[int]] = defaultdict(list)
    for at, word in enumerate(reading.words):
        if word not in EMPTY or on_a_scale(stems[at]):
            places[stems[at]].append(at)
    return Unit(excerpt, number, reading, stems, dict(places), list(_cues(reading, stems)))


def takes_up(one: Unit) -> bool:
    """Tell whether a pronoun stands for somebody named before: no name of the sentence itself precedes it."""
    first = min((v.first for v in one.reading.values if v.kind == "name"), default=len(one.stems))
    return any(word in PRONOUNS for word in one.reading.words[:first])


def negated(one: Unit, other: Unit) -> set[int]:
    """Return the positions under a negation; `lack` and the like count where the other side lacks them."""
    found: set[int] = set()
    for cue in one.cues:
        if cue.hard or one.stems[cue.at] not in other.stems:
            found ^= set(cue.governed)
    return found


def _pieces(text: str) -> Iterator[str]:
    """Yield the text, or overlapping parts where it has no full stops, or no spaces either, for too long."""
    words = text.split(" ")
    if len(words) > _LONGEST:
        for start in range(0, len(words), _LONGEST // 2):
            yield from _pieces(" ".join(words[start : start + _LONGEST]))
    elif len(text) > 12 * _LONGEST:
        yield from (text[start : start + 6 * _LONGEST] for start in range(0, len(text), 3 * _LONGEST))
    else:
        yield text


def _inherit(values: list[Value], year: int | None) -> int | None:
    """Give each date without a year the last year named before it, and return the last year named."""
    for at in sorted(range(len(values)), key=lambda n: values[n].first):
        if values[at].kind == "date":
            if values[at].date[0] is None and year:
                values[at] = values[at]._replace(date=(year, *values[at].date[1:]))
            year = values[at].date[0] or year
    return year


def _cues(reading: Reading, stems: list[str]) -> Iterator[Cue]:
    words, clauses = reading.words, reading.clauses
    for cue, word in enumerate(words):
        hard = word in HARD_NEGATIONS
        if not hard and (stems[cue] not in SOFT_NEGATIONS or word.startswith("exception")):
            continue
        reach = 3 if hard and word != "no" else 2
        governed: list[int] = []
        for at in range(cue + 1, len(words)):
            if clauses[at] != clauses[cue] or len(governed) == reach or words[at] in SUBORDINATE:
                break
            if words[at] not in EMPTY:
                governed.append(at)
        if hard and word != "no" and all(words[at] in PREDICATES for at in governed):
            # "leading zeros are not allowed": the negation is about what stands before it
            back = range(cue - 1, max(-1, cue - _SUBJECT), -1)
            governed += [at for at in back if clauses[at] == clauses[cue] and words[at] not in EMPTY]
        yield Cue(cue, hard, governed)
