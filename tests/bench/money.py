"""Random hosted loops against a bill that is kept by somebody else: is the cap ever crossed?

    python tests/bench/money.py --loops 2000 --seed 1
    python tests/bench/money.py --loops 30 --seed 1 --backend agent-sdk

Each loop is a script for the stand-in (thinking, text, calls, results, faults) and a cap. It is run without a
cap (what it would have cost) and with the cap in three modes: `worst_case`; `default`, where nothing is known
of how the service bills; and `learned`, after a settled run has shown it. The stand-in's own bill, kept with
prices of its own, decides. Service and client take turns in one event loop, so no figure depends on how busy
the machine is; only the Agent SDK's command line is a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from orchestrator import offline
from orchestrator.errors import UsageError
from orchestrator.offline import StandIns
from orchestrator.result import Result
from orchestrator.runner import run
from orchestrator.settings import Options

MODELS: Final = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")
MODES: Final = ("worst_case", "default", "learned")
DECLARED_CHARS: Final = 50_000
"""The largest result that the search tool's notes declare."""
TOO_LARGE_CHARS: Final = 160_000
SEARCH_USD: Final = 0.001
ROUNDING: Final = 1e-9
CHUNK: Final = 8
"""Loops that one process plays before it says what came of them."""
MEMORY: Final = next((folder for folder in (Path("/dev/shm"),) if folder.is_dir()), None)
"""Where run files stand: each of their lines is flushed to its disk."""
STREAM_FAULTS: Final = ("dropped_stream", "error_event", "no_usage")
ODD_FAULTS: Final = (
    "refusal", "partial_refusal", "max_tokens", "context_exceeded", "empty", "double_start", "unknown_block",
    "unknown_event", "unknown_delta", "unknown_stop_reason", "unknown_fields", "citations_only",
)  # fmt: skip
FIRST_FAULTS: Final = ("429", "500", "529", "sticky_fallback")
SAYS_NOTHING: Final = {"empty", "unknown_stop_reason", "citations_only"}
"""Faults with which a response may end well and be empty."""
WORDS: Final = [
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
    def faults(self) -> set[str]:
        return {step["fault"] for step in self.passes if "fault" in step}

    @property
    def too_large(self) -> bool:
        """Whether a result may be larger than declared."""
        return max(self.behaviour["search"]["result_chars"]) > DECLARED_CHARS

    @property
    def service(self) -> tuple[Any, ...]:
        """How the service bills: what one run can teach about another."""
        told = self.behaviour
        return (self.model, *(told[name] for name in ("caching", "bytes_per_token", "iterations")))


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
    _break(dice, passes)
    return Loop(
        dice.choice(MODELS), round(10 ** dice.uniform(-2, 0), 3), tuple(passes), _behaviour(dice, calls)
    )


def _break(dice: random.Random, passes: list[dict[str, Any]]) -> None:
    """Something goes wrong in three of ten loops."""
    kind = dice.random()
    if kind < 0.12:
        dice.choice(passes)["fault"] = dice.choice(STREAM_FAULTS)
    elif kind < 0.20:
        dice.choice(passes)["fault"] = "fallback"
    elif kind < 0.27:
        dice.choice(passes)["fault"] = dice.choice(ODD_FAULTS)
    elif kind < 0.30:
        passes[0]["fault"] = dice.choice(FIRST_FAULTS)


def _behaviour(dice: random.Random, calls: int) -> dict[str, Any]:
    sizes = [dice.randrange(500, DECLARED_CHARS) for _ in range(dice.choice((1, 3, 5)))]
    if dice.random() < 0.1:
        sizes.insert(dice.randrange(len(sizes) + 1), dice.randrange(DECLARED_CHARS, TOO_LARGE_CHARS))
    failing = {"fault": "tool_error", "fault_times": dice.choice((1, 2))} if dice.random() < 0.1 else {}
    return {
        "caching": dice.choice(("cached", "cached", "uncached")),
        "bytes_per_token": dice.choice((2.6, 3.6, 4.2)),
        "iterations": dice.random() < 0.7,
        "usage": dice.random() < 0.95,
        "thinking_estimate": dice.choice(((0.5, 1.0), (0.5, 0.5), (1.0, 1.0))),
        "pause_after": dice.choice((2, 5, 10)),
        "pause_open": dice.random() < 0.2,
        "pace": 0.0003,
        "retry_after": 0.01,
        "script_needs_tools": True,
        "search": {"result_chars": sizes, **(failing if calls else {})},
    }


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
    passes: Sequence[dict[str, Any]]
    """The passes of this run on the bill."""

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
        """A result was larger than declared, and named."""
        return "result_size" in self.result.limits_reached

    @property
    def dearer(self) -> bool:
        """Another model took over, behind which nothing that was learned holds."""
        return len({entry["model"] for entry in self.passes}) > 1 and self.mode != "worst_case"

    @property
    def allowed_over(self) -> float:
        """What the bill may be above the cap: one pass's input where a result was larger than declared."""
        if not self.oversized:
            return 0.0
        return max(entry["usd"] for entry in self.passes)

    @property
    def settled(self) -> bool:
        """Whether every response of this run must have ended with its usage."""
        told, cut = self.loop.behaviour, "max_usd" in self.result.limits_reached
        # without iterations the usage of a fallback leaves out the attempt that was declined
        hidden = "fallback" in self.loop.faults and not told["iterations"]
        return bool(told["usage"] and not cut and not hidden and not self.loop.faults & set(STREAM_FAULTS))

    @property
    def nothing_to_answer(self) -> bool:
        """The model declined or said nothing, or a fault or a limit came before anything was found."""
        if self.result.status == "refusal" or self.loop.faults & SAYS_NOTHING:
            return True
        return not self.result.sources and bool(self.loop.faults or self.result.limits_reached)

    @property
    def timidity(self) -> float | None:
        """For a loop that money ended: (spent before the final request + the next pass) / allowed."""
        loop_passes = len(self.passes) - 1  # the last one is the final request
        if "max_usd" not in self.result.limits_reached or not 0 < loop_passes < len(self.true_passes):
            return None
        calls = sum(len(step.get("calls", ())) for step in self.loop.passes[: loop_passes + 1])
        used = sum(self.true_passes[: loop_passes + 1]) + calls * SEARCH_USD
        return used / (self.loop.cap - self.result.ledger.reserved)


def broken(outcome: Outcome) -> list[str]:
    """What this outcome breaks of the promise."""
    loop, result, bill = outcome.loop, outcome.result, outcome.bill
    found = []
    if outcome.over > outcome.allowed_over + ROUNDING and not outcome.dearer:
        found.append(f"bill ${bill:.6f} above cap ${loop.cap}")
    if result.ledger.usd < bill - ROUNDING:
        found.append(f"ledger ${result.ledger.usd:.6f} below bill ${bill:.6f}")
    if outcome.exact and abs(result.ledger.usd - bill) > ROUNDING:
        found.append(f"exact ledger ${result.ledger.usd:.9f} is not the bill ${bill:.9f}")
    if not outcome.exact and outcome.settled:
        found.append("estimated although every response ended with its usage")
    if outcome.oversized or outcome.dearer:
        return found  # what was too dear is paid for, and may have taken the final answer's share
    if result.ledger.usd > loop.cap + ROUNDING:
        found.append(f"ledger ${result.ledger.usd:.6f} above cap ${loop.cap}")
    if not result.answer.strip() and not outcome.nothing_to_answer:
        found.append(f"no answer ({result.status}: {result.message})")
    return found


@dataclass
class Money:
    """Runs loops against one set of stand-ins; run files stay in `folder`."""

    double: StandIns
    folder: Path
    backend: str = "connector"
    refused: Counter[str] = field(default_factory=Counter)

    async def play(self, loop: Loop, modes: Sequence[str]) -> list[Outcome]:
        """One loop in each of these modes; none for a mode in which the cap was refused up front."""
        true_passes = await self._uncut(loop)
        outcomes = [await self._play(loop, mode, true_passes) for mode in modes]
        return [outcome for outcome in outcomes if outcome is not None]

    async def _play(self, loop: Loop, mode: str, true_passes: Sequence[float]) -> Outcome | None:
        runs = self.folder / "runs"
        shutil.rmtree(runs, ignore_errors=True)
        if mode == "learned":
            shutil.copytree(await self._taught(loop), runs)
        self._set(loop)
        try:
            result = await self._run(loop, runs, loop.cap, worst_case=mode == "worst_case")
        except UsageError:
            self.refused[mode] += 1
            return None
        bill = await asyncio.to_thread(self.double.bill)
        return Outcome(loop, mode, result, bill["usd"], true_passes, bill["passes"])

    async def _taught(self, loop: Loop) -> Path:
        """The folder of one settled run of the same service, as a user has after the first question."""
        folder = self.folder / "-".join(map(str, ("taught", *loop.service)))
        if not folder.exists():
            search = {"result_chars": [9_000]}
            behaviour = loop.behaviour | {"usage": True, "pause_after": 10, "search": search}
            self._set(replace(loop, passes=tuple(_teaching()), behaviour=behaviour))
            await self._run(loop, folder, None)
        return folder

    async def _uncut(self, loop: Loop) -> list[float]:
        """What each pass costs when nothing ends the loop."""
        sound = [{key: value for key, value in step.items() if key != "fault"} for step in loop.passes]
        self._set(replace(loop, passes=tuple(sound)))
        await self._run(loop, self.folder / "free", None)
        shutil.rmtree(self.folder / "free")
        bill = await asyncio.to_thread(self.double.bill)
        return [float(entry["usd"]) for entry in bill["passes"]]

    def _set(self, loop: Loop) -> None:
        self.double.reset()
        self.double.configure(**{"call_delay": 0.005} | loop.behaviour)
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

    def add(self, other: Report) -> None:
        self.outcomes += other.outcomes
        self.broken += other.broken
        self.refused.update(other.refused)


async def play(numbered: Sequence[tuple[int, Loop]], backend: str, modes: Sequence[str] = MODES) -> Report:
    """Play loops in these modes, one after the other, against stand-ins of their own."""
    report = Report()
    async with offline.in_step() as double:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            money = Money(double, Path(folder), backend, report.refused)
            for at, loop in numbered:
                for outcome in await money.play(loop, modes):
                    report.outcomes.append(outcome)
                    report.broken += [f"loop {at} {outcome.mode}: {fault}" for fault in broken(outcome)]
    return report


def _play(part: Sequence[tuple[int, Loop]], backend: str, modes: Sequence[str]) -> Report:
    return asyncio.run(play(part, backend, modes))


def main(numbered: Sequence[tuple[int, Loop]], backend: str, modes: Sequence[str], processes: int) -> int:
    """Play all loops, print what came of them; the number of broken promises."""
    total = Report()
    began = time.monotonic()
    parts = [numbered[at : at + CHUNK] for at in range(0, len(numbered), CHUNK)]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_play, part, backend, modes) for part in parts]):
            total.add(done.result())
            for line in done.result().broken:
                print(line, flush=True)
    print(f"{len(numbered)} loops, {len(total.outcomes)} runs in {time.monotonic() - began:.0f} s")
    for mode in modes:
        show(mode, [outcome for outcome in total.outcomes if outcome.mode == mode], total.refused[mode])
    print(f"broken promises: {len(total.broken)}")
    return len(total.broken)


def show(mode: str, outcomes: Sequence[Outcome], refused: int) -> None:
    """Print what came of one mode."""
    if not outcomes:
        print(f"{mode}: no runs, {refused} refused before anything was sent")
        return
    print(
        f"{mode}: {len(outcomes)} runs, {refused} refused before anything was sent,"
        f" {sum(o.exact for o in outcomes)} settled to the cent,"
        f" {sum('max_usd' in o.result.limits_reached for o in outcomes)} ended by money"
    )
    print(f"  statuses {dict(Counter(o.result.status for o in outcomes))}")
    usual = [o for o in outcomes if not o.oversized and not o.dearer]
    print(f"  highest bill/cap {max((o.bill / o.loop.cap for o in usual), default=0):.3f}")
    for name, special in (
        ("a result larger than declared", [o for o in outcomes if o.oversized]),
        ("another model took over", [o for o in outcomes if o.dearer]),
    ):
        above = sum(o.over > ROUNDING for o in special)
        highest = max((o.bill / o.loop.cap for o in special), default=0)
        print(f"  {name}: {len(special)} runs, {above} above the cap, highest bill/cap {highest:.3f}")
    answered = [o for o in outcomes if o.result.answer.strip()]
    print(f"  without an answer {len(outcomes) - len(answered)}")
    quantiles("ledger above bill where estimated, all", [o.excess for o in outcomes if not o.exact])
    quantiles("ledger above bill where estimated, answered", [o.excess for o in answered if not o.exact])
    cached = [o for o in outcomes if o.loop.behaviour["caching"] == "cached"]
    quantiles("allowed money used, cached", [used for o in cached if (used := o.timidity) is not None])


def quantiles(name: str, values: Sequence[float]) -> None:
    if len(values) < 2:
        return
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    shown = ", ".join(f"{at}% {cuts[at // 5 - 1]:.1%}" for at in (5, 25, 50, 75, 95))
    print(f"  {name} ({len(values)} runs): {shown}, most {max(values):.1%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--loops", type=int, default=200)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", type=int, help="play this one loop of them")
    parser.add_argument("--backend", choices=("connector", "agent-sdk"), default="connector")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    chosen = list(enumerate(loops(given.loops, given.seed)))
    if given.only is not None:
        chosen = [chosen[given.only]]
    raise SystemExit(min(main(chosen, given.backend, given.modes, given.processes), 1))
