"""How the service bills what it reads again: estimates before it has said so, and what it taught.

A hosted loop reports usage once, at its end, so the price of the passes before it must be bounded from what
the stream shows. Three things are unknown until the service was seen to bill: how many tokens a byte of text
is, which share of the context it reads again at the cache-read rate, and which share of the rest it writes to
the cache. Until then all are taken at their dearest; afterwards as seen, with a margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from orchestrator.events import Event, PassFinished, PassStarted, TextDelta, ToolResult, Usage
from orchestrator.prices import Rates

DEAREST_TOKENS_PER_BYTE: Final = 1 / 2.2
"""25,000 characters of search results were seen to be 6,000 to 11,000 tokens: this is the upper end."""
BLOCK_TOKENS: Final = 24
"""What one block adds to the context besides its text."""
ENOUGH_BYTES: Final = 1_000
"""Less growth than this teaches nothing."""
MARGIN: Final = 1.1
"""How much dearer than seen a learned rate is taken."""

LEAST_MISSED: Final = 0.01
"""Share of the context that is taken to miss the cache even where none was seen to."""


@dataclass(frozen=True)
class Clearing:
    """When the service clears old tool results from the context, which costs it its cache."""

    trigger: int
    """Prompt tokens from which it does."""
    keep: int
    """Results that it leaves."""
    at_least: int = 0
    """Tokens that it must free; else it leaves everything."""

    def possible(self, context: int, results: Sequence[int], billing: Billing) -> bool:
        """Whether a pass that reads `context` tokens, results of these bytes among them, may lose some."""
        old = results[: max(len(results) - self.keep, 0)]
        return bool(old) and context >= self.trigger and billing.tokens(sum(old), len(old)) >= self.at_least


@dataclass(frozen=True)
class Billing:
    """How the service bills: the dearest way unless it has shown another."""

    tokens_per_byte: float = DEAREST_TOKENS_PER_BYTE
    reread_share: float = 0.0
    """Share of the context of an earlier pass that is billed at the cache-read rate."""
    write_share: float = 1.0
    """Share of everything else that is billed at the cache-write rate."""
    taught_by: str | None = None
    """The run that taught it, None when nothing did."""

    def tokens(self, n_bytes: int, blocks: int = 1) -> int:
        """Upper estimate of the tokens of a text of this many UTF-8 bytes in this many blocks."""
        return ceil(n_bytes * self.tokens_per_byte) + blocks * BLOCK_TOKENS

    def input_usd(self, rates: Rates, context: int, reread: int = 0) -> float:
        """Upper estimate of what reading `context` tokens costs, `reread` of them for another time."""
        cached = min(reread, context) * self.reread_share
        rest = self.write_share * rates.dearest_input + (1 - self.write_share) * rates.input
        return cached * rates.cache_read + (context - cached) * rest


@dataclass
class _Pass:
    """One pass as the run file shows it."""

    step: int
    context: int
    shown_bytes: int = 0
    """Visible output and tool results that stand in the context after it."""
    results: int = 0
    """Tool results that the conversation holds after it."""
    usage: Usage | None = None


class Teacher:
    """A fold over events that learns how the service bills from every settled pass."""

    def __init__(self, run: str, clearing: Clearing | None = None) -> None:
        self._run = run
        self._clearing = clearing
        self._results: list[int] = []
        self._passes: list[_Pass] = []
        self._earlier = 0
        self._fresh = 0
        self._written = 0
        self._read_again = 0
        self._grown = 0
        self._grown_bytes = 0

    @property
    def billing(self) -> Billing | None:
        """What was learned, with a margin; None before a pass was seen to follow another."""
        if self._grown_bytes < ENOUGH_BYTES or self._earlier <= 0:
            return None
        missed = 1 - min(self._read_again / self._earlier, 1.0)
        return Billing(
            tokens_per_byte=min(self._grown / self._grown_bytes * MARGIN, DEAREST_TOKENS_PER_BYTE),
            reread_share=max(1 - (missed + LEAST_MISSED) * MARGIN, 0.0),
            write_share=min(self._written / max(self._fresh, 1) * MARGIN, 1.0),
            taught_by=self._run,
        )

    def see(self, event: Event) -> None:
        """Fold one event."""
        match event:
            case PassStarted(purpose="answer" | "correction"):
                if not self._passes or self._passes[-1].step != event.step:
                    self._passes.append(_Pass(event.step, event.context_tokens, results=len(self._results)))
            case TextDelta() if self._passes:
                self._passes[-1].shown_bytes += len(event.text.encode("utf-8", "replace"))
            case ToolResult() if self._passes and not event.denied:
                self._results.append(event.bytes)
                self._passes[-1].shown_bytes += event.bytes
                self._passes[-1].results = len(self._results)
            case PassFinished(purpose="answer" | "correction"):
                self._settle(event)

    def recall(self, results: Sequence[int]) -> None:
        """The conversation that is carried on holds results of these bytes already."""
        self._results += results

    def _settle(self, event: PassFinished) -> None:
        usage = [entry for entry in event.usage if entry.kind in ("message", "fallback_message")]
        settled = [entry for entry in self._passes if entry.step in event.steps]
        self._written += sum(entry.cache_write_tokens for entry in usage)
        self._fresh += sum(entry.cache_write_tokens + entry.input_tokens for entry in usage)
        if not event.exact or not settled:
            self._passes.clear()
        elif len(usage) == len(settled):
            for entry, said in zip(settled, usage, strict=True):
                entry.usage = said
            for before, after in zip(self._passes, self._passes[1:], strict=False):
                self._compare(before, after)
            del self._passes[:-1]
        else:
            self._compare_sum(settled, usage)
            self._passes.clear()

    def _compare(self, before: _Pass, after: _Pass) -> None:
        if before.usage is None or after.usage is None:
            return
        self._earlier += before.usage.prompt_tokens
        self._read_again += after.usage.cache_read_tokens
        known = before.usage.prompt_tokens + before.usage.output_tokens
        grown = after.usage.prompt_tokens - known
        if grown > 0 and not self._cleared(known, before):
            self._grown += grown
            self._grown_bytes += before.shown_bytes

    def _cleared(self, known: int, before: _Pass) -> bool:
        """Whether the growth behind this pass may hide that old results were cleared."""
        most = known + Billing().tokens(before.shown_bytes)
        held = self._results[: before.results]
        return self._clearing is not None and self._clearing.possible(most, held, Billing())

    def _compare_sum(self, passes: list[_Pass], usage: list[Usage]) -> None:
        if len(passes) < 2:
            return
        first = passes[0].context
        total = sum(entry.prompt_tokens for entry in usage)
        if any(self._cleared(total, entry) for entry in passes[:-1]):
            return
        # what one pass adds is read in every later one
        weighted = sum((len(passes) - 1 - at) * entry.shown_bytes for at, entry in enumerate(passes[:-1]))
        grown = max(total - len(passes) * first, 0)
        if not weighted:
            return
        last = first + grown / weighted * sum(entry.shown_bytes for entry in passes[:-1])
        self._earlier += round(total - last)
        # the first pass may have read the prompt from an earlier request's cache
        self._read_again += max(sum(entry.cache_read_tokens for entry in usage) - first, 0)
        self._grown += grown
        self._grown_bytes += weighted
