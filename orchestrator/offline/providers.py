"""The search servers among the stand-ins: which there are, and under which name of servers.json."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp

from orchestrator.offline.alternative import alternative_app
from orchestrator.offline.corpus import Corpus
from orchestrator.offline.search import search_app
from orchestrator.offline.search_state import SearchState

_PATHS: Final = {
    "parallel-search": ("parallel", "/mcp"),
    "parallel-search-advanced": ("parallel", "/mcp?mode=advanced"),
    "exa": ("exa", "/mcp?tools=web_search_exa,web_fetch_exa"),
}
"""By server name: the application, and where in it."""


@dataclass(frozen=True)
class Providers:
    """ASGI applications by provider, and the state that they share."""

    state: SearchState
    apps: dict[str, ASGIApp]

    def urls(self, addresses: dict[str, str]) -> dict[str, str]:
        """URL by server name, given the address of each application."""
        return {name: f"{addresses[app]}{path}" for name, (app, path) in _PATHS.items()}


def start(corpus: Path | None) -> Providers:
    """Load the corpus and build the applications; nothing listens yet."""
    pages = Corpus.load(corpus)
    state = SearchState()
    return Providers(state, {"parallel": search_app(pages, state), "exa": alternative_app(pages, state)})
