"""What a run goes on from: the runs that it resumes or follows up, and what earlier ones taught."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from orchestrator import prompts, trace
from orchestrator.backends import sessions
from orchestrator.billing import Billing, Clearing, Teacher
from orchestrator.errors import UsageError
from orchestrator.events import Checkpoint, Ending, Event, LimitReached, PassStarted, RunFailed, RunStarted
from orchestrator.result import resumed
from orchestrator.settings import Options
from orchestrator.sources import Registry
from orchestrator.trace import Record

RUNS_LOOKED_AT: Final = 20
"""How many of the newest run files may teach how the service bills."""


@dataclass(frozen=True)
class Past:
    """The chain of runs behind a new one, oldest first; empty for a run that begins by itself."""

    runs: Sequence[Sequence[Record]]
    resumes: bool
    """Whether the new run completes the last of them: same question, same money."""

    @classmethod
    def find(cls, options: Options, resume: str | None) -> Past:
        """The runs behind `resume` or `--follow-up`. Raises UsageError where they cannot be gone on from."""
        named = resume or options.follow_up
        if not named:
            return cls((), resumes=False)
        chain = trace.chain(trace.find(named, options.runs_folder))
        trace.require_content(chain[-1], "go on from")
        last = chain[-1][-1].event
        if resume and isinstance(last, Ending) and last.status == "done":
            run = chain[-1][0].run
            raise UsageError(f"Run {run} is done: ask on with --follow-up {run} QUESTION.")
        return cls(chain, resumes=resume is not None)

    @property
    def run(self) -> str | None:
        """The id of the last of them."""
        return self.runs[-1][0].run if self.runs else None

    @property
    def question(self) -> str | None:
        """The question of a run that is resumed."""
        first = self.runs[-1][0].event if self.resumes else None
        return first.question if isinstance(first, RunStarted) else None

    def registry(self) -> Registry:
        """The sources of the whole chain; their ids stay what they were."""
        registry = Registry()
        for event in self._events(self.runs):
            registry.see(event)
        return registry

    def spent(self) -> Iterator[Event]:
        """The events of the runs whose spend counts here too."""
        return self._events(resumed(self.runs) if self.resumes else ())

    def held(self) -> Iterator[Event]:
        """The events of the whole chain: what a conversation that carries it on holds already."""
        return self._events(self.runs)

    def conversation(self, started: RunStarted, folder: Path | None) -> tuple[Checkpoint, ...]:
        """The checkpoints to carry on, where the conversation is whole, of this backend, model and servers.

        Replayed thinking is bound to all of them. `folder` is the new run's own: the engine's sessions stand
        beside it.
        """
        if self.resumes or not all(map(_whole, self.runs)):
            return ()
        firsts = [run[0].event for run in self.runs]
        if any(isinstance(first, RunStarted) and _bound(first) != _bound(started) for first in firsts):
            return ()
        found = trace.checkpoints(self.runs) or ()
        if started.backend == "agent-sdk" and sessions.find(folder, found) is None:
            return ()
        return found

    def first_turn(self, question: str, registry: Registry, *, fresh: bool, ids_shown: bool) -> str:
        """The question, and in a `fresh` conversation what the earlier ones had found."""
        if self.runs and fresh:
            evidence = registry.evidence(question, prompts.EVIDENCE_BYTES, ids=ids_shown)
            question = prompts.going_on(question, self._told(registry, ids_shown), evidence)
        return prompts.question(question, datetime.now(UTC).date())

    def _told(self, registry: Registry, ids_shown: bool) -> list[tuple[str, str]]:
        """Questions and answers so far; ids in them become links where the new conversation has no ids."""

        def link(id: re.Match[str]) -> str:
            source = registry.by_id(id[1])
            return f"[source](<{source.url}>)" if source else id[0]

        ends = [(run[0].event, run[-1].event) for run in self.runs]
        return [
            (first.question, last.answer if ids_shown else re.sub(r"\[(S\d+)\]", link, last.answer))
            for first, last in ends
            if isinstance(first, RunStarted) and isinstance(last, Ending) and last.answer
        ]

    @staticmethod
    def _events(runs: Sequence[Sequence[Record]]) -> Iterator[Event]:
        return (record.event for run in runs for record in run)


def _bound(run: RunStarted) -> tuple[str, str, tuple[str, ...]]:
    return run.backend, run.model, run.servers


def _whole(run: Sequence[Record]) -> bool:
    """Whether a run's answer came out of its conversation, and not from a request beside it."""
    return isinstance(run[-1].event, Ending) and not any(map(_beside, (record.event for record in run)))


def _beside(event: Event) -> bool:
    final = isinstance(event, PassStarted) and event.purpose == "final"
    return final or isinstance(event, LimitReached | RunFailed)


def learned(folder: Path, like: RunStarted, clearing: Clearing | None = None) -> Billing | None:
    """How the service billed the last run of the same model, servers, address and key; never offline ones."""
    same = ("model", "servers", "base_url", "key_fingerprint", "backend")
    for path in reversed(trace.run_files(folder)[-RUNS_LOOKED_AT:]):
        try:
            records = trace.read(path)
        except UsageError:
            continue
        first = records[0].event if records else None
        if not isinstance(first, RunStarted) or first.offline:
            continue
        if all(getattr(first, name) == getattr(like, name) for name in same):
            teacher = Teacher(path.stem, clearing)
            for record in records:
                teacher.see(record.event)
            if teacher.billing is not None:
                return teacher.billing
    return None
