"""The bill: tokens of each sampling pass, what they cost, and what the prompt cache saves.

An entry stands on the bill from the moment its pass begins and grows as the pass generates, so a client
that leaves in the middle pays for what was generated until then and for nothing after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.offline import models
from orchestrator.offline.prompt import Piece, Prompt

Kind = Literal["message", "compaction", "fallback_message"]
LOOKBACK = 20
"""How many blocks before a breakpoint are looked at for something already cached."""


@dataclass
class Entry:
    """One sampling pass as it is billed; tokens."""

    request: int
    model: models.Model
    kind: Kind
    input: int = 0
    write_5m: int = 0
    write_1h: int = 0
    read: int = 0
    output: int = 0
    thinking: int = 0
    factor: float = 1.0

    @property
    def prompt(self) -> int:
        return self.input + self.write_5m + self.write_1h + self.read

    @property
    def usd(self) -> float:
        rates = models.rates(self.model, self.prompt)
        total = (
            self.input * rates.input
            + self.write_5m * rates.write_5m
            + self.write_1h * rates.write_1h
            + self.read * rates.read
            + self.output * rates.output
        )
        return total * self.factor / models.MILLION

    def counts(self) -> dict[str, Any]:
        """The token counts as the service reports them."""
        return {
            "input_tokens": self.input,
            "output_tokens": self.output,
            "cache_read_input_tokens": self.read,
            "cache_creation_input_tokens": self.write_5m + self.write_1h,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.write_5m,
                "ephemeral_1h_input_tokens": self.write_1h,
            },
        }


class Bill:
    """All passes since the last reset."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def open(self, entry: Entry) -> Entry:
        self.entries.append(entry)
        return entry

    def total(self) -> float:
        return sum(entry.usd for entry in list(self.entries))

    def lines(self) -> list[dict[str, Any]]:
        return [
            {
                "request": entry.request,
                "model": entry.model.id,
                "type": entry.kind,
                **entry.counts(),
                "thinking_tokens": entry.thinking,
                "usd": entry.usd,
            }
            for entry in list(self.entries)
        ]


@dataclass
class PromptCache:
    """Which prompt prefixes are kept; nothing ever expires here."""

    kept: set[str] = field(default_factory=set)

    def charge(self, entry: Entry, prompt: Prompt, *, seeds: dict[str, str], caching: bool) -> Entry:
        """Split a prompt into read, written and plain tokens, and keep what was written."""
        pieces = prompt.pieces
        marks = [index for index, piece in enumerate(pieces) if piece.ttl] if caching else []
        ends = _running_total(pieces)
        total = ends[-1] if ends else 0
        entry.read = self._longest(pieces, ends, marks, entry.model.id, seeds)
        position = entry.read
        for index in marks:
            if ends[index] < entry.model.minimum_prefix:
                continue
            self.kept.add(_key(pieces[index], entry.model.id, seeds))
            new = max(0, ends[index] - position)
            if pieces[index].ttl == "1h":
                entry.write_1h += new
            else:
                entry.write_5m += new
            position += new
        entry.input = total - position
        return entry

    def _longest(
        self, pieces: Sequence[Piece], ends: list[int], marks: list[int], model: str, seeds: dict[str, str]
    ) -> int:
        near = {index for mark in marks for index in range(max(0, mark - LOOKBACK), mark + 1)}
        return max(
            (ends[index] for index in near if _key(pieces[index], model, seeds) in self.kept), default=0
        )


def _running_total(pieces: Sequence[Piece]) -> list[int]:
    ends: list[int] = []
    for piece in pieces:
        ends.append((ends[-1] if ends else 0) + piece.tokens)
    return ends


def _key(piece: Piece, model: str, seeds: dict[str, str]) -> str:
    """What has to be equal for a prefix to be found again; the tool choice touches messages only."""
    seed = seeds.get(piece.section, "")
    return hashlib.sha256(f"{model}|{seed}|{piece.digest}".encode()).hexdigest()
