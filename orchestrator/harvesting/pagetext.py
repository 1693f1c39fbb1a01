"""What pages say is data: made readable before it is stored, and harmless before a model sees it."""

from __future__ import annotations

import re

from orchestrator.citing.markers import disarmed

LONGEST_TITLE = 300
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u(?:(d[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})|d[89a-f][0-9a-f]{2})", re.IGNORECASE
)
_DELIMITER = re.compile(
    r"<(?=/?\s*(?:sources?|cite|citations?|excerpts?|evidence|documents?|search_results?|tool_results?"
    r"|function_results?|function_calls|results?|system|user|assistant|human|antml|invoke)\b)",
    re.IGNORECASE,
)
_PRIVATE = re.compile(r"[\ue200-\ue20f]")
_SOURCE_ID = re.compile("source_id", re.IGNORECASE)
_SPACES = re.compile(r"\s+")


def clean(text: str) -> str:
    """Replace lone surrogates by U+FFFD, in themselves and as escapes (`\\ud83d`); real pairs stay.

    A lone one makes every later request with it fail.
    """
    if not text.isascii() and _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if "\\u" in text or "\\U" in text:
        text = _ESCAPED_SURROGATE.sub(lambda found: found[0] if found[2] else f"{found[1]}\\ufffd", text)
    return text


def harmless(text: str) -> str:
    """Return page text in which nothing reads as a source id, a marker or a delimiter of ours.

    The length stays the same, so that offsets into the text keep their meaning.
    """
    text = disarmed(text)
    if "<" in text:
        text = _DELIMITER.sub("‹", text)
    if not text.isascii():
        text = _PRIVATE.sub(" ", text)
    return _SOURCE_ID.sub("source-id", text) if "source_id" in text.lower() else text


def one_line(text: str) -> str:
    """Return a title on one line, of bounded length."""
    return _SPACES.sub(" ", clean(text)).strip()[:LONGEST_TITLE]
