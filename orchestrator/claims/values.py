"""What can be wrong in a sentence word for word: its numbers, dates, names, identifiers and quotations.

`read` turns one sentence into words with positions and the values that stand among them; `says` tells
whether a value of a source states a value of a claim. A claim may be vaguer than its source (rounded as
it is written, a year where the source has a day), never more exact.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal, NamedTuple

from orchestrator.claims.quantities import Date, dates, is_number, quantity, time_of_day
from orchestrator.claims.tokens import Token, tokens
from orchestrator.claims.words import EMPTY, PARTICLES, WEEKDAYS, is_common, stem

Kind = Literal["number", "date", "time", "name", "code", "quote"]

_QUOTATION = re.compile(r'"([^"]{1,600})"|`([^`\s]{1,80})`')
_COMMON_ENDINGS = ("s", "ing", "ed", "ly", "tion", "ment", "ity", "ness")


class Value(NamedTuple):
    """One checkable value; `first` and `last` are the positions of its words in the sentence."""

    kind: Kind
    text: str
    first: int
    last: int
    words: tuple[str, ...] = ()
    """Name, identifier, quotation: the folded words."""
    date: Date = (None, None, None)
    amount: float = 0.0
    """Number, or minutes of a time of day."""
    step: float = 0.0
    unit: str = ""
    """As in `Quantity`; of a name `weekday`, or `initial` where the sentence may owe it its capital."""


class Reading(NamedTuple):
    """A sentence as the check sees it: its plain text, folded words, the clause of each word, and values."""

    text: str
    words: list[str]
    clauses: list[int]
    values: list[Value]


def read(text: str) -> Reading:
    """Read one sentence of plain text; linear in its length."""
    found, clauses = tokens(text)
    starts = [token.start for token in found]
    taken = [False] * len(found)
    values: list[Value] = []
    for start, end, date, unit in dates(text):
        first, last = bisect_left(starts, start), bisect_left(starts, end) - 1
        if first <= last and not any(taken[first : last + 1]):
            taken[first : last + 1] = [True] * (last + 1 - first)
            values.append(Value("date", text[start:end], first, last, date=date, unit=unit))
    values += _quantities(found, taken)
    values += _names(found, taken, text)
    for quote in _QUOTATION.finditer(text):
        first, last = bisect_left(starts, quote.start()), bisect_left(starts, quote.end()) - 1
        if first == last and not taken[first] and found[first].kind == "word":
            values.append(Value("code", found[first].text, first, first, (found[first].folded,)))
        elif first < last:
            words = tuple(token.folded for token in found[first : last + 1])
            values.append(Value("quote", quote[0], first, last, words))
    return Reading(text, [token.folded for token in found], clauses, values)


def _quantities(found: list[Token], taken: list[bool]) -> Iterator[Value]:
    """Yield numbers, times and identifiers, and mark the tokens they take."""
    for first, token in enumerate(found):
        if taken[first]:
            continue
        if token.kind == "code":
            yield Value("code", token.text, first, first, (token.folded,))
        elif token.kind == "time":
            yield Value("time", token.text, first, first, amount=time_of_day(token.text))
        elif is_number(token):
            number = quantity(found, first)
            if number is None:
                if token.kind == "number":
                    yield Value("code", token.text, first, first, (token.folded,))
                continue
            taken[first : number.last + 1] = [True] * (number.last + 1 - first)
            text = " ".join(part.text for part in found[first : number.last + 1])
            if number.named:
                name = found[first - 1]
                yield Value("code", f"{name.text} {text}", first - 1, first, (name.folded, token.folded))
            else:
                kind: Kind = "date" if number.date else "number"
                date = number.date or (None, None, None)
                yield Value(kind, text, first, number.last, (), date, number.amount, number.step, number.unit)


def _names(found: list[Token], taken: list[bool], text: str) -> Iterator[Value]:
    """Yield the runs of capitalised words; in a title capitals say nothing."""
    capital = _capitals(found, taken)
    at = len(found) if len(found) > 5 and sum(capital) > 0.7 * len(found) else 0
    while at < len(found):
        if not capital[at]:
            at += 1
            continue
        first, at = at, at + 1
        alone = first == 0 and _may_begin(found[0])
        while at < len(found) and capital[at] and not alone and _adjacent(found[at - 1], found[at], text):
            at += 1
        words = tuple(token.folded for token in found[first:at])
        unit = "initial" if alone else "weekday" if words[0] in WEEKDAYS else ""
        yield Value(
            "name", " ".join(token.text for token in found[first:at]), first, at - 1, words, unit=unit
        )


def _capitals(found: list[Token], taken: list[bool]) -> list[bool]:
    """Tell of each token whether it may belong to a name."""
    capital = [
        token.kind == "word" and not used and token.text[:1].isupper() and token.folded not in EMPTY
        for token, used in zip(found, taken, strict=True)
    ]
    for at in range(1, len(found)):
        if found[at].text in PARTICLES and capital[at - 1]:
            two = [token.text in PARTICLES for token in found[at + 1 : at + 2]] == [True]
            capital[at] = any(capital[at + 1 + two : at + 2 + two])
    return capital


def _may_begin(token: Token) -> bool:
    """Tell whether the first word of a sentence may have its capital for that reason alone."""
    common = is_common(stem(token.folded)) or token.folded.endswith(_COMMON_ENDINGS)
    return common and not token.text[1:].isupper()


def _adjacent(left: Token, right: Token, text: str) -> bool:
    between = text[left.start + len(left.text) : right.start]
    return between in (" ", ". ", "-", "") and not left.text.endswith("'s")


def says(source: Value, claim: Value) -> bool:
    """Tell whether a number, date or time of a source states that of a claim."""
    if claim.kind == "time":
        return source.kind == "time" and (source.amount - claim.amount) % 720 == 0
    if claim.kind == "date":
        return _same_date(source, claim)
    return claim.kind == "number" and _same_number(source, claim)


def _same_number(source: Value, claim: Value) -> bool:
    if source.kind == "date":
        return source.date == (int(claim.amount), None, None) and not claim.unit
    if source.kind != "number" or (claim.unit and source.unit and claim.unit != source.unit):
        return False
    if source.amount == claim.amount:
        return True
    rounded = abs(source.amount - claim.amount) <= claim.step / 2 * (1 + 1e-9)
    return rounded and source.step < claim.step and source.unit == claim.unit


def _same_date(source: Value, claim: Value) -> bool:
    if source.kind == "number":
        return claim.date == (int(source.amount), None, None) and not source.unit and claim.unit != "decade"
    if source.kind != "date":
        return False
    if claim.unit == "decade":
        return source.date[0] is not None and source.date[0] // 10 * 10 == claim.date[0]
    if source.unit == "decade":
        return False
    if all(want is None or want == have for want, have in zip(claim.date, source.date, strict=True)):
        return True
    y, m, d = source.date
    return "numeric" in (source.unit, claim.unit) and None not in source.date and claim.date == (y, d, m)
