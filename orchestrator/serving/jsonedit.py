"""Changes one member of a JSON text and leaves every other byte as it is.

A file that others own is not to be parsed and written anew: that would lose their formatting, their escapes
and their long numbers. Here only the place of a member is found, and the text changed there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from json.decoder import JSONDecoder
from typing import Any, Final, NamedTuple

_DECODER: Final = JSONDecoder()
_SPACE: Final = " \t\r\n"


class _Member(NamedTuple):
    key: str
    start: int
    """Where the key begins."""
    value: int
    end: int


def put(text: str, path: Sequence[str], value: Any) -> str:
    """The text with this member set; objects on the way are made. Raises `ValueError` for what is not JSON.

    An empty text becomes an object. The new member is indented like its neighbours.
    """
    if not text.strip():
        text = "{}\n"
    before = json.loads(text)
    wanted = _changed(before, path, value)
    if wanted == before:
        return text
    at, depth = _skip(text, 0), 0
    for depth, key in enumerate(path):
        members = _members(text, at)
        found = next((m for m in reversed(members) if m.key == key), None)
        if found is None:
            value = _nested(path[depth + 1 :], value)
            edited = _inserted(text, at, members, key, value)
            break
        at = found.value
    else:
        end = _DECODER.raw_decode(text, at)[1]
        edited = text[:at] + _dumped(value, _line_indent(text, at), text) + text[end:]
    if json.loads(edited) != wanted:
        raise ValueError("the change cannot be made safely")
    return edited


def drop(text: str, path: Sequence[str]) -> str:
    """The text without this member; unchanged when it is not there. Raises `ValueError` for no JSON."""
    json.loads(text)
    *way, last = path
    at = _skip(text, 0)
    for key in way:
        found = next((m for m in reversed(_members(text, at)) if m.key == key), None)
        if found is None:
            return text
        at = found.value
    members = _members(text, at)
    for index, member in reversed(list(enumerate(members))):
        if member.key == last:
            text = _without(text, members, index)
            members = _members(text, at)
    return text


def _without(text: str, members: list[_Member], index: int) -> str:
    member = members[index]
    if index:  # with the comma before it
        return text[: members[index - 1].end] + text[member.end :]
    if len(members) > 1:  # with the comma behind it, and the space up to the next
        return text[: member.start] + text[members[1].start :]
    before, after = text[: member.start].rstrip(_SPACE), text[member.end :].lstrip(_SPACE)
    return before + after


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _members(text: str, at: int) -> list[_Member]:
    """The members of the object that begins at `at`."""
    if text[at : at + 1] != "{":
        raise ValueError("there is a value where an object is needed")
    members = []
    at = _skip(text, at + 1)
    while text[at] != "}":
        start = at
        key, at = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, at) + 1)  # over the colon
        end = _DECODER.raw_decode(text, value)[1]
        members.append(_Member(key, start, value, end))
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return members


def _inserted(text: str, at: int, members: list[_Member], key: str, value: Any) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    outer = _line_indent(text, at)
    if members:
        last = members[-1]
        indent = _line_indent(text, last.start)
        alone = not text[text.rfind("\n", 0, last.start) + 1 : last.start].strip(_SPACE)
        gap = newline + indent if alone else " "
        written = f",{gap}{json.dumps(key)}: {_dumped(value, indent, text)}"
        return text[: last.end] + written + text[last.end :]
    indent = outer + _step(text)
    close = text.index("}", at)
    member = f"{json.dumps(key)}: {_dumped(value, indent, text)}"
    return f"{text[: at + 1]}{newline}{indent}{member}{newline}{outer}{text[close:]}"


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(text: str) -> str:
    """One step of indentation, as the file has it."""
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        if indent and line.strip():
            return indent
    return "  "


def _dumped(value: Any, indent: str, text: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = json.dumps(value, ensure_ascii=False, indent=_step(text)).split("\n")
    return (newline + indent).join(lines)


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _changed(whole: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    if not isinstance(whole, dict):
        raise ValueError("there is a value where an object is needed")
    return whole | {path[0]: _changed(whole.get(path[0], {}), path[1:], value)}
