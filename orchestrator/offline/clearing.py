"""Context editing: the oldest tool results are cleared from what the model reads once it grows too long.

The request stays as it is, and so do the signatures that are bound to it; only the prompt of the next pass
is shorter, and costs a cache write from the first change on.
"""

from __future__ import annotations

from typing import Any, Final

from orchestrator.offline.prompt import Json, Piece, Prompt

_KIND: Final = "clear_tool_uses_20250919"
_TRIGGER: Final = 100_000
_KEEP: Final = 3
_RESULTS: Final = ("tool_result", "mcp_tool_result")
_CLEARED: Final[Json] = {"type": "text", "text": "[cleared to save context]"}


def edit(prompt: Prompt, told: Json | None) -> tuple[Prompt, list[Json]]:
    """The prompt as the model reads it, and the edits as the service reports them."""
    for wanted in (told or {}).get("edits") or ():
        if wanted.get("type") == _KIND and prompt.tokens > _number(wanted.get("trigger"), _TRIGGER):
            return _cleared(prompt, wanted)
    return prompt, []


def _cleared(prompt: Prompt, wanted: Json) -> tuple[Prompt, list[Json]]:
    results = [index for index, piece in enumerate(prompt.pieces) if piece.block.get("type") in _RESULTS]
    keep = _number(wanted.get("keep"), _KEEP)
    old = frozenset(results[: max(0, len(results) - keep)])
    short = Prompt(prompt.counter)
    for index, piece in enumerate(prompt.pieces):
        block = {**piece.block, "content": [_CLEARED]} if index in old else piece.block
        short.add(piece.section, piece.role, block, _tokens(prompt, piece, index in old), piece.ttl)
    saved = prompt.tokens - short.tokens
    if saved <= 0 or saved < _number(wanted.get("clear_at_least"), 0):
        return prompt, []
    return short, [{"type": _KIND, "cleared_tool_uses": len(old), "cleared_input_tokens": saved}]


def _tokens(prompt: Prompt, piece: Piece, cleared: bool) -> int:
    return min(piece.tokens, prompt.counter.block(_CLEARED)) if cleared else piece.tokens


def _number(setting: Any, default: int) -> int:
    return int(setting["value"]) if isinstance(setting, dict) else default
