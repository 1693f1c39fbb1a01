"""A conversation with the MCP server: its sources, its ledger and its record; it widens no cap.

Over stdio the process is one conversation until it was silent for half an hour; over HTTP a call without a
`session_id` is one of its own. Who names one goes on with it. Conversations that rest too long leave memory
and come back from their record, so a source id never moves.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator import trace
from orchestrator.errors import UsageError
from orchestrator.events import Charge, ChargeLine, Event
from orchestrator.sources import Registry

log = logging.getLogger(__name__)

SILENCE_SECONDS: Final = 1800.0
LIVE: Final = 100
"""Conversations kept in memory."""
RESTING: Final = 10_000
"""Conversations that can come back from their record."""
_ID: Final = re.compile(r"[\x21-\x7e]{1,100}")
_BACKLOG: Final = 64
"""Events that may wait for the disk before calls wait with them."""


@dataclass
class Conversation:
    """What belongs to one `session_id`."""

    id: str
    registry: Registry = field(default_factory=Registry)
    used: float = 0.0
    record: trace.Trace | None = None
    _lines: dict[tuple[str, float, str, bool], ChargeLine] = field(default_factory=dict)

    def charge(self, events: Iterable[Event]) -> None:
        """Fold what the events cost; their sources are seen when the result is labelled for the host."""
        for event in events:
            if isinstance(event, Charge):
                self._charge(event.line)

    @property
    def lines(self) -> tuple[ChargeLine, ...]:
        """The ledger, calls of one price in one line."""
        return tuple(self._lines.values())

    @property
    def usd(self) -> float:
        return sum(line.usd for line in self._lines.values())

    def _charge(self, line: ChargeLine) -> None:
        key = (line.item, line.unit_usd, line.basis, line.estimated)
        before = self._lines.get(key)
        if before is not None:
            sums = {"quantity": before.quantity + line.quantity, "usd": before.usd + line.usd}
            line = line.model_copy(update=sums)
        self._lines[key] = line


class Conversations:
    """All conversations of a server. `folder` is where their records go, None keeps none."""

    def __init__(
        self,
        *,
        one_per_process: bool,
        folder: Path | None,
        now: Callable[[], float],
        content: bool = True,
        secrets: Sequence[str] = (),
    ) -> None:
        self._one_per_process = one_per_process
        self._folder = folder
        self._now = now
        self._content = content
        self._secrets = tuple(secrets)
        self._live: OrderedDict[str, Conversation] = OrderedDict()
        self._resting: dict[str, Path] = {}
        self._current: Conversation | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="record")
        self._room = asyncio.Semaphore(_BACKLOG)

    def get(self, session_id: object) -> Conversation:
        """The conversation of this name, or of this call. Raises `UsageError` for a name that is none."""
        if session_id is not None and not (isinstance(session_id, str) and _ID.fullmatch(session_id)):
            raise UsageError("session_id is 1 to 100 visible ASCII characters, as an earlier result gave it.")
        if session_id is None and self._one_per_process:
            current = self._current
            if current is None or self._now() - current.used > SILENCE_SECONDS:
                self._current = current = Conversation(uuid.uuid4().hex)
            session_id = current.id
            self._live.setdefault(current.id, current)
        name = session_id if isinstance(session_id, str) else uuid.uuid4().hex
        conversation = self._live.get(name) or self._back(name)
        conversation.used = self._now()
        self._live[name] = conversation
        self._live.move_to_end(name)
        self._rest()
        return conversation

    def known(self, session_id: str | None) -> Conversation | None:
        """The conversation of this name, or over stdio the current one, if there is one to look at."""
        if session_id is None:
            return self._current
        return self.get(session_id) if session_id in self._live or session_id in self._resting else None

    async def note(self, conversation: Conversation, *events: Event) -> None:
        """Charge and record events without waiting for the disk; a failing one is said and fails no call."""
        conversation.charge(events)
        record = self._record(conversation)
        if record is None:
            return
        await self._room.acquire()
        loop = asyncio.get_running_loop()

        def written(future: Future[list[trace.Record]]) -> None:
            loop.call_soon_threadsafe(self._room.release)
            if (error := future.exception()) is not None:
                log.error("the record of a conversation is not whole: %s", error)

        self._writer.submit(record.write_all, events).add_done_callback(written)

    def _record(self, conversation: Conversation) -> trace.Trace | None:
        if conversation.record is None and self._folder is not None:
            path = self._folder / f"{trace.new_run_id()}.jsonl"
            try:
                conversation.record = trace.Trace(
                    path, conversation.id, content=self._content, secrets=self._secrets
                )
            except UsageError as error:
                log.error("%s No record is kept.", error)
                self._folder = None
        return conversation.record

    def close(self) -> None:
        """Write what waits, and close all records."""
        self._writer.shutdown(wait=True)
        for conversation in self._live.values():
            if conversation.record is not None:
                conversation.record.close()

    def _rest(self) -> None:
        while len(self._live) > LIVE:
            id, conversation = self._live.popitem(last=False)
            if conversation.record is not None:
                self._resting[id] = conversation.record.path
                self._writer.submit(conversation.record.close)
                if len(self._resting) > RESTING:
                    del self._resting[next(iter(self._resting))]

    def _back(self, session_id: str) -> Conversation:
        conversation = Conversation(session_id)
        path = self._resting.pop(session_id, None)
        if path is not None and self._content:
            self._writer.submit(lambda: None).result()  # what was still being written is there now
            events = [record.event for record in trace.read(path)]
            conversation.charge(events)
            for event in events:
                conversation.registry.see(event)
        return conversation
