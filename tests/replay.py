"""A loopback Messages API that answers with given bytes, and the runner's folds around a backend's events."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from orchestrator.backends import RunContext
from orchestrator.budget import Budget
from orchestrator.events import Charge, Checkpoint, Event, PassStarted, TextDelta
from orchestrator.offline import StandIns
from orchestrator.offline.hosting import address, listen, serving
from orchestrator.prices import Prices
from orchestrator.settings import Options, Server, ToolNotes
from orchestrator.sources import Registry

Json = dict[str, Any]
ECHO = Server(
    name="echo",
    url="https://echo.example/mcp",
    tools={"echo": ToolNotes(role="search", usd_per_call=0.001)},
)


@dataclass(frozen=True)
class Answer:
    """What the service says to one request; `cut` closes the connection without an ending."""

    body: bytes
    status: int = 200
    content_type: str = "text/event-stream; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


def sse(lines: Iterable[str | Mapping[str, Any]], *, cut: bool = False) -> Answer:
    """A stream of these events, each given as its data."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    frames = [f"event: {json.loads(text)['type']}\ndata: {text}\n\n" for text in texts]
    return Answer("".join(frames).encode(), cut=cut)


def whole(message: Mapping[str, Any] | bytes) -> Answer:
    """One message that is not streamed."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return Answer(body, content_type="application/json")


def error(status: int, kind: str, message: str, **headers: str) -> Answer:
    """An error in the service's shape."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return Answer(json.dumps(body).encode(), status, "application/json", headers)


@dataclass
class Replay:
    """What the loopback service will say, and what it was asked."""

    url: str
    answers: deque[Answer]
    requests: list[Json] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.requests.append(json.loads(body))
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        headers = {"content-type": answer.content_type, **answer.headers}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": raw})
        await send({"type": "http.response.body", "body": answer.body, "more_body": answer.cut})
        if answer.cut:
            raise ConnectionAbortedError


@contextmanager
def replaying(*answers: Answer) -> Iterator[Replay]:
    """Serve these answers in their order; the last one also to every further request."""
    bound = listen()
    replay = Replay(address(bound), deque(answers))
    with serving([(replay, bound)]):
        yield replay


def lines(file: Path) -> list[str]:
    """The events of a recorded stream."""
    return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def context(
    service: Replay | StandIns | None,
    *,
    servers: tuple[Server, ...] | None = None,
    earlier: tuple[Checkpoint, ...] = (),
    price_call: Mapping[str, float] | None = None,
    **options: Any,
) -> RunContext:
    """A run against this service, as the runner would build it; without one, where the options say."""
    if isinstance(service, StandIns):
        chosen = Options(**options).with_stand_ins(service.anthropic_base_url, service.server_urls)
        servers = chosen.servers() if servers is None else servers
    else:
        if service:
            options = {"anthropic_api_key": "sk-test", "anthropic_base_url": service.url} | options
        chosen = Options(**options)
        servers = (ECHO,) if servers is None else servers
    prices = Prices({server.name: server for server in servers}, price_call=price_call)
    registry = Registry()
    budget = Budget(
        chosen.limits,
        prices,
        chosen.model,
        fallbacks=chosen.uses_fallbacks,
        sources_in=lambda content: len(registry.add(content)),
    )
    system = "You answer questions and cite the exact addresses of what the tools returned. " * 20
    return RunContext("run-1", system, chosen, servers, budget, registry, earlier)


async def drive(of: RunContext, events: AsyncGenerator[Event]) -> list[Event]:
    """All events and what follows from them, in the runner's order."""
    seen: list[Event] = []
    await drive_into(seen, of, events)
    return seen


async def drive_into(seen: list[Event], of: RunContext, events: AsyncGenerator[Event]) -> None:
    """The same into a list that keeps what was said before an error."""
    async with aclosing(events):
        async for event in events:
            _emit(seen, of, event)


def _emit(seen: list[Event], of: RunContext, event: Event) -> None:
    seen.append(event)
    of.registry.see(event)
    for follows in of.budget.see(event):
        _emit(seen, of, follows)
    of.budget.judge(event)


def text_of(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def kinds(events: Iterable[Event]) -> list[str]:
    """Kinds of events in their order, neighbours of one kind once; without ledger lines and rebookings."""
    steps: set[int] = set()
    names: list[str] = []
    for event in events:
        again = isinstance(event, PassStarted) and event.step in steps
        if isinstance(event, PassStarted):
            steps.add(event.step)
        if not again and not isinstance(event, Charge) and names[-1:] != [event.event]:
            names.append(event.event)
    return names


_OPAQUE: Final = frozenset(
    {"signature", "encrypted_content", "encrypted_index", "data", "fallback_credit_token"}
)
_ID: Final = re.compile(
    r"\b(msg|req|mcptoolu|srvtoolu|toolu|container|search|extract|session)_[A-Za-z0-9]{8,}"
)


def sanitised(events: Iterable[Json], secrets: Iterable[str]) -> list[Json]:
    """Recorded events without keys and signatures, and with ids of our own."""
    names: dict[str, str] = {}

    def renamed(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"{found[1]}_own{len(names) + 1}")

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: "c2FuaXRpc2Vk" if key in _OPAQUE and inner else clean(inner)
                for key, inner in value.items()
            }
        if isinstance(value, list):
            return [clean(item) for item in value]
        if not isinstance(value, str):
            return value
        for secret in secrets:
            value = value.replace(secret, "***")
        return _ID.sub(renamed, value)

    return [clean(event) for event in events]
