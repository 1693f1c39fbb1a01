"""Whether a place has turned a claim round: negation, direction, and who did what to whom."""

from __future__ import annotations

from itertools import combinations

from orchestrator.claims.alignment import Alignment, Match
from orchestrator.claims.bonds import converse, loosened, reversed_roles, travelled
from orchestrator.claims.grammar import behind, is_verb, neighbour, of, segments
from orchestrator.claims.units import Unit, negated
from orchestrator.claims.values import says
from orchestrator.claims.words import (
    ANSWERS,
    AUXILIARY,
    CONNECTORS,
    EMPTY,
    LINKS,
    PRONOUNS,
    kin,
    opposites,
)


def turned(claim: Alignment, window: list[Unit]) -> str | None:
    """Return what the place has the other way round, None when nothing is."""
    here = window[0]
    ordered, settled = _compared(claim, window)
    if (
        not ordered
        or not travelled(claim, here)
        or reversed_roles(claim, here)
        or not _bounded(claim, window)
    ):
        return f"order differs: {here.reading.text}"
    if not _about(claim, window):
        return f"this is about something else: {here.reading.text}"
    if loosened(claim, window):
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
    crossing, settled = _contrasted(claim, window[0])
    if crossing:
        return f"direction differs, {crossing}: {window[0].reading.text}"
    for at, match in matches.items():
        word, there = claim.claim.reading.words[at], match.unit.reading.words[match.place]
        if at in settled or (match.sign < 0 and converse(claim, at, match.unit, match.place)):
            continue
        if word in LINKS:
            if _backwards(claim, at, match, matches):
                return f"order differs, {word} / {there}: {match.unit.reading.text}"
        elif match.sign < 0 and signs[at] < 0 and (word not in EMPTY or _same_thing(claim, at, match)):
            return f"direction differs, {word} / {there}: {match.unit.reading.text}"
    return None


def _contrasted(claim: Alignment, unit: Unit) -> tuple[str, set[int]]:
    """Return two words of the claim that contrast in the unit, else the positions of those that go together.

    Where "the upper limit is inclusive, the lower exclusive", the lower limit is not inclusive.
    """
    own, parts = segments(claim.claim), segments(unit)
    words = claim.claim.reading.words
    found: dict[int, tuple[set[int], set[int]]] = {}
    for at, word in enumerate(claim.claim.stems):
        if word in claim.weights and words[at] not in EMPTY:
            near = {parts[p] for form in (word, *kin(word)) for p in unit.places.get(form, ())}
            far = {parts[p] for form in opposites(word) for p in unit.places.get(form, ())}
            if near and far and not near & far:
                found[at] = near, far
    settled: set[int] = set()
    for one, other in combinations(found, 2):
        (near, far), (others, opposed) = found[one], found[other]
        if own[one] != own[other] or claim.claim.stems[other] in opposites(claim.claim.stems[one]):
            continue
        if near & others:
            settled |= {one, other}
        elif far & others or near & opposed:
            return f"{words[one]}, {words[other]}", set()
    return "", settled


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
    compared = [at for at in of("than", claim.claim) if not values & {at + 1, at + 2}]
    if compared and not any(True for unit in window for _ in of("than", unit)):
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
    left, there = neighbour(claim.claim, at, -1), neighbour(match.unit, match.place, -1)
    if left >= 0 and there >= 0 and at - left <= 2 and claim.claim.stems[left] == match.unit.stems[there]:
        return True
    mine = {claim.claim.stems[n] for n in behind(claim.claim, at, 1)}
    rest = range(match.place + 1, len(match.unit.stems))
    theirs = [match.unit.stems[n] for n in rest if match.unit.reading.words[n] not in EMPTY][:2]
    return bool(mine.union(*map(kin, mine)).intersection(theirs))


def _backwards(claim: Alignment, at: int, match: Match, matches: dict[int, Match]) -> bool:
    """Tell whether what stands behind a `before` or `after` is not what stands behind it in the source."""
    theirs = set(behind(match.unit, match.place, 6))
    if not theirs:  # "opened in May and died four months later"
        return False
    mine = [matches[n] for n in behind(claim.claim, at, 3) if n in matches and matches[n].unit is match.unit]
    held = sum(other.place in theirs for other in mine)
    missed = len(mine) - held
    return held > missed if match.sign < 0 else missed > held


def _compared(claim: Alignment, window: list[Unit]) -> tuple[bool, set[int]]:
    """Tell whether a comparison is the window's, and which words of the claim that settles.

    "A is larger than B" is "B is smaller than A", and neither is "B is larger than A".
    """
    for at in of("than", claim.claim):
        things = {claim.claim.stems[n] for n in behind(claim.claim, at, 2)}
        measures = {n for n in range(max(0, at - 3), at) if claim.claim.stems[n] in claim.weights}
        found = [
            (_compares(claim, things, measures, unit, n), unit) for unit in window for n in of("than", unit)
        ]
        for verdict, unit in found:
            if verdict:
                return True, measures | {n for n, word in enumerate(claim.claim.stems) if word in unit.places}
        if any(verdict is False for verdict, _ in found):
            return False, set()
    return True, set()


def _compares(claim: Alignment, things: set[str], measures: set[int], unit: Unit, at: int) -> bool | None:
    """Tell whether a unit's `than` compares with the same thing; None where it measures something else."""
    after = {unit.stems[n] for n in behind(unit, at, 2)}
    before = set(unit.stems[max(0, at - 10) : at])
    things = things - (after & before) or things
    measured = set(unit.stems[max(0, at - 3) : at])
    mine = {claim.claim.stems[n] for n in measures}
    turned_round = any(opposites(m) & measured and m not in measured for m in mine)
    if things & after:
        return not turned_round
    if things & before:
        return turned_round
    return False if mine & measured else None


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
    there = [
        at for at in known if claim.places(at, here) or stems[at] in index.title or index.is_topic(stems[at])
    ]
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
    verbs += [n for n, word in enumerate(words[:10]) if n and is_verb(unit, n)]
    for verb in verbs:
        found = [n for n in range(verb) if clauses[n] == clauses[verb] and words[n] not in EMPTY]
        if found:
            return found
    return []


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
