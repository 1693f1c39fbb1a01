"""The daily cap that all processes of a user share: one SQLite file, one row per running run.

A run reserves what it may spend before it starts, in one transaction, and gives back what it did not spend
when it ends. Each row's owner holds a lock on a file of its own: when a process is killed the system drops
the lock, and the next reservation settles that row at what the run had spent or booked by then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from orchestrator.errors import LimitExceeded

SCHEMA: Final = """
create table if not exists runs (
    run text primary key,
    day text not null,
    reserved real not null,
    spent real not null,
    open integer not null
)
"""
WAIT_SECONDS: Final = 60


@dataclass(frozen=True)
class Day:
    """What one day holds, in US dollars."""

    spent: float
    reserved: float
    """Reserved by running runs and not spent by them yet."""
    running: int

    def __str__(self) -> str:
        held = f", ${self.reserved:.4f} held by {self.running} running" if self.running else ""
        return f"today: ${self.spent:.4f} spent{held}"


@dataclass
class Reservation:
    """What one run holds of the day: `usd` US dollars."""

    ledger: DailyCap
    run: str
    usd: float
    spent: float = 0.0

    def record_spent(self, usd: float) -> None:
        """Note the run's spend so far, bookings included: what a killed run is settled at."""
        self.spent = usd
        self.ledger.execute("update runs set spent = ? where run = ? and open", (usd, self.run))


@dataclass(frozen=True)
class DailyCap:
    """The cap `usd` on what all runs of one day may spend, in the ledger at `path`."""

    path: Path
    usd: float

    @contextmanager
    def reserve(self, run: str, wanted: float | None, least: float) -> Iterator[Reservation]:
        """Hold up to `wanted` dollars (None: all that is left) for this run, never below `least`.

        Raises LimitExceeded("daily_usd") when what is left does not reach `least`.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._lock_path(run))
        try:
            with lock:
                reservation = Reservation(self, run, self._take(run, wanted, least))
                try:
                    yield reservation
                finally:
                    self.execute(
                        "update runs set open = 0, reserved = 0, spent = ? where run = ?",
                        (reservation.spent, run),
                    )
        finally:
            self._lock_path(run).unlink(missing_ok=True)

    def today(self) -> Day:
        """The day so far, dead runs settled."""
        with closing(self._connect()) as connection, connection:
            connection.execute("begin immediate")
            self._settle_dead(connection)
            return _day(connection, _today())

    def execute(self, statement: str, values: tuple[object, ...]) -> None:
        """One write, in a transaction of its own."""
        with closing(self._connect()) as connection, connection:
            connection.execute(statement, values)

    def _take(self, run: str, wanted: float | None, least: float) -> float:
        with closing(self._connect()) as connection, connection:
            connection.execute("begin immediate")
            self._settle_dead(connection)
            day = _day(connection, _today())
            left = self.usd - day.spent - day.reserved
            granted = left if wanted is None else min(wanted, left)
            if granted < least:
                raise LimitExceeded(
                    "daily_usd",
                    day.spent + day.reserved + least,
                    self.usd,
                    f"${day.spent:.2f} of today's ${self.usd:g} is spent and ${day.reserved:.2f} is held by"
                    f" {day.running} running runs; raise it with --daily-usd, or wait",
                )
            # until it says what it has spent, its first request may be under way
            connection.execute(
                "insert into runs values (?, ?, ?, ?, 1)", (run, _today().isoformat(), granted, least)
            )
            return granted

    def _settle_dead(self, connection: sqlite3.Connection) -> None:
        for (run,) in connection.execute("select run from runs where open").fetchall():
            lock = FileLock(self._lock_path(run), blocking=False)
            try:
                with lock:
                    connection.execute("update runs set open = 0, reserved = 0 where run = ?", (run,))
            except Timeout:
                continue
            self._lock_path(run).unlink(missing_ok=True)

    def _lock_path(self, run: str) -> Path:
        return self.path.parent / f"{self.path.stem}-{run}.lock"

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)
        connection.execute(SCHEMA)
        return connection


def spent_today(path: Path) -> Day | None:
    """The day so far in the ledger at `path`; None where no run has had a daily cap yet."""
    return DailyCap(path, 0.0).today() if path.exists() else None


def _today() -> date:
    return datetime.now(UTC).date()


def _day(connection: sqlite3.Connection, day: date) -> Day:
    spent, reserved, running = connection.execute(
        "select coalesce(sum(spent), 0), coalesce(sum(max(reserved - spent, 0)), 0), coalesce(sum(open), 0)"
        " from runs where day = ?",
        (day.isoformat(),),
    ).fetchone()
    return Day(spent, reserved, running)
