"""A request as the model reads it: a chain of pieces, each with its size and the digest of all before it.

Everything that depends on a byte-identical prefix stands on these digests: the prompt cache, the signature
of thinking blocks, and the proof that a conversation really paused.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from orchestrator.offline import signing

Json = dict[str, Any]
Section = Literal["tools", "system", "messages"]
_BLOCK_OVERHEAD = 3
_TOOL_OVERHEAD = 12
_OF_KIND = {"image": 1_500, "mcp_tool_listing": 0, "fallback": 0}


@dataclass(frozen=True)
class Piece:
    """One tool, system block or content block; `digest` is over it and all pieces before it."""

    section: Section
    role: str
    block: Json
    digest: str
    tokens: int
    ttl: str | None = None
    """Set where the prompt cache is to keep everything up to here."""


@dataclass(frozen=True)
class Counter:
    """Tokens of a text: its UTF-8 bytes by a fixed rate, rounded up."""

    bytes_per_token: float

    def text(self, text: str) -> int:
        return math.ceil(len(text.encode("utf-8", "surrogatepass")) / self.bytes_per_token)

    def block(self, block: Mapping[str, Any]) -> int:
        """Tokens of a content block as it stands in a prompt; its own output cost is the same."""
        kind = block.get("type")
        if kind in ("thinking", "redacted_thinking"):
            held = signing.thinking_tokens(str(block.get("signature") or ""))
            tokens = self.text(str(block.get("thinking") or "")) if held is None else held
        elif kind == "text":
            tokens = self.text(str(block.get("text") or ""))
        elif kind in ("tool_use", "mcp_tool_use", "server_tool_use"):
            tokens = self.call(str(block.get("name")), canonical(block.get("input")))
        elif kind in ("tool_result", "mcp_tool_result"):
            tokens = _BLOCK_OVERHEAD + sum(self.block(each) for each in blocks(block.get("content")))
        else:
            tokens = _OF_KIND[kind] if kind in _OF_KIND else self.text(canonical(block))
        return tokens

    def call(self, name: str, arguments: str) -> int:
        return _TOOL_OVERHEAD + self.text(name) + self.text(arguments)

    def tool(self, tool: Mapping[str, Any]) -> int:
        return _TOOL_OVERHEAD + self.text(canonical(tool))


@dataclass
class Prompt:
    """The pieces of a request, and then of the hosted loop that goes on from it."""

    counter: Counter
    pieces: list[Piece] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)

    @property
    def digest(self) -> str:
        return self.pieces[-1].digest if self.pieces else ""

    @property
    def marked(self) -> bool:
        return any(piece.ttl for piece in self.pieces)

    def add(self, section: Section, role: str, block: Json, tokens: int, ttl: str | None = None) -> None:
        content = f"{self.digest}|{section}|{role}|{canonical(block)}"
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        self.pieces.append(Piece(section, role, block, digest, tokens, ttl))

    def say(self, role: str, block: Json, ttl: str | None = None) -> None:
        """Append one content block of the conversation."""
        self.add("messages", role, block, _BLOCK_OVERHEAD + self.counter.block(block), ttl)

    def mark_last(self, ttl: str) -> None:
        """Let the prompt cache keep everything up to the last block that can be marked."""
        for index in range(len(self.pieces) - 1, -1, -1):
            if self.pieces[index].block.get("type") not in ("thinking", "redacted_thinking"):
                self.pieces[index] = replace(self.pieces[index], ttl=ttl)
                return


def read(body: Json, counter: Counter, listed: Mapping[str, Iterable[Json]] | None = None) -> Prompt:
    """Take a request apart; `listed` are the tools that each MCP server said it has."""
    prompt = Prompt(counter)
    for tool in body.get("tools") or ():
        listing = list((listed or {}).get(tool.get("mcp_server_name", ""), ()))
        tokens = sum(map(counter.tool, listing)) if tool.get("type") == "mcp_toolset" else counter.tool(tool)
        prompt.add("tools", "", tool, tokens, _ttl(tool))
    for block in blocks(body.get("system")):
        prompt.add("system", "", block, _BLOCK_OVERHEAD + counter.block(block), _ttl(block))
    for message in body.get("messages") or ():
        for block in blocks(message.get("content")):
            prompt.say(str(message.get("role")), block, _ttl(block))
    if body.get("cache_control") and prompt.pieces:
        prompt.mark_last(_ttl(body) or "5m")
    return prompt


def blocks(content: Any) -> list[Json]:
    """Content as blocks; a plain string is one text block, as the service reads it."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)]


def canonical(value: Any) -> str:
    """One spelling of a JSON value; cache marks and absent fields do not belong to what the model reads."""
    return json.dumps(_bare(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _bare(each) for key, each in value.items() if each is not None and key != "cache_control"
        }
    if isinstance(value, list | tuple):
        return [_bare(each) for each in value]
    return value


def _ttl(block: Mapping[str, Any]) -> str | None:
    mark = block.get("cache_control")
    return (mark.get("ttl") or "5m") if isinstance(mark, dict) else None
