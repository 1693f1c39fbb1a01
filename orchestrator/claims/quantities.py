"""Numbers with scale and unit, dates and times of day, in the forms in which people write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.claims.tokens import Token
from orchestrator.claims.words import ABOUT, EMPTY, EXACT_AFTER, ONES, TENS, UNITS, is_common, stem

Date = tuple[int | None, int | None, int | None]
"""Year, month, day; what is not said is None."""

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = (
    r"(?P<m>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_DAY = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?(?:\s?[-–—]\s?\d{1,2}(?:st|nd|rd|th)?)?"
_YEAR = r"(?P<y>\d{4})(?![\d.,]\d|\d)"
_DATES = tuple(
    re.compile(rf"(?<![A-Za-z\d-]){pattern}")
    for pattern in (
        r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)",
        r"(?P<y>\d{4})\s?年(?:\s?(?P<m>\d{1,2})\s?月(?:\s?(?P<d>\d{1,2})\s?日)?)?",
        rf"(?P<y>\d{{4}})[\s-]{_MONTH}(?:[\s-](?P<d>\d{{1,2}})\b)?",
        rf"{_MONTH}\s{_DAY}(?:,?\s{_YEAR})?(?![\w:])",
        rf"{_DAY}(?:\sof)?[\s-]{_MONTH}(?:,?[\s-]{_YEAR}|[\s-]'?(?P<yy>\d\d)\b(?![.:,]\d))?",
        rf"{_MONTH},?\s(?:of\s)?{_YEAR}",
        r"(?P<m>\d{1,2})[/.](?P<d>\d{1,2})[/.](?P<y>\d{4})(?!\d)",
        r"(?P<m>January|February|April|June|July|August|September|October|November|December)\b",
        r"(?:(?<=[Ii]n )|(?<=[Bb]y )|(?<=[Oo]f )|(?<=[Ff]rom )|(?<=[Ss]ince )|(?<=[Uu]ntil )|(?<=to )"
        r"|(?<=early )|(?<=late )|(?<=mid-))(?P<m>March|May)\b",
    )
)
_DATED = re.compile(r"\d|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)")
_NUMBER = re.compile(r"(-?)(\D*)([\d.,'\s]*\d)(.*)", re.DOTALL)
_SCALES = {
    "hundred": 1e2, "thousand": 1e3, "k": 1e3, "lakh": 1e5, "million": 1e6, "mn": 1e6, "m": 1e6, "crore": 1e7,
    "billion": 1e9, "bn": 1e9, "b": 1e9, "trillion": 1e12, "万": 1e4, "億": 1e8, "亿": 1e8,
}  # fmt: skip
_NO_NAMES = EMPTY | EXACT_AFTER | frozenset(_MONTHS)


class Quantity(NamedTuple):
    """A number or a date, at positions `first` to `last`."""

    first: int
    last: int
    amount: float = 0.0
    step: float = 0.0
    """What the last digit written counts: whatever rounds to the amount at this step agrees with it."""
    unit: str = ""
    """Canonical unit of a number; of a date `decade`, or `numeric` where day and month may be swapped."""
    date: Date | None = None
    named: bool = False
    """The number belongs to the name before it: PEP 8016, Python 2.7."""


def dates(text: str) -> Iterator[tuple[int, int, Date, str]]:
    """Yield the dates of a text: start and end, year, month and day, and `numeric` for 03/04/2024."""
    for pattern in _DATES if _DATED.search(text) else ():
        for found in pattern.finditer(text):
            part = found.groupdict()
            month = part.get("m") or ""
            m = int(month) if month.isdecimal() else _MONTHS.index(month[:3].lower()) + 1 if month else None
            y, d = (int(part[key]) if part.get(key) else None for key in "yd")
            if part.get("yy"):
                y = int(part["yy"]) + (1900 if int(part["yy"]) > 30 else 2000)
            if (m or 1) > 12 and d and d <= 12:
                m, d = d, m
            if (m or 1) <= 12 and (d or 1) <= 31:
                yield *found.span(), (y, m, d), "numeric" if "/" in found[0] or "." in found[0] else ""


def time_of_day(text: str) -> float:
    """Return the minutes since midnight of `14:30` or `2:30 pm`."""
    hours, minutes = (int(part) for part in re.findall(r"\d+", text)[:2])
    return float(60 * (hours + (12 if "p" in text.lower() and hours < 12 else 0)) + minutes)


def is_number(token: Token) -> bool:
    """Tell whether a number may begin here, in digits or in words."""
    return token.kind == "number" or token.folded in ONES or token.folded in TENS


def quantity(tokens: list[Token], first: int) -> Quantity | None:
    """Read the number that begins at a token, with its scale and unit; a bare year is a date."""
    return _written(tokens, first) if tokens[first].kind == "number" else _spelled(tokens, first)


def _written(tokens: list[Token], first: int) -> Quantity | None:
    found = _NUMBER.fullmatch(tokens[first].text)
    if not found or len(found[3]) > 30:
        return None
    sign, currency, digits, tail = found.groups()
    amount, step = _digits(digits)
    unit = UNITS.get(currency.strip().lower(), "")
    if tail in ("s", "'s") and 1000 <= amount < 2200:
        return Quantity(first, first, unit="decade", date=(int(amount), None, None))
    if tail and tail.lower() in _SCALES and (currency or tail not in ("m", "b")):
        amount, step = amount * _SCALES[tail.lower()], step * _SCALES[tail.lower()]
    year = digits.isdecimal() and len(digits) == 4 and 1000 <= amount < 2200 and not (unit or tail or sign)
    number = _measured(tokens, Quantity(first, first, -amount if sign else amount, step, unit), year)
    if year and number.last == first:
        return number._replace(step=0.0, date=(int(amount), None, None))
    return _qualified(tokens, number)


def _qualified(tokens: list[Token], number: Quantity) -> Quantity:
    """Let the word before a number say how exact it is, or whose number."""
    before = tokens[number.first - 1] if number.first else None
    if before is None:
        return number
    if before.folded in EXACT_AFTER:
        return number._replace(step=0.0)
    if (
        not number.unit
        and number.last == number.first
        and _is_named(before, tokens[number.first], number.first == 1)
        and not _is_score(tokens[number.first : number.first + 2])
    ):
        return number._replace(named=True)
    if before.folded in ABOUT and number.step >= 1:
        return number._replace(step=max(number.step, _last_digit(number.amount)))
    return number


def _is_named(before: Token, number: Token, initial: bool) -> bool:
    gap = number.start - before.start - len(before.text)
    capital = before.kind == "word" and before.text[:1].isupper() and before.folded not in _NO_NAMES
    doubtful = initial and number.text.isdecimal() and is_common(stem(before.folded))
    return capital and 0 <= gap <= 2 and not doubtful


def _is_score(pair: list[Token]) -> bool:
    """Tell whether two numbers stand together: "won 3-1"."""
    return (
        len(pair) == 2
        and all(len(n.text) < 4 and n.text.isdecimal() for n in pair)
        and (pair[1].start - pair[0].start == len(pair[0].text) + 1)
    )


def _measured(tokens: list[Token], number: Quantity, year: bool) -> Quantity:
    """Add the half, the scale and the unit that follow a number."""
    if [token.folded for token in tokens[number.last + 1 : number.last + 4]] == ["and", "a", "half"]:
        number = number._replace(amount=number.amount + 0.5, step=0.1, last=number.last + 3)
    while (scale := _after(tokens, number.last)) in _SCALES and (len(scale) > 1 or number.unit):
        factor = _SCALES[scale]
        amount, step = number.amount * factor, (number.step or 1.0) * factor
        number = number._replace(amount=amount, step=step, last=number.last + 1)
    unit = _after(tokens, number.last)
    if (
        not number.unit
        and unit in UNITS
        and unit != "in"
        and not (year and len(unit) == 1 and unit.isalpha())
    ):
        number = number._replace(unit=UNITS[unit], last=number.last + 1)
    return number


def _after(tokens: list[Token], at: int) -> str:
    return tokens[at + 1].folded if at + 1 < len(tokens) else ""


def _digits(digits: str) -> tuple[float, float]:
    """Return the amount that digits with separators stand for, and what the last digit counts."""
    if re.fullmatch(r"\d+,\d{1,2}", digits):
        digits = digits.replace(",", ".")
    elif digits.count(".") > 1:
        digits = digits.replace(".", "")
    digits = re.sub(r"[,'\s]", "", digits)
    decimals = len(digits.partition(".")[2])
    return float(digits), 10.0**-decimals if decimals or len(digits) > 1 else 0.0


def _last_digit(amount: float) -> float:
    step = 1.0
    while amount and amount % (step * 10) == 0:
        step *= 10
    return step


def _spelled(tokens: list[Token], first: int) -> Quantity | None:
    """Read a number in words, as far as units, tens and hundreds go."""
    total, last = 0, first
    for at in range(first, min(first + 5, len(tokens))):
        word = tokens[at].folded
        if word == "and" and total >= 100:
            continue
        if word in TENS:
            total += TENS[word]
        elif word in ONES and (at == first or (total and total % 10 == 0)):
            total += ONES[word]
        elif word == "hundred" and 0 < total < 100:
            total *= 100
        else:
            break
        last = at
    number = _measured(tokens, Quantity(first, last, float(total)), year=False)
    return None if tokens[first].folded == "one" and number.last == first else number
