"""Arguments that satisfy a tool's JSON schema, and JSON that satisfies an output format."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
_QUESTION_LIKE = ("objective", "query", "question", "q", "text", "search", "prompt", "input", "keywords")


def fill(schema: Schema, question: str, queries: list[str]) -> dict[str, Any]:
    """Arguments for a search tool: all that is required, and what takes the question."""
    properties: dict[str, Schema] = schema.get("properties") or {}
    wanted = [name for name in properties if name in (schema.get("required") or ())]
    if not wanted:
        wanted = [name for name in _QUESTION_LIKE if name in properties][:1]
    return {name: value(properties[name], schema, question, queries) for name in wanted}


def value(schema: Schema, root: Schema, question: str, queries: list[str]) -> Any:
    """One value that this schema accepts, made of the question where it takes text."""
    schema = _resolved(schema, root)
    if fixed := [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]:
        return fixed[0]
    made: Any
    match _type(schema):
        case "array":
            made = _array(schema, root, question, queries)
        case "object":
            inner = schema.get("properties") or {}
            names = schema.get("required") or list(inner)
            made = {name: value(inner[name], root, question, queries) for name in names if name in inner}
        case "string":
            made = question[: schema.get("maxLength", len(question))]
        case kind:
            plain = {"boolean": False, "null": None}
            made = schema.get("default", plain.get(kind, schema.get("minimum", 5)))
    return made


def _array(schema: Schema, root: Schema, question: str, queries: list[str]) -> list[Any]:
    items = schema.get("items") or {}
    if _type(_resolved(items, root)) != "string":
        return [value(items, root, question, queries)] * int(schema.get("minItems", 0))
    most = int(schema.get("maxItems", len(queries) or 1))
    return (queries or [question])[:most]


def _resolved(schema: Schema, root: Schema) -> Schema:
    if isinstance(schema.get("$ref"), str):
        return _resolved((root.get("$defs") or {}).get(schema["$ref"].rsplit("/", 1)[-1], {}), root)
    for variants in ("anyOf", "oneOf"):
        if schema.get(variants):
            useful = [each for each in schema[variants] if each.get("type") != "null"]
            return _resolved(useful[0] if useful else {"type": "null"}, root)
    return schema


def _type(schema: Schema) -> str:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return str(next((each for each in kind if each != "null"), "null") if isinstance(kind, list) else kind)
