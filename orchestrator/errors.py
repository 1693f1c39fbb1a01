"""What can go wrong, and which boundary a failure crossed.

    OrchestratorError
    ├── UsageError             exit 2: nothing was spent
    │   └── ConfigurationError   a file, a field, a server
    └── RunError               carries the status the run ends with
        ├── LimitExceeded        a limit ends the loop: the final request follows
        ├── Refused              the model declined
        ├── RateLimited          429 after all retries
        ├── McpUnavailable       a search server is down, unauthorised or lists nothing
        ├── BackendError         the model service or the engine failed
        └── Interrupted          Ctrl-C

A run's errors are turned into a recorded status in one place, `runner.run`; nothing else catches them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from orchestrator.events import LimitName, Status

EXIT_CODES: Final[dict[Status, int]] = {
    "done": 0,
    "uncited": 1,
    "no_sources": 1,
    "failed": 3,
    "mcp_unavailable": 3,
    "rate_limited": 3,
    "budget": 4,
    "step_limit": 4,
    "timeout": 4,
    "max_tokens": 4,
    "context_exceeded": 4,
    "refusal": 5,
    "interrupted": 130,
}
USAGE_EXIT_CODE: Final = 2

STATUS_OF_LIMIT: Final[dict[LimitName, Status]] = {
    "max_usd": "budget",
    "daily_usd": "budget",
    "max_steps": "step_limit",
    "max_seconds": "timeout",
    "max_calls": "step_limit",
    "max_tokens": "max_tokens",
    "context": "context_exceeded",
    "repeated_calls": "step_limit",
    "empty_searches": "no_sources",
    "repeated_text": "step_limit",
    "result_size": "budget",
}
"""The status of a run that a limit ended and that has no good answer."""


class OrchestratorError(Exception):
    """Base of all errors of this package; the message is one sentence for the user, with a remedy."""


class UsageError(OrchestratorError):
    """The call cannot be carried out as given; nothing was sent and nothing was spent."""


class ConfigurationError(UsageError):
    """A settings file, environment variable or server entry is wrong; the message names it."""


class RunError(OrchestratorError):
    """A run cannot go on; `status` is what it ends with, `boundary` what the failure crossed."""

    status: Status = "failed"
    boundary: str = "ours"


class LimitExceeded(RunError):
    """A limit ends the loop: `value` is what it was or would have needed, `ceiling` what was allowed."""

    def __init__(
        self, limit: LimitName, value: float | str, ceiling: float | str | None, message: str
    ) -> None:
        super().__init__(message)
        self.limit: LimitName = limit
        self.value = value
        self.ceiling = ceiling
        self.status = STATUS_OF_LIMIT[limit]


class Refused(RunError):
    """The model declined to answer; `category` is the service's own word, where it gave one."""

    status: Status = "refusal"
    boundary = "anthropic"

    def __init__(self, message: str, category: str | None = None) -> None:
        super().__init__(message)
        self.category = category


class RateLimited(RunError):
    """Still refused with 429 after all retries; `retry_after` in seconds where the service said it."""

    status: Status = "rate_limited"
    boundary = "anthropic"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class McpUnavailable(RunError):
    """A search server cannot be used; the message says why and what to do."""

    status: Status = "mcp_unavailable"
    boundary = "mcp"


class BackendError(RunError):
    """The model service or the engine failed; `boundary` says which."""

    def __init__(self, message: str, boundary: str = "anthropic") -> None:
        super().__init__(message)
        self.boundary = boundary


class Interrupted(RunError):
    """The user stopped the run."""

    status: Status = "interrupted"


@contextmanager
def boundary(name: str, what: str) -> Iterator[None]:
    """Attribute whatever escapes to one boundary; our own errors pass through unchanged."""
    try:
        yield
    except (OrchestratorError, GeneratorExit):
        raise
    except Exception as error:
        raise BackendError(f"{what}: {type(error).__name__}: {error}", name) from error
