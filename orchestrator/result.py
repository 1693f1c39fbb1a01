"""One run, folded: what `ask` returns, what `--format json` prints, what every reader of a run file sees."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from orchestrator.events import (
    Charge,
    ChargeLine,
    CitationsChecked,
    Coverage,
    Ending,
    LimitName,
    LimitReached,
    PassFinished,
    PassStarted,
    RunStarted,
    Source,
    Status,
    ToolCall,
    Value,
    Verdict,
)
from orchestrator.sources import Registry
from orchestrator.trace import Record


class Ledger(Value):
    """What was spent, in US dollars, line by line; `usd` is the sum of the lines."""

    usd: float
    cap: float | None
    reserved: float
    """What was kept for the final answer."""
    lines: tuple[ChargeLine, ...]


class Result(Value):
    """What one run came to. The first fields, up to `run_file`, are the stable JSON result."""

    run_id: str
    status: Status
    limits_reached: tuple[LimitName, ...]
    question: str
    answer: str
    """As the model wrote it; render.py turns its markers into numbered citations."""
    citations: tuple[Verdict, ...]
    sources: tuple[Source, ...]
    coverage: Coverage
    ledger: Ledger
    steps: int
    """Sampling passes."""
    tool_calls: int
    backend: str
    model: str
    models_used: tuple[str, ...]
    offline: bool
    started: datetime
    seconds: float
    run_file: Path | None
    ids_shown: bool
    message: str = ""
    warnings: tuple[str, ...] = ()


def fold(chain: Sequence[Sequence[Record]], run_file: Path | None = None) -> Result:
    """The result of the last run in `chain`, oldest first, its predecessors those it resumes or follows.

    Sources accumulate over the whole chain; money, passes and calls over the runs that were resumed.
    A run without an ending (it crashed, or is still running) is `interrupted`.
    """
    registry = Registry()
    for run in chain:
        for record in run:
            registry.see(record.event)
    records = chain[-1]
    counted = [record for run in resumed(chain) for record in run]
    started = _only(records, RunStarted)
    ending = next((record.event for record in reversed(records) if isinstance(record.event, Ending)), None)
    checked = next(
        (record.event for record in reversed(records) if isinstance(record.event, CitationsChecked)), None
    )
    lines = tuple(record.event.line for record in counted if isinstance(record.event, Charge))
    limits = started.limits
    return Result(
        run_id=records[0].run,
        status=ending.status if ending else "interrupted",
        limits_reached=tuple(
            dict.fromkeys(r.event.limit for r in records if isinstance(r.event, LimitReached))
        ),
        question=started.question,
        answer=ending.answer if ending else "",
        citations=checked.verdicts if checked else (),
        sources=tuple(registry),
        coverage=checked.coverage if checked else Coverage(),
        ledger=Ledger(
            usd=sum(line.usd for line in lines),
            cap=limits.max_usd,
            reserved=limits.reserve * (limits.max_usd or 0.0),
            lines=lines,
        ),
        steps=len({(r.run, r.event.step) for r in counted if isinstance(r.event, PassStarted)}),
        tool_calls=sum(isinstance(r.event, ToolCall) for r in counted),
        backend=started.backend,
        model=started.model,
        models_used=tuple(
            dict.fromkeys(
                usage.model for r in counted if isinstance(r.event, PassFinished) for usage in r.event.usage
            )
        ),
        offline=started.offline,
        started=records[0].at,
        seconds=ending.seconds if ending else (records[-1].at - records[0].at).total_seconds(),
        run_file=run_file,
        ids_shown=ending.ids_shown if ending else started.backend == "agent-sdk",
        message=ending.message if ending else "the run did not end by itself; go on with resume",
        warnings=ending.warnings if ending else (),
    )


def resumed(chain: Sequence[Sequence[Record]]) -> list[Sequence[Record]]:
    """The tail of a chain whose spend counts together: the last run and those it resumes."""
    tail = [chain[-1]]
    for run in reversed(chain[:-1]):
        if _only(tail[0], RunStarted).resumes is None:
            break
        tail.insert(0, run)
    return tail


def _only(records: Sequence[Record], kind: type[RunStarted]) -> RunStarted:
    return next(record.event for record in records if isinstance(record.event, kind))
