"""Loops that lead nowhere: the same call again, searches that find nothing, an answer that repeats itself."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from orchestrator.errors import LimitExceeded
from orchestrator.events import ToolCall

REPEATED_CALLS: Final = 3
EMPTY_SEARCHES: Final = 3
REPEATED_TEXT: Final = (200, 5)
"""Characters, and how often they may stand in one answer."""


class Loops:
    """What a run did over and over."""

    def __init__(self) -> None:
        self._signatures: Counter[str] = Counter()
        self._empty = 0
        self._text = ""
        self._text_checked = 0

    def called(self, call: ToolCall) -> None:
        """A call was let through."""
        self._signatures[_signature(call)] += 1

    def asked(self) -> None:
        """A call begins: the text so far was no answer."""
        self._text = ""
        self._text_checked = 0

    def found(self, sources: int) -> None:
        """A call came back with so many sources; 0 for one that failed."""
        self._empty = 0 if sources else self._empty + 1

    def wrote(self, text: str) -> None:
        """The answer goes on."""
        self._text += text

    def repeated(self, call: ToolCall) -> LimitExceeded | None:
        """Why this call is not made once more, None where it may be."""
        times = self._signatures[_signature(call)] + 1
        if times < REPEATED_CALLS:
            return None
        what = f"{call.tool} was already called {times - 1} times with the same arguments"
        return LimitExceeded("repeated_calls", times, REPEATED_CALLS - 1, what)

    def judge_searches(self) -> None:
        """Raises LimitExceeded after too many searches in a row without a source."""
        if self._empty >= EMPTY_SEARCHES:
            what = (
                f"{self._empty} searches in a row found nothing or failed; ask in other words, or see doctor"
            )
            raise LimitExceeded("empty_searches", self._empty, EMPTY_SEARCHES, what)

    def judge_text(self) -> None:
        """Raises LimitExceeded when the answer says the same over and over."""
        length, times = REPEATED_TEXT
        if len(self._text) - self._text_checked < length:
            return
        self._text_checked = len(self._text)
        if self._text.count(self._text[-length:]) >= times:
            what = f"the answer repeats the same {length} characters"
            raise LimitExceeded("repeated_text", times, times - 1, what)


def _signature(call: ToolCall) -> str:
    """The same call whatever the order of its arguments and of the items in its lists."""
    return json.dumps(
        [call.server, call.tool, _canonical(call.arguments)], sort_keys=True, ensure_ascii=False
    )


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((_canonical(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    return " ".join(value.split()).casefold() if isinstance(value, str) else value
