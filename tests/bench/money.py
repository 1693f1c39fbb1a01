"""Random hosted loops against a bill that is kept by somebody else: is the cap ever crossed?

    python tests/bench/money.py --loops 3000 --seed 1

Each loop is a script for the stand-in (thinking, text, calls, results, faults) and a cap. It is run three
ways: without a cap (what it would have cost), with the cap under --worst-case, and with the cap after one
settled run has shown how the service bills. The stand-in's own bill, kept with prices of its own, decides.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from orchestrator import offline
from orchestrator.errors import UsageError
from orchestrator.offline import StandIns
from orchestrator.result import Result
from orchestrator.runner import run
from orchestrator.settings import Options

MODELS = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")
MODES = ("worst_case", "learned")
WORKERS = 2
SEARCH_USD = 0.001
DECLARED_CHARS = 44_000
WORDS = [
    "the", "statement", "runs", "its", "block", "and", "leaves", "context", "whatever", "happens", "inside",
    "because", "an", "exception", "is", "passed", "to", "exit", "method", "which", "may", "suppress", "it",
]  # fmt: skip


@dataclass(frozen=True)
class Loop:
    """One scripted hosted loop and what it may cost."""

    model: str
    cap: float
    passes: tuple[dict[str, Any], ...]
    behaviour: dict[str, Any]

    @property
    def settles(self) -> bool:
        """Whether every response of the uncut loop ends with its usage."""
        return self.behaviour["usage"] and not any(step.get("fault") for step in self.passes)


def loops(count: int, seed: int) -> Iterator[Loop]:
    """Random loops, the same for the same seed."""
    for at in range(count):
        yield _loop(random.Random(f"{seed}/{at}"))


def _loop(dice: random.Random) -> Loop:
    calls = dice.choice((0, 1, 2, 3, 4, 5, 6, 8, 11))
    passes = [
        {
            "thinking": dice.choice((0, 0, 60, 300, 900, 2_000)),
            "text": _text(dice, dice.choice((0, 0, 30))),
            "calls": [_call(dice, at, nth) for nth in range(dice.choice((1, 1, 1, 2, 3)))],
        }
        for at in range(calls)
    ]
    passes.append(
        {"thinking": dice.choice((0, 300, 1_500)), "text": _text(dice, dice.choice((40, 200, 900)))}
    )
    if dice.random() < 0.2:
        dice.choice(passes)["fault"] = dice.choice(("fallback", "dropped_stream", "no_usage"))
    behaviour = {
        "caching": dice.choice(("cached", "cached", "uncached")),
        "bytes_per_token": dice.choice((2.6, 3.6, 4.2)),
        "iterations": dice.random() < 0.7,
        "usage": dice.random() < 0.95,
        "pause_after": dice.choice((2, 5, 10)),
        "call_delay": 0.1,
        "pace": 0.003,
        "script_needs_tools": True,
        "search": {
            "result_chars": dice.randrange(2_000, DECLARED_CHARS),
            **({"fault": "tool_error", "fault_times": 1} if dice.random() < 0.1 else {}),
        },
    }
    return Loop(dice.choice(MODELS), round(10 ** dice.uniform(-2, 0), 3), tuple(passes), behaviour)


def _text(dice: random.Random, words: int) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(words))


def _call(dice: random.Random, at: int, nth: int) -> dict[str, Any]:
    query = f"{dice.choice(WORDS)} {at} {nth}"
    arguments = {"objective": f"find {query}", "search_queries": [query]}
    return {"server": "parallel-search", "tool": "web_search", "input": arguments}


@dataclass
class Outcome:
    """One run of one loop beside the bill."""

    loop: Loop
    mode: str
    result: Result
    bill: float
    true_passes: Sequence[float]
    """What each pass of the uncut loop costs on the bill."""
    billed_passes: int

    @property
    def over(self) -> float:
        return self.bill - self.loop.cap

    @property
    def excess(self) -> float:
        """By what share the ledger is above the bill."""
        return self.result.ledger.usd / self.bill - 1 if self.bill else 0.0

    @property
    def exact(self) -> bool:
        return not any(line.estimated for line in self.result.ledger.lines)

    @property
    def oversized(self) -> bool:
        return "result_size" in self.result.limits_reached

    @property
    def cut(self) -> bool:
        return "max_usd" in self.result.limits_reached

    @property
    def timidity(self) -> float | None:
        """For a loop that money ended: (spent before the final request + the next pass) / allowed."""
        loop_passes = self.billed_passes - 1  # the last one is the final request
        if not self.cut or not 0 < loop_passes < len(self.true_passes):
            return None
        allowed = self.loop.cap - self.result.ledger.reserved
        calls = sum(len(step.get("calls", ())) for step in self.loop.passes[: loop_passes + 1])
        return (sum(self.true_passes[: loop_passes + 1]) + calls * SEARCH_USD) / allowed


@dataclass
class Money:
    """Runs loops against one set of stand-ins; run files of the teaching runs stay in `folder`."""

    double: StandIns
    folder: Path
    backend: str = "connector"
    refused: Counter[str] = field(default_factory=Counter)

    async def play(self, loop: Loop, mode: str) -> Outcome | None:
        """One loop in one mode (`free`, `worst_case`, `learned`); None when the cap was refused up front."""
        runs = self.folder / "runs"
        shutil.rmtree(runs, ignore_errors=True)
        if mode == "learned":
            await self._teach(loop, runs)
        true_passes = await self._uncut(loop)
        self._set(loop)
        try:
            result = await self._run(loop, runs, loop.cap, worst_case=mode == "worst_case")
        except UsageError:
            self.refused[mode] += 1
            self.double.reset()
            return None
        bill = self.double.bill()
        self.double.reset()
        return Outcome(loop, mode, result, bill["usd"], true_passes, len(bill["passes"]))

    async def _teach(self, loop: Loop, runs: Path) -> None:
        """One settled run of the same service, as a user has after the first question."""
        behaviour = loop.behaviour | {"usage": True, "search": {"result_chars": 9_000}}
        teaching = Loop(loop.model, 9.0, tuple(_teaching()), behaviour)
        self._set(teaching)
        await self._run(teaching, runs, None)
        self.double.reset()

    async def _uncut(self, loop: Loop) -> list[float]:
        sound = [{key: value for key, value in step.items() if key != "fault"} for step in loop.passes]
        self._set(Loop(loop.model, 9.0, tuple(sound), loop.behaviour))
        await self._run(loop, self.folder / "free", None)
        passes = [float(entry["usd"]) for entry in self.double.bill()["passes"]]
        self.double.reset()
        return passes

    def _set(self, loop: Loop) -> None:
        self.double.reset()
        self.double.configure(**loop.behaviour)
        self.double.script(loop.passes)

    async def _run(self, loop: Loop, runs: Path, cap: float | None, *, worst_case: bool = False) -> Result:
        options = Options(
            offline=True,
            backend=self.backend,
            model=loop.model,
            max_usd=cap,
            max_steps=None,
            max_seconds=None,
            worst_case=worst_case,
            runs_dir=runs,
            fallbacks="on",
        ).with_stand_ins(self.double.anthropic_base_url, self.double.server_urls)
        # a real service may teach rates, stand-ins may not: to the program this is one
        return await run("How does the with statement work?", options.model_copy(update={"offline": False}))


def _teaching() -> Iterator[dict[str, Any]]:
    dice = random.Random(7)
    for at in range(3):
        yield {"thinking": 100, "calls": [_call(dice, at, 9)]}
    yield {"text": _text(dice, 80)}


@dataclass
class Report:
    """What came of many loops."""

    outcomes: list[Outcome] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


def faults(outcome: Outcome) -> list[str]:
    """What this outcome breaks of the promise."""
    found = []
    if outcome.over > 1e-9 and not outcome.oversized:
        found.append(f"bill ${outcome.bill:.6f} above cap ${outcome.loop.cap}")
    if outcome.result.ledger.usd < outcome.bill - 1e-9:
        found.append(f"ledger ${outcome.result.ledger.usd:.6f} below bill ${outcome.bill:.6f}")
    if outcome.exact and abs(outcome.result.ledger.usd - outcome.bill) > 1e-9:
        found.append(f"exact ledger ${outcome.result.ledger.usd:.9f} is not the bill ${outcome.bill:.9f}")
    if not outcome.result.answer.strip() and outcome.result.status != "refusal":
        found.append(f"no answer ({outcome.result.status}: {outcome.result.message})")
    return found


async def play(numbered: Sequence[tuple[int, Loop]], backend: str, modes: Sequence[str]) -> Report:
    """Play loops in these modes, `WORKERS` at a time, each against stand-ins of its own."""
    report = Report()
    waiting = iter(numbered)

    async def work() -> None:
        with offline.serving() as double, tempfile.TemporaryDirectory() as folder:
            money = Money(double, Path(folder), backend)
            for at, loop in waiting:
                for mode in modes:
                    outcome = await money.play(loop, mode)
                    if outcome is not None:
                        report.outcomes.append(outcome)
                        report.broken += [f"loop {at} {mode}: {fault}" for fault in faults(outcome)]
            report.refused.update(money.refused)

    await asyncio.gather(*(work() for _ in range(WORKERS)))
    return report


def main(count: int, seed: int, backend: str) -> int:
    """Play all loops on all processors, print what came of them; the number of broken promises."""
    numbered = list(enumerate(loops(count, seed)))
    total = Report()
    processes = os.cpu_count() or 1
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for report in pool.map(_play, [(numbered[at::processes], backend) for at in range(processes)]):
            total.outcomes += report.outcomes
            total.broken += report.broken
            total.refused.update(report.refused)
    print(
        f"seed {seed}: {count} loops, {len(total.outcomes)} runs, refused before anything was sent:"
        f" {dict(total.refused)}"
    )
    for mode in MODES:
        _print(mode, [outcome for outcome in total.outcomes if outcome.mode == mode])
    print("\n".join([*total.broken, f"broken promises: {len(total.broken)}"]))
    return len(total.broken)


def _play(part: tuple[Sequence[tuple[int, Loop]], str]) -> Report:
    numbered, backend = part
    return asyncio.run(play(numbered, backend, MODES))


def _print(mode: str, outcomes: Sequence[Outcome]) -> None:
    estimated = sorted(outcome.excess for outcome in outcomes if not outcome.exact)
    used = sorted(
        outcome.timidity
        for outcome in outcomes
        if outcome.timidity is not None and outcome.loop.behaviour["caching"] == "cached"
    )
    print(
        f"{mode}: {len(outcomes)} runs, {sum(o.exact for o in outcomes)} settled to the cent,"
        f" {sum(o.cut for o in outcomes)} ended by money,"
        f" highest bill/cap {max((o.bill / o.loop.cap for o in outcomes), default=0):.3f},"
        f" statuses {dict(Counter(o.result.status for o in outcomes))}"
    )
    for name, values in (("ledger above bill where estimated", estimated), ("allowed money used", used)):
        if values:
            tenth, ninetieth = values[len(values) // 10], values[len(values) * 9 // 10]
            print(f"  {name}: median {statistics.median(values):.1%}, 10-90% {tenth:.1%} to {ninetieth:.1%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--loops", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", choices=("connector", "agent-sdk"), default="connector")
    given = parser.parse_args()
    raise SystemExit(min(main(given.loops, given.seed, given.backend), 1))
