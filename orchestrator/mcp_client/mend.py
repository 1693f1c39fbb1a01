"""Makes what a foreign MCP server sends valid, one tool or block at a time, before the SDK judges the whole.

`mcp`'s client refuses a whole tool list for one bad tool and a whole result for one bad block. Each
function takes the raw JSON of one message, leaves what is right as it came, repairs or drops what is
not, and tells `notice` what it did.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

Json = dict[str, Any]
Notice = Callable[[str], None]

LONGEST_NAME: Final = 45
"""The model API allows 64 characters, and hosts write `mcp__orchestrator__` before a tool's own name."""

_REPAIRS: Final = 50
"""Pieces of one result that may be dropped; above it the whole counts as broken."""

_SHAPES: Final = 1_000
"""Shapes of one tool's results that are remembered."""
_SHAPE_KEYWORDS: Final = frozenset(
    ("type", "required", "$ref", "$schema", "title", "description", "default", "examples")
)

_BAD_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_SURROGATES: Final = re.compile(
    r"(?<!\\)(\\+)u(?:([dD][89abAB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|[dD][c-fC-F][0-9a-fA-F]{2})"
)


def text(json_text: str) -> str:
    """JSON source text with unpaired surrogate escapes replaced, which JSON readers refuse; pairs stay."""

    def whole(match: re.Match[str]) -> str:
        backslashes, pair = match[1] or "", match[3]
        if len(backslashes) % 2 == 0 or pair:  # an escaped backslash before a "u", or a real character
            return match[0]
        return backslashes + "ufffd"

    return _SURROGATES.sub(whole, json_text) if "\\u" in json_text else json_text


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """For each tool name one that every model API takes, unique and the same in every process."""
    safe: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        fitting = _BAD_IN_NAME.sub("_", name)
        if len(fitting) > LONGEST_NAME or fitting in taken:
            digest = hashlib.sha256(name.encode()).hexdigest()[:8]
            fitting = f"{fitting[: LONGEST_NAME - 9]}_{digest}"
        taken.add(fitting)
        safe[name] = fitting
    return safe


def tool_list(raw: Json, notice: Notice) -> Json:
    """A tools/list result in which every tool is valid; those without a usable name are dropped."""
    tools = raw.get("tools")
    kept = [fixed for tool in tools if (fixed := tool_entry(tool, notice))] if isinstance(tools, list) else []
    if not isinstance(tools, list):
        notice("its tool list is not a list and counts as empty")
    mended = raw | {"tools": kept}
    if not isinstance(raw.get("nextCursor", ""), str):
        del mended["nextCursor"]
    return mended


def tool_entry(tool: Any, notice: Notice) -> Json | None:
    """One valid tool, or None when it has no name to call it by."""
    if not isinstance(tool, dict) or not isinstance(name := tool.get("name"), str) or not name:
        notice("a tool without a name was dropped")
        return None
    mended = {key: value for key, value in tool.items() if value is not None}
    schema = _object_schema(mended.get("inputSchema"))
    if schema != mended.get("inputSchema"):
        notice(f"the input schema of tool {name!r} was repaired: hosts want one object at its top")
    mended["inputSchema"] = schema
    output = mended.get("outputSchema")
    if output is not None and (mended_output := _output_schema(output)) != output:
        notice(f"the output schema of tool {name!r} was {'repaired' if mended_output else 'dropped'}")
        mended.pop("outputSchema")
        mended |= {"outputSchema": mended_output} if mended_output else {}
    for key, kind in (("title", str), ("description", str), ("_meta", dict), ("icons", list)):
        if not isinstance(mended.get(key, kind()), kind):
            notice(f"{key} of tool {name!r} was dropped: it is not a {kind.__name__}")
            del mended[key]
    if "annotations" in mended:
        mended["annotations"] = _annotations(mended["annotations"])
    mended.pop("execution", None)  # 2025-11-25's task mode, which nothing here offers
    return mended


def _annotations(given: Any) -> Json:
    given = given if isinstance(given, dict) else {}
    title = {"title": given["title"]} if isinstance(given.get("title"), str) else {}
    return title | {key: given[key] for key in _HINTS if isinstance(given.get(key), bool)}


def _object_schema(schema: Any) -> Json:
    """The schema with one object at its top: model APIs refuse `anyOf` there, and a missing type."""
    if not isinstance(schema, dict) or not _is_schema(schema):
        return {"type": "object"}
    flat = dict(schema)
    for combinator in ("allOf", "anyOf", "oneOf"):
        branches = [_resolved(branch, schema) for branch in flat.pop(combinator, ())]
        properties: Json = {}
        for branch in branches:
            properties |= branch.get("properties", {})
        required = [set(branch.get("required", ())) for branch in branches]
        if properties:
            flat["properties"] = properties | flat.get("properties", {})
        if required:
            shared = set.union(*required) if combinator == "allOf" else set.intersection(*required)
            flat["required"] = sorted(shared | set(flat.get("required", ())))
    if "$ref" in flat:
        flat = _resolved(flat, schema) | {k: v for k, v in flat.items() if k != "$ref"}
    return flat | {"type": "object"}


def _resolved(branch: Any, root: Json) -> Json:
    branch = branch if isinstance(branch, dict) else {}
    path = str(branch.get("$ref", "")).removeprefix("#/").split("/")
    target: Any = root
    for step in path if "$ref" in branch else ():
        target = target.get(step, {}) if isinstance(target, dict) else {}
    return target if "$ref" in branch and isinstance(target, dict) else branch


def _output_schema(schema: Any) -> Json | None:
    """An output schema must be an object's; one without a type is taken to mean that."""
    if not isinstance(schema, dict) or not _is_schema(schema) or schema.get("type", "object") != "object":
        return None
    return None if _refers_outside(schema) else schema | {"type": "object"}


def _refers_outside(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(_refers_outside, schema))
    if not isinstance(schema, dict):
        return False
    outside = not str(schema.get("$ref", "#")).startswith("#")
    return outside or any(map(_refers_outside, schema.values()))


def structured(value: Json, schema: Json) -> Json | None:
    """Structured content as its own schema wants it, what breaks it dropped piece by piece; else None."""
    check = _check(json.dumps(schema))
    if check.passes(value):
        return value
    whole = copy.deepcopy(value)
    for _ in range(_REPAIRS):
        if (error := next(check.validator.iter_errors(whole), None)) is None:
            return whole
        if not error.absolute_path:
            return None
        *way, last = error.absolute_path
        holder: Any = whole
        for step in way:
            holder = holder[step]
        del holder[last]
    return None


class _Check:
    """A compiled schema. Where it speaks of nothing but types and keys, a shape seen valid once is valid.

    Results of one tool are alike, and validating each of them costs more than all else that is done to it.
    """

    def __init__(self, schema: Json) -> None:
        from referencing import Registry

        self.validator = _dialect(schema)(schema, registry=Registry())
        self._by_shape = _only_shapes(schema)
        self._valid: set[Any] = set()

    def passes(self, value: Json) -> bool:
        shape = _shape(value) if self._by_shape else None
        if shape in self._valid:
            return True
        valid = bool(self.validator.is_valid(value))
        if valid and shape is not None and len(self._valid) < _SHAPES:
            self._valid.add(shape)
        return valid


@lru_cache(maxsize=256)
def _check(schema: str) -> _Check:
    return _Check(json.loads(schema))


def _only_shapes(schema: Any) -> bool:
    if isinstance(schema, bool):
        return True
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions"):
            sound = all(map(_only_shapes, value.values()))
        elif key in ("anyOf", "oneOf", "allOf"):
            sound = all(map(_only_shapes, value))
        elif key in ("items", "additionalProperties"):
            sound = _only_shapes(value)
        else:
            sound = key in _SHAPE_KEYWORDS
        if not sound:
            return False
    return True


def _shape(value: Any) -> Any:
    match value:
        case dict():
            return "object", frozenset((key, _shape(item)) for key, item in value.items())
        case list():
            return "array", frozenset(map(_shape, value))
        case float():
            return "integer" if value.is_integer() else "number"
    return type(value).__name__


def _is_schema(schema: Json) -> bool:
    from jsonschema import SchemaError  # type: ignore[import-untyped]

    try:
        _dialect(schema).check_schema(schema)
    except SchemaError:
        return False
    properties = schema.get("properties", {})
    return all(isinstance(value, dict | bool) for value in properties.values())


def _dialect(schema: Json) -> Any:
    # imported late: it is not needed before a tool is listed
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]

    return validator_for(schema)


def call_result(raw: Json, notice: Notice) -> Json:
    """A tools/call result in which every content block is valid; foreign ones become JSON text."""
    content = raw.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = content if isinstance(content, list) else []
    if not all(map(_is_block, blocks)):
        notice("a content block of an unknown or broken type was passed on as JSON text")
        blocks = [block if _is_block(block) else _as_text(block) for block in blocks]
    mended = raw if blocks is raw.get("content") else raw | {"content": blocks}
    if "structuredContent" in raw and not isinstance(raw["structuredContent"], dict):
        mended = dict(mended)
        value = mended.pop("structuredContent")
        if value is not None:
            notice("structured content that is not an object was passed on as JSON text")
            mended["content"] = [*blocks, *([] if blocks else [_as_text(value)])]
    if not isinstance(raw.get("isError", False), bool):
        mended = mended | {"isError": bool(raw["isError"])}
    if not isinstance(raw.get("_meta", {}), dict):
        mended = {key: value for key, value in mended.items() if key != "_meta"}
    return mended


def _is_block(block: Any) -> bool:
    match block:
        case {"type": "text", "text": str()}:
            return True
        case {"type": "image" | "audio", "data": str(), "mimeType": str()}:
            return True
        case {"type": "resource_link", "uri": str(), "name": str()}:
            return True
        case {"type": "resource", "resource": {"uri": str(), "text": str()} | {"uri": str(), "blob": str()}}:
            return True
    return False


def _as_text(value: Any) -> Json:
    return {"type": "text", "text": json.dumps(value, ensure_ascii=False)}


def digest(tool: Json) -> str:
    """A hash over everything of a tool that a model is told: name, description, schemas."""
    told = {key: tool.get(key) for key in ("name", "description", "inputSchema", "outputSchema")}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
