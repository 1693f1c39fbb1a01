"""The Messages API with the MCP connector: the service runs the tool loop, this module asks and listens.

    Connector.conversation -> turn -> client.beta.messages.create(stream=True) -> StreamFold

The stream is read raw, since the SDK's own accumulation raises on what it does not expect. The history is
append-only and sent back as it came: replayed thinking is bound to the exact bytes before it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import anthropic
import httpx2

from orchestrator.backends import RunContext, request
from orchestrator.backends.faults import (
    Service,
    refused_betas,
    stopped,
)
from orchestrator.backends.messages import as_events, size
from orchestrator.backends.request import Json
from orchestrator.backends.service import attentive, broken_off, fault, impatient, translated
from orchestrator.backends.wire import StreamFold
from orchestrator.errors import BackendError, LimitExceeded, McpUnavailable
from orchestrator.events import (
    Checkpoint,
    Event,
    PassStarted,
    Purpose,
    ToolCall,
    ToolInfo,
    ToolsListed,
)
from orchestrator.settings import ANTHROPIC_URL, Server
from orchestrator.sources import clean

CONTINUATIONS: Final = 5
"""How often a response that the service paused is carried on."""
RETRIES: Final = 2
TIMEOUT: Final = httpx2.Timeout(60.0, connect=10.0, read=300.0)
"""Reading waits longest: a slow search is silence in the stream."""


class Connector:
    """The hosted loop of the Messages API; built for one run."""

    name = "connector"
    ids_shown = False

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.options = context.options
        self.service = Service(
            self.options.anthropic_base_url, self.options.model, tuple(s.name for s in context.servers)
        )
        self._refused_betas: frozenset[str] = frozenset()
        self._lost = 0

    @asynccontextmanager
    async def conversation(self) -> AsyncIterator[_Conversation]:
        """Open the conversation, on the earlier checkpoints where there are any."""
        allowed = {server.name: await _allowed(server) for server in self.context.servers}
        async with self._client() as client:
            yield _Conversation(self, client, allowed)

    async def answer(self, prompt: str, max_tokens: int, purpose: Purpose = "final") -> AsyncGenerator[Event]:
        """One request without tools or servers, in a fresh conversation."""
        model = self.options.judge_model if purpose == "judge" else self.options.model
        prompt = clean(prompt)
        fold = self.fold(purpose, max_tokens, model, size(prompt))
        body = {
            "model": model,
            "max_tokens": max_tokens,
            "messages": [request.user(prompt)],
            "output_config": {"effort": "low"},
        }
        async with self._client() as client, aclosing(self.exchange(client, body, fold)) as events:
            async for event in events:
                yield event
        conclude(fold)

    def fold(self, purpose: Purpose, max_tokens: int, model: str, prompt_bytes: int) -> StreamFold:
        # another service may pass over the header that asks for the count
        counts = self.options.anthropic_base_url == ANTHROPIC_URL
        return StreamFold(
            self.context.budget,
            purpose,
            model,
            max_tokens,
            prompt_bytes=prompt_bytes,
            counts_thinking=counts,
        )

    def body(self, allowed: Mapping[str, tuple[str, ...]], messages: list[Json], max_tokens: int) -> Json:
        """The request of a conversation with tools."""
        servers = self.context.servers
        return {
            "model": self.options.model,
            "max_tokens": max_tokens,
            "system": request.cached_system(self.context.system),
            "messages": messages,
            "mcp_servers": [request.mcp_server(server) for server in servers],
            "tools": [request.mcp_toolset(server.name, allowed[server.name]) for server in servers],
            "cache_control": request.CACHED,
            "output_config": {"effort": self.options.effort},
        }

    def with_betas(self, body: Json) -> Json:
        """The request with what needs a beta header, as far as the service is not known to refuse it."""
        return request.with_features(body, self._features(hosted="mcp_servers" in body), self._refused_betas)

    def _features(self, *, hosted: bool) -> Iterator[request.Feature]:
        options = self.options
        yield request.THINKING_COUNT_BETA, {}
        if options.uses_fallbacks:
            yield request.FALLBACK_BETA, {"fallbacks": "default"}
        if hosted:
            older = options.mcp_beta in self._refused_betas
            yield request.OLDER_MCP_BETA if older else options.mcp_beta, {}
        if hosted and options.clear_trigger is not None:
            edits = request.clearing(options.clear_trigger, options.clear_keep, options.clear_at_least)
            yield request.CLEARING_BETA, {"context_management": edits}

    async def exchange(
        self, client: anthropic.AsyncAnthropic, body: Json, fold: StreamFold
    ) -> AsyncGenerator[Event]:
        """One request and everything its response says; a call that the budget does not admit ends it."""
        budget = self.context.budget
        fold.sent()
        with translated(self.service):
            try:
                opened = await self._open(client, body)
            except Exception:
                budget.refused()
                for event in self._book_lost(fold):
                    yield event
                raise
            for event in self._book_lost(fold):
                yield event
            fold.sent()
            async with opened as stream, aclosing(_raw_events(stream)) as raws:
                async for raw in raws:
                    for event in fold.feed(raw):
                        yield event
                        if isinstance(event, ToolCall) and (denial := budget.admit(event)):
                            raise denial.limit  # a hosted call cannot be denied singly
        if not fold.finished:
            raise BackendError(broken_off(self.service))

    def _book_lost(self, fold: StreamFold) -> Iterator[Event]:
        """Passes for the attempts whose connection broke before an answer: each may be billed."""
        while self._lost:
            self._lost -= 1
            yield from fold.unheard()

    def _note_lost(self) -> None:
        self._lost += 1

    async def _open(self, client: anthropic.AsyncAnthropic, body: Json) -> anthropic.AsyncStream[Any]:
        while True:
            sent = self.with_betas(body)
            try:
                return await client.beta.messages.create(**sent, stream=True)
            except anthropic.BadRequestError as error:
                refused = refused_betas(fault(error), tuple(sent["betas"]))
                if not refused - self._refused_betas or not self._can_do_without(refused):
                    raise
                self._refused_betas |= refused

    def _can_do_without(self, refused: frozenset[str]) -> bool:
        needed = {request.OLDER_MCP_BETA}
        if self.options.fallbacks == "on":
            needed.add(request.FALLBACK_BETA)
        return not refused & needed

    def _client(self) -> anthropic.AsyncAnthropic:
        key = self.options.anthropic_api_key
        client = anthropic.AsyncAnthropic(
            api_key=key.get_secret_value() if key else None,
            base_url=self.options.anthropic_base_url,
            max_retries=RETRIES,
            timeout=TIMEOUT,
            middleware=[impatient(self.service), attentive(self._note_lost)],
        )
        # the option replaces what the environment says of tracing, so it is built on that
        return client.with_options(
            open_telemetry={**client.open_telemetry, "conversation_id": self.context.run_id}
        )


class _Conversation:
    """An open conversation; `turn` may be called again and again, one at a time."""

    def __init__(
        self, backend: Connector, client: anthropic.AsyncAnthropic, allowed: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._backend = backend
        self._client = client
        self._allowed = allowed
        self._unlisted = dict(allowed)
        self._messages: list[Json] = [m for point in backend.context.earlier for m in point.blocks]
        self._opening = True

    async def turn(self, prompt: str, purpose: Purpose = "answer") -> AsyncGenerator[Event]:
        """Ask, and carry on what the service pauses."""
        said = self._say(request.user(clean(prompt)))
        for _ in range(1 + CONTINUATIONS):
            added = self._added(said)
            body = self._body(added)
            fold = self._backend.fold(purpose, body["max_tokens"], body["model"], added)
            async with aclosing(self._backend.exchange(self._client, body, fold)) as events:
                async for event in events:
                    for listed in self._listed(event):
                        yield listed
                    yield event
            if (point := self._keep(said, fold)) is not None:
                yield point
            if fold.stop_reason not in ("pause_turn", "compaction"):
                conclude(fold)
                return
            said = []
        raise LimitExceeded(
            "max_steps",
            CONTINUATIONS + 1,
            CONTINUATIONS,
            f"the service paused its answer {CONTINUATIONS + 1} times without coming to an end",
        )

    def _say(self, message: Json) -> list[Json]:
        """Append a user message; what was left open before it cannot be carried on any more."""
        if self._messages and self._messages[-1]["role"] == "assistant":
            last = self._messages.pop()
            if kept := request.complete(last["content"]):
                self._messages.append({**last, "content": kept})
        self._messages.append(message)
        return [message]

    def _added(self, said: list[Json]) -> int:
        """Bytes that the next request adds to what the budget knows of the conversation."""
        # it knows of the opening: system prompt, tools and the first question
        new = self._messages[: -len(said)] if self._opening else said
        self._opening = False
        return request.json_bytes(new) if new else 0

    def _body(self, added: int) -> Json:
        """The next request, with the output that the budget allows it. Raises LimitExceeded."""
        max_tokens = self._backend.context.budget.max_tokens(added)
        return self._backend.body(self._allowed, self._messages, max_tokens)

    def _keep(self, said: list[Json], fold: StreamFold) -> Checkpoint | None:
        """Append a finished response to the history; a refused one is no part of it."""
        if fold.stop_reason == "refusal":
            return None
        paused = fold.stop_reason in ("pause_turn", "compaction")
        content = fold.content if paused else request.complete(fold.content)
        if not content:
            return None
        message: Json = {"role": "assistant", "content": content}
        self._messages.append(message)
        return Checkpoint(backend="connector", blocks=(*said, message))

    def _listed(self, event: Event) -> Iterator[ToolsListed]:
        """The tools that we allow, for each server that the service did not list by itself."""
        if isinstance(event, ToolsListed):
            self._unlisted.pop(event.server, None)
        elif not isinstance(event, PassStarted):
            for server, tools in self._unlisted.items():
                yield ToolsListed(server=server, tools=tuple(ToolInfo(name=name) for name in tools))
            self._unlisted.clear()


def conclude(fold: StreamFold) -> None:
    """Raise what a stop reason other than an ordinary one means."""
    error = stopped(fold.stop_reason, fold.stop_details, fold.max_tokens)
    if error is not None:
        raise error


async def _allowed(server: Server) -> tuple[str, ...]:
    """The tools that the notes name, or all that a server without notes marks as read-only."""
    if server.tools:
        return tuple(server.tools)
    from orchestrator.upstream import connect

    async with connect(server) as upstream:
        found = tuple(tool.upstream_name for tool in await upstream.tools() if tool.read_only)
    if not found:
        raise McpUnavailable(f"The search server {server.name} lists no tool that is marked read-only")
    return found


async def _raw_events(stream: anthropic.AsyncStream[Any]) -> AsyncGenerator[Mapping[str, Any]]:
    """The events of a response as they came; a service that does not stream sends a whole message."""
    if "json" in stream.response.headers.get("content-type", ""):
        await stream.response.aread()
        for event in as_events(stream.response.json()):
            yield event
        return
    async for event in stream:
        yield event.to_dict(warnings=False)
