"""One response: the hosted loop from the first pass to the stop reason, as a stream of events.

A pass is thinking, text, calls. Hosted calls are carried out and their results begin the next pass; a call
of the client's own tool ends the response. The order of events and the places of usage are those of the
recorded traffic of the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from orchestrator.offline import brain, oddities, signing
from orchestrator.offline.account import Account
from orchestrator.offline.connector import Toolbox
from orchestrator.offline.prompt import Counter, Json, Prompt, blocks
from orchestrator.offline.request import Request
from orchestrator.offline.sampling import Event, NoRoomError, Writer
from orchestrator.offline.state import Fault, Pass, ScriptedCall, State

_LISTING_BETA = "mcp-client-2026-09-15"


class Response:
    """Produces the events of one response; afterwards it knows the whole message."""

    def __init__(self, request: Request, state: State, box: Toolbox, fault: Fault | None) -> None:
        self.request = request
        self.state = state
        self.told = state.behaviour
        self.box = box
        self.fault = fault
        listed = {name: server.tools for name, server in box.servers.items()}
        self.tools = brain.tools(request.body, listed)
        self.prompt = request.prompt(Counter(self.told.bytes_per_token), listed)
        self.account = Account(request, state)
        self.model = request.model
        self.shown_model = str(request.body["model"])
        if fault == "sticky_fallback" and request.fallbacks:
            self.serve_with(request.fallbacks[0])
        self.writer = Writer(request, self.told, self.prompt)
        self.passes = 0
        self.stop_reason: str | None = None
        self.stop_details: Json | None = None

    @property
    def window(self) -> int:
        """The largest prompt in tokens."""
        return self.told.context_window or self.model.window

    def serve_with(self, model: str) -> None:
        """Another model than the one asked for answers from here on."""
        self.model = oddities.fallback_model(model)
        self.shown_model = self.model.id

    async def events(self) -> AsyncIterator[Event]:
        """All events from `message_start` to `message_stop`; cancelling it ends the loop and the bill."""
        async for event in oddities.twist(self._events(), self):
            yield event

    async def whole(self) -> Json:
        """The response as one message."""
        async for _ in self.events():
            pass
        message = self._message(self.writer.content, self.account.whole())
        message |= {"stop_details": self.stop_details, **self.account.management()}
        if self.fault == "no_usage" or not self.told.usage:
            del message["usage"]
        return message

    async def _events(self) -> AsyncIterator[Event]:
        self.begin_pass()
        yield {"type": "message_start", "message": self._message([], self.account.start())}
        for opening in (self._listings(), self._results(self._left_open())):
            async for event in opening:
                yield event
        while self.stop_reason is None:
            async for event in self._pass():
                yield event
        if self.shown_model != self.request.body["model"]:
            self.account.entries[-1].kind = "fallback_message"
        yield self._message_delta()
        yield {"type": "message_stop"}

    def begin_pass(self, prompt: Prompt | None = None) -> None:
        """A pass begins, on the whole conversation or on the prompt that stands for it."""
        self.passes += 1
        entry = self.account.open(self.model, prompt or self.prompt)
        anew = self.passes == 1 or self.told.max_tokens_scope == "pass"
        self.writer.turn_to(entry, self.request.max_tokens if anew else self.writer.room)

    async def _pass(self) -> AsyncIterator[Event]:
        """One pass and the results of its hosted calls; sets the stop reason where it is the last."""
        scripted = self.state.next_pass(tools=bool(self.request.body.get("tools")))
        plan = scripted or brain.think(self.request.body, self.writer.content, self.tools)
        self.fault = plan.fault or self.fault
        plan = oddities.plan(plan, self)
        try:
            for part in (oddities.before_pass(self), self._sample(plan)):
                async for event in part:
                    yield event
        except NoRoomError:
            self.stop_reason = "max_tokens"
            return
        self.stop_reason = plan.stop_reason
        if self.stop_reason is None and not (self._last_pass and self.told.pause_open):
            async for event in self._results(_open_calls(self.writer.content)):
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

    async def _sample(self, plan: Pass) -> AsyncIterator[Event]:
        """Thinking, text, calls."""
        wanted = plan.thinking if plan.thinking is not None else self.told.thinking
        tokens = self.request.thinking_tokens if wanted is None else wanted
        if tokens and self.request.thinking["type"] != "disabled":
            async for event in self.writer.thinking(tokens, self.model.id):
                yield event
        if plan.text:
            async for event in self.writer.text(plan.text):
                yield event
        for call in plan.calls:
            async for event in self.writer.call(self._call(call)):
                yield event

    def _call(self, call: ScriptedCall) -> Json:
        """The block of a call: the service's own where the server is its, else the client's."""
        hosted = call.server in self.box.servers
        identifier = signing.call_id(
            "mcptoolu" if hosted else "toolu", self.prompt.digest, last=self._last_pass
        )
        if hosted:
            named = {"type": "mcp_tool_use", "id": identifier, "name": call.tool, "server_name": call.server}
        else:
            name = f"mcp__{call.server}__{call.tool}" if call.server else call.tool
            named = {"type": "tool_use", "id": identifier, "name": name}
        return {**named, "input": call.input}

    async def _listings(self) -> AsyncIterator[Event]:
        """The tools of each server that was asked for them, under the beta that shows them."""
        for name in self.box.fresh if _LISTING_BETA in self.request.betas else ():
            listing = self.box.servers[name].listing
            block = {"type": "mcp_tool_listing", "mcp_server_name": name, "tools": listing}
            async for event in self.writer.whole(block):
                yield event

    def _left_open(self) -> list[Json]:
        """The calls that a paused response left open; they are carried out before the loop goes on."""
        last = self.request.body["messages"][-1]
        return _open_calls(blocks(last["content"])) if last["role"] == "assistant" else []

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
            # Where a request uses the cache at all, the service keeps what tools return as well.
            self.prompt.mark_last("5m")

    def _message(self, content: list[Json], usage: Json) -> Json:
        return {
            "model": self.shown_model,
            "id": f"msg_01{self.request.id.removeprefix('req_01')}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "stop_reason": self.stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }

    def _message_delta(self) -> Event:
        delta: Json = {"stop_reason": self.stop_reason, "stop_sequence": None}
        if self.stop_details is not None:
            delta["stop_details"] = self.stop_details
        usage = self.account.delta()
        return {"type": "message_delta", "delta": delta, "usage": usage, **self.account.management()}


def _open_calls(content: Iterable[Json]) -> list[Json]:
    """Hosted calls that have no result."""
    content = list(content)
    done = {block["tool_use_id"] for block in content if block["type"] == "mcp_tool_result"}
    return [block for block in content if block["type"] == "mcp_tool_use" and block["id"] not in done]
