"""The stand-ins: a Messages API and the search servers on loopback, with a model that is a plain program.

They are the demonstration for newcomers (`--offline`) and the double of every test. They keep a bill of
their own and can be told to misbehave. Importing this module loads no SDK.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from socket import socket

    from starlette.types import ASGIApp

    from orchestrator.offline.control import Control


@dataclass(frozen=True)
class StandIns:
    """Running stand-ins: their addresses, and the control of them; its methods work from any thread."""

    anthropic_base_url: str
    mcp_url: str
    control_url: str
    server_urls: dict[str, str]
    """Loopback URL by server name in servers.json."""
    _control: Control = field(repr=False)

    def addresses(self) -> dict[str, Any]:
        """What `offline` prints."""
        return {
            "anthropic_base_url": self.anthropic_base_url,
            "mcp_url": self.mcp_url,
            "control_url": self.control_url,
            "server_urls": self.server_urls,
        }

    def bill(self) -> dict[str, Any]:
        """`model_usd`, `tools_usd`, `usd`, `passes`, `tool_calls`; waits until no request is worked on."""
        return self._control.bill()

    def settle(self) -> None:
        """Wait until no request is worked on (a second at most): what was cut short is on the bill then."""
        self._control.state.settle()

    def requests(self) -> list[dict[str, Any]]:
        """The log of requests to the Messages API: method, path, headers without the key, body."""
        return self._control.state.requests()

    def search_requests(self) -> list[dict[str, Any]]:
        """The log of requests to the search servers."""
        return list(self._control.search.requests)

    def configure(self, **behaviour: Any) -> None:
        """Change how they behave (`state.Behaviour`); `search={...}` is for the search servers."""
        self._control.configure(behaviour)

    def script(self, passes: Iterable[Mapping[str, Any]]) -> None:
        """Let the next sampling passes play these (`state.Pass`) instead of the model."""
        self._control.state.script(passes)

    def unconsumed(self) -> int:
        """Scripted passes that no request has used yet."""
        return self._control.state.unconsumed()

    def reset(self) -> int:
        """Healthy, unscripted, and nothing on the bill; returns how many scripted passes were left over."""
        return self._control.reset()


@contextmanager
def serving(*, corpus: Path | None = None, port: int = 0) -> Iterator[StandIns]:
    """Run the stand-ins in a thread of their own until the block ends.

    `corpus` is a folder of Markdown, text or HTML files in place of the built-in pages; `port` is that of
    the Messages API, 0 lets the system choose. Raises `UsageError` for an unreadable corpus and OSError for
    a port that is taken.
    """
    from orchestrator.offline import hosting

    running, apps = _built(corpus, port)
    with hosting.serving(apps):
        yield running


@asynccontextmanager
async def in_step(*, corpus: Path | None = None) -> AsyncIterator[StandIns]:
    """Run them in the running event loop itself, beside the client.

    A thread may stream ahead of a client that a busy machine holds up; here service and client take turns,
    so that what a client sees in time does not depend on the machine. `bill` and `settle` wait, and are to
    be called from another thread.
    """
    from orchestrator.offline import hosting

    running, apps = _built(corpus, 0)
    async with hosting.serving_here(apps):
        yield running


def _built(corpus: Path | None, port: int) -> tuple[StandIns, list[tuple[ASGIApp, socket]]]:
    """The stand-ins at their addresses, and the applications that are to be served there."""
    from orchestrator.offline import hosting, providers
    from orchestrator.offline.api import MessagesApi
    from orchestrator.offline.control import Control
    from orchestrator.offline.state import State

    search = providers.start(corpus)
    control = Control(State(), search.state)
    api = MessagesApi(control.state)
    front = hosting.listen(port)
    bound = {name: hosting.listen() for name in search.apps}
    addresses = {name: hosting.address(each) for name, each in bound.items()}
    urls = search.urls(addresses)
    base = hosting.address(front)
    running = StandIns(base, urls["parallel-search"], f"{base}/control", urls, control)
    return running, [(api.app(control), front), *((search.apps[name], bound[name]) for name in search.apps)]


@asynccontextmanager
async def stand_ins(*, corpus: Path | None = None, port: int = 0) -> AsyncIterator[StandIns]:
    """The same for a running event loop, which is not held up by starting and stopping."""
    import anyio.to_thread

    running = serving(corpus=corpus, port=port)
    started = await anyio.to_thread.run_sync(running.__enter__)
    try:
        yield started
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(running.__exit__, None, None, None)
