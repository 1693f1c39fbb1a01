"""What a search stand-in was told to do wrong, what it was asked, and what it charges."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final
from uuid import uuid4

from orchestrator.errors import UsageError

FAULTS: Final[dict[str, str | None]] = {
    # refusals of the whole request
    "down": None,
    "hanging": None,
    "401": None,
    "402": None,
    "429": None,
    "drop": "tools/call",
    "session_lost": None,
    # tools/list
    "paginated": "tools/list",
    "extra_tool": "tools/list",
    "changed_tool": "tools/list",
    "odd_tool": "tools/list",
    # what is found
    "empty": "tools/call",
    "hostile": "tools/call",
    "giant": "tools/call",
    "lone_surrogates": "tools/call",
    "escaped_surrogates": "tools/call",
    # the envelope
    "tool_error": "tools/call",
    "off_schema": "tools/call",
    "media": "tools/call",
    "odd_content": "tools/call",
}
"""Every fault by name, and the JSON-RPC method that it hits (`None`: every request)."""


@dataclass(frozen=True)
class Faults:
    """How a stand-in misbehaves; the defaults are a healthy service."""

    fault: str | None = None
    """A name in `FAULTS`."""
    fault_times: int | None = None
    """How many requests it hits before the service is healthy again; `None` is all."""
    fault_method: str | None = None
    """Hits only this JSON-RPC method, for instance `tools/call`, instead of the fault's own."""
    retry_after: int = 1
    """Seconds in the Retry-After header of a 429."""
    result_chars: int | Sequence[int] | None = None
    """Pads each tool result to this many characters of text; several are taken in turn, call by call."""
    latency_ms: float = 0
    """Time before each answer."""

    def chars(self, nth: int) -> int | None:
        """The length of the `nth` call's result, None leaves it as it is."""
        if isinstance(self.result_chars, Sequence):
            return self.result_chars[nth % len(self.result_chars)]
        return self.result_chars


@dataclass(frozen=True)
class Call:
    """One tool call that was carried out, and what it costs."""

    server: str
    tool: str
    arguments: dict[str, Any]
    keyed: bool
    pinned: dict[str, Any]
    """What the connection pins: mode, max_results, ..."""
    is_error: bool
    usd: float


@dataclass
class SearchState:
    """The control side of one or more search stand-ins; may be used from any thread."""

    faults: Faults = field(default_factory=Faults)
    calls: list[Call] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Every HTTP request: method, path, query, headers without keys, and the JSON-RPC body."""
    _sessions: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def configure(self, **changes: Any) -> None:
        """Set fields of `Faults`, the rest back to healthy. Raises `UsageError` for what it does not know."""
        known = {f.name for f in dataclasses.fields(Faults)}
        if unknown := set(changes) - known:
            raise UsageError(
                f"search: no such setting: {', '.join(sorted(unknown))} (known: {', '.join(sorted(known))})."
            )
        fault = changes.get("fault")
        if fault is not None and fault not in FAULTS:
            raise UsageError(f"search: no such fault: {fault} (known: {', '.join(FAULTS)}).")
        with self._lock:
            self.faults = Faults(**changes)
            if fault == "session_lost":
                self._sessions.clear()

    def reset(self) -> None:
        """A healthy service without a past."""
        with self._lock:
            self.faults = Faults()
            self.calls.clear()
            self.requests.clear()

    @property
    def usd(self) -> float:
        """The bill: US dollars for all calls so far."""
        with self._lock:
            return sum(call.usd for call in self.calls)

    # --- for the servers

    def take(self, method: str | None) -> str | None:
        """The fault that hits this request, counted; `None` where it is to be served well."""
        with self._lock:
            fault, times = self.faults.fault, self.faults.fault_times
            if fault is None or times == 0 or fault == "session_lost":
                return None
            wanted = self.faults.fault_method or FAULTS[fault]
            if wanted not in (None, method):
                return None
            if times is not None:
                self.faults = dataclasses.replace(self.faults, fault_times=times - 1)
            return fault

    def record(self, call: Call) -> None:
        with self._lock:
            self.calls.append(call)

    def log(self, request: dict[str, Any]) -> None:
        with self._lock:
            self.requests.append(request)

    def open_session(self) -> str:
        """A new session id; it is known until the service loses its sessions."""
        session = uuid4().hex
        with self._lock:
            self._sessions.add(session)
        return session

    def knows_session(self, session: str) -> bool:
        with self._lock:
            return session in self._sessions
