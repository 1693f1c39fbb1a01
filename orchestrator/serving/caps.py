"""The operator's caps on the whole MCP server: calls and money, per hour and per day.

The windows slide, and stand in this process; the dollars of a day are shared with all of a user's processes
where a daily cap is set. A call is booked at its price before it goes out and settled afterwards, so calls
under way count too. Who calls, and under which `session_id`, makes no difference.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from orchestrator.daily import DailyCap
from orchestrator.errors import LimitExceeded
from orchestrator.events import LimitName

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
_DUST: Final = 1e-9


@dataclass(frozen=True)
class Ceiling:
    """What a stretch of time may hold. `None` is no limit; a name is a tool, a server or SERVER/TOOL."""

    usd: float | None = None
    calls: Mapping[str, int | None] = field(default_factory=dict)


@dataclass
class Booking:
    """One call that was let through; `settle` or `cancel` it once, whatever becomes of it."""

    at: float
    names: tuple[str, ...]
    usd: float
    windows: Sequence[Window]
    shared: Callable[[float], None] | None = None
    """Tells the cap that all processes share."""
    counted: bool = True

    def settle(self, usd: float) -> None:
        """Replace the price by what the call really cost."""
        for window in self.windows:
            window.correct(self, usd - self.usd)
        self.usd = usd
        if self.shared is not None:
            self.shared(usd)

    def cancel(self) -> None:
        """The call never reached the server: neither its money nor the call counts."""
        self.settle(0.0)
        for window in self.windows:
            window.uncount(self)
        self.counted = False


@dataclass
class Window:
    """The last `seconds`, against their ceiling."""

    title: str
    seconds: float
    ceiling: Ceiling
    _bookings: deque[Booking] = field(default_factory=deque)
    _usd: float = 0.0
    _calls: Counter[str] = field(default_factory=Counter)

    def judge(self, names: Sequence[str], usd: float, now: float) -> LimitExceeded | None:
        """Why a call at this price does not fit any more, None when it does."""
        self._forget(now)
        for name in names:
            limit = self.ceiling.calls.get(name)
            if limit is not None and self._calls[name] + 1 > limit:
                return self._exceeded("max_calls", self._calls[name] + 1, limit, f"calls of {name}", now)
        cap = self.ceiling.usd
        if cap is not None and self._usd + usd > cap + _DUST:
            return self._exceeded("max_usd", self._usd + usd, cap, "US dollars", now)
        return None

    def add(self, booking: Booking) -> None:
        if self.ceiling.usd is None and not self.ceiling.calls:
            return
        self._bookings.append(booking)
        self._usd += booking.usd
        self._calls.update(booking.names)

    def correct(self, booking: Booking, difference: float) -> None:
        if self._holds(booking):
            self._usd += difference

    def uncount(self, booking: Booking) -> None:
        if self._holds(booking) and booking.counted:
            self._calls.subtract(booking.names)

    def left(self, now: float) -> dict[str, float]:
        """What is left of each cap that is set: `usd`, and calls by name."""
        self._forget(now)
        left: dict[str, float] = {
            name: max(0, limit - self._calls[name])
            for name, limit in self.ceiling.calls.items()
            if limit is not None
        }
        if self.ceiling.usd is not None:
            left["usd"] = max(0.0, round(self.ceiling.usd - self._usd, 6))
        return left

    def _holds(self, booking: Booking) -> bool:
        return bool(self._bookings) and booking.at >= self._bookings[0].at

    def _forget(self, now: float) -> None:
        while self._bookings and self._bookings[0].at <= now - self.seconds:
            gone = self._bookings.popleft()
            self._usd -= gone.usd
            if gone.counted:
                self._calls.subtract(gone.names)

    def _exceeded(
        self, limit: LimitName, value: float, ceiling: float, what: str, now: float
    ) -> LimitExceeded:
        wait = self._bookings[0].at + self.seconds - now if self._bookings else self.seconds
        return LimitExceeded(
            limit,
            value,
            ceiling,
            f"this would be {value:.6g} of {ceiling:g} {what} per {self.title};"
            f" room again in {max(1, round(wait / 60))} min",
        )


class Caps:
    """All caps of a server. `now` counts seconds, from any beginning."""

    def __init__(
        self, hour: Ceiling, day: Ceiling, now: Callable[[], float], shared: DailyCap | None = None
    ) -> None:
        self._windows = (Window("hour", HOUR, hour), Window("day", DAY, day))
        self._now = now
        self._shared = shared

    def admit(self, names: Sequence[str], usd: float, *, shared: bool = True) -> Booking:
        """Book a call. Raises `LimitExceeded` when a cap is reached; nothing is booked then.

        `shared` is false for what asks the cap of all processes by itself.
        """
        now = self._now()
        for window in self._windows:
            if (exceeded := window.judge(names, usd, now)) is not None:
                raise exceeded
        tell = self._reserve(usd) if shared and self._shared is not None else None
        booking = Booking(now, tuple(names), usd, self._windows, tell)
        for window in self._windows:
            window.add(booking)
        return booking

    def left(self) -> dict[str, dict[str, float]]:
        """What is left, by hour and day."""
        now = self._now()
        return {window.title: left for window in self._windows if (left := window.left(now))}

    def _reserve(self, usd: float) -> Callable[[float], None]:
        assert self._shared is not None
        held = ExitStack()
        reservation = held.enter_context(self._shared.reserve(f"mcp-{uuid.uuid4().hex}", usd, usd))

        def settle(spent: float) -> None:
            with held:
                reservation.record_spent(spent)

        return settle
