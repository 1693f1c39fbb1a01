"""What the passes of one response cost, and how the service reports it."""

from __future__ import annotations

from orchestrator.offline import clearing, models
from orchestrator.offline.billing import Entry
from orchestrator.offline.prompt import Json, Prompt
from orchestrator.offline.request import Request
from orchestrator.offline.state import State

_SUMMED = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class Account:
    """Opens an entry on the bill for each pass; `serving` are those that the usage counts."""

    def __init__(self, request: Request, state: State) -> None:
        self.request = request
        self.state = state
        self.told = state.behaviour
        self.entries: list[Entry] = []
        self.serving: list[Entry] = []
        self.edits: list[Json] = []
        """What context editing did, as the service reports it."""
        self._editing = request.body.get("context_management") if self.told.clearing else None

    def open(self, model: models.Model, prompt: Prompt) -> Entry:
        """A pass begins: its input is on the bill from here on."""
        factor = self.request.factor(self.told.service_tier)
        entry = Entry(self.request.number, model, "message", factor=factor)
        read, edits = clearing.edit(prompt, self._editing)
        self.edits = edits or self.edits
        caching = self.told.caching == "cached"
        self.state.cache.charge(entry, read, seeds=self.request.seeds, caching=caching)
        self.state.bill.open(entry)
        self.entries.append(entry)
        self.serving.append(entry)
        return entry

    def decline(self) -> None:
        """What was sampled so far is billed, and is no part of the usage."""
        self.serving.clear()

    def start(self) -> Json:
        """The usage of `message_start`: the first pass's input, and one token of output."""
        return {**self.serving[0].counts(), "output_tokens": 1, **self._common()}

    def delta(self) -> Json:
        """The usage of `message_delta`: the sum over the serving model's passes."""
        counts = [entry.counts() for entry in self.serving]
        usage: Json = {name: sum(each[name] for each in counts) for name in _SUMMED}
        if self.request.hosted:
            usage["server_tool_use"] = {"web_search_requests": 0, "web_fetch_requests": 0}
        if thought := sum(entry.thinking for entry in self.serving):
            usage["output_tokens_details"] = {"thinking_tokens": thought}
        if self.told.iterations:
            usage["iterations"] = [self._iteration(entry) for entry in self.entries]
        return usage

    def whole(self) -> Json:
        """The usage of a whole message."""
        creation = {
            "ephemeral_5m_input_tokens": sum(entry.write_5m for entry in self.serving),
            "ephemeral_1h_input_tokens": sum(entry.write_1h for entry in self.serving),
        }
        return {**self.delta(), "cache_creation": creation, **self._common()}

    def management(self) -> Json:
        """The report on context editing; only where the request asked for it."""
        if not self.request.body.get("context_management"):
            return {}
        return {"context_management": {"applied_edits": self.edits}}

    def _common(self) -> Json:
        return {"service_tier": self.told.service_tier, "inference_geo": self.request.geo}

    def _iteration(self, entry: Entry) -> Json:
        # The recordings name the model where there is more than one, and not else.
        named = len({each.model.id for each in self.entries}) > 1 or entry.kind == "fallback_message"
        return {"type": entry.kind, **({"model": entry.model.id} if named else {}), **entry.counts()}
