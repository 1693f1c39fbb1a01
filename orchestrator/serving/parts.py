"""Cuts a large result into parts that a host's model can read, each valid by the same schema.

A result is laid out as one long text, its strings in order; part N holds the characters of the N-th stretch
of it. List items that have none of them are left out, short strings of an object that has some (its URL,
its title) stand in each of its parts. The same result always yields the same parts, and they join up.
"""

from __future__ import annotations

from typing import Any, Final

PART_CHARS: Final = 60_000
"""Characters of one part: about 15,000 tokens, where hosts cut at 25,000, and far below a 1 MiB line."""
LARGEST_BINARY: Final = 700_000
"""Base64 characters of an image or other binary block that is passed on; a line above 1 MiB kills hosts."""
_SHORT: Final = 300
_SEAM: Final = 200
_GONE: Final = object()


def count(value: Any) -> int:
    """How many parts this value makes; at least one."""
    return max(1, -(-_size(value) // PART_CHARS))


def part(value: Any, number: int) -> Any:
    """Part `number`, counted from 1; a value of one part is returned as it is."""
    if _size(value) <= PART_CHARS:
        return value if number == 1 else _emptied(value)
    piece = _piece(value, 0, (number - 1) * PART_CHARS, number * PART_CHARS)
    return _emptied(value) if piece is _GONE else piece


def binary_size(block: dict[str, Any]) -> int:
    """Base64 characters in a content block."""
    resource = block.get("resource")
    blob = resource.get("blob", "") if isinstance(resource, dict) else ""
    return len(block.get("data", "") if block.get("type") in ("image", "audio") else blob)


def _size(value: Any) -> int:
    match value:
        case str():
            return len(value)
        case list():
            return sum(map(_size, value)) + len(value)
        case dict():
            return sum(map(_size, value.values())) + sum(map(len, value)) + len(value)
    return 8


def _piece(value: Any, start: int, low: int, high: int) -> Any:
    end = start + _size(value)
    if end <= low or start >= high:
        return _GONE
    if low <= start and end <= high:
        return value
    match value:
        case str() if len(value) > _SHORT:
            return value[_seam(value, low - start) : _seam(value, high - start)]
        case list():
            return _items(value, start, low, high)
        case dict():
            return _fields(value, start, low, high)
    return value


def _items(value: list[Any], start: int, low: int, high: int) -> list[Any]:
    kept = []
    for item in value:
        piece = _piece(item, start, low, high)
        start += _size(item) + 1
        if piece is not _GONE:
            kept.append(piece)
    return kept


def _fields(value: dict[str, Any], start: int, low: int, high: int) -> dict[str, Any]:
    kept = {}
    for key, item in value.items():
        start += len(key) + 1
        piece = _piece(item, start, low, high)
        start += _size(item)
        kept[key] = _emptied(item) if piece is _GONE else piece
    return kept


def _emptied(value: Any) -> Any:
    """What stands for a value outside this part: short ones stay, for they say what it belongs to."""
    match value:
        case str():
            return value if len(value) <= _SHORT else ""
        case list():
            return []
        case dict():
            return {key: _emptied(item) for key, item in value.items()}
    return value


def _seam(text: str, at: int) -> int:
    """A place near `at` where a cut harms least: after a line, else after a word."""
    if at <= 0 or at >= len(text):
        return max(0, min(at, len(text)))
    near = text[max(0, at - _SEAM) : at]
    for mark in ("\n", " "):
        if (found := near.rfind(mark)) >= 0:
            return at - len(near) + found + 1
    return at
