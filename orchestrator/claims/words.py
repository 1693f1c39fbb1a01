"""What the support check knows about words: stems, words without content, negations, kin and opposites.

All of it stands in `data/words.txt`. That is English; sentences of other languages are compared by stem
(Russian) or word for word.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

import snowballstemmer  # type: ignore[import-untyped]

_ENGLISH = snowballstemmer.stemmer("english")
_RUSSIAN = snowballstemmer.stemmer("russian")
_OF_A_PLACE = re.compile(r"(?:ian|an|n|ese?|ish|i|ic)$")


@lru_cache(maxsize=1 << 16)
def fold(word: str) -> str:
    """Return the word without case and accents."""
    if word.isascii():
        return word.lower()
    bare = unicodedata.normalize("NFKD", word.casefold())
    return unicodedata.normalize("NFC", "".join(c for c in bare if not unicodedata.combining(c)))


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Return the stem of a folded word; irregular English forms share the stem of their base."""
    word = _irregular().get(word, word)
    language = _RUSSIAN if "а" <= word[:1] <= "я" else _ENGLISH
    for prefix in ("un", "non"):
        if word.startswith(prefix) and len(word) > len(prefix) + 4:
            rest: str = language.stemWord(word.removeprefix(prefix))
            if rest in _common():
                return prefix + rest  # so that it has the stem of its opposite in it
    stemmed: str = language.stemWord(word[:40])
    return stemmed


def kin(stemmed: str) -> frozenset[str]:
    """Return the stems of words that may stand for this one."""
    return _lexicon().kin.get(stemmed, frozenset())


def allies(stemmed: str) -> frozenset[str]:
    """Return the stems at the same end of a scale: they say the same direction, not the same thing."""
    return _lexicon().allies.get(stemmed, frozenset())


def opposites(stemmed: str) -> frozenset[str]:
    """Return the stems that say the opposite of this one: by the word list, or with `un` or `non`."""
    known = _lexicon().opposites.get(stemmed, frozenset())
    if stemmed.startswith(("un", "non")):
        return known | {stemmed.removeprefix("un").removeprefix("non")}
    return known | {f"un{stemmed}", f"non{stemmed}"}


def on_a_scale(stemmed: str) -> bool:
    """Tell whether the word is on one of the scales written by hand: before or after, more or less."""
    return stemmed in _lexicon().scales


def is_common(stemmed: str) -> bool:
    """Tell whether the dictionary has the word: a capital at the start of a sentence makes it no name."""
    return stemmed in _common() or stemmed in _lexicon().scales


def is_verbal(word: str) -> bool:
    """Tell whether a folded word is an auxiliary, or looks like a verb."""
    return word in AUXILIARY or word.endswith("ed") or stem(word) in VERBS


def of_a_place(stemmed: str) -> bool:
    """Tell whether a name looks like the adjective of a place: Samoan, Nepali, Japanese."""
    return len(stemmed) > 5 and bool(_OF_A_PLACE.search(stemmed))


def home(stemmed: str) -> str:
    """Return what the name of a place and its adjective have in common."""
    while of_a_place(stemmed):
        stemmed = _OF_A_PLACE.sub("", stemmed)
    bare = stemmed.rstrip("aeiouy")
    return bare if len(bare) > 2 else stemmed


class _Lexicon(NamedTuple):
    kin: dict[str, frozenset[str]]
    allies: dict[str, frozenset[str]]
    opposites: dict[str, frozenset[str]]
    scales: frozenset[str]


@cache
def _lines() -> dict[str, list[list[str]]]:
    """Return the words of each line of the list, by the line's mark; those of the dictionary have none."""
    lines: dict[str, list[list[str]]] = defaultdict(list)
    for line in files("orchestrator").joinpath("data/words.txt").read_text(encoding="utf-8").splitlines():
        first, *words = line.split() or ["#"]
        if first != "#":
            marked = not first[0].isalpha()
            lines[first if marked else ""].append(words if marked else [first, *words])
    return lines


@cache
def _common() -> frozenset[str]:
    return frozenset(first for first, *_ in _lines()[""])


@cache
def _irregular() -> dict[str, str]:
    return {form: base for base, *forms in _lines()[">"] for form in forms}


@cache
def _lexicon() -> _Lexicon:
    kin: dict[str, set[str]] = defaultdict(set)
    allies: dict[str, set[str]] = defaultdict(set)
    opposites: dict[str, set[str]] = defaultdict(set)
    for words in _lines()["|"]:
        middle = words.index("|")
        ends = [[stem(word) for word in end] for end in (words[:middle], words[middle + 1 :])]
        for end, other in (ends, ends[::-1]):
            for one in end:
                allies[one].update(end)
                opposites[one].update(other)
    scales = frozenset(allies)
    for words in _lines()["="]:
        alike = [stem(word) for word in words]
        for one in alike:
            kin[one].update(alike)
    for first, *words in _lines()[""]:
        middle = words.index("!") if "!" in words else len(words)
        kin[first].update(words[:middle])
        opposites[first].update(words[middle + 1 :])
    return _Lexicon(
        {word: frozenset(near - {word}) for word, near in kin.items()},
        {word: frozenset(near - kin[word] - {word}) for word, near in allies.items()},
        {word: frozenset(far - kin[word] - allies[word] - {word}) for word, far in opposites.items()},
        scales,
    )


def _words(name: str) -> frozenset[str]:
    return frozenset(word for words in _lines()[f":{name}"] for word in words)


EMPTY = _words("empty")
"""Words without content of their own; some of them carry a direction or a negation."""
LIGHT = frozenset(stem(word) for word in _words("light"))
"""Stems of words that a paraphrase may add or drop at little cost."""
HARD_NEGATIONS = _words("not")
SOFT_NEGATIONS = frozenset(stem(word) for word in _words("lack"))
"""Stems that may stand for a negation."""
ANSWERS = SOFT_NEGATIONS | frozenset(stem(word) for word in _words("unlike"))
"""Stems with which a source may say what a claim says with a negation."""
PREDICATES = _words("allowed")
"""Behind a `not` they negate what stands before it."""
SUBORDINATE = _words("once")
"""They end what a negation governs."""
CONNECTORS = _words("before")
"""What they join has an order."""
LINKS = CONNECTORS | _words("because")
"""What they join must not change places."""
SAID = frozenset(stem(word) for word in _words("said"))
"""Stems of verbs that report what somebody says."""
PASSIVE = _words("be")
"""They make a passive of the verb behind them."""
AUXILIARY = PASSIVE | _words("will")
DETERMINERS = _words("the")
PREPOSITIONS = _words("of")
PARTICLES = _words("van")
"""They stand inside a name in small letters."""
BREAKS = _words("but")
"""They begin a clause."""
RELATIVES = _words("which")
"""They belong to what stands before them."""
VERBS = _words("verb")
"""Stems of words that are verbs in most of their uses."""
NOMINAL = (
    "tion",
    "tions",
    "sion",
    "ment",
    "ments",
    "ance",
    "ence",
    "ity",
    "er",
    "ers",
    "or",
    "ors",
)
"""How a noun ends that has the stem of a verb."""
PRONOUNS = _words("he")
WEEKDAYS = _words("monday")
ABOUT = _words("about")
"""Before a number they say that it is rounded."""
EXACT_AFTER = _words("version")
"""Behind them a number is a label."""
ONES = {word: int(n) for word, n in _lines()[":1"]}
TENS = {word: int(n) for word, n in _lines()[":10"]}
UNITS = {form: unit for unit, *forms in _lines()["~"] for form in (unit, *forms)}
"""Canonical unit by each way to write it."""
