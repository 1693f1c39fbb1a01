"""How much of an answer that is still being written can be shown: never half a marker."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.citing.markers import url_end

_LONGEST_HELD: Final = 2_600
"""Characters held back at most; what is open for longer is text."""
_OPENING = re.compile(
    r"!?\\?[\[［【]|https?://|file:///|</?(?:cite|a)\b|<https?:|\ue200|:contentReference\[|\bcite(?=turn)",
    re.IGNORECASE,
)
_CLOSERS: Final = {"[": "]", "［": "］", "【": "】"}
_HALF_OPENING = re.compile(
    r"(?:!|!?\\|<(?:/?[a-z]{0,5}|https?)|h|ht|htt|https?:?/?|f|fi|fil|file:?/{0,2}|\b(?:c|ci|cit|cite\w{0,80})"
    r"|:[a-z]{0,16})\Z",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r":contentReference\[[^\]]{0,30}\](?:\{[^}]{0,20}\}|(?=[^{]))", re.IGNORECASE)
_WORD = re.compile(r"cite(?:turn\d{1,4}[a-z]{1,12}\d{1,4})*(?=\w*\W)", re.IGNORECASE)
_URL_END = re.compile(r"[\s<>\"`]")
_ARTEFACT_END = re.compile("\ue201")
_TAG = re.compile(r"<(cite|a)\b[^<>]*>", re.IGNORECASE)
_LONGEST_TAGGED: Final = 600


def shown_length(text: str) -> int:
    """Return how many characters of a growing text may be shown; more text never makes it fewer.

    What may still become a marker is held back from its first character on, at most to the paragraph's
    beginning. Linear in the last paragraph.
    """
    paragraph = max(text.rfind("\n\n") + 1, len(text) - _LONGEST_HELD, 0)
    position = paragraph
    while (opening := _OPENING.search(text, position)) is not None:
        end = _settled(text, opening)
        if end is None:
            return opening.start()
        position = max(end, opening.end())
    half = _HALF_OPENING.search(text, max(position, len(text) - 100))
    return half.start() if half else len(text)


def _settled(text: str, opening: re.Match[str]) -> int | None:
    """Return where what opens here ends for certain, None while more text could belong to it."""
    start, kind = opening.start(), opening[0].lower()
    if kind[0] == ":" or kind == "cite":
        whole = (_REFERENCE if kind[0] == ":" else _WORD).match(text, start)
        return whole.end() if whole else None
    if "\\" in kind:
        stop = text.find(_CLOSERS[kind[-1]], start)
        return stop + 1 if stop >= 0 else None
    if kind[-1] in _CLOSERS:
        return _after_brackets(text, opening.end() - 1)
    if kind[0] == "<" and not kind.startswith("<http"):
        return _after_tag(text, start)
    if kind[0] in "\ue200<":
        ending = (_ARTEFACT_END if kind == "\ue200" else _URL_END).search(text, start + 1)
        return ending.end() if ending else None
    return url_end(text, start) if _URL_END.search(text, start) else None


def _after_brackets(text: str, start: int) -> int | None:
    """A bracket is settled behind its closer when no address and no further bracket can follow."""
    end = _closing(text, start, text[start], _CLOSERS[text[start]])
    if end is None or end == len(text):
        return None
    if text[end] == "(":
        return _closing(text, end, "(", ")")
    return None if text[end:] in ("\\", "{") else end


def _closing(text: str, start: int, opener: str, closer: str) -> int | None:
    depth, position = 0, start
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 1
        elif char == opener:
            depth += 1
        elif char == closer:
            depth -= 1
            if depth == 0:
                return position + 1
        position += 1
    return None


def _after_tag(text: str, start: int) -> int | None:
    tag = _TAG.match(text, start)
    if tag is None:
        end = text.find(">", start)
        return end + 1 if end >= 0 else None
    close = text.lower().find(f"</{tag[1].lower()}", tag.end())
    end = text.find(">", close) if close >= 0 else -1
    if end >= 0:
        return end + 1
    return tag.end() if len(text) - tag.end() > _LONGEST_TAGGED else None
