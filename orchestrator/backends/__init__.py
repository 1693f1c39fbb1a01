"""The two ways to run the hosted tool loop, behind one protocol, and the choice between them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from orchestrator.events import Event, Purpose


class Conversation(Protocol):
    """An open, append-only conversation with tools."""

    def turn(self, prompt: str, purpose: Purpose = "answer") -> AsyncIterator[Event]:
        """Ask, let the hosted loop run to its end, and say what happens as events.

        Ends after the `PassFinished` (and `Checkpoint`) of the last pass; its stop reason says how.
        Raises a `RunError` subclass for everything that is not an ordinary stop reason, after all events
        (usage above all) that were known before it. Closing the iterator early ends the loop at the
        service: no further pass begins.
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

    def answer(self, prompt: str, max_tokens: int) -> AsyncIterator[Event]:
        """One request of its own without tools or servers, in a fresh conversation: the final request."""
