"""One response: the hosted loop from the first pass to the stop reason, as a stream of events.

A pass is thinking, text, calls. Hosted calls are carried out and their results begin the next pass; a call
of the client's own tool ends the response. The order of events and the places of usage are those of the
recorded traffic of the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from orchestrator.offline import brain, clearing, oddities, signing
from orchestrator.offline.billing import Entry
from orchestrator.offline.connector import Toolbox
from orchestrator.offline.prompt import Counter, Json, Prompt
from orchestrator.offline.request import Request
from orchestrator.offline.sampling import Event, NoRoomError, Writer
from orchestrator.offline.state import Fault, Pass, State


@dataclass
class Response:
    """Produces the events of one response; afterwards it knows the whole message."""

    request: Request
    state: State
    box: Toolbox
    fault: Fault | None

    def __post_init__(self) -> None:
        self.told = self.state.behaviour
        listed = {name: server.tools for name, server in self.box.servers.items()}
        self.prompt: Prompt = self.request.prompt(Counter(self.told.bytes_per_token), listed)
        self.tools = brain.tools(self.request.body, listed)
        self.model = self.request.model
        self.shown_model = str(self.request.body["model"])
        self.entries: list[Entry] = []
        self.serving: list[Entry] = []
        self.stop_reason: str | None = None
        self.stop_details: Json | None = None
        self.passes = 0
        self.id = f"msg_01{self.request.id.removeprefix('req_01')}"
        if self.fault == "sticky_fallback" and self.request.fallbacks:
            self.serve_with(self.request.fallbacks[0])
        self.edits: list[Json] = []
        self._editing = self.request.body.get("context_management") if self.told.clearing else None
        self.writer: Writer

    def serve_with(self, model: str) -> None:
        """Another model than the one asked for answers from here on."""
        self.model = oddities.fallback_model(model)
        self.shown_model = self.model.id

    async def events(self) -> AsyncIterator[Event]:
        """All events from `message_start` to `message_stop`; cancelling it ends the loop and the bill."""
        async for event in oddities.twist(self._events(), self):
            yield event

    async def _events(self) -> AsyncIterator[Event]:
        first = self.begin_pass()
        yield {"type": "message_start", "message": self._message(started=first)}
        for name in self._listings():
            block = {
                "type": "mcp_tool_listing",
                "mcp_server_name": name,
                "tools": self.box.servers[name].listing,
            }
            async for event in self.writer.whole(block):
                yield event
        async for event in self._unfinished_calls():
            yield event
        while self.stop_reason is None:
            async for event in self._pass():
                yield event
        if self.entries[-1].kind == "message" and self.shown_model != self.request.body["model"]:
            self.entries[-1].kind = "fallback_message"
        yield self._message_delta()
        yield {"type": "message_stop"}

    def _listings(self) -> list[str]:
        return self.box.fresh if "mcp-client-2026-09-15" in self.request.betas else []

    def begin_pass(self, prompt: Prompt | None = None) -> Entry:
        """A pass begins: its input is on the bill from here on."""
        entry = Entry(
            self.request.number, self.model, "message", factor=self.request.factor(self.told.service_tier)
        )
        caching = self.told.caching == "cached"
        read, edits = clearing.edit(prompt or self.prompt, self._editing)
        self.edits = edits or self.edits
        self.state.cache.charge(entry, read, seeds=self.request.seeds, caching=caching)
        self.state.bill.open(entry)
        self.entries.append(entry)
        self.serving.append(entry)
        self.passes += 1
        if self.passes == 1:
            room = self.request.max_tokens
            self.writer = Writer(self.request, self.told, self.prompt, entry, room, self.model.id)
        else:
            if self.told.max_tokens_scope == "pass":
                self.writer.room = self.request.max_tokens
            self.writer.entry, self.writer.model = entry, self.model.id
        return entry

    async def _pass(self) -> AsyncIterator[Event]:
        """One pass and the results of its hosted calls; sets the stop reason where it is the last."""
        scripted = self.state.next_pass(tools=bool(self.request.body.get("tools")))
        plan = scripted or brain.think(self.request.body, self.writer.content, self.tools)
        self.fault = plan.fault or self.fault
        plan = oddities.plan(plan, self)
        try:
            async for event in oddities.before_pass(self):
                yield event
            async for event in self._sample(plan):
                yield event
        except NoRoomError:
            self.stop_reason = "max_tokens"
            return
        self.stop_reason = plan.stop_reason
        open_calls = self._open_calls()
        if self.stop_reason is None and open_calls and not (self._last_pass and self.told.pause_open):
            async for event in self._results(open_calls):
                yield event
        self.stop_reason = self.stop_reason or self._reason_to_stop(plan)
        if self.stop_reason is None:
            self.begin_pass()

    def _reason_to_stop(self, plan: Pass) -> str | None:
        if not plan.calls:
            return "end_turn"
        if any(call.server not in self.box.servers for call in plan.calls):
            return "tool_use"
        if self._last_pass:
            return "pause_turn"
        return "model_context_window_exceeded" if self.prompt.tokens >= self.window else None

    @property
    def _last_pass(self) -> bool:
        return self.passes >= self.told.pause_after

    @property
    def window(self) -> int:
        """The largest prompt in tokens."""
        return self.told.context_window or self.model.window

    async def _sample(self, plan: Pass) -> AsyncIterator[Event]:
        wanted = plan.thinking if plan.thinking is not None else self.told.thinking
        tokens = self.request.thinking_tokens if wanted is None else wanted
        if tokens and self.request.thinking["type"] != "disabled":
            async for event in self.writer.thinking(tokens):
                yield event
        if plan.text:
            async for event in self.writer.text(plan.text):
                yield event
        for call in plan.calls:
            hosted = call.server in self.box.servers
            stem = "mcptoolu" if hosted else "toolu"
            identifier = signing.call_id(stem, self.prompt.digest, last=self._last_pass)
            if hosted:
                block = {
                    "type": "mcp_tool_use",
                    "id": identifier,
                    "name": call.tool,
                    "server_name": call.server,
                }
            else:
                name = f"mcp__{call.server}__{call.tool}" if call.server else call.tool
                block = {"type": "tool_use", "id": identifier, "name": name}
            async for event in self.writer.call({**block, "input": call.input}):
                yield event

    def _open_calls(self) -> list[Json]:
        """Hosted calls of this response that have no result yet."""
        done = {block["tool_use_id"] for block in self.writer.content if block["type"] == "mcp_tool_result"}
        return [
            block
            for block in self.writer.content
            if block["type"] == "mcp_tool_use" and block["id"] not in done
        ]

    async def _unfinished_calls(self) -> AsyncIterator[Event]:
        """The calls that a paused response left open are carried out before the first pass goes on."""
        messages = self.request.body["messages"]
        content = messages[-1]["content"] if messages[-1]["role"] == "assistant" else []
        blocks = [block for block in content if isinstance(block, dict)]
        done = {block["tool_use_id"] for block in blocks if block["type"] == "mcp_tool_result"}
        calls = [b for b in blocks if b["type"] == "mcp_tool_use" and b["id"] not in done]
        async for event in self._results(calls):
            yield event

    async def _results(self, calls: list[Json]) -> AsyncIterator[Event]:
        """Carry out hosted calls; a client that has left by then ends everything before the next pass."""
        for call in calls:
            result = await self.box.call(
                call["server_name"], call["name"], call["input"], self.told.mcp_timeout
            )
            await asyncio.sleep(self.told.call_delay)
            block = {"type": "mcp_tool_result", "tool_use_id": call["id"], **result}
            async for event in self.writer.whole(block):
                yield event
        if calls and self.prompt.marked:
            self.prompt.mark_last("5m")

    def usage(self) -> Json:
        """What the response's passes add up to; only the serving model's, as the service counts it."""
        counts: dict[str, Any] = {
            "input_tokens": 0,
            "output_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        }
        for entry in self.serving:
            for name, value in entry.counts().items():
                if isinstance(value, int):
                    counts[name] += value
        if self.request.hosted:
            counts["server_tool_use"] = {"web_search_requests": 0, "web_fetch_requests": 0}
        if thought := sum(entry.thinking for entry in self.serving):
            counts["output_tokens_details"] = {"thinking_tokens": thought}
        if self.told.iterations:
            counts["iterations"] = [self._iteration(entry) for entry in self.entries]
        return counts

    def _iteration(self, entry: Entry) -> Json:
        named = len({each.model.id for each in self.entries}) > 1 or entry.kind == "fallback_message"
        return {"type": entry.kind, **({"model": entry.model.id} if named else {}), **entry.counts()}

    def _message_delta(self) -> Event:
        delta: Json = {"stop_reason": self.stop_reason, "stop_sequence": None}
        if self.stop_details is not None:
            delta["stop_details"] = self.stop_details
        event: Event = {"type": "message_delta", "delta": delta, "usage": self.usage()}
        if self.request.body.get("context_management"):
            event["context_management"] = {"applied_edits": self.edits}
        return event

    def _message(self, started: Entry | None = None) -> Json:
        """The message as it stands: at its start, or whole."""
        common = {"service_tier": self.told.service_tier, "inference_geo": self.request.geo}
        if started is not None:
            usage = {**started.counts(), "output_tokens": 1, **common}
        else:
            creation = {
                "ephemeral_5m_input_tokens": sum(entry.write_5m for entry in self.serving),
                "ephemeral_1h_input_tokens": sum(entry.write_1h for entry in self.serving),
            }
            usage = {**self.usage(), "cache_creation": creation, **common}
        message = {
            "model": self.shown_model,
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": [] if started else self.writer.content,
            "stop_reason": self.stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }
        if started is None:
            message["stop_details"] = self.stop_details
            if self.request.body.get("context_management"):
                message["context_management"] = {"applied_edits": self.edits}
        return message

    async def whole(self) -> Json:
        """The response as one message."""
        async for _ in self.events():
            pass
        message = self._message()
        if self.fault == "no_usage" or not self.told.usage:
            del message["usage"]
        return message
