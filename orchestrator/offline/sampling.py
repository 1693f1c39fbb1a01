"""One sampling pass, block by block: what is said in the stream, and what it adds to the bill."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator

from orchestrator.offline import signing
from orchestrator.offline.billing import Entry
from orchestrator.offline.prompt import Json, Prompt
from orchestrator.offline.request import Request
from orchestrator.offline.state import Behaviour

Event = Json
_TEXT_CHUNK = 40
_JSON_CHUNK = 24
_THINKING_CHUNK = 64
_ESTIMATE_QUANTUM = 10
_SUMMARY = "This is the stand-in, a plain program: it looks for sentences that match the question."


class NoRoomError(Exception):
    """The pass has no room for another token: `max_tokens`."""


class Writer:
    """Writes content blocks into the stream, the prompt and the bill at once."""

    def __init__(self, request: Request, told: Behaviour, prompt: Prompt) -> None:
        self.request = request
        self.told = told
        self.prompt = prompt
        self.content: list[Json] = []
        self.index = 0
        self.room = 0
        """Output tokens that this pass may still generate."""
        self._pinged = False
        self._entry: Entry

    def turn_to(self, entry: Entry, room: int) -> None:
        """What is written from here on belongs to this pass."""
        self._entry, self.room = entry, room

    async def pause(self) -> None:
        """Let the server look up: this is where a client that has left is noticed."""
        await asyncio.sleep(self.told.pace)

    def generate(self, tokens: int, before: int = 0) -> None:
        """Bill a block's first `tokens` tokens; `before` were billed already."""
        new = tokens - before
        self._entry.output += new
        self.room -= new

    def _keep(self, block: Json) -> None:
        self.content.append(block)
        self.prompt.say("assistant", block)
        self.index += 1

    async def whole(self, block: Json, tokens: int = 0) -> AsyncIterator[Event]:
        """A block that comes in one piece."""
        self.generate(tokens)
        yield {"type": "content_block_start", "index": self.index, "content_block": block}
        yield {"type": "content_block_stop", "index": self.index}
        self._keep(block)
        await self.pause()

    async def thinking(self, tokens: int, model: str) -> AsyncIterator[Event]:
        """Hidden thinking: billed, signed, and not shown; estimated where the beta asks for it."""
        summary = _SUMMARY if self.request.summarized else ""
        wanted, tokens = tokens, min(tokens, self.room)
        signature = signing.sign(self.prompt.digest, model, tokens)
        yield self._start({"type": "thinking", "thinking": "", "signature": ""})
        if summary:
            yield self._delta({"type": "thinking_delta", "thinking": summary})
        estimates = self._estimates(tokens)
        for done in range(0, tokens, _THINKING_CHUNK):
            step = min(_THINKING_CHUNK, tokens - done)
            self._entry.thinking += step
            self.generate(step)
            if (estimate := next(estimates, 0)) and not summary:
                yield self._delta({"type": "thinking_delta", "thinking": "", "estimated_tokens": estimate})
            await self.pause()
        yield self._delta({"type": "signature_delta", "signature": signature})
        yield {"type": "content_block_stop", "index": self.index}
        self._keep({"type": "thinking", "thinking": summary, "signature": signature})
        if tokens < wanted:
            raise NoRoomError

    def _estimates(self, tokens: int) -> Iterator[int]:
        """Increments of the running estimate: multiples of a quantum, off by the factor that was told."""
        if "thinking-token-count-2026-05-13" not in self.request.betas:
            return
        chance = random.Random(self.prompt.digest)
        factor = chance.uniform(*self.told.thinking_estimate)
        said, steps = 0, range(_THINKING_CHUNK, tokens + _THINKING_CHUNK, _THINKING_CHUNK)
        for done in steps:
            due = int(min(done, tokens) * factor / _ESTIMATE_QUANTUM) * _ESTIMATE_QUANTUM
            yield due - said
            said = due

    async def text(self, text: str, *, citations: list[Json] | None = None) -> AsyncIterator[Event]:
        """Visible text in chunks; cut where the room ends."""
        chunks = list(_chunks(text, _TEXT_CHUNK))
        if chunks and self.prompt.counter.text(chunks[0]) > self.room:
            raise NoRoomError
        yield self._start({"type": "text", "text": ""})
        if not self._pinged:
            self._pinged = True
            yield {"type": "ping"}
        said, billed = "", 0
        for chunk in chunks:
            tokens = self.prompt.counter.text(said + chunk)
            if tokens - billed > self.room:
                break
            self.generate(tokens, billed)
            said, billed = said + chunk, tokens
            yield self._delta({"type": "text_delta", "text": chunk})
            await self.pause()
        for citation in citations or ():
            yield self._delta({"type": "citations_delta", "citation": citation})
        yield {"type": "content_block_stop", "index": self.index}
        self._keep({"type": "text", "text": said, **({"citations": citations} if citations else {})})
        if said != text:
            raise NoRoomError

    async def call(self, block: Json) -> AsyncIterator[Event]:
        """A tool call: opened with an empty input, which then comes as pieces of JSON."""
        arguments = json.dumps(block["input"], ensure_ascii=False)
        yield self._start({**block, "input": {}})
        yield self._delta({"type": "input_json_delta", "partial_json": ""})
        billed = 0
        said = ""
        for chunk in _chunks(arguments, _JSON_CHUNK):
            said += chunk
            tokens = min(self.prompt.counter.call(block["name"], said), self.prompt.counter.block(block))
            if tokens - billed > self.room:
                yield {"type": "content_block_stop", "index": self.index}
                self.content.append({**block, "input": {}})
                raise NoRoomError
            self.generate(tokens, billed)
            billed = tokens
            yield self._delta({"type": "input_json_delta", "partial_json": chunk})
            await self.pause()
        self.generate(self.prompt.counter.block(block), billed)
        yield {"type": "content_block_stop", "index": self.index}
        self._keep(block)

    async def compaction(self, summary: str) -> AsyncIterator[Event]:
        """A summary of the conversation so far, whole in one delta."""
        self.generate(self.prompt.counter.text(summary))
        yield self._start({"type": "compaction", "content": None})
        yield self._delta({"type": "compaction_delta", "content": summary})
        yield {"type": "content_block_stop", "index": self.index}
        self._keep({"type": "compaction", "content": summary})

    def _start(self, block: Json) -> Event:
        return {"type": "content_block_start", "index": self.index, "content_block": block}

    def _delta(self, delta: Json) -> Event:
        return {"type": "content_block_delta", "index": self.index, "delta": delta}


def _chunks(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]
