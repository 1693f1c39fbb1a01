"""How the stand-in model judges whether excerpts carry a sentence: by its words, and by nothing finer."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.offline import reading

_ITEM = re.compile(r'<item number="(\d+)">\s*<sentence>(.*?)</sentence>(.*?)</item>', re.DOTALL)
_EXCERPT = re.compile(r"<excerpt>(.*?)</excerpt>", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_ENOUGH = 0.7
"""Share of a sentence's words that its excerpts have to hold."""


class Item(NamedTuple):
    number: int
    sentence: str
    excerpts: str


def items(prompt: str) -> list[Item]:
    """The items of a request to judge; none where it is no such request."""
    return [
        Item(int(number), html.unescape(sentence), html.unescape(" ".join(_EXCERPT.findall(rest))))
        for number, sentence, rest in _ITEM.findall(prompt)
    ]


def verdicts(asked: list[Item]) -> Iterator[str]:
    """One line of JSON for each item."""
    for item in asked:
        yield json.dumps({"item": item.number, "supported": _supported(item)})


def _supported(item: Item) -> bool:
    claimed, held = set(reading.words(item.sentence)), set(reading.words(item.excerpts))
    numbers = set(_NUMBER.findall(item.sentence)) - set(_NUMBER.findall(item.excerpts))
    return not numbers and len(claimed & held) >= _ENOUGH * len(claimed)
