"""Whole research jobs for hosts: started by one call, watched by others, since hosts cut long calls."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from orchestrator import trace
from orchestrator.errors import OrchestratorError, UsageError
from orchestrator.events import Charge, Ending, ToolCall, ToolResult
from orchestrator.mcp_client.mend import Json
from orchestrator.serving.answers import SESSION, SESSION_SCHEMA
from orchestrator.serving.caps import Booking, Caps
from orchestrator.serving.conversation import Conversation, Conversations
from orchestrator.settings import Options
from orchestrator.trace import Record
from orchestrator.upstream import Progress

SOFT_SECONDS: Final = 45.0
"""A call returns by then with what there is; hosts cut at about 60 s."""
_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string", "description": "Pass it to research_status."},
        "status": {
            "type": "string",
            "description": "`running`, or how it ended: `done` is an answer whose citations were checked.",
        },
        "answer": {"type": "string", "description": "The checked answer with its bibliography, once there."},
        "progress": {"type": "string"},
        SESSION: {"type": "string", "description": "Of the conversation that its sources and costs join."},
        "result": {"type": "object", "description": "Verdicts, sources, ledger and the rest, once there."},
    },
    "required": ["run_id", "status", "answer", "progress"],
}
RESEARCH: Final[Json] = {
    "name": "research",
    "title": "Research a question",
    "description": (
        "Researches a question on its own, with a model of its own, and returns an answer whose every"
        " citation is checked. Takes up to some minutes: where it is not done within 45 seconds, the result"
        " has a run_id, the work goes on, and research_status tells how far it is. Costs model tokens."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "One self-contained question."},
            SESSION: SESSION_SCHEMA,
        },
        "required": ["question"],
    },
    "outputSchema": _SCHEMA,
    "annotations": {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": True},
}
STATUS: Final[Json] = {
    "name": "research_status",
    "title": "Look after a research job",
    "description": "What a research job came to, or how far it is; waits up to 45 seconds for its end. Free.",
    "inputSchema": {
        "type": "object",
        "properties": {"run_id": {"type": "string", "description": "As research returned it."}},
        "required": ["run_id"],
    },
    "outputSchema": _SCHEMA,
    "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
}


@dataclass
class Job:
    """One job of this process."""

    seen: list[Record] = field(default_factory=list)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    error: OrchestratorError | None = None
    task: asyncio.Task[None] | None = None

    def see(self, record: Record) -> None:
        self.seen.append(record)
        self.moved.set()


class Desk:
    """Runs jobs with our own backends; the whole cap of each is booked with the operator's while it runs."""

    def __init__(self, options: Options, caps: Caps, conversations: Conversations) -> None:
        self._options = options
        self._caps = caps
        self._conversations = conversations
        self._jobs: list[Job] = []

    async def research(self, question: str, conversation: Conversation, report: Progress) -> Json:
        """Start a job and wait for it, within the soft deadline. Raises `OrchestratorError`."""
        # a model SDK takes seconds to import: not on the loop that answers others
        await asyncio.to_thread(importlib.import_module, "orchestrator.starting")
        cap = self._options.limits.max_usd or 0.0
        job = Job()
        booking = self._caps.admit(("research",), cap, shared=False)
        job.task = asyncio.create_task(self._work(job, question, booking, conversation))
        self._jobs.append(job)
        await self._watch(job, report)
        if job.error is not None:
            raise job.error
        return told(job.seen)

    async def status(self, run_id: str, report: Progress) -> Json:
        """What the run file says, after waiting for the end of a job of this process."""
        if not trace.RUN_ID.fullmatch(run_id):
            raise UsageError("run_id is what research returned, such as 20261130-164312-482-9f3a1c.")
        for job in self._jobs:
            if job.seen and job.seen[0].run == run_id:
                await self._watch(job, report)
        return told(trace.read(trace.find(run_id, self._options.runs_folder)))

    async def close(self) -> None:
        """Stop what still runs; its run file says so, and `resume` can go on."""
        tasks = [job.task for job in self._jobs if job.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, job: Job, question: str, booking: Booking, conversation: Conversation) -> None:
        from orchestrator import runner

        spent = booking.usd
        try:
            result = await runner.run(question, self._options, [job.see])
            spent = result.ledger.usd
            await self._conversations.note(conversation, *(Charge(line=line) for line in result.ledger.lines))
            # the answer names its sources by URL: so check_citations knows them, too
            conversation.registry.add(
                {"results": [source.model_dump(mode="json") for source in result.sources]}
            )
        except OrchestratorError as error:
            job.error = error
            spent = 0.0 if isinstance(error, UsageError) else spent
        finally:
            booking.settle(spent)
            self._jobs.remove(job)
            job.moved.set()

    async def _watch(self, job: Job, report: Progress) -> None:
        """Report progress until the job ends or the soft deadline is there; the job goes on either way."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SOFT_SECONDS):
                while job.task and not job.task.done():
                    job.moved.clear()
                    await report(float(len(job.seen)), None, _so_far(job.seen))
                    await job.moved.wait()


def told(records: Sequence[Record]) -> Json:
    """What a run file says of its job. Raises `UsageError` where it has not begun."""
    from orchestrator.render import render
    from orchestrator.result import fold

    trace.require_content(records, "tell")
    ended = isinstance(records[-1].event, Ending)
    result = fold([records])
    told: Json = {
        "run_id": result.run_id,
        "status": result.status if ended else "running",
        "answer": render(result, "markdown") if ended else "",
        "progress": _so_far(records),
    }
    return told | ({"result": json.loads(render(result, "json"))} if ended else {})


def _so_far(records: Sequence[Record]) -> str:
    calls = [record.event for record in records if isinstance(record.event, ToolCall)]
    results = sum(isinstance(record.event, ToolResult) for record in records)
    last = f", the last: {calls[-1].tool}" if calls else ""
    return f"{len(calls)} tool calls, {results} answered{last}"
