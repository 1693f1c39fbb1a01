"""What a run that came to its end came to: its status, and the sentence that tells the user what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.backends.faults import search_refusal
from orchestrator.citations import Checked
from orchestrator.events import Status, ToolCall, ToolResult, Verdict
from orchestrator.trace import Record

LONGEST_CAUSE: Final = 200
"""Characters of what a search server said that are repeated to the user."""


def of(
    answer: str, checked: Checked | None, records: Sequence[Record], *, found_more: bool, strict: bool
) -> tuple[Status, str]:
    """Is there an answer, and is it backed?

    `checked` is the check of this answer; `found_more` says whether the run's searches added any source.
    """
    searched = any(isinstance(record.event, ToolCall) for record in records)
    factual = bool(checked and checked.coverage.factual)
    backed = bool(checked and len(checked.verdicts) > len(checked.dangling))
    if not backed and not found_more and searched:
        return _nothing_found(records)
    if not answer.strip() or checked is None:
        return "failed", "the model ended without an answer; ask again or with more --max-output-tokens"
    if checked.dangling:
        return "uncited", f"{_citations(checked.dangling, 'names', 'name')} nothing that a tool returned"
    if factual and not checked.coverage.cited:
        return "uncited", "the answer states facts and cites nothing; ask again, or see the sources found"
    if strict and checked.unsupported:
        what = _citations(checked.unsupported, "is", "are")
        return "uncited", f"{what} not supported by the source (--strict)"
    return "done", ""


def _citations(verdicts: Sequence[Verdict], one: str, more: str) -> str:
    return f"1 citation {one}" if len(verdicts) == 1 else f"{len(verdicts)} citations {more}"


def searched_well(records: Sequence[Record]) -> bool:
    """Whether a search of this run came back with something else than an error."""
    return any(isinstance(r.event, ToolResult) and not r.event.is_error for r in records)


def _nothing_found(records: Sequence[Record]) -> tuple[Status, str]:
    """Why there is nothing to answer from: where every search failed, what the last one was told."""
    results = [r.event for r in records if isinstance(r.event, ToolResult) and not r.event.denied]
    if not results or not all(result.is_error for result in results):
        return "no_sources", "nothing was found to answer from: ask in other words"
    servers = {r.event.id: r.event.server for r in records if isinstance(r.event, ToolCall)}
    said = " ".join(str(results[-1].content).split())[:LONGEST_CAUSE]
    refusal = search_refusal(servers.get(results[-1].id, ""), said)
    if refusal is not None:
        return refusal.status, str(refusal)
    return "no_sources", f"every search failed: see doctor, or try again later with resume ({said})"
