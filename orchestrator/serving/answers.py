"""What hosts are told of a relayed tool, and what they get from it: upstream's own JSON and a little more.

Hosts show their model the text or the structured content, one or the other, so whatever a model must see
(source ids, a cut, the conversation's name) stands in both, and the output schema we publish declares it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from orchestrator.errors import LimitExceeded, OrchestratorError, UsageError
from orchestrator.mcp_client import mend
from orchestrator.mcp_client.mend import Json
from orchestrator.serving import parts
from orchestrator.serving.caps import Caps
from orchestrator.serving.conversation import Conversation
from orchestrator.upstream import Result, Tool

META: Final = "orchestrator"
SESSION: Final = "session_id"
PART: Final = "read_part"
MEMORY_RESULTS: Final = 500
MEMORY_CHARS: Final = 24_000_000
MEMORY_SECONDS: Final = 1800.0
SESSION_SCHEMA: Final = {
    "type": "string",
    "maxLength": 100,
    "description": "Names this conversation, so that source ids go on: as an earlier result gave it.",
}
_PART_SCHEMA: Final = {
    "type": "integer",
    "minimum": 1,
    "description": "Which part of a long result to read, where it was cut. Default: the first.",
}
_CITING: Final = (
    "Each source in the result has a source_id and a ready Markdown link in `cite`, such as"
    " [S3](https://example.org): put that link behind each sentence that rests on the source."
)
_ADDED: Final = {
    SESSION: {"type": "string"},
    "read_on": {"type": "string", "description": "What was cut off, and how to read it."},
    "notice": {"type": "string"},
}
_OF_A_SOURCE: Final = {
    "source_id": {"type": "string", "description": "This source's number in the conversation, such as S3."},
    "cite": {"type": "string", "description": "The Markdown link to cite it with."},
}


def entry(name: str, tool: Tool, about: str) -> Json:
    """The tools/list entry that we publish: upstream's, with what we add declared."""
    told = deepcopy(tool.raw)
    told["name"] = name
    told["description"] = "\n\n".join(filter(None, (told.get("description"), _CITING, about)))
    told["inputSchema"].setdefault("properties", {})
    told["inputSchema"]["properties"].setdefault(SESSION, SESSION_SCHEMA)
    told["inputSchema"]["properties"][PART] = _PART_SCHEMA
    if "outputSchema" in told:
        _declare_sources(told["outputSchema"])
        told["outputSchema"].setdefault("properties", {}).update(_ADDED)
    # hosts that cut results would cut ours in the wrong place
    told["_meta"] = {**told.get("_meta", {}), "anthropic/maxResultSizeChars": 4 * parts.PART_CHARS}
    return told


def _declare_sources(schema: Any) -> None:
    if isinstance(schema, list):
        for item in schema:
            _declare_sources(item)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict) and "url" in properties:
            properties.update(_OF_A_SOURCE)
        for value in list(schema.values()):
            _declare_sources(value)


def conforming(result: Result, schema: Json | None, notice: mend.Notice) -> Result:
    """The result with structured content that keeps its own schema; else as an error, its text kept."""
    if schema is None or result.is_error:
        return result
    given = result.structured if result.structured is not None else _structured_in_text(result)
    fitting = mend.structured(given, schema) if given is not None else None
    if fitting is None:
        notice("a result broke its own output schema and was passed on as an error, with its text")
        broken = {"type": "text", "text": "The search server broke its own output schema; its text follows."}
        return Result([broken, *result.content], None, True, result.meta, result.ms)
    if fitting is not given:
        notice("parts of a result that broke its own output schema were dropped")
    return Result(result.content, fitting, False, result.meta, result.ms)


def refusal(error: OrchestratorError, caps: Caps, session_id: object = None) -> Json:
    """A denied or failed call as a tool error: why, what is left, and what the model can do."""
    left = caps.left()
    meta = {"left": left} | ({SESSION: session_id} if isinstance(session_id, str) else {})
    text = str(error)
    if isinstance(error, LimitExceeded):
        text = f"Denied: {text}. Left: {json.dumps(left)}. Answer from the sources you have, and cite them."
    return {"content": [_text(text)], "isError": True, "_meta": {META: meta}}


def _structured_in_text(result: Result) -> Json | None:
    for block in result.content:
        value = _parsed(block.get("text", ""))
        if isinstance(value, dict):
            return value
    return None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text.startswith("{") else None
    except ValueError:
        return None


@dataclass
class Answer:
    """One tools/call result in the making."""

    name: str
    """Of the tool, as published."""
    conversation: Conversation
    result: Result
    arguments: Json
    part: int
    max_chars: int | None
    notice: str | None = None

    def build(self) -> Json:
        """The result's content and structured content, numbered, cut to the part asked for.

        Raises `UsageError` for a part that it does not have.
        """
        structured, texts = self._labelled()
        total = max(parts.count(structured), parts.count(texts))
        if self.part > total:
            raise UsageError(f"The result has {total} parts: there is no {PART}={self.part}.")
        added = {SESSION: self.conversation.id}
        if self.notice:
            added["notice"] = self.notice
        if self.part < total:
            added["read_on"] = (
                f"Cut: this is part {self.part} of {total}. To read on, call {self.name} again with the same"
                f" arguments and {PART}={self.part + 1}; for half an hour that costs nothing."
            )
        answer: Json = {"isError": self.result.is_error}
        if structured is not None:
            answer["structuredContent"] = parts.part(structured, self.part) | added
        answer["content"] = self._content(answer.get("structuredContent"), texts, added)
        return answer

    def _labelled(self) -> tuple[Json | None, list[str]]:
        """Structured content, and the texts that are not the same once more, with source ids."""
        result = self.result
        label = partial(self.conversation.registry.label, arguments=self.arguments, links=True)
        structured = None
        if result.structured is not None:
            structured = _shortened(label(result.structured), self.max_chars)
        texts = [
            block["text"] if result.is_error else label(block["text"])
            for block in result.content
            if block["type"] == "text" and not self._repeats(block["text"])
        ]
        return structured, texts

    def _repeats(self, text: str) -> bool:
        """Whether a text block holds the structured content again: it must then be written again, too."""
        return self.result.structured is not None and _parsed(text) == self.result.structured

    def _content(self, structured: Json | None, texts: list[str], added: Json) -> list[Json]:
        shown = parts.part(texts, self.part)
        blocks = [_text(text) for text in shown]
        said = sum(block["type"] == "text" for block in self.result.content)
        if structured is not None and (not said or len(texts) < said):
            blocks.insert(0, _text(json.dumps(structured, ensure_ascii=False)))
        elif added:
            blocks.append(_text("\n".join(f"{key}: {value}" for key, value in added.items())))
        if self.part == 1:
            blocks += [_fitting(block) for block in self.result.content if block["type"] != "text"]
        return blocks


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _fitting(block: Json) -> Json:
    size = parts.binary_size(block)
    if size <= parts.LARGEST_BINARY:
        return block
    return _text(f"[{block['type']} of {size:,} base64 characters left out: it is too large for a host]")


def _shortened(value: Any, limit: int | None) -> Any:
    """Sources cut to `limit` characters of text each, for a server that was not told to."""
    if limit is None:
        return value
    if isinstance(value, list):
        return [_shortened(item, limit) for item in value]
    if not isinstance(value, dict):
        return value
    short = {key: _shortened(item, limit) for key, item in value.items()}
    if isinstance(short.get("full_content"), str):
        short["full_content"] = short["full_content"][:limit]
    if isinstance(excerpts := short.get("excerpts"), list):
        short["excerpts"], left = [], limit
        for excerpt in excerpts:
            if left > 0:
                short["excerpts"].append(excerpt[:left])
            left -= len(excerpt)
    return short


@dataclass
class Memory:
    """Results of earlier calls, for whoever makes the same one again; errors are never kept."""

    now: Callable[[], float]
    _kept: OrderedDict[str, tuple[float, int, Result]] = field(default_factory=OrderedDict)
    _chars: int = 0

    def get(self, key: str) -> Result | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if self.now() - found[0] > MEMORY_SECONDS:
            self._forget(key)
            return None
        self._kept.move_to_end(key)
        return found[2]

    def put(self, key: str, chars: int, result: Result) -> None:
        if chars > MEMORY_CHARS:
            return
        if key in self._kept:
            self._forget(key)
        self._kept[key] = (self.now(), chars, result)
        self._chars += chars
        while self._chars > MEMORY_CHARS or len(self._kept) > MEMORY_RESULTS:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: str) -> None:
        self._chars -= self._kept.pop(key)[1]
