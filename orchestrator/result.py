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
    Purpose,
    RunStarted,
    Source,
    Status,
    TextDelta,
    ToolCall,
    Value,
    Verdict,
)
from orchestrator.leftovers import left_open
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
    lines = [record.event.line for record in counted if isinstance(record.event, Charge)]
    draft, ids_shown = (ending.answer, ending.ids_shown) if ending else _draft(records, started)
    if ending is None:
        lines += _unsettled(counted)
    limits = started.limits
    return Result(
        run_id=records[0].run,
        status=ending.status if ending else "interrupted",
        limits_reached=tuple(
            dict.fromkeys(r.event.limit for r in records if isinstance(r.event, LimitReached))
        ),
        question=started.question,
        answer=draft,
        citations=checked.verdicts if checked else (),
        sources=tuple(registry),
        coverage=checked.coverage if checked else Coverage(),
        ledger=Ledger(
            usd=sum(line.usd for line in lines),
            cap=limits.max_usd,
            reserved=limits.reserve * (limits.max_usd or 0.0),
            lines=tuple(lines),
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
        ids_shown=ids_shown,
        message=ending.message if ending else "the run did not end by itself; go on with resume",
        warnings=ending.warnings if ending else (),
    )


def _unsettled(records: Sequence[Record]) -> list[ChargeLine]:
    """What a run that did not end has open, at what was booked for it: it may be on the bill."""
    passes, calls = left_open(record.event for record in records)
    open_passes = [(f"{p.model} input and output", p.booked_usd, p.step, p.purpose) for p in passes]
    step = max((r.event.step for r in records if isinstance(r.event, PassStarted)), default=0)
    open_calls = [(call.item, call.booked_usd or 0.0, step, "answer") for call in calls]
    return [
        ChargeLine.model_validate(
            {"item": item, "usd": usd, "unit_usd": usd, "quantity": 1, "step": at, "purpose": purpose}
            | {"estimated": True, "basis": "as booked"}
        )
        for item, usd, at, purpose in open_passes + open_calls
    ]


def _draft(records: Sequence[Record], started: RunStarted) -> tuple[str, bool]:
    """The answer as far as a run without an ending had written it, and whether it may cite source ids."""
    drafts: dict[Purpose, str] = {}
    purpose: Purpose = "answer"
    for event in (record.event for record in records):
        match event:
            case PassStarted():
                purpose = event.purpose
            case ToolCall():
                drafts[purpose] = ""
            case TextDelta():
                drafts[purpose] = drafts.get(purpose, "") + event.text
    drafts.pop("judge", None)
    last: Purpose = next((name for name in reversed(drafts) if drafts[name].strip()), "answer")
    return drafts.get(last, ""), last == "final" or started.backend == "agent-sdk"


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
