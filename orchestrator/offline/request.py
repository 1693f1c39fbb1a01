"""One request to the Messages API, read and checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from orchestrator.offline import models
from orchestrator.offline.prompt import Counter, Json, Prompt, canonical, read

_EFFORT_TOKENS = {"low": 40, "medium": 120, "high": 300, "xhigh": 600, "max": 1_200}


@dataclass(frozen=True)
class Request:
    """A checked request; `number` is its place in the log."""

    body: Json
    betas: frozenset[str]
    version: str
    model: models.Model
    number: int
    id: str

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def max_tokens(self) -> int:
        return int(self.body["max_tokens"])

    @property
    def thinking(self) -> Json:
        return self.body.get("thinking") or {"type": "adaptive" if self.model.thinks else "disabled"}

    @property
    def summarized(self) -> bool:
        return self.thinking.get("display") == "summarized"

    @property
    def effort(self) -> str:
        default = "medium" if self.model.id in ("claude-opus-5-5", "claude-haiku-5-5") else "high"
        return str((self.body.get("output_config") or {}).get("effort") or default)

    @property
    def thinking_tokens(self) -> int:
        """How much this request lets the model think in each pass."""
        return 0 if self.thinking["type"] == "disabled" else _EFFORT_TOKENS.get(self.effort, 120)

    @property
    def fallbacks(self) -> list[str]:
        """The models that may serve in place of the one asked for."""
        told = self.body.get("fallbacks")
        if told == "default":
            return [models.DEFAULT_FALLBACK] if self.model.fallbacks else []
        return [str(each["model"]) for each in told or ()]

    @property
    def hosted(self) -> bool:
        return bool(self.body.get("mcp_servers"))

    @property
    def geo(self) -> str:
        return "us" if self.body.get("inference_geo") == "us" else "global"

    def factor(self, tier: str) -> float:
        """What the request's options multiply every price by."""
        factor = models.US_FACTOR if self.geo == "us" else 1.0
        factor *= models.FAST_FACTOR if self.body.get("speed") == "fast" else 1.0
        return factor * (models.BATCH_FACTOR if tier == "batch" else 1.0)

    @cached_property
    def seeds(self) -> dict[str, str]:
        """What else must be equal for a cached prefix to be found again, by section of the prompt."""
        whole = self.effort
        loose = canonical([self.body.get("tool_choice"), self.thinking])
        return {"tools": whole, "system": whole, "messages": f"{whole}|{loose}"}

    def prompt(self, counter: Counter, listed: dict[str, list[Json]]) -> Prompt:
        return read(self.body, counter, listed)
