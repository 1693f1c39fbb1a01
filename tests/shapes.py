"""The shape of what the Messages API says: which fields stand where, of which type, in which order.

A `Shape` is learned from recorded traffic. Kinds of events and blocks that no recording holds are held
against the SDK's own response types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from pydantic import BaseModel, TypeAdapter, ValidationError

Json = dict[str, Any]
Fields = dict[str, str]
"""Path inside an event -> JSON type."""

_OPAQUE: Final = frozenset({"input", "input_schema", "applied_edits", "iterations"})
"""What differs from call to call, or is compared on its own."""


@dataclass
class Kind:
    """One kind of event, block or delta, as it was seen."""

    always: Fields = field(default_factory=dict)
    ever: dict[str, set[str]] = field(default_factory=dict)

    def see(self, fields: Fields) -> None:
        if not self.ever:
            self.always = dict(fields)
        self.always = {path: kind for path, kind in self.always.items() if path in fields}
        for path, kind in fields.items():
            self.ever.setdefault(path, set()).add(kind)


@dataclass
class Shape:
    """All kinds of a set of streams and messages."""

    kinds: dict[str, Kind] = field(default_factory=dict)

    def see(self, events: Iterable[Mapping[str, Any]]) -> Shape:
        for event in events:
            for name, fields in _parts(event):
                self.kinds.setdefault(name, Kind()).see(fields)
        return self


def _parts(event: Mapping[str, Any]) -> Iterator[tuple[str, Fields]]:
    """An event as the kinds that it is made of: itself, its block or delta, entries of its lists."""
    name = str(event.get("type"))
    if name == "message":  # not streamed
        yield name, dict(_walk({key: value for key, value in event.items() if key != "content"}))
        for block in event["content"]:
            yield f"message block {block.get('type')}", dict(_walk(block))
    elif "content_block" in event:
        yield name, {"index": _type(event.get("index"))}
        yield f"block {event['content_block'].get('type')}", dict(_walk(event["content_block"]))
    elif name == "content_block_delta":
        yield name, {"index": _type(event.get("index"))}
        yield f"delta {event['delta'].get('type')}", dict(_walk(event["delta"]))
    else:
        yield name, dict(_walk(event))
    usage = event.get("usage") or {}
    for entry in usage.get("iterations") or ():
        yield f"iteration {entry.get('type')}", dict(_walk(entry))


def _walk(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Paths and types below a value; an empty list or null says nothing of what could stand there."""
    for key, inner in value.items():
        at = f"{path}.{key}" if path else key
        yield at, _type(inner)
        if key in _OPAQUE:
            continue
        if isinstance(inner, dict):
            yield from _walk(inner, at)
        elif isinstance(inner, list):
            for item in inner:
                if isinstance(item, dict):
                    yield from _walk(item, f"{at}[]")


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "number", float: "number", dict: "object", list: "array", type(None): "null"}
    return names[type(value)]


def differences(recorded: Shape, events: Iterable[Mapping[str, Any]]) -> list[str]:
    """What these events say that the recorded traffic and the SDK's types do not, and what they leave out."""
    said = Shape().see(events)
    found: list[str] = []
    for name, kind in said.kinds.items():
        known = recorded.kinds.get(name)
        if known is None:
            continue  # the SDK's types are all there is to say: see `unknown`
        missing = known.always.keys() - kind.always.keys()
        found += [f"{name}: {path} is always there and is missing" for path in missing]
        for path, types in kind.ever.items():
            expected = known.ever.get(path)
            if expected and not types <= expected | {"null"} and expected != {"null"}:
                found.append(f"{name}: {path} is {sorted(types)}, recorded as {sorted(expected)}")
    return sorted(found)


@cache
def _reader() -> TypeAdapter[Any]:
    return TypeAdapter(BetaRawMessageStreamEvent)


def unknown(event: Mapping[str, Any], recorded: Shape) -> list[str]:
    """Fields and values that neither the SDK's response types nor the recorded traffic know."""
    if event.get("type") == "ping":
        return [] if set(event) == {"type"} else ["ping: it has nothing but its type"]
    try:
        read = (
            BetaMessage.model_validate(event)
            if event.get("type") == "message"
            else _reader().validate_python(event)
        )
    except ValidationError as error:
        return [
            f"{event.get('type')}: {'.'.join(map(str, e['loc']))} {e['msg']}"
            for e in error.errors()
            if not _recorded(recorded, event, str(e["loc"][-1]))
        ]
    return [f"{event['type']}: {path}" for path in _extra(read) if not _recorded(recorded, event, path)]


def _recorded(recorded: Shape, event: Mapping[str, Any], path: str) -> bool:
    names = {name for name, _ in _parts(event)}
    last = path.rpartition(".")[2]
    return any(
        seen.rpartition(".")[2] == last
        for name in names & recorded.kinds.keys()
        for seen in recorded.kinds[name].ever
    )


def _extra(value: Any, path: str = "") -> Iterator[str]:
    """Paths of fields that the SDK's types do not have."""
    if isinstance(value, BaseModel):
        for key in value.model_extra or ():
            yield f"{path}{key}"
        for key in type(value).model_fields:
            yield from _extra(getattr(value, key), f"{path}{key}.")
    elif isinstance(value, list):
        for item in value:
            yield from _extra(item, path)


def disorder(events: list[Json]) -> list[str]:
    """Where a stream leaves the order of the recorded ones."""
    order = [event["type"] for event in events if event["type"] != "ping"]
    found: list[str] = []
    if order[:1] != ["message_start"] or order[-2:] != ["message_delta", "message_stop"]:
        found.append(f"begins with {order[:1]}, ends with {order[-2:]}")
    if order.count("message_start") != 1 or order.count("message_stop") != 1:
        found.append("message_start and message_stop stand there once")
    if events and events[0]["type"] == "ping":
        found.append("a ping before message_start")
    return found + list(_blocks(events))


def _blocks(events: list[Json]) -> Iterator[str]:
    """Blocks come one after the other, numbered from 0, each closed before the next."""
    open_block: Json | None = None
    expected = 0
    deltas: list[str] = []
    for event in events:
        match event["type"]:
            case "content_block_start":
                if open_block is not None or event["index"] != expected:
                    yield f"block {event['index']} begins where {expected} is expected"
                open_block, deltas = event["content_block"], []
            case "content_block_delta":
                if open_block is None or event["index"] != expected:
                    yield f"a delta for block {event['index']} outside of it"
                deltas.append(event["delta"]["type"])
            case "content_block_stop":
                if open_block is None or event["index"] != expected:
                    yield f"block {event['index']} ends where {expected} is expected"
                else:
                    yield from _inside(open_block, deltas)
                open_block, expected = None, expected + 1
            case "message_delta" if open_block is not None:
                yield "message_delta inside a block"


_ALLOWED: Final = {
    "text": {"text_delta", "citations_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "mcp_tool_use": {"input_json_delta"},
    "tool_use": {"input_json_delta"},
    "compaction": {"compaction_delta"},
}


def _inside(block: Json, deltas: list[str]) -> Iterator[str]:
    """A model's block opens empty and fills by deltas; a result comes whole."""
    kind = block["type"]
    odd = set(deltas) - _ALLOWED.get(kind, set())
    if odd:
        yield f"{kind} with {sorted(odd)}"
    if kind in ("mcp_tool_use", "tool_use") and block.get("input") != {}:
        yield f"{kind} opens with its input"
    if kind == "text" and block.get("text"):
        yield "text opens with text"
