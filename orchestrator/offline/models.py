"""What the stand-in knows of each model: its prices, its limits and its habits.

Written down by hand from the published price list and kept apart from `orchestrator.prices` on purpose: a
bill that came from the code it is to check would prove nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MILLION: Final = 1_000_000


@dataclass(frozen=True)
class Rates:
    """US dollars per million tokens."""

    input: float
    output: float
    write_5m: float
    write_1h: float
    read: float


@dataclass(frozen=True)
class Model:
    id: str
    name: str
    rates: Rates
    minimum_prefix: int
    """Shortest prompt prefix, in tokens, that the prompt cache keeps."""
    window: int = 1_000_000
    max_output: int = 128_000
    long_rates: Rates | None = None
    """Rates of the whole request where its prompt is longer than `LONG_PROMPT` tokens."""
    fast: bool = False
    thinks: bool = False
    """Whether it thinks when the request does not say."""
    must_think: bool = False
    chooses_freely: bool = False
    """Whether a forced tool choice is refused."""
    fallbacks: bool = True
    """Whether it takes a list of fallback models."""
    prefill: bool = False
    """Whether a conversation may end with an assistant message."""
    task_budget: bool = True


LONG_PROMPT: Final = 100_000
FAST_FACTOR: Final = 2.0
US_FACTOR: Final = 1.1
BATCH_FACTOR: Final = 0.5

_OPUS: Final = Rates(5, 25, 6.25, 10, 0.50)
_SONNET_4: Final = Rates(3, 15, 3.75, 6, 0.30)

MODELS: Final[dict[str, Model]] = {
    model.id: model
    for model in (
        Model(
            "claude-opus-5-5",
            "Claude Opus 5.5",
            Rates(4, 20, 5, 8, 0.20),
            512,
            fast=True,
            thinks=True,
            must_think=True,
            chooses_freely=True,
        ),
        Model("claude-sonnet-5-5", "Claude Sonnet 5.5", Rates(2, 10, 2.5, 4, 0.10), 512, thinks=True),
        Model(
            "claude-haiku-5-5",
            "Claude Haiku 5.5",
            Rates(0.10, 0.50, 0.125, 0.20, 0.01),
            512,
            long_rates=Rates(0.50, 2.50, 0.625, 1.00, 0.05),
            thinks=True,
            fallbacks=False,
        ),
        Model("claude-fable-5-2", "Claude Fable 5.2", Rates(8, 40, 10, 16, 0.20), 512, thinks=True),
        Model("claude-fable-5-1", "Claude Fable 5.1", Rates(10, 50, 12.5, 20, 0.25), 512, thinks=True),
        Model("claude-opus-5", "Claude Opus 5", _OPUS, 512),
        Model("claude-opus-4-8", "Claude Opus 4.8", _OPUS, 1024),
        Model("claude-opus-4-7", "Claude Opus 4.7", _OPUS, 2048),
        Model("claude-opus-4-6", "Claude Opus 4.6", _OPUS, 4096, task_budget=False),
        Model(
            "claude-opus-4-5",
            "Claude Opus 4.5",
            _OPUS,
            4096,
            200_000,
            64_000,
            prefill=True,
            task_budget=False,
        ),
        Model("claude-sonnet-5", "Claude Sonnet 5", Rates(2, 10, 2.5, 4, 0.20), 1024, task_budget=False),
        Model("claude-sonnet-4-6", "Claude Sonnet 4.6", _SONNET_4, 1024, task_budget=False),
        Model(
            "claude-sonnet-4-5",
            "Claude Sonnet 4.5",
            _SONNET_4,
            1024,
            200_000,
            64_000,
            prefill=True,
            task_budget=False,
        ),
        Model(
            "claude-haiku-4-5",
            "Claude Haiku 4.5",
            Rates(1, 5, 1.25, 2, 0.10),
            4096,
            200_000,
            64_000,
            prefill=True,
            task_budget=False,
        ),
    )
}
DEFAULT_FALLBACK: Final = "claude-opus-4-8"
_DATED: Final = {
    "claude-opus-4-5-20251101": "claude-opus-4-5",
    "claude-sonnet-4-5-20250929": "claude-sonnet-4-5",
    "claude-haiku-4-5-20251001": "claude-haiku-4-5",
}


def find(name: str) -> Model | None:
    """The model of this id or dated id; None where the service would answer 404."""
    return MODELS.get(_DATED.get(name, name))


def rates(model: Model, prompt_tokens: int) -> Rates:
    """The rates of one sampling pass whose whole prompt, cached or not, has this many tokens."""
    if model.long_rates is not None and prompt_tokens > LONG_PROMPT:
        return model.long_rates
    return model.rates
