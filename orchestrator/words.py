"""What the support check knows about words: stems, words without content, negations, kin and opposites.

Kin and opposites of English words come from `data/words.txt`; other languages have stems or less, and are
compared word for word.
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
    stemmed: str = language.stemWord(word[:40])
    return stemmed


def kin(stemmed: str) -> frozenset[str]:
    """Return the stems of words that may stand for this one."""
    return _lexicon().kin.get(stemmed, frozenset())


def allies(stemmed: str) -> frozenset[str]:
    """Return the stems of words at the same end of a scale: they say the same direction, not the same thing."""
    return _lexicon().allies.get(stemmed, frozenset())


def opposites(stemmed: str) -> frozenset[str]:
    """Return the stems of words that say the opposite of this one."""
    return _lexicon().opposites.get(stemmed, frozenset())


def on_a_scale(stemmed: str) -> bool:
    """Tell whether the word is one of the scales written by hand: before or after, more or less."""
    return stemmed in _lexicon().scales


_OF_A_PLACE = re.compile(r"(?:ian|an|n|ese|ish|i|ic)$")


def of_a_place(stemmed: str) -> bool:
    """Tell whether a name looks like the adjective of a place: Samoan, Nepali, Japanese."""
    return len(stemmed) > 5 and bool(_OF_A_PLACE.search(stemmed))


def home(stemmed: str) -> str:
    """Return what the name of a place and its adjective have in common."""
    base = _OF_A_PLACE.sub("", stemmed) if of_a_place(stemmed) else stemmed
    bare = base.rstrip("aeiouy")
    return bare if len(bare) > 2 else base


def is_common(stemmed: str) -> bool:
    """Tell whether the word is in the dictionary, so that a capital at the start of a sentence means nothing."""
    return stemmed in _lexicon().common


def _lines(mark: str) -> list[list[str]]:
    """Return the words of the lines of the word list that begin with a mark."""
    return [line[1:].split() for line in _word_list() if line.startswith(mark)]


@cache
def _word_list() -> list[str]:
    text = files("orchestrator").joinpath("data/words.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


@cache
def _irregular() -> dict[str, str]:
    return {form: base for base, *forms in _lines(">") for form in forms}


class _Lexicon(NamedTuple):
    kin: dict[str, frozenset[str]]
    allies: dict[str, frozenset[str]]
    opposites: dict[str, frozenset[str]]
    scales: frozenset[str]
    common: frozenset[str]


@cache
def _lexicon() -> _Lexicon:
    kin: dict[str, set[str]] = defaultdict(set)
    opposites: dict[str, set[str]] = defaultdict(set)
    allies: dict[str, set[str]] = defaultdict(set)
    scales: set[str] = set()
    common: set[str] = set()
    for words in _lines("|"):
        middle = words.index("|")
        ends = [[stem(word) for word in end] for end in (words[:middle], words[middle + 1 :])]
        for end, other in (ends, ends[::-1]):
            for one in end:
                allies[one].update(end)
                opposites[one].update(other)
        scales.update(*ends)
    for words in _lines("="):
        alike = [stem(word) for word in words]
        for one in alike:
            kin[one].update(alike)
    for line in _word_list():
        if line[0].isalpha():
            near, _, far = line.partition(" ! ")
            first, *others = near.split()
            common.add(first)
            kin[first].update(others)
            opposites[first].update(far.split())
    return _Lexicon(
        {word: frozenset(near - {word}) for word, near in kin.items()},
        {word: frozenset(near - kin[word] - {word}) for word, near in allies.items()},
        {word: frozenset(far - kin[word] - allies[word] - {word}) for word, far in opposites.items()},
        frozenset(scales),
        frozenset(common),
    )


EMPTY = frozenset(
    """a an the this that these those it its he she they them their theirs his hers him we us our you your i me my
    be is are was were been being am do does did done doing have has had having will would shall should can could
    may might must of in on at to from by for with as into onto upon about than then so such also too very just
    and or but nor if while when where which who whom whose what why how there here s t re ve ll d m both each
    some any more most much many few less least only even still yet again further once
    during per via between among through over under above below up down out off against within along across
    before after since until because although though whereas however therefore thus hence not no never none
    neither without cannot atmost atleast one ones himself itself themselves unlike like let every all""".split()
)
"""Words without content of their own; some of them carry a direction or a negation."""

LIGHT = frozenset(
    stem(word)
    for word in """become make take put set get give go come turn way part thing lot case place order effort want
    try keep say tell call name use have mean happen result lead bring find show see know look seem appear
    certain particular actual general usual final later together own various several especially mainly mostly
    simply really finally particularly still now today ever kind sort type form fact example instance number
    amount total time year people work own able need allow different same new old good well first last
    many much back away apart around forward aside along really however especially altogether wholly together
    describe state report note according""".split()
)
"""Stems of words that a paraphrase may add or drop at little cost."""

HARD_NEGATIONS = frozenset("not no never none nobody nothing nowhere neither nor without cannot".split())
SOFT_NEGATIONS = frozenset(
    stem(word)
    for word in """unable hardly scarcely rarely seldom lack fail failure refuse absent absence except unless instead
    avoid prevent forbid prohibit deny abstain miss impossible illegal unlike refrain stop cease skip ignore omit
    insufficient""".split()
)
"""Stems that may stand for a negation; what they govern is only the next two words."""
