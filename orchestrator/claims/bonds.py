"""Who does what to whom: whether a place joins the words of a claim in another way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import NamedTuple

from orchestrator.claims.alignment import NAMES, Alignment
from orchestrator.claims.grammar import (
    agents,
    behind,
    by,
    of,
    passive,
    relates,
    segments,
    side,
)
from orchestrator.claims.units import Unit
from orchestrator.claims.values import Value
from orchestrator.claims.words import DETERMINERS, EMPTY, SAID, is_verbal

_BESIDE = 2
"""Words between which the claim makes a bond: next to each other, or one word apart."""


class _Verb(NamedTuple):
    """A word of the claim that joins what stands on its two sides."""

    at: int
    left: list[int]
    right: list[int]


def loosened(claim: Alignment, window: list[Unit]) -> bool:
    """Tell whether the place says of somebody or something else what the claim says of its own."""
    here = window[0]
    return (
        not (_done_by(claim, window) and _acted(claim, here) and _said_by(claim, here))
        or not _attached(claim, here)
        or _crossed(claim, here)
    )


def travelled(claim: Alignment, unit: Unit) -> bool:
    """Tell whether the claim goes from one thing to another the way the unit does."""
    mine, theirs = _journey(claim.claim), _journey(unit)
    return not (mine and theirs and mine == theirs[::-1] and mine[0] != mine[1])


def _journey(unit: Unit) -> tuple[str, str] | None:
    """Return the first words with content behind a `from` and behind the `to` that follows it."""
    words = unit.reading.words
    for start in of("from", unit):
        for middle in range(start + 2, min(start + 8, len(words) - 1)):
            if words[middle] == "to":
                first, last = (behind(unit, n, 1) for n in (start, middle))
                return (unit.stems[first[0]], unit.stems[last[0]]) if first and last else None
    return None


def _done_by(claim: Alignment, window: list[Unit]) -> bool:
    """Tell whether what the claim says was done `by` somebody was done by them in the window."""
    for value in claim.values:
        if value.kind not in NAMES or value.first < 2 or claim.claim.reading.words[value.first - 1] != "by":
            continue
        done = claim.match(value.first - 2, window, range(value.first, value.last + 1))
        led = by(done.unit, done.place) if done else None
        if done and led and not any(led < spot <= led + 6 for spot in claim.spots(value, done.unit)):
            return False
    return True


def _acted(claim: Alignment, unit: Unit) -> bool:
    """Tell whether a verb of the claim has in the unit an agent that the claim gives it."""
    for at, word in enumerate(claim.claim.reading.words):
        mine = agents(claim.claim, at) if at and is_verbal(word) else []
        places = [place for place in claim.places(at, unit) if place and is_verbal(unit.reading.words[place])]
        theirs = [agents(unit, place) for place in places] if mine else []
        if theirs and all(them and not _shared(claim, them, mine) for them in theirs):
            return False
    return True


def _shared(claim: Alignment, theirs: list[Value], mine: list[Value]) -> bool:
    return any(claim.same(other, own) for own in mine for other in theirs)


def _said_by(claim: Alignment, unit: Unit) -> bool:
    """Tell whether the unit does not report as said by others what the claim says that somebody said."""
    mine = [v for v in claim.values if v.kind == "name" and _speaks(claim.claim, v)]
    theirs = [v for v in unit.reading.values if v.kind == "name" and _speaks(unit, v)]
    return not (mine and theirs) or _shared(claim, theirs, mine)


def _speaks(unit: Unit, name: Value) -> bool:
    words = unit.reading.words
    then = unit.stems[name.last + 1 : name.last + 2]
    return words[max(0, name.first - 2) : name.first] == ["according", "to"] or bool(SAID.intersection(then))


def _attached(claim: Alignment, unit: Unit) -> bool:
    """Tell whether `named`, `written by`, `moved to` and the like lead to the claim's names."""
    for value in claim.values:
        key = _lead(claim.claim, value.first)
        if value.kind not in NAMES or not key:
            continue
        spots = claim.spots(value, unit)
        others = [v for v in unit.reading.values if v.kind in NAMES and _lead(unit, v.first) == key]
        if others and not any(0 <= spot - v.first <= 6 for v in others for spot in spots):
            return False
    return True


def _lead(unit: Unit, at: int) -> tuple[str, str] | None:
    """Return the word with content that leads to a position, and the small word between, if any."""
    words = unit.reading.words
    n = at - 1
    while n > at - 3 and n >= 0 and words[n] in DETERMINERS:
        n -= 1
    small = words[n] if n >= 0 and words[n] in EMPTY else ""
    n -= bool(small)
    return (unit.stems[n], small) if n >= 0 and words[n] not in EMPTY else None


def _crossed(claim: Alignment, unit: Unit) -> bool:
    """Tell whether two words that the claim joins are joined to others in the unit, in segments side by side.

    "One is common in lowlands and rare in mountains" does not say that it is common in mountains.
    """
    own, parts = segments(claim.claim), segments(unit)
    words = [at for at, word in enumerate(claim.claim.reading.words) if word not in EMPTY]
    spots = {
        at: [p for p in claim.places(at, unit) if unit.stems[p] == claim.claim.stems[at]] for at in words
    }
    for one, other in chain(pairwise(words), zip(words, words[2:], strict=False)):
        if own[one] == own[other] and other - one <= _BESIDE and _parted(parts, spots, one, other):
            joined = _stems(claim.claim, own, own[one])
            known = {p for w in words if own[w] == own[one] for p in claim.places(w, unit)}
            known |= {n for n, word in enumerate(unit.stems) if word in joined}
            known |= {
                at
                for v in unit.reading.values
                if any(claim.same(v, own) for own in claim.values)
                for at in range(v.first, v.last + 1)
            }
            passed = {p for w in words if one < w < other for p in spots[w]}
            ends = [(p, 1) for p in spots[one]] + [(p, -1) for p in spots[other]]
            near = [[n for n in side(unit, parts, p, step) if n not in passed] for p, step in ends]
            if all(found and found[0] not in known for found in near):
                return True
    return False


def _parted(parts: list[int], spots: dict[int, list[int]], one: int, other: int) -> bool:
    """Tell whether two words stand in segments side by side, both of which have what is between the two."""
    first, second = {parts[p] for p in spots[one]}, {parts[p] for p in spots[other]}
    between = [{parts[p] for p in found} for at, found in spots.items() if one < at < other]
    return (
        not first & second
        and any(abs(a - b) == 1 for a in first for b in second)
        and all(found >= first | second for found in between)
    )


def _stems(unit: Unit, parts: list[int], part: int) -> set[str]:
    return {word for word, own in zip(unit.stems, parts, strict=True) if own == part}


def reversed_roles(claim: Alignment, unit: Unit) -> bool:
    """Tell whether what does something in the claim has it done to it in the unit."""
    parts = segments(unit)
    for verb in _verbs(claim.claim):
        places = [p for p in claim.places(verb.at, unit) if unit.stems[p] == claim.claim.stems[verb.at]]
        if places and all(_mirrored(claim, verb, unit, parts, place) for place in places):
            return True
    return False


def converse(claim: Alignment, at: int, unit: Unit, place: int) -> bool:
    """Tell whether a word and its opposite say the same: they lent to us what we borrowed from them."""
    verb = next((verb for verb in _verbs(claim.claim) if verb.at == at), None)
    return verb is not None and _mirrored(claim, verb, unit, segments(unit), place)


def _verbs(unit: Unit) -> Iterator[_Verb]:
    """Yield the words that join something before them to something behind them."""
    parts = segments(unit)
    for at in range(len(parts)):
        verb = _Verb(at, side(unit, parts, at, -1), side(unit, parts, at, 1))
        if verb.left and verb.right and relates(unit, at):
            yield verb


def _mirrored(claim: Alignment, verb: _Verb, unit: Unit, parts: list[int], place: int) -> bool:
    """Tell whether what stands before a verb of the claim stands behind it in the unit, in the same voice."""
    before, after = set(side(unit, parts, place, -1)), set(side(unit, parts, place, 1))
    lefts = [set(claim.places(n, unit)) for n in verb.left]
    rights = [set(claim.places(n, unit)) for n in verb.right]
    if passive(claim.claim, verb.at) != passive(unit, place):
        led = by(claim.claim, verb.at, 8) if passive(claim.claim, verb.at) else by(unit, place, 8)
        return led is not None and bool(lefts[0] & before) and not lefts[0] & after
    if any(spots & before for spots in lefts):
        return False
    return bool(lefts[0] & after) and any(spots & before and not spots & after for spots in rights)
