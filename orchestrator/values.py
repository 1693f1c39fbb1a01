"""What can be wrong in a sentence word for word: its numbers, dates, names, identifiers and quotations.

`read` turns one sentence into words with positions and the values that stand among them; `says` tells
whether a value of a source states a value of a claim. A claim may be vaguer than its source (rounded as
it is written, a year where the source has a day), never more exact.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal, NamedTuple

from orchestrator.words import EMPTY, fold, is_common, stem

Kind = Literal["number", "date", "time", "name", "code", "quote"]
Date = tuple[int | None, int | None, int | None]


class Value(NamedTuple):
    """One checkable value; `first` and `last` are the positions of its words in the sentence."""

    kind: Kind
    text: str
    first: int
    last: int
    words: tuple[str, ...] = ()
    """Name, identifier, quotation: the folded words."""
    date: Date = (None, None, None)
    """Year, month, day; what is not said is None."""
    amount: float = 0.0
    step: float = 0.0
    """What the last digit written counts: a source that rounds to the amount at this step states it."""
    unit: str = ""
    """Canonical unit of a number; `decade` or `numeric` of a date; `initial` of a sentence's first word."""


class Reading(NamedTuple):
    """A sentence as the check sees it: its plain text, folded words, the clause of each word, and values."""

    text: str
    words: list[str]
    clauses: list[int]
    values: list[Value]


_MARKUP = (
    (
        re.compile(
            r"!?\[([^\[\]\n]{0,300})\]\([^()\s]{0,999}(?:\([^()\s]{0,99}\)[^()\s]{0,99})?(?:\s[^()\n]{0,199})?\)"
        ),
        r"\1",
    ),
    (re.compile(r"<?\b(?:https?|file|ftp)://[^\s<>]+>?|\bwww\.[^\s<>]+"), " "),
    (re.compile(r"\[\^?S?\d{1,4}(?:[\s,;–-]{1,3}S?\d{1,4}){0,20}\]|【[^【】\n]{0,80}】"), " "),
    (re.compile(r"</?[A-Za-z][^<>\n]{0,300}>"), " "),
    (re.compile(r"\*{1,3}|`{1,3}|~~"), ""),
    (re.compile(r"(?m)^[ \t]{0,8}(?:#{1,6}[ \t]|>[ \t]?|[-+•][ \t])+"), ""),
    (re.compile(r"[|\s]+"), " "),
)
_PHRASES = (
    (re.compile(r"\b(?:at most|no more than|not more than|no greater than|up to)\b", re.I), "atmost"),
    (re.compile(r"\b(?:at least|no less than|not less than|no fewer than|no later than)\b", re.I), "atleast"),
    (
        re.compile(r"\b(?:not only|not just|not necessarily|no longer|no matter|no doubt)\b", re.I),
        lambda m: _KEPT[m[0].lower()],
    ),
    (re.compile(r"\bfrom being\b", re.I), "not being"),
    (re.compile(r"\brather than\b", re.I), "instead of"),
    (re.compile(r"\bper ?cent\b|\bpercentage points?\b", re.I), "%"),
)
_KEPT = {
    "not only": "also",
    "not just": "also",
    "not necessarily": "not always",
    "no longer": "not anymore",
    "no matter": "regardless",
    "no doubt": "surely",
}
_TYPOGRAPHY = str.maketrans(
    "‘’‛“”„«»「」『』−‐‑＝，：；（）", '\'\'\'"""""""""---=,:;()', "\u00ad\u200b\ufeff"
)

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH = (
    r"(?P<m>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_DAY = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?(?:\s?[-–—]\s?\d{1,2}(?:st|nd|rd|th)?)?"
_YEAR = r"(?P<y>\d{4})(?![\d.,]\d|\d)"
_DATES = tuple(
    re.compile(rf"(?<![\w-]){pattern}", re.I if "MONTH" not in pattern else 0)
    for pattern in (
        r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)",
        r"(?P<y>\d{4})\s?年(?:\s?(?P<m>\d{1,2})\s?月(?:\s?(?P<d>\d{1,2})\s?日)?)?",
        rf"(?P<y>\d{{4}})[\s-]{_MONTH}(?:[\s-](?P<d>\d{{1,2}})\b)?",
        rf"{_MONTH}\s{_DAY}(?:,?\s{_YEAR})?(?![\w:])",
        rf"{_DAY}(?:\sof)?[\s-]{_MONTH}(?:,?[\s-]{_YEAR}|[\s-]'?(?P<yy>\d\d)\b(?![.:,]\d))?",
        rf"{_MONTH},?\s(?:of\s)?{_YEAR}",
        r"(?P<m>\d{1,2})[/.](?P<d>\d{1,2})[/.](?P<y>\d{4})(?!\d)",
        r"(?P<m>January|February|April|June|July|August|September|October|November|December)\b",
        r"(?:(?<=[Ii]n )|(?<=[Bb]y )|(?<=[Oo]f )|(?<=[Ss]ince )|(?<=[Uu]ntil )|(?<=[Ff]rom )|(?<=to )|(?<=early )|(?<=late )|(?<=mid-))(?P<m>March|May)\b",
    )
)
_TOKEN = re.compile(
    r"""
    (?P<clause>[,;:()\[\]{}"—–…!?/=]|\.{2,}|\s-\s)
    | (?P<time>(?<![\d:])\d{1,2}:\d\d(?::\d\d)?(?![\d:])(?:\s?[ap]\.?m\b\.?)?)
    | (?P<code>__\w{1,60}__(?:\(\))? | --[a-z][\w-]{0,60} | [^\W\d]\w{0,60}(?:\.\w{1,60}){0,8}\(\)
        | [^\W\d_]{2,60}(?:\.[^\W\d]\w{1,60})+ | [^\W\d_][^\W_]{0,60}(?:_[^\W_]{1,60})+
        | v?\d{1,9}(?:\.\d{1,9}){2,8}(?![\w.]\w) | [A-Za-z]{1,20}-?\d{1,20}[A-Za-z\d]{0,20} | [^\W\d_]+[+#]+)
    | (?P<number>(?:(?<![\w.)-])-)?(?:US\$|[$€£¥₹]\s?)?
        (?:\d{1,3}(?:[,'\u00a0\u202f\u2009]\d{3})+(?!\d)(?:\.\d{1,20})? | \d{1,3}(?:\ \d{3}){2,}(?!\d) | \d{1,3}(?:\.\d{3}){2,}(?!\d)
        | \d+(?:\.\d{1,20})?(?:,\d{1,2}(?![\d,]))?)
        (?:st|nd|rd|th|'?s|k|K|M|bn|B)?(?![^\W\d_]{4,}))
    | (?P<word>(?:[^\W\d_]\.){2,} | [^\W\d_]+(?:'[^\W\d_]+)*)
    | (?P<mark>[%‰°$€£¥₹])
    """,
    re.VERBOSE,
)
_NO_SPACES = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]")
_BREAKS = frozenset("and but while whereas although though because if or".split())
_RELATIVES = frozenset("which who whom whose when where".split())
_SCALES = {
    "hundred": 1e2,
    "thousand": 1e3,
    "k": 1e3,
    "lakh": 1e5,
    "million": 1e6,
    "mn": 1e6,
    "m": 1e6,
    "crore": 1e7,
    "billion": 1e9,
    "bn": 1e9,
    "b": 1e9,
    "trillion": 1e12,
    "万": 1e4,
    "億": 1e8,
    "亿": 1e8,
}
_ONES = {
    word: n
    for n, word in enumerate(
        "zero-zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
        "eighteen nineteen".split()
    )
} | {"dozen": 12, "twice": 2, "thrice": 3}
_TENS = {
    word: 10 * n for n, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
}
_UNITS = {
    form: unit
    for unit, *forms in (
        line.split()
        for line in """
        % percent
        $ usd dollar dollars us$
        € eur euro euros
        £ gbp pound pounds lb lbs
        ¥ yen yuan
        km kilometer kilometers kilometre kilometres
        m meter meters metre metres
        cm centimeter centimeters centimetre centimetres
        mm millimeter millimeters millimetre millimetres
        mi mile miles
        ft foot feet
        in inch inches
        yd yard yards
        kg kilogram kilograms
        g gram grams
        t ton tons tonne tonnes
        s second seconds sec
        ms millisecond milliseconds
        min minute minutes
        h hour hours hr hrs
        day days
        week weeks
        month months
        year years
        century centuries
        decade decades
        byte bytes
        kb kilobyte kilobytes
        mb megabyte megabytes
        gb gigabyte gigabytes
        bit bits
        w watt watts
        kw kilowatt kilowatts
        mw megawatt megawatts
        degree degrees °
        acre acres
        hectare hectares
        knot knots
        liter litre liters litres
    """.strip().splitlines()
    )
    for form in (unit, *forms)
}
_DECADES = frozenset("twenties thirties forties fifties sixties seventies eighties nineties".split())
_EXACT_AFTER = frozenset("version v section chapter part article no number page volume".split())
_NO_NAMES = EMPTY | _EXACT_AFTER | frozenset(_MONTHS)
_WEEKDAYS = frozenset("monday tuesday wednesday thursday friday saturday sunday".split())
_ABOUT = frozenset(
    "about approximately around roughly nearly almost some circa c ca over under more less than "
    "atleast atmost above below estimated approx ~".split()
)


def plain(text: str) -> str:
    """Return the text without Markdown, tags, URLs and citation markers, with straight quotes."""
    text = html.unescape(text).translate(_TYPOGRAPHY)
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text.strip()


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    folded: str


def read(text: str) -> Reading:
    """Read one sentence of plain text; linear in its length."""
    shown = text
    for pattern, replacement in _PHRASES:
        text = pattern.sub(replacement, text)
    tokens, clauses = _tokens(text)
    starts = [token.start for token in tokens]
    taken = [False] * len(tokens)
    values: list[Value] = []
    for found, date, unit in _dates(text):
        first, last = bisect_left(starts, found.start()), bisect_left(starts, found.end()) - 1
        if first <= last and not any(taken[first : last + 1]):
            taken[first : last + 1] = [True] * (last + 1 - first)
            values.append(Value("date", found[0], first, last, date=date, unit=unit))
    values += _numbers(tokens, taken)
    values += _names(tokens, taken, text)
    for quote in re.finditer(r'"([^"]{3,600})"', text):
        first, last = bisect_left(starts, quote.start()), bisect_left(starts, quote.end()) - 1
        if first <= last:
            words = tuple(token.folded for token in tokens[first : last + 1])
            values.append(Value("quote", quote[0], first, last, words=words))
    return Reading(shown, [token.folded for token in tokens], clauses, values)


def _tokens(text: str) -> tuple[list[_Token], list[int]]:
    tokens: list[_Token] = []
    clauses: list[int] = []
    clause = 0
    for found in _TOKEN.finditer(text):
        kind, piece, start = found.lastgroup or "", found[0], found.start()
        if kind == "clause":
            clause += not tokens or clauses[-1] == clause
            continue
        for word, offset in _parts(kind, piece):
            if word in _RELATIVES and clauses and clauses[-1] == clause - 1:
                clause -= 1  # "1960, when" and "Hudson, who" stand together
            elif word in _BREAKS and clauses and clauses[-1] == clause:
                clause += 1
            tokens.append(_Token(kind, piece if not offset else word, start + offset, word))
            clauses.append(clause)
    return tokens, clauses


def _parts(kind: str, piece: str) -> Iterator[tuple[str, int]]:
    """Yield what one token counts as: a word, or overlapping pairs of characters in scripts without spaces."""
    folded = fold(piece)
    if kind == "word" and _NO_SPACES.search(piece):
        for at in range(max(1, len(piece) - 1)):
            yield piece[at : at + 2], at
    elif kind == "code":
        yield (
            folded.removesuffix("()").removeprefix("v")
            if folded[1:2].isdigit()
            else folded.removesuffix("()"),
            0,
        )
    elif piece in ("US", "U.S.", "U.S"):
        yield "usa", 0
    elif kind == "word":
        yield (
            (
                "not" if folded.endswith("n't") else folded.split("'")[0] if len(folded) > 2 else folded
            ).replace(".", ""),
            0,
        )
    else:
        yield folded, 0


def _dates(text: str) -> Iterator[tuple[re.Match[str], Date, str]]:
    for pattern in _DATES:
        for found in pattern.finditer(text):
            part = found.groupdict()
            month = part.get("m")
            m = (
                None
                if not month
                else int(month)
                if month.isdecimal()
                else _MONTHS.index(month[:3].lower()) + 1
            )
            y, d = (int(part[key]) if part.get(key) else None for key in "yd")
            if part.get("yy"):
                y = int(part["yy"]) + (1900 if int(part["yy"]) > 30 else 2000)
            if (m or 1) <= 12 and (d or 1) <= 31:
                yield found, (y, m, d), "numeric" if "/" in found[0] or "." in found[0] else ""
            elif d and m and d <= 12 and m <= 31:
                yield found, (y, d, m), "numeric"


def _numbers(tokens: list[_Token], taken: list[bool]) -> Iterator[Value]:
    at = 0
    while at < len(tokens):
        token, first = tokens[at], at
        at += 1
        if taken[first]:
            continue
        if token.kind == "code":
            yield Value("code", token.text, first, first, words=(token.folded,))
        elif token.kind == "time":
            hours, minutes = (int(part) for part in re.findall(r"\d+", token.text)[:2])
            shift = 12 if "p" in token.folded and hours < 12 else 0
            yield Value("time", token.text, first, first, amount=60 * (hours + shift) + minutes)
        elif token.kind == "number" or token.folded in _ONES or token.folded in _TENS:
            value = _number(tokens, first)
            if value:
                yield value
                at = max(at, value.last + 1)
                taken[first : value.last + 1] = [True] * (value.last + 1 - first)


def _number(tokens: list[_Token], first: int) -> Value | None:
    """Read the number that begins at a token, with its scale and unit."""
    token, last = tokens[first], first
    if token.kind == "number":
        found = re.match(r"(-?)(\D*)([\d.,'\s]*\d)(.*)", token.text, re.S)
        if not found or len(found[3]) > 30:
            return Value("code", token.text, first, first, words=(token.folded,))
        sign, currency, digits, tail = found.groups()
        amount, step = _digits(digits)
        unit = _UNITS.get(currency.strip().lower(), "")
        if tail in ("s", "'s") and 1000 <= amount < 2200:
            return Value("date", token.text, first, first, date=(int(amount), None, None), unit="decade")
        if tail.lower() in ("k", "m", "b", "bn") and (currency or tail not in ("m", "b")):
            amount, step = amount * _SCALES[tail.lower()], step * _SCALES[tail.lower()]
        plain_year = (
            digits.isdecimal() and len(digits) == 4 and 1000 <= amount < 2200 and not unit and not tail
        )
        amount = -amount if sign else amount
    else:
        amount, last = _spelled(tokens, first)
        step, unit, plain_year = 0.0, "", False
        if token.folded == "one" and last == first and _next(tokens, last) not in _UNITS:
            return None
    while (
        last + 1 < len(tokens)
        and tokens[last + 1].folded in _SCALES
        and len(tokens[last + 1].folded) > 1 - plain_year
    ):
        scale = _SCALES[tokens[last + 1].folded]
        if len(tokens[last + 1].folded) == 1 and not unit:
            break
        amount, step, last, plain_year = amount * scale, (step or 1.0) * scale, last + 1, False
    follower = _next(tokens, last)
    if (
        not unit
        and follower in _UNITS
        and not (plain_year and follower in ("in", "s", "m", "t", "h", "w", "g", "day"))
    ):
        if follower != "in":
            unit, last, plain_year = _UNITS[follower], last + 1, False
    text = " ".join(part.text for part in tokens[first : last + 1])
    if plain_year:
        return Value("date", text, first, last, date=(int(amount), None, None), amount=amount)
    before = tokens[first - 1] if first else None
    if before and not unit and last == first and _named(before, token, first == 1):
        return Value("code", f"{before.text} {text}", first - 1, first, words=(before.folded, token.folded))
    if before and before.folded in _EXACT_AFTER:
        step = 0.0
    elif before and before.folded in _ABOUT and step >= 1:
        step = max(step, _last_digit(amount))
    return Value("number", text, first, last, amount=amount, step=step, unit=unit)


def _next(tokens: list[_Token], at: int) -> str:
    return tokens[at + 1].folded if at + 1 < len(tokens) else ""


def _named(before: _Token, number: _Token, initial: bool) -> bool:
    """Tell whether a number belongs to the name before it: PEP 8016, Python 2.7."""
    gap = number.start - before.start - len(before.text)
    capital = (
        before.kind == "word" and before.text[:1].isupper() and before.folded not in EMPTY | _EXACT_AFTER
    )
    return (
        capital
        and number.kind == "number"
        and 0 <= gap <= 2
        and not (initial and is_common(stem(before.folded)))
    )


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


def _spelled(tokens: list[_Token], first: int) -> tuple[float, int]:
    """Read a number in words, as far as units, tens and hundreds go."""
    total, last = 0, first
    for at in range(first, min(first + 5, len(tokens))):
        word = tokens[at].folded
        if word == "and" and total >= 100 and at + 1 < len(tokens):
            continue
        if word in _TENS:
            total += _TENS[word]
        elif word in _ONES and (at == first or total % 10 == 0 and total):
            total += _ONES[word]
        elif word == "hundred" and 0 < total < 100:
            total *= 100
        else:
            break
        last = at
    return float(total), last


def _names(tokens: list[_Token], taken: list[bool], text: str) -> Iterator[Value]:
    capital = [
        token.kind == "word" and token.text[:1].isupper() and token.folded not in EMPTY and not token_taken
        for token, token_taken in zip(tokens, taken, strict=True)
    ]
    if sum(capital) > 0.7 * len(tokens) and len(tokens) > 5:
        return  # a title: capitals say nothing
    at = 0
    while at < len(tokens):
        if not capital[at]:
            at += 1
            continue
        first = at
        single = at == 0 and not tokens[0].text[1:].isupper()
        while (
            at < len(tokens)
            and capital[at]
            and (at == first or not single and _adjacent(tokens[at - 1], tokens[at], text))
        ):
            at += 1
        words = tuple(token.folded for token in tokens[first:at])
        unit = "initial" if single else "weekday" if words[0] in _WEEKDAYS else ""
        yield Value(
            "name", " ".join(token.text for token in tokens[first:at]), first, at - 1, words=words, unit=unit
        )


def _adjacent(left: _Token, right: _Token, text: str) -> bool:
    between = text[left.start + len(left.text) : right.start]
    return between in (" ", ". ", "-", "")


def says(source: Value, claim: Value) -> bool:
    """Tell whether a value of a source states a value of a claim (numbers, dates and times)."""
    if claim.kind == "time":
        return source.kind == "time" and (source.amount - claim.amount) % 720 == 0
    if claim.kind == "date":
        return _same_date(source, claim)
    if source.kind == "date" and claim.kind == "number":
        return source.date == (int(claim.amount), None, None) and not claim.unit
    if source.kind != "number" or claim.kind != "number":
        return False
    if claim.unit and source.unit and claim.unit != source.unit:
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
