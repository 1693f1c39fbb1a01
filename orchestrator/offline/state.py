"""What the stand-ins were told, and what they remember: behaviour, script, log, bill, prompt cache."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.offline.billing import Bill, PromptCache

Fault = Literal[
    "401",
    "403",
    "413",
    "429",
    "500",
    "529",
    "dropped_stream",
    "error_event",
    "silent",
    "slow",
    "refusal",
    "partial_refusal",
    "fallback",
    "sticky_fallback",
    "compaction",
    "max_tokens",
    "context_exceeded",
    "empty",
    "no_usage",
    "double_start",
    "unknown_block",
    "unknown_event",
    "unknown_delta",
    "unknown_stop_reason",
    "unknown_fields",
    "citations_only",
]
"""What may go wrong with a request or a pass.

`401`..`529` answer with that status; `dropped_stream` cuts the stream in the middle of a pass; `error_event`
ends it with an error event; `silent` says no more after the start; `slow` waits between chunks; the rest are
answers with something odd in them.
"""


class Behaviour(BaseModel):
    """How the stand-ins behave; the defaults are a healthy service."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    caching: Literal["cached", "uncached"] = "cached"
    bytes_per_token: float = 3.6
    iterations: bool = True
    """Whether usage.iterations is reported."""
    usage: bool = True
    """Whether usage is reported at the end of a response."""
    thinking: int | None = None
    """Hidden thinking tokens of each pass; None lets the effort decide."""
    thinking_estimate: tuple[float, float] = (0.5, 1.0)
    """Between which factors of the truth the streamed estimate of a thinking block lies."""
    pause_after: int = 10
    """Passes of one response before it pauses."""
    pause_open: bool = False
    """Whether a pause comes before the last call was carried out, so that its result is missing."""
    max_tokens_scope: Literal["pass", "response"] = "pass"
    """What `max_tokens` bounds inside a hosted loop."""
    clearing: bool = True
    """Whether context editing, where asked for, clears the results of hosted calls."""
    context_window: int | None = None
    """Tokens; None is each model's own."""
    service_tier: Literal["standard", "priority", "batch"] = "standard"
    call_delay: float = 0.25
    """Seconds that a hosted tool call takes beyond what its server takes.

    A real search takes longer still: a client that leaves at the call is gone before the next pass begins.
    """
    mcp_timeout: float = 30
    """Seconds after which a silent MCP server counts as failed."""
    pace: float = 0
    """Seconds between two chunks of a stream."""
    retry_after: float = 1
    """Seconds, said with 429."""
    refused_betas: tuple[str, ...] = ()
    """Beta names that this account is not enabled for."""
    refused_keys: tuple[str, ...] = ()
    """Keys that get 401, beside the empty one, all that begin with `bad` and all that say they are bogus."""
    fault: Fault | None = None
    fault_times: int | None = None
    """How many requests the fault hits; None is all."""
    fault_after: int = 0
    """How many requests go well before."""
    script_needs_tools: bool = False
    """Whether requests without tools are left out of the script and answered by the model itself."""
    search: dict[str, Any] = {}
    """Faults of the search servers; their own module says which."""


class ScriptedCall(BaseModel):
    """One tool call; `server` None means that `tool` is the name as the request's tools have it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str
    server: str | None = None
    input: dict[str, Any] = {}


class Pass(BaseModel):
    """What the model does in one sampling pass; None leaves it to what the behaviour says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    thinking: int | None = None
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    stop_reason: str | None = None
    fault: Fault | None = None


class State:
    """Shared by the servers of one set of stand-ins; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        self._active = 0
        self.reset()

    def reset(self) -> int:
        """Forget everything; return how many scripted passes were never used."""
        with self._lock:
            left = len(self._script) if hasattr(self, "_script") else 0
            self.behaviour = Behaviour()
            self._script: deque[Pass] = deque()
            self._requests: list[dict[str, Any]] = []
            self._seen = 0
            self._hit = 0
            self.bill = Bill()
            self.cache = PromptCache()
            return left

    def configure(self, changes: Mapping[str, Any]) -> Behaviour:
        """Change some of the behaviour; a fault's counters start anew when a fault is named."""
        with self._lock:
            told = {**self.behaviour.model_dump(exclude_unset=True), **changes}
            self.behaviour = Behaviour.model_validate(told)
            if "fault" in changes:
                self._seen = self._hit = 0
            return self.behaviour

    def script(self, passes: Iterable[Mapping[str, Any]]) -> int:
        """Queue passes that the next sampling passes play instead of the model; return the queue's length."""
        with self._lock:
            self._script.extend(Pass.model_validate(each) for each in passes)
            return len(self._script)

    def unconsumed(self) -> int:
        with self._lock:
            return len(self._script)

    def next_pass(self, *, tools: bool = True) -> Pass | None:
        """Take the next scripted pass for a request with or without tools; None leaves it to the model."""
        with self._lock:
            return self._script.popleft() if self._plays(tools) else None

    def _plays(self, tools: bool) -> bool:
        return bool(self._script) and (tools or not self.behaviour.script_needs_tools)

    def spend_faulty_pass(self) -> None:
        """Take the scripted pass whose fault has just been answered, if it was in the script."""
        with self._lock:
            if self._script and self._script[0].fault:
                self._script.popleft()

    def coming_fault(self, *, tools: bool = True) -> Fault | None:
        """The fault that the next request meets; one in the script goes before the configured one."""
        with self._lock:
            if self._plays(tools) and self._script[0].fault:
                return self._script[0].fault
            told = self.behaviour
            if told.fault is None:
                return None
            self._seen += 1
            if self._seen <= told.fault_after:
                return None
            if told.fault_times is not None and self._hit >= told.fault_times:
                return None
            self._hit += 1
            return told.fault

    def log(self, entry: dict[str, Any]) -> int:
        """Keep a request; return its number, from 0."""
        with self._lock:
            self._requests.append(entry)
            return len(self._requests) - 1

    def requests(self) -> list[dict[str, Any]]:
        with self._lock:
            return copy.deepcopy(self._requests)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Mark one request as being worked on."""
        with self._lock:
            self._active += 1
        try:
            yield
        finally:
            with self._lock:
                self._active -= 1
                self._idle.notify_all()

    def settle(self, seconds: float = 1.0) -> None:
        """Wait until no request is being worked on, so that what was cut short is on the bill."""
        deadline = time.monotonic() + seconds
        with self._lock:
            while self._active and (left := deadline - time.monotonic()) > 0:
                self._idle.wait(left)
