"""What a crash left open: passes and calls that are on record as begun, and of whose end nothing is."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.events import Charge, Event, PassStarted, ToolCall, ToolResult


def left_open(events: Iterable[Event]) -> tuple[list[PassStarted], list[ToolCall]]:
    """The passes and calls that were under way when a run, or a chain of runs, stopped being recorded."""
    passes: dict[int, PassStarted] = {}
    calls: dict[str, ToolCall] = {}
    for event in events:
        match event:
            case PassStarted():
                passes[event.step] = event
            case ToolCall():
                calls[event.id] = event
            case ToolResult():
                calls.pop(event.id, None)
            case Charge():
                for step in event.settles:
                    passes.pop(step, None)
                if event.line.estimated:  # where it is a call's, that call had no result
                    same = (id for id, call in calls.items() if call.item == event.line.item)
                    calls.pop(next(same, ""), None)
    return list(passes.values()), list(calls.values())
