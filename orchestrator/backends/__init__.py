"""The two ways to run the hosted tool loop, behind one protocol, and the choice between them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.budget import Budget
from orchestrator.events import Checkpoint, Event, Purpose
from orchestrator.settings import Options, Server
from orchestrator.sources import Registry


@dataclass(frozen=True)
class RunContext:
    """What the runner hands a backend: the values and folds of one run."""

    run_id: str
    system: str
    """The system prompt, the same bytes for every run of this backend."""
    options: Options
    servers: tuple[Server, ...]
    budget: Budget
    registry: Registry
    earlier: tuple[Checkpoint, ...] = ()
    """Checkpoints of the conversation that this run carries on, oldest first, all of this backend."""
    folder: Path | None = None
    """Where the backend may keep files that belong to the run, None when nothing may be kept."""


class Conversation(Protocol):
    """An open, append-only conversation with tools."""

    def turn(self, prompt: str, purpose: Purpose = "answer") -> AsyncIterator[Event]:
        """Ask, let the hosted loop run to its end, and say what happens as events.

        Ends after the `PassFinished` (and `Checkpoint`) of the last pass; its stop reason says how.
        Raises a `RunError` for everything that is not an ordinary stop reason, after all events (usage
        above all) that were known before it, and `LimitExceeded` when the budget does not admit a call.
        Closing the iterator early ends the loop at the service: no further pass begins.
        """


class Backend(Protocol):
    """One implementation per SDK; built for one run."""

    name: str
    ids_shown: bool
    """Whether this backend's conversation shows the model source ids (else exact URLs are cited)."""

    def conversation(self) -> AbstractAsyncContextManager[Conversation]:
        """Open the conversation, on the earlier checkpoints of this run's chain where there are any.

        Leaving the context ends everything that was started for it, on every way out.
        Raises `McpUnavailable` where a search server cannot be used.
        """

    def answer(self, prompt: str, max_tokens: int, purpose: Purpose = "final") -> AsyncIterator[Event]:
        """One request of its own without tools or servers, in a fresh conversation: the final request.

        Also the judge's request. Ends after its `PassFinished`.
        """


def choose(context: RunContext, name: str) -> Backend:
    """The backend of this name; its SDK is imported here and not before."""
    if name == "connector":
        from orchestrator.backends.connector import Connector

        return Connector(context)
    from orchestrator.backends.agent_sdk import AgentSdk

    return AgentSdk(context)
