"""The operator's caps on the whole MCP server: calls and money, per hour and per day.

The windows slide, and stand in this process. A call is booked at its price before it goes out and settled
afterwards, so calls under way count too. Who calls, and under which `session_id`, makes no difference.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import LimitExceeded
from orchestrator.events import LimitName

HOUR = 3600.0
DAY = 24 * HOUR
_DUST = 1e-9


@dataclass
class Booking:
    """One call that was let through; `settle` replaces its price by what it really cost."""

    at: float
    names: tuple[str, ...]
    usd: float
    windows: Sequence[Window] = ()
    counted: bool = True

    def settle(self, usd: float) -> None:
        for window in self.windows:
            window.correct(self, usd - self.usd)
        self.usd = usd

    def cancel(self) -> None:
        """The call never reached the server: neither its money nor the call counts."""
        self.settle(0.0)
        for window in self.windows:
            window.uncount(self)
        self.counted = False


@dataclass
class Window:
    """What the last `seconds` may hold. `None` is no limit, a name may be a tool, server or SERVER/TOOL."""

    title: str
    seconds: float
    max_usd: float | None
    max_calls: Mapping[str, int | None]
    _bookings: deque[Booking] = field(default_factory=deque)
    _usd: float = 0.0
    _calls: Counter[str] = field(default_factory=Counter)

    def judge(self, names: Sequence[str], usd: float, now: float) -> LimitExceeded | None:
        """Why a call at this price does not fit any more, None when it does."""
        self._forget(now)
        for name in names:
            limit = self.max_calls.get(name)
            if limit is not None and self._calls[name] + 1 > limit:
                return self._exceeded("max_calls", self._calls[name] + 1, limit, f"calls of {name}", now)
        if self.max_usd is not None and self._usd + usd > self.max_usd + _DUST:
            return self._exceeded("max_usd", self._usd + usd, self.max_usd, "US dollars", now)
        return None

    def add(self, booking: Booking) -> None:
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
            for name, limit in self.max_calls.items()
            if limit is not None
        }
        if self.max_usd is not None:
            left["usd"] = max(0.0, round(self.max_usd - self._usd, 6))
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
    """All windows of a server. `now` counts seconds, from any beginning."""

    def __init__(self, windows: Sequence[Window], now: Callable[[], float]) -> None:
        self._windows = windows
        self._now = now

    def admit(self, names: Sequence[str], usd: float) -> Booking:
        """Book a call. Raises `LimitExceeded` when a window is full; nothing is booked then."""
        now = self._now()
        for window in self._windows:
            if (exceeded := window.judge(names, usd, now)) is not None:
                raise exceeded
        booking = Booking(now, tuple(names), usd, self._windows)
        for window in self._windows:
            window.add(booking)
        return booking

    def left(self) -> dict[str, dict[str, float]]:
        """What is left, by window."""
        now = self._now()
        return {window.title: left for window in self._windows if (left := window.left(now))}
