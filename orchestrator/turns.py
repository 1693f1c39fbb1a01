"""Whether a place has turned a claim round: negation, direction, and who did what to whom."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.alignment import NAMES, Alignment, Match
from orchestrator.units import Unit, negated
from orchestrator.values import Value
from orchestrator.words import CONNECTORS, EMPTY, SAID, kin, opposites


def turned(claim: Alignment, window: list[Unit]) -> str | None:
    """Return what the place has the other way round, None when nothing is."""
    here = window[0]
    ordered, settled = _compared(claim, window)
    if not ordered or not _travelled(claim, here) or _crossed(claim, here):
        return f"order differs: {here.reading.text}"
    if not _done_by(claim, window) or not _said_by(claim, here):
        return f"somebody else did: {here.reading.text}"
    words = enumerate(claim.claim.stems)
    found = {at: claim.match(at, window) for at, word in words if word in claim.weights and at not in settled}
    matches = {at: match for at, match in found.items() if match}
    return _opposed(claim, window, matches) or _unsaid(claim, window, matches)


def _opposed(claim: Alignment, window: list[Unit], matches: dict[int, Match]) -> str | None:
    """Return a word in whose place an opposite stands."""
    signs = _signs(claim, window, matches)
    for at, match in matches.items():
        word, there = claim.claim.reading.words[at], match.unit.reading.words[match.place]
        if word in CONNECTORS:
            if _backwards(claim, at, match, matches):
                return f"order differs, {word} / {there}: {match.unit.reading.text}"
        elif match.sign < 0 and signs[at] < 0 and (word not in EMPTY or _same_thing(claim, at, match)):
            return f"direction differs, {word} / {there}: {match.unit.reading.text}"
    return None


def _unsaid(claim: Alignment, window: list[Unit], matches: dict[int, Match]) -> str | None:
    """Return a negation that only one side has; what it is about must be the very same word on both."""
    here = window[0]
    signs = _signs(claim, window, matches)
    same = {
        match.place: at
        for at, match in matches.items()
        if match.unit is here and here.stems[match.place] == claim.claim.stems[at]
    }
    hard = [cue for cue in claim.claim.cues if cue.hard]
    for cue in hard:
        heads = [at for at in cue.governed if at in same.values()]
        if not any(signs[at] > 0 for at in cue.governed if at in matches) and (
            heads or not any(unit.cues for unit in window)
        ):
            return f"negation differs, {claim.claim.reading.words[cue.at]}: {here.reading.text}"
    mine = negated(claim.claim, here)
    for cue in here.cues if not hard else ():
        for at in (same.get(place, -1) for place in cue.governed[: 2 if cue.hard else 1]):
            if at >= 0 and at not in mine and signs[at] < 0:
                return f"negation differs, {here.reading.words[cue.at]}: {here.reading.text}"
    return None


def _signs(claim: Alignment, window: list[Unit], matches: dict[int, Match]) -> dict[int, int]:
    """Return for each matched word 1 where both sides mean the same, -1 where one is the opposite."""
    mine = negated(claim.claim, window[0])
    theirs = {unit.number: negated(unit, claim.claim) for unit in window}
    return {
        at: match.sign * (-1 if at in mine else 1) * (-1 if match.place in theirs[match.unit.number] else 1)
        for at, match in matches.items()
    }


def _same_thing(claim: Alignment, at: int, match: Match) -> bool:
    """Tell whether `more` or `few` or the like is said of the same thing on both sides."""
    mine = {claim.claim.stems[n] for n in _behind(claim.claim, at, 1)}
    behind = range(match.place + 1, len(match.unit.stems))
    theirs = [match.unit.stems[n] for n in behind if match.unit.reading.words[n] not in EMPTY][:2]
    return bool(mine.union(*map(kin, mine)).intersection(theirs))


def _backwards(claim: Alignment, at: int, match: Match, matches: dict[int, Match]) -> bool:
    """Tell whether what stands behind a `before` or `after` is not what stands behind it in the source."""
    theirs = set(_behind(match.unit, match.place, 6))
    held = missed = 0.0
    for rank, n in enumerate(_behind(claim.claim, at, 3), 1):
        other = matches.get(n)
        if other and other.unit is match.unit:
            held, missed = (held + 1 / rank, missed) if other.place in theirs else (held, missed + 1 / rank)
    return held > missed if match.sign < 0 else missed > held


def _behind(unit: Unit, at: int, most: int) -> list[int]:
    """Return the positions of the words with content behind a word, as far as its clause goes."""
    words, clauses = unit.reading.words, unit.reading.clauses
    found: list[int] = []
    for n in range(at + 1, len(words)):
        if clauses[n] != clauses[at] or len(found) == most:
            break
        if words[n] not in EMPTY:
            found.append(n)
    return found


def _compared(claim: Alignment, window: list[Unit]) -> tuple[bool, set[int]]:
    """Tell whether a comparison is the window's, and which words of the claim that settles.

    "A is larger than B" is "B is smaller than A", and neither is "B is larger than A".
    """
    for at in _of("than", claim.claim):
        things = {claim.claim.stems[n] for n in _behind(claim.claim, at, 2)}
        measures = {n for n in range(max(0, at - 3), at) if claim.claim.stems[n] in claim.weights}
        found = [
            (_compares(claim, things, measures, unit, n), unit) for unit in window for n in _of("than", unit)
        ]
        for verdict, unit in found:
            if verdict:
                return True, measures | {n for n, word in enumerate(claim.claim.stems) if word in unit.places}
        if any(verdict is False for verdict, _ in found):
            return False, set()
    return True, set()


def _compares(claim: Alignment, things: set[str], measures: set[int], unit: Unit, at: int) -> bool | None:
    """Tell whether a unit's `than` compares with the same thing; None where it measures something else."""
    behind = {unit.stems[n] for n in _behind(unit, at, 2)}
    before = set(unit.stems[max(0, at - 10) : at])
    measured = set(unit.stems[max(0, at - 3) : at])
    mine = {claim.claim.stems[n] for n in measures}
    turned_round = any(opposites(m) & measured and m not in measured for m in mine)
    if things & behind:
        return not turned_round
    if things & before:
        return turned_round
    return False if mine & measured else None


def _travelled(claim: Alignment, unit: Unit) -> bool:
    """Tell whether the claim goes from one thing to another the way the unit does."""
    mine, theirs = _journey(claim.claim), _journey(unit)
    return not (mine and theirs and mine == theirs[::-1] and mine[0] != mine[1])


def _journey(unit: Unit) -> tuple[str, str] | None:
    """Return the first words with content behind a `from` and behind the `to` that follows it."""
    words = unit.reading.words
    for start in _of("from", unit):
        for middle in range(start + 2, min(start + 8, len(words) - 1)):
            if words[middle] == "to":
                first, last = (_behind(unit, n, 1) for n in (start, middle))
                return (unit.stems[first[0]], unit.stems[last[0]]) if first and last else None
    return None


def _done_by(claim: Alignment, window: list[Unit]) -> bool:
    """Tell whether what the claim says was done `by` somebody was done by them in the window."""
    for value in claim.values:
        if value.kind not in NAMES or value.first < 2 or claim.claim.reading.words[value.first - 1] != "by":
            continue
        done = claim.match(value.first - 2, window)
        by = _by(done.unit, done.place) if done else None
        if done and by and not any(by < spot <= by + 6 for spot in claim.spots(value, done.unit)):
            return False
    return True


def _by(unit: Unit, place: int) -> int | None:
    """Return the position of the `by` that follows a word."""
    return next(
        (n for n in range(place + 1, min(place + 4, len(unit.stems))) if unit.reading.words[n] == "by"), None
    )


def _said_by(claim: Alignment, unit: Unit) -> bool:
    """Tell whether the unit does not report as said by others what the claim says that somebody said."""
    mine = [v for v in claim.values if v.kind == "name" and _speaks(claim.claim, v)]
    theirs = [v for v in unit.reading.values if v.kind == "name" and _speaks(unit, v)]
    return not (mine and theirs) or any(claim.same(other, own) for own in mine for other in theirs)


def _speaks(unit: Unit, name: Value) -> bool:
    words = unit.reading.words
    behind = unit.stems[name.last + 1 : name.last + 2]
    return words[max(0, name.first - 2) : name.first] == ["according", "to"] or bool(
        SAID.intersection(behind)
    )


def _crossed(claim: Alignment, unit: Unit) -> bool:
    """Tell whether two names have changed places around the same word."""
    names = [v for v in claim.values if v.kind in NAMES]
    pairs = [(one, other) for one in names for other in names if 1 < other.first - one.last <= 8]
    return any(
        _crossed_at(claim, unit, pair, at)
        for pair in pairs
        for at in range(pair[0].last + 1, pair[1].first)
        if claim.claim.stems[at] in claim.wanted
    )


def _crossed_at(claim: Alignment, unit: Unit, pair: tuple[Value, Value], at: int) -> bool:
    first, last = (claim.spots(name, unit) for name in pair)
    passive = "by" in claim.claim.reading.words[at : pair[1].first]
    for place in unit.places.get(claim.claim.stems[at], ()):
        behind = [n for n in first if place < n <= place + 8]
        before = [n for n in last if place - 8 <= n < place]
        if behind and before and min(first) > place > max(last):
            return passive == ("by" in unit.reading.words[place : behind[0]])
    return False


def _of(word: str, unit: Unit) -> Iterator[int]:
    return (n for n, other in enumerate(unit.reading.words) if other == word)
