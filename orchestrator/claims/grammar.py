"""What the order of words tells without a parser: segments, voices, agents, and what stands beside a word."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.claims.alignment import NAMES
from orchestrator.claims.units import Unit
from orchestrator.claims.values import Value
from orchestrator.claims.words import (
    BREAKS,
    DETERMINERS,
    EMPTY,
    NOMINAL,
    PASSIVE,
    PREPOSITIONS,
    PRONOUNS,
    RELATIVES,
    VERBS,
    is_verbal,
)

_REACH = 6
"""How far words of one segment are joined, in words."""
_AGENTS = 4
"""How far a name may stand from what it does, and the names behind `by` from it."""


def segments(unit: Unit) -> list[int]:
    """Number the parts of a sentence that a comma, a conjunction or a relative pronoun sets apart."""
    found: list[int] = []
    segment = clause = 0
    for word, own in zip(unit.reading.words, unit.reading.clauses, strict=True):
        segment += own != clause or word in BREAKS or word in RELATIVES or word == "that"
        clause = own
        found.append(segment)
    return found


def side(unit: Unit, parts: list[int], at: int, step: int) -> list[int]:
    """Return where content stands before (-1) or behind (1) a word in its segment, the nearest first."""
    near = (at + step * n for n in range(1, _REACH + 1))
    return [
        n
        for n in near
        if 0 <= n < len(parts) and parts[n] == parts[at] and unit.reading.words[n] not in EMPTY
    ]


def behind(unit: Unit, at: int, most: int) -> list[int]:
    """Return the positions of the words with content behind a word, as far as its clause goes."""
    words, clauses = unit.reading.words, unit.reading.clauses
    found: list[int] = []
    for n in range(at + 1, len(words)):
        if clauses[n] != clauses[at] or len(found) == most:
            break
        if words[n] not in EMPTY:
            found.append(n)
    return found


def neighbour(unit: Unit, at: int, step: int) -> int:
    """Return the nearest position with content before or behind a word in its clause, or -1."""
    return next(iter(side(unit, unit.reading.clauses, at, step)), -1)


def of(word: str, unit: Unit) -> Iterator[int]:
    """Yield the positions of a word."""
    return (n for n, other in enumerate(unit.reading.words) if other == word)


def is_verb(unit: Unit, at: int) -> bool:
    """Tell whether a word is a verb where it stands, as far as its neighbour shows."""
    word, before = unit.reading.words[at], unit.reading.words[at - 1] if at else ""
    return unit.stems[at] in VERBS and before not in DETERMINERS and not word.endswith(NOMINAL)


def relates(unit: Unit, at: int) -> bool:
    """Tell whether a word may join what stands before it to what stands behind: a verb, or `is a part`."""
    words = unit.reading.words
    before = words[at - 1] if at else ""
    if before in DETERMINERS:
        return at > 1 and words[at - 2] in PASSIVE
    if not is_verbal(words[at]) and any(map(is_verbal, words[at + 1 : at + 2])):
        return False
    return words[at] not in EMPTY and before not in PREPOSITIONS


def passive(unit: Unit, at: int) -> bool:
    """Tell whether a verb is in the passive voice."""
    before = unit.reading.words[max(0, at - 2) : at]
    been = bool(before) and (before[-1] in PASSIVE or (before[0] in PASSIVE and before[-1].endswith("ly")))
    return is_verbal(unit.reading.words[at]) and (been or by(unit, at, 1) is not None)


def by(unit: Unit, place: int, reach: int = 3) -> int | None:
    """Return the position of the `by` that follows a verb and leads to who did it."""
    end = min(place + reach + 1, len(unit.stems))
    others = {v.first for v in unit.reading.values if v.kind in ("date", "time", "number")}
    found = (n for n in range(place + 1, end) if unit.reading.words[n] == "by" and n + 1 not in others)
    return next(found, None)


def agents(unit: Unit, at: int) -> list[Value]:
    """Return the names of who does what a verb says: behind `by`, else right before the verb."""
    names = sorted((v for v in unit.reading.values if v.kind in NAMES), key=lambda v: v.first)
    if passive(unit, at):
        led = by(unit, at, 2 * _AGENTS)
        return [] if led is None else list(_listed(unit, names, led))
    words, clauses = unit.reading.words, unit.reading.clauses
    before = [v for v in names if at - _AGENTS <= v.last < at and clauses[v.last] == clauses[at]]
    name = max(before, key=lambda v: v.last, default=None)
    if not name or not all(map(_is_between, words[name.last + 1 : at])):
        return []
    start = name.first
    while start and words[start - 1] in DETERMINERS:
        start -= 1
    small = words[start - 1] if start and clauses[start - 1] == clauses[start] else ""
    if small == "with" and words[at].endswith("ing"):
        return [name]
    return [] if small in PREPOSITIONS else [name]


def _is_between(word: str) -> bool:
    """Tell whether a word may stand between who does something and the verb."""
    return (word in EMPTY and word not in PRONOUNS) or word.endswith("ly")


def _listed(unit: Unit, names: list[Value], at: int) -> Iterator[Value]:
    """Yield the names that follow a position, as far as they make a list."""
    words = unit.reading.words
    for name in names:
        if at < name.first and all(
            word in DETERMINERS or word in ("and", "or") for word in words[at + 1 : name.first]
        ):
            yield name
            at = name.last
