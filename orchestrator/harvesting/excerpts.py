"""The best passages of all sources for a question, within a number of bytes: what a request can afford."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple
from xml.sax.saxutils import quoteattr

from orchestrator.events import Source
from orchestrator.harvesting.pagetext import harmless
from orchestrator.text.urls import spelled

_PASSAGE: Final = 900
"""Characters of one passage, about a paragraph."""
_SAME_SOURCE: Final = 0.85
"""What a further passage of a source is worth beside its better one: several sources say more than one."""
_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_BREAK = re.compile(r"\n\s*\n|\n|(?<=[.!?。！？])\s")


class _Passage(NamedTuple):
    source: int
    place: int
    text: str


def best(question: str, sources: Iterable[Source], max_bytes: int, *, ids: bool = True) -> str:
    """Return the passages that share most of the question's rarer words, in `<source>` elements, best first.

    At most `max_bytes` of UTF-8; page text in it is neutralised; empty when not even one passage fits.
    `ids` says whether the elements carry source ids.
    """
    listed = list(sources)
    passages = [
        _Passage(number, place, passage)
        for number, source in enumerate(listed)
        for place, passage in enumerate(
            p for excerpt in source.excerpts for p in _passages(harmless(excerpt))
        )
    ]
    chosen: dict[int, list[_Passage]] = {}
    left = max_bytes
    for passage in _ranked(question, passages):
        head = _head(listed[passage.source], ids)
        cost = len(passage.text.encode()) + 1
        if passage.source not in chosen:
            cost += len(head.encode()) + len("\n</source>\n")
        if cost <= left:
            chosen.setdefault(passage.source, []).append(passage)
            left -= cost
    return "".join(_element(listed[number], kept, ids) for number, kept in chosen.items())


def _head(source: Source, ids: bool) -> str:
    attributes = {"id": source.id} if ids else {}
    attributes |= {"title": harmless(source.title), "url": spelled(source.url)}
    if source.published:
        attributes["published"] = harmless(source.published)
    return f"<source {' '.join(f'{name}={quoteattr(value)}' for name, value in attributes.items())}>"


def _element(source: Source, passages: list[_Passage], ids: bool) -> str:
    inside = "\n".join(passage.text for passage in sorted(passages, key=lambda passage: passage.place))
    return f"{_head(source, ids)}\n{inside}\n</source>\n"


def _passages(text: str) -> list[str]:
    """Cut a text into passages at its own breaks, and hard where it has none."""
    found, start, last = [], 0, 0
    for stop in [*(match.end() for match in _BREAK.finditer(text)), len(text)]:
        if stop - start > _PASSAGE and last > start:
            found.append(text[start:last])
            start = last
        while stop - start > 2 * _PASSAGE:
            found.append(text[start : start + _PASSAGE])
            start += _PASSAGE
        last = stop
    found.append(text[start:])
    return [passage.strip() for passage in found if passage.strip()]


def _ranked(question: str, passages: list[_Passage]) -> list[_Passage]:
    asked = set(_words(question))
    counts = [Counter(word for word in _words(passage.text) if word in asked) for passage in passages]
    spread = Counter(word for count in counts for word in count)
    weight = {word: math.log(1 + len(passages) / number) for word, number in spread.items()}
    scores = [sum(weight[word] * n / (n + 1) for word, n in count.items()) for count in counts]
    by_score = sorted(range(len(passages)), key=lambda index: -scores[index])
    worth, before = [0.0] * len(passages), Counter[int]()
    for index in by_score:
        worth[index] = (scores[index] + 1e-9) * _SAME_SOURCE ** before[passages[index].source]
        before[passages[index].source] += 1
    return [passages[index] for index in sorted(by_score, key=lambda index: -worth[index])]


def _words(text: str) -> Iterable[str]:
    for word in _WORD.findall(text.casefold()):
        if _CJK.search(word):  # written without spaces: pairs of characters stand for words
            yield from (word[i : i + 2] for i in range(max(len(word) - 1, 1)))
        else:
            yield word
