"""The search servers among the stand-ins: which there are, and under which name of servers.json."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp

from orchestrator.offline.corpus import Corpus
from orchestrator.offline.search import search_app
from orchestrator.offline.search_state import SearchState


@dataclass(frozen=True)
class Providers:
    """ASGI applications by provider, and the state that they share."""

    state: SearchState
    apps: dict[str, ASGIApp]

    def urls(self, addresses: dict[str, str]) -> dict[str, str]:
        """URL by server name, given the address of each application."""
        parallel = f"{addresses['parallel']}/mcp"
        return {"parallel-search": parallel, "parallel-search-advanced": f"{parallel}?mode=advanced"}


def start(corpus: Path | None) -> Providers:
    """Load the corpus and build the applications; nothing listens yet."""
    pages = Corpus.load(corpus)
    state = SearchState()
    return Providers(state, {"parallel": search_app(pages, state)})
