"""Run files, as the `runs` commands show them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator import trace
from orchestrator.errors import UsageError
from orchestrator.events import RunStarted
from orchestrator.result import Result, fold
from orchestrator.terminal.console import dollars, short


def load(path: Path) -> Result:
    """The result that a run file holds. Raises `UsageError` where it holds no run."""
    chain = trace.chain(path)
    if not (chain[-1] and isinstance(chain[-1][0].event, RunStarted)):
        raise UsageError(f"{path} holds no run.")
    return fold(chain, path)


def listing(folder: Path) -> Iterator[str]:
    """One line a run, oldest first; a file that cannot be read is said to be so."""
    for path in trace.run_files(folder):
        try:
            result = load(path)
        except UsageError as error:
            yield f"{path.stem}  unreadable: {error}"
            continue
        question = short(result.question) if result.question else "(kept without content)"
        yield f"{path.stem}  {result.status:<15}  ${result.ledger.usd:.4f}  {question}"


def facts(result: Result) -> Iterator[str]:
    """What stands around the answer, a line each."""
    cap = f" of {dollars(result.ledger.cap)}" if result.ledger.cap is not None else ""
    offline = ", offline: no language model was used" if result.offline else ""
    yield f"{result.run_id}: {result.status}{offline}"
    if result.message:
        yield result.message
    yield f"question: {short(result.question)}"
    yield f"{result.model} through {result.backend}, {result.steps} steps, {result.tool_calls} tool calls"
    started = f"{result.started:%Y-%m-%d %H:%M} UTC"
    yield f"${result.ledger.usd:.4f}{cap}, {result.seconds:.1f} s, started {started}"
    for line in result.ledger.lines:
        estimated = " (estimated)" if line.estimated else ""
        yield f"  step {line.step}: {line.item}, {line.quantity:g} for ${line.usd:.6f}{estimated}"
    yield f"file: {result.run_file}"
