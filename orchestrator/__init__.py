"""Ask a question, get an answer whose every citation is checked, for no more money than you said.

    result = await orchestrator.ask("When did the Hubble Space Telescope launch?", Options(max_usd=0.10))

Nothing is imported before a name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.errors import ConfigurationError, OrchestratorError, RunError, UsageError
    from orchestrator.events import Limits
    from orchestrator.result import Result
    from orchestrator.runner import run as ask
    from orchestrator.runner import stream
    from orchestrator.settings import Options

__version__ = "0.1.0"
__all__ = [
    "ConfigurationError",
    "Limits",
    "Options",
    "OrchestratorError",
    "Result",
    "RunError",
    "UsageError",
    "ask",
    "stream",
]

_HOMES = {
    "ConfigurationError": ("errors", "ConfigurationError"),
    "Limits": ("events", "Limits"),
    "Options": ("settings", "Options"),
    "OrchestratorError": ("errors", "OrchestratorError"),
    "Result": ("result", "Result"),
    "RunError": ("errors", "RunError"),
    "UsageError": ("errors", "UsageError"),
    "ask": ("runner", "run"),
    "stream": ("runner", "stream"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, inside = _HOMES[name]
    return getattr(import_module(f"orchestrator.{module}"), inside)
