"""Values as the Messages API writes them: usage, content blocks, whole messages, tool lists.

The reading is lenient: what is absent, null or of another type than expected has a sensible reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.events import ToolInfo, ToolsListed, Usage
from orchestrator.mcp_client.mend import digest


def read_usage(raw: Mapping[str, Any], model: str, before: Usage | None = None) -> Usage:
    """One usage object of the wire; a field that is absent or null keeps its value from `before`."""

    def number(name: str, default: int) -> int:
        value = raw.get(name)
        return value if isinstance(value, int) else default

    creation = raw.get("cache_creation")
    long = creation.get("ephemeral_1h_input_tokens") if isinstance(creation, Mapping) else None
    long_write = long if isinstance(long, int) else (before.cache_write_1h_tokens if before else 0)
    written_before = before.cache_write_tokens + before.cache_write_1h_tokens if before else 0
    details = raw.get("output_tokens_details")
    thinking = details.get("thinking_tokens") if isinstance(details, Mapping) else None
    return Usage(
        model=raw.get("model") or model,
        kind=raw.get("type") or "message",
        input_tokens=number("input_tokens", before.input_tokens if before else 0),
        cache_write_tokens=max(number("cache_creation_input_tokens", written_before) - long_write, 0),
        cache_write_1h_tokens=long_write,
        cache_read_tokens=number("cache_read_input_tokens", before.cache_read_tokens if before else 0),
        output_tokens=number("output_tokens", before.output_tokens if before else 0),
        thinking_tokens=thinking if isinstance(thinking, int) else None,
        inference_geo=raw.get("inference_geo") or (before.inference_geo if before else None),
        service_tier=raw.get("service_tier") or (before.service_tier if before else None),
        speed=raw.get("speed") or (before.speed if before else None),
    )


def read_iterations(raw: Mapping[str, Any], total: Usage, asked: str) -> tuple[Usage, ...]:
    """Usage by sampling iteration where the service gives it, else the total alone.

    An iteration that names no model is one of the model that was `asked`, unless it stood in for it.
    """
    iterations = raw.get("iterations")
    if not isinstance(iterations, list) or not iterations:
        return (total,)
    common = {"inference_geo": total.inference_geo, "service_tier": total.service_tier, "speed": total.speed}
    entries = (entry for entry in iterations if isinstance(entry, Mapping))
    return tuple(
        read_usage(entry, total.model if entry.get("type") == "fallback_message" else asked).model_copy(
            update=common
        )
        for entry in entries
    ) or (total,)


def result_text(content: object) -> str:
    """The text of a tool result's content as the model is shown it."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(block.get("text", "") for block in content if isinstance(block, Mapping))
    return ""


def parsed(text: str) -> Any:
    """JSON text as its value, anything else as it is."""
    if text[:1] in ("{", "["):
        try:
            return encodable(json.loads(text))
        except ValueError:
            return text
    return text


def encodable(value: Any) -> Any:
    """The same JSON value without lone surrogates, which neither a request nor a file can hold."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return value


def as_events(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A whole message as the stream that would have carried it, each block in one piece."""
    ending = {key: message.get(key) for key in ("stop_reason", "stop_sequence", "stop_details")}
    start = {**message, "content": [], **dict.fromkeys(ending)}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(message.get("content") or ()):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": ending, "usage": message.get("usage")}
    yield {"type": "message_stop"}


_APPENDED: Final = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""Deltas whose text is added to what came before, and the field that holds it."""


@dataclass
class Block:
    """One content block, put together from its stream events."""

    raw: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict)

    @property
    def type(self) -> str:
        return str(self.raw.get("type"))

    def add(self, delta: Mapping[str, Any]) -> str:
        """Take over one delta; returns the text it appends."""
        kind = str(delta.get("type"))
        if kind in _APPENDED:
            text = delta.get(_APPENDED[kind])
            text = text if isinstance(text, str) else ""
            self.pieces.setdefault(_APPENDED[kind], []).append(text)
            return text
        if kind == "citations_delta":
            self.raw["citations"] = [*(self.raw.get("citations") or ()), delta.get("citation")]
        else:  # a signature, compacted content, or something newer: its fields are the block's
            self.raw |= {key: value for key, value in delta.items() if key != "type"}
        return ""

    @property
    def arguments(self) -> dict[str, Any]:
        """A tool call's input; what is no JSON object counts as none."""
        written = "".join(self.pieces.get("partial_json", ()))
        value = parsed(written) if written else self.raw.get("input")
        return value if isinstance(value, dict) else {}

    def whole(self) -> dict[str, Any]:
        """The block as a non-streaming response would have held it."""
        whole = dict(self.raw)
        for name, pieces in self.pieces.items():
            if name == "partial_json":
                whole["input"] = self.arguments
            else:
                whole[name] = (self.raw.get(name) or "") + "".join(pieces)
        return whole


def tools_listed(block: Mapping[str, Any]) -> ToolsListed:
    """An `mcp_tool_listing` block: what a server told the service it has."""
    tools = [tool for tool in block.get("tools") or () if isinstance(tool, Mapping)]
    return ToolsListed(
        server=str(block.get("mcp_server_name")),
        tools=tuple(
            ToolInfo(
                name=str(tool.get("name")),
                digest=digest({**tool, "inputSchema": tool.get("input_schema")}),
                description=str(tool.get("description") or ""),
            )
            for tool in tools
        ),
    )


def mapping(value: Any) -> Mapping[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def size(text: str) -> int:
    """UTF-8 bytes."""
    return len(text.encode("utf-8", "replace"))
