"""Whether a place has turned a claim round: negation, direction, and who did what to whom."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.claims.alignment import NAMES, Alignment, Match
from orchestrator.claims.units import Unit, negated
from orchestrator.claims.values import Value, says
from orchestrator.claims.words import (
    ANSWERS,
    AUXILIARY,
    CONNECTORS,
    DETERMINERS,
    EMPTY,
    PASSIVE,
    PRONOUNS,
    SAID,
    VERBS,
    kin,
    opposites,
)

_NOUNS = ("tion", "tions", "sion", "ment", "ments", "ance", "ence", "ity", "er", "ers", "or", "ors")


def turned(claim: Alignment, window: list[Unit]) -> str | None:
    """Return what the place has the other way round, None when nothing is."""
    here = window[0]
    ordered, settled = _compared(claim, window)
    if not ordered or not _travelled(claim, here) or _reversed(claim, here) or not _bounded(claim, window):
        return f"order differs: {here.reading.text}"
    if not _about(claim, window):
        return f"this is about something else: {here.reading.text}"
    if not (_done_by(claim, window) and _said_by(claim, here) and _attached(claim, here)):
        return f"somebody else did: {here.reading.text}"
    words = enumerate(claim.claim.stems)
    found = {at: claim.match(at, window) for at, word in words if word in claim.weights and at not in settled}
    matches = {at: match for at, match in found.items() if match}
    return (
        _opposed(claim, window, matches)
        or _unsaid(claim, window, matches)
        or _unstated(claim, window, matches)
    )


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
    hard = [cue for cue in claim.claim.cues if cue.hard or claim.claim.reading.words[cue.at] == "instead"]
    for cue in hard:
        heads = [at for at in cue.governed[: 3 if cue.hard else 1] if at in same.values()]
        if not any(signs[at] > 0 for at in cue.governed if at in matches) and (
            heads or not any(unit.cues or ANSWERS.intersection(unit.stems) for unit in window)
        ):
            return f"negation differs, {claim.claim.reading.words[cue.at]}: {here.reading.text}"
    mine = negated(claim.claim, here)
    for cue in here.cues if not hard else ():
        for at in (same.get(place, -1) for place in cue.governed[: 2 if cue.hard else 1]):
            if at >= 0 and at not in mine and signs[at] < 0:
                return f"negation differs, {here.reading.words[cue.at]}: {here.reading.text}"
    return None


def _unstated(claim: Alignment, window: list[Unit], matches: dict[int, Match]) -> str | None:
    """Return a `before`, `after` or `than` between two things that the window does not relate at all."""
    values = {v.first for v in claim.values}
    words = claim.claim.reading.words
    for at, word in enumerate(words):
        if (
            word in CONNECTORS
            and at not in matches
            and not values & {at + 1, at + 2}
            and words[at - 1] != "named"
        ):
            return f"no order is given, {word}: {window[0].reading.text}"
    compared = [at for at in _of("than", claim.claim) if not values & {at + 1, at + 2}]
    if compared and not any(True for unit in window for _ in _of("than", unit)):
        return f"nothing is compared: {window[0].reading.text}"
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
    left, there = _neighbour(claim.claim, at, -1), _neighbour(match.unit, match.place, -1)
    if left >= 0 and there >= 0 and at - left <= 2 and claim.claim.stems[left] == match.unit.stems[there]:
        return True
    mine = {claim.claim.stems[n] for n in _behind(claim.claim, at, 1)}
    behind = range(match.place + 1, len(match.unit.stems))
    theirs = [match.unit.stems[n] for n in behind if match.unit.reading.words[n] not in EMPTY][:2]
    return bool(mine.union(*map(kin, mine)).intersection(theirs))


def _backwards(claim: Alignment, at: int, match: Match, matches: dict[int, Match]) -> bool:
    """Tell whether what stands behind a `before` or `after` is not what stands behind it in the source."""
    theirs = set(_behind(match.unit, match.place, 6))
    mine = [matches[n] for n in _behind(claim.claim, at, 3) if n in matches and matches[n].unit is match.unit]
    held = sum(other.place in theirs for other in mine)
    missed = len(mine) - held
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


def _by(unit: Unit, place: int, reach: int = 3) -> int | None:
    """Return the position of the `by` that follows a word."""
    end = min(place + reach + 1, len(unit.stems))
    dates = {v.first for v in unit.reading.values if v.kind in ("date", "time", "number")}
    by = (n for n in range(place + 1, end) if unit.reading.words[n] == "by" and n + 1 not in dates)
    return next(by, None)


def _about(claim: Alignment, window: list[Unit]) -> bool:
    """Tell whether the subject of the claim stands in the unit, or is taken up there from the one before."""
    subject = _subject(claim.claim)
    if not subject:
        return True
    here = window[0]
    stems, index = claim.claim.stems, claim.index
    known = [
        at for at in subject if claim.places(at, here) or stems[at] in index.found or stems[at] in index.title
    ]
    there = [at for at in known if claim.places(at, here) or stems[at] in index.title]
    # a word that the source never has is another word for the subject, not another subject
    if sum(claim.weights[stems[at]] for at in there) >= 0.5 * sum(claim.weights[stems[at]] for at in known):
        return True
    before = [unit for unit in window if unit.number < here.number]
    taken_up = any(word in PRONOUNS for word in here.reading.words)
    return taken_up and any(claim.places(at, unit) for unit in before for at in subject)


def _subject(unit: Unit) -> list[int]:
    """Return the positions of the words with content before the first auxiliary, else the first verb."""
    words, clauses = unit.reading.words, unit.reading.clauses
    verbs = [n for n, word in enumerate(words[:10]) if n and word in AUXILIARY]
    verbs += [n for n, word in enumerate(words[:10]) if n and _is_verb(unit, n)]
    for verb in verbs:
        found = [n for n in range(verb) if clauses[n] == clauses[verb] and words[n] not in EMPTY]
        if found:
            return found
    return []


def _is_verb(unit: Unit, at: int) -> bool:
    word, before = unit.reading.words[at], unit.reading.words[at - 1] if at else ""
    return unit.stems[at] in VERBS and before not in DETERMINERS and not word.endswith(_NOUNS)


def _bounded(claim: Alignment, window: list[Unit]) -> bool:
    """Tell whether `until`, `over` and the like stand before a number as they do in the window."""
    for value in claim.values:
        if value.kind in ("number", "date", "time") and value.first:
            bound = claim.claim.stems[value.first - 1]
            before = [
                set(unit.stems[max(0, v.first - 2) : v.first])
                for unit in window
                for v in unit.reading.values
                if says(v, value)
            ]
            if before and all(opposites(bound) & stems and bound not in stems for stems in before):
                return False
    return True


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


def _reversed(claim: Alignment, unit: Unit) -> bool:
    """Tell whether what does something in the claim has it done to it in the unit."""
    for at, word in enumerate(claim.claim.stems):
        if word not in claim.content or not _is_verb(claim.claim, at):
            continue
        left, right = _neighbour(claim.claim, at, -1), _neighbour(claim.claim, at, 1)
        places = [place for place in unit.places.get(word, ()) if _is_verb(unit, place)]
        turned_round = [_reversed_at(claim, unit, (left, at, right), place) for place in places]
        if turned_round and all(turned_round):
            return True
    return False


def _reversed_at(claim: Alignment, unit: Unit, roles: tuple[int, int, int], place: int) -> bool:
    left, at, right = roles
    subject, thing = claim.places(left, unit), claim.places(right, unit)
    if _passive(claim.claim, at) != _passive(unit, place):
        agent = _by(claim.claim, at, 8) if _passive(claim.claim, at) else _by(unit, place, 8)
        clauses = unit.reading.clauses
        near = [n for n in subject if place - 6 <= n < place and clauses[n] == clauses[place]]
        return agent is not None and bool(near) and max(subject) < place
    if not (subject and thing):
        return False
    return place < min(subject) <= place + 6 and place - 6 <= max(thing) < place


def _neighbour(unit: Unit, at: int, step: int) -> int:
    """Return the nearest position with content before or behind in the same clause, or -1."""
    words, clauses = unit.reading.words, unit.reading.clauses
    near = (at + step * n for n in range(1, 6))
    return next(
        (n for n in near if 0 <= n < len(words) and clauses[n] == clauses[at] and words[n] not in EMPTY), -1
    )


def _passive(unit: Unit, at: int) -> bool:
    before = unit.reading.words[max(0, at - 2) : at]
    been = bool(before) and (before[-1] in PASSIVE or (before[0] in PASSIVE and before[-1].endswith("ly")))
    return been or _by(unit, at, 1) is not None


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


def _of(word: str, unit: Unit) -> Iterator[int]:
    return (n for n, other in enumerate(unit.reading.words) if other == word)
