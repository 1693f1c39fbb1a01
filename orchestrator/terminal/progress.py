"""What a person sees on standard error while a run goes on: lines, and on a terminal a status in place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from orchestrator.citing.streaming import shown_length
from orchestrator.events import (
    Charge,
    Checkpoint,
    CitationsChecked,
    Ending,
    LimitReached,
    PassStarted,
    Purpose,
    RunStarted,
    TextDelta,
    ToolCall,
    ToolResult,
)
from orchestrator.result import Result
from orchestrator.sources import Registry
from orchestrator.terminal.console import dollars, plain, say, short
from orchestrator.trace import Record

if TYPE_CHECKING:
    from rich.live import Live

_DRAFT_LINES: Final = 4
_OFFLINE: Final = "offline: no language model is used, a plain program answers with sentences it finds"
_PURPOSES: Final = {
    "final": "writing the final answer",
    "correction": "asking for a correction of the citations",
    "judge": "asking the judge about open citations",
}


class View(Protocol):
    """Where progress is shown."""

    def say(self, line: str) -> None:
        """Add a line that stays."""

    def status(self, line: str, draft: str) -> None:
        """Replace what is shown in place."""


class Progress:
    """A listener that folds events into lines for a person."""

    def __init__(self, view: View, *, verbose: bool = False, so_far: Result | None = None) -> None:
        self._view = view
        self._verbose = verbose
        self._so_far = so_far
        self._registry = Registry(so_far.sources if so_far else ())
        self._spent = 0.0
        self._booked: dict[int, float] = {}
        self._cap: float | None = None
        self._draft = ""
        self._purpose: Purpose = "answer"

    def __call__(self, record: Record) -> None:
        event = record.event
        self._registry.see(event)
        match event:
            case Charge():
                self._spent += event.line.usd
                for step in event.settles:
                    self._booked.pop(step, None)
            case PassStarted():
                self._booked[event.step] = event.booked_usd
                if event.purpose != self._purpose:
                    self._draft = ""
            case TextDelta():
                self._draft += event.text
            case ToolCall():
                self._draft = ""
        for line in self._lines(record):
            self._view.say(line)
        if self._verbose and not isinstance(event, TextDelta | Checkpoint):
            self._view.say(record.to_line())
        if isinstance(event, PassStarted):
            self._purpose = event.purpose
        self._view.status(self._state(), self._draft[: shown_length(self._draft)])

    def _lines(self, record: Record) -> Iterator[str]:
        match record.event:
            case RunStarted() as started:
                yield from self._opening(record.run, started)
            case ToolCall() as call:
                yield doing(call)
            case ToolResult() as result:
                yield _came_of(result) or self._state()
            case PassStarted(purpose=purpose) if purpose in _PURPOSES and purpose != self._purpose:
                yield _PURPOSES[purpose]
            case LimitReached(action=action):
                yield plain(action)
            case CitationsChecked(verdicts=verdicts):
                backed = sum(verdict.verdict == "supported" for verdict in verdicts)
                yield f"{len(verdicts)} citations checked, {backed} supported word for word"
            case Ending() as ending:
                yield f"{ending.status} after {ending.seconds:.1f} s, {self._state()}"

    def _opening(self, run: str, started: RunStarted) -> Iterator[str]:
        self._cap = started.limits.max_usd
        if self._so_far and started.resumes:
            self._spent = self._so_far.ledger.usd
        if started.offline:
            yield _OFFLINE
        yield f"up to {dollars(self._cap)}" if self._cap is not None else "no limit on money"
        yield f"run {run}: {started.model}, {started.backend} ({started.backend_reason})"

    def _state(self) -> str:
        cap = f" of {dollars(self._cap)}" if self._cap is not None else ""
        usd = self._spent + sum(self._booked.values())
        return f"{len(self._registry)} sources, ${usd:.4f}{cap}"


@contextmanager
def shown(
    *, quiet: bool, verbose: bool, so_far: Result | None = None
) -> Iterator[list[Callable[[Record], None]]]:
    """The listeners that show a run on standard error; none with `quiet`. `so_far`: what it goes on from."""
    if quiet:
        yield []
    elif sys.stderr.isatty():
        with _in_place() as view:
            yield [Progress(view, verbose=verbose, so_far=so_far)]
    else:
        yield [Progress(Lines(), verbose=verbose, so_far=so_far)]


class Lines:
    """Plain lines, for files and pipes."""

    def say(self, line: str) -> None:
        say(line)

    def status(self, line: str, draft: str) -> None:
        """Nothing is in place in a file."""


class _InPlace:
    def __init__(self, live: Live) -> None:
        self._live = live

    def say(self, line: str) -> None:
        self._live.console.print(line, markup=False, highlight=False)

    def status(self, line: str, draft: str) -> None:
        from rich.console import Group
        from rich.spinner import Spinner
        from rich.text import Text

        tail = plain(draft[-self._live.console.width * _DRAFT_LINES :])
        self._live.update(Group(Text(tail, style="dim"), Spinner("line", Text(line))))


@contextmanager
def _in_place() -> Iterator[View]:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stderr)
    with Live(console=console, transient=True, refresh_per_second=8, redirect_stdout=False) as live:
        yield _InPlace(live)


def doing(call: ToolCall) -> str:
    """What a tool call does, in words."""
    urls = call.arguments.get("urls") or call.arguments.get("url")
    if urls:
        addresses = urls if isinstance(urls, list) else [urls]
        return f"reading {', '.join(_short_address(address) for address in addresses[:3])}" + (
            f" and {len(addresses) - 3} more" if len(addresses) > 3 else ""
        )
    texts = (call.arguments.get(name) for name in ("objective", "query", "search_queries", "q", "question"))
    return f"searching for {short(next(filter(None, texts), call.arguments))}"


def _came_of(result: ToolResult) -> str:
    """What went wrong with a call; empty when nothing did."""
    if result.denied:
        return "not done: a limit does not allow it"
    return f"that failed: {short(result.content)}" if result.is_error else ""


def _short_address(address: Any) -> str:
    _, found, rest = str(address).partition("://")
    return short(rest.partition("?")[0] if found else address)
