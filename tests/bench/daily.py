"""Many concurrent runs in several processes on one daily cap, one process killed in the middle.

    python tests/bench/daily.py [--runs 200] [--processes 8] [--usd 4]

All runs ask one shared stand-in and begin at once; a run that the day has no room for tries again until
nothing is running that could give some back. The sum of the bills must not pass the cap, nobody may wait for
ever, and what the killed process had reserved and not spent must be free again.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import os
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from orchestrator import offline
from orchestrator.daily import DailyCap, Day
from orchestrator.errors import UsageError
from orchestrator.events import PassStarted
from orchestrator.offline import StandIns
from orchestrator.runner import run
from orchestrator.settings import Options
from orchestrator.trace import Record

MODEL = "claude-sonnet-5-5"
MAX_USD = 0.25
SEARCH_USD = 0.001
AGAIN_SECONDS = 0.3
PATIENCE_SECONDS = 600


@dataclass(frozen=True)
class Told:
    """What a process is to do."""

    runs: int
    usd: float
    anthropic_base_url: str
    server_urls: dict[str, str]
    state: Path

    @property
    def cap(self) -> DailyCap:
        return DailyCap(self.state / "orchestrator" / "daily-offline.sqlite3", self.usd)

    def options(self) -> Options:
        return Options(
            offline=True,
            backend="connector",
            model=MODEL,
            max_usd=MAX_USD,
            max_seconds=None,
            daily_usd=self.usd,
            runs_dir=self.state / "runs",
        ).with_stand_ins(self.anthropic_base_url, self.server_urls)


@dataclass
class Outcome:
    """What a whole play came to, in US dollars."""

    bill: float
    held: float
    """Reserved and not spent by all processes when one was killed."""
    day: Day
    killed: int
    """Runs of the killed process."""
    statuses: Counter[str] = field(default_factory=Counter)
    ledgers: float = 0.0
    """Sum over the runs that ended; the killed ones said nothing any more."""


def work(told: Told, say: Connection, *, victim: bool) -> None:
    """The runs of one process, all at once; the victim is killed in the middle of its first pass."""
    os.environ["XDG_STATE_HOME"] = str(told.state)
    logging.disable()

    def hear(record: Record) -> None:
        if victim and isinstance(record.event, PassStarted):
            say.send(told.cap.today().reserved)
            os.kill(os.getpid(), signal.SIGKILL)

    async def one() -> tuple[str, float]:
        while True:
            try:
                result = await run("How does the with statement work?", told.options(), [hear])
            except UsageError:
                if told.cap.today().running == 0:
                    return "refused", 0.0
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return result.status, result.ledger.usd

    async def every() -> list[tuple[str, float]]:
        return await asyncio.gather(*(one() for _ in range(told.runs)))

    say.send(asyncio.run(every()))


def play(runs: int, processes: int, usd: float) -> Outcome:
    """Share `runs` out over processes on a day of `usd` dollars; the first process is killed."""
    with offline.serving() as double, tempfile.TemporaryDirectory() as folder:
        told = Told(runs // processes, usd, double.anthropic_base_url, double.server_urls, Path(folder))
        return _play(told, processes, double)


def _play(told: Told, processes: int, double: StandIns) -> Outcome:
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(processes)]
    workers = [
        context.Process(target=work, args=(told, there), kwargs={"victim": at == 0})
        for at, (_, there) in enumerate(pipes)
    ]
    for worker in workers:
        worker.start()
    ends = [here for here, _ in pipes]
    held: float = _hear(ends[0])
    said = [result for end in ends[1:] for result in _hear(end)]
    for worker in workers:
        worker.join(PATIENCE_SECONDS)
        worker.close()
    for pipe in pipes:
        for end in pipe:
            end.close()
    bill = double.bill()["usd"]
    statuses = Counter(status for status, _ in said)
    return Outcome(bill, held, told.cap.today(), told.runs, statuses, sum(usd for _, usd in said))


def _hear(end: Connection) -> Any:
    if not end.poll(PATIENCE_SECONDS):
        raise TimeoutError("a process waits for ever")
    return end.recv()


def broken(outcome: Outcome, usd: float) -> list[str]:
    """What this play breaks of the promise; a killed run may have had a search that nobody heard of."""
    found = []
    if outcome.bill > usd + 1e-9:
        found.append(f"the bills come to ${outcome.bill:.4f}, above ${usd}")
    if outcome.day.spent > usd + 1e-9:
        found.append(f"the day counts ${outcome.day.spent:.4f}, above ${usd}")
    if outcome.day.spent < outcome.bill - outcome.killed * SEARCH_USD - 1e-9:
        found.append(f"the day counts ${outcome.day.spent:.4f}, below the bills of ${outcome.bill:.4f}")
    if outcome.day.reserved or outcome.day.running:
        found.append(f"${outcome.day.reserved:.4f} are still held by {outcome.day.running} runs")
    return found


def main(runs: int, processes: int, usd: float) -> int:
    began = time.monotonic()
    outcome = play(runs, processes, usd)
    print(f"{runs} runs in {processes} processes, one killed, in {time.monotonic() - began:.0f} s")
    print(f"statuses of the others: {dict(outcome.statuses)}")
    print(f"bills ${outcome.bill:.4f}, ledgers of the others ${outcome.ledgers:.4f}")
    print(f"day ${outcome.day.spent:.4f} of ${usd:g}, held when one was killed ${outcome.held:.4f}")
    faults = broken(outcome, usd)
    print("\n".join([*faults, f"broken promises: {len(faults)}"]))
    return len(faults)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--usd", type=float, default=4.0)
    given = parser.parse_args()
    raise SystemExit(min(main(given.runs, given.processes, given.usd), 1))
