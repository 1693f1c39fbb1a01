"""The Agent SDK's command line as a child process: what it inherits, what it says, how it ends.

What it may do is decided here alone: nothing is inherited that could send the question elsewhere, join a
file to it, or make a request that nobody asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    Message,
    ResultMessage,
    StreamEvent,
    SystemMessage,
)

from orchestrator.backends import RunContext, leash
from orchestrator.backends.faults import Fault, Service, explain
from orchestrator.backends.hooks import Answer, Hook, never_sent
from orchestrator.budget import REMEDY
from orchestrator.errors import BackendError, LimitExceeded, boundary
from orchestrator.events import Event
from orchestrator.sources import clean

CONNECT_SECONDS: Final = 30.0
"""How long the search servers may take until they are connected."""
CALL_SECONDS: Final = 60.0
"""How long a call may take where the server's notes say nothing."""
BUFFER_BYTES: Final = 64 * 1024 * 1024
"""The longest line that is read from the child: a result comes as one line."""

QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DO_NOT_TRACK": "1",
    # the question is data: no file, skill or memory joins it
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    # our servers only, their tools offered from the first pass on, every call awaited, results whole
    "ENABLE_CLAUDEAI_MCP_SERVERS": "false",
    "ENABLE_TOOL_SEARCH": "false",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS": "0",
    "MAX_MCP_OUTPUT_TOKENS": "1000000",
    # no request that nobody asked for
    "CLAUDE_CODE_DISABLE_REFUSAL_RETRY": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "DISABLE_COMPACT": "1",
    "CLAUDE_CODE_MAX_RETRIES": "2",
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
}
_REDIRECTING: Final = re.compile(
    r"(ANTHROPIC|CLAUDE|MCP|MAX|API|DISABLE|ENABLE|AWS_BEARER)_|\w+_API_KEY$", re.IGNORECASE
)
_SDK_LOG: Final = logging.getLogger("claude_agent_sdk._internal.query")
_TRUST: Final = re.compile(r"CLAUDE_CODE_(CERT_STORE|CLIENT_\w+)$")


def environment(context: RunContext, home: Path, max_tokens: int) -> dict[str, str]:
    """What is set over the environment that the child inherits; proxies and certificates stay as they are."""
    inherited = os.environ
    # an empty variable counts as unset; leaving it out would let the inherited one through
    emptied = {name: "" for name in inherited if _REDIRECTING.match(name) and not _TRUST.match(name)}
    bundle = inherited.get("SSL_CERT_FILE") or inherited.get("REQUESTS_CA_BUNDLE")
    trusted = {"NODE_EXTRA_CA_CERTS": bundle} if bundle and "NODE_EXTRA_CA_CERTS" not in inherited else {}
    options = context.options
    # a server that never answers is named before the run's own time is up
    seconds = min(CONNECT_SECONDS, (options.limits.max_seconds or 2 * CONNECT_SECONDS) / 2)
    patience = [notes.timeout_seconds for server in context.servers for notes in server.tools.values()]
    return {
        **emptied,
        **trusted,
        **QUIET,
        "ANTHROPIC_BASE_URL": options.anthropic_base_url,
        "ANTHROPIC_API_KEY": _key(context),
        "CLAUDE_CONFIG_DIR": str(home),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(max_tokens),
        "MCP_TIMEOUT": str(int(seconds * 1000)),
        "MCP_TOOL_TIMEOUT": str(int(max(patience, default=CALL_SECONDS) * 1000)),
    }


def _key(context: RunContext) -> str:
    key = context.options.anthropic_api_key
    return key.get_secret_value() if key else ""


def options(
    context: RunContext, home: Path, work: Path, max_tokens: int, resume: str | None = None
) -> ClaudeAgentOptions:
    """What every child is started with: no tools, no settings files, the limits as outer walls."""
    left = context.budget.remaining
    return ClaudeAgentOptions(
        tools=[],
        setting_sources=[],
        strict_mcp_config=True,
        permission_mode="dontAsk",
        system_prompt=clean(context.system),
        model=context.options.model,
        effort=context.options.effort,
        cli_path=leash.launcher(work.parent),
        cwd=work,
        env=environment(context, home, max_tokens),
        include_partial_messages=True,
        verbatim_prompts=True,
        max_turns=context.options.limits.max_steps,
        max_budget_usd=left if left and left > 0 else None,
        max_buffer_size=BUFFER_BYTES,
        resume=resume,
        fork_session=resume is not None,
    )


@contextmanager
def folders(keep: Path | None) -> Iterator[tuple[Path, Path]]:
    """The child's home, kept where `keep` says, and an empty working folder beside its server list."""
    with tempfile.TemporaryDirectory(prefix="orchestrator-", ignore_cleanup_errors=True) as scratch:
        work = Path(scratch) / "work"
        home = keep or Path(scratch) / "home"
        work.mkdir()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield home, work


@dataclass
class Told:
    """An event from a hook, which waits until it was taken."""

    event: Event
    taken: asyncio.Future[None]

    def answer(self) -> None:
        """Let the hook go on, where the child has not given it up."""
        if not self.taken.done():
            self.taken.set_result(None)


@dataclass
class Parked:
    """The Stop hook waits: the answer is complete, and its reply decides how things go on."""

    reply: asyncio.Future[Answer]


@dataclass
class Ending:
    """A hook that is left without an answer: the loop is over once the pass is settled."""


@dataclass
class Raised:
    """What a hook failed with: a fault of ours, or a limit."""

    error: Exception


class Child:
    """One command line; everything it says and asks is in one queue."""

    def __init__(self, stops: frozenset[str]) -> None:
        """`stops` are the stop reasons at which the process is ended before it can go on."""
        self.retry_after: float | None = None
        self._stops = stops
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._client: ClaudeSDKClient | None = None
        self._pump: asyncio.Task[None] | None = None
        self._stderr: deque[str] = deque(maxlen=20)

    @property
    def client(self) -> ClaudeSDKClient:
        assert self._client is not None
        return self._client

    async def start(self, options: ClaudeAgentOptions) -> None:
        self._client = ClaudeSDKClient(replace(options, stderr=self._stderr.append))
        with boundary("agent-sdk", "The Claude Agent SDK could not be started"):
            await self._client.connect()
        self._pump = asyncio.create_task(self._listen())

    async def ask(self, prompt: str) -> None:
        with boundary("agent-sdk", "The engine took no question"):
            await self.client.query(clean(prompt))

    async def next(self) -> Any:
        """What comes next: a message, or what a hook has to say. Raises BackendError at the end."""
        item = await self._queue.get()
        if isinstance(item, Raised):
            raise item.error
        if isinstance(item, Exception):
            said = self._stderr[-1] if self._stderr else str(item)
            raise BackendError(f"The engine stopped: {said}", "agent-sdk") from item
        if isinstance(item, SystemMessage) and item.subtype == "api_retry":
            self.retry_after = (item.data.get("retry_delay_ms") or 0) / 1000
        return item

    async def rest(self) -> AsyncIterator[Message]:
        """End the child, and what it had said until then: a request that it began may be billed."""
        _SDK_LOG.addFilter(_not_the_kill)
        try:
            self.kill()
            while not isinstance(item := await self._queue.get(), Exception):
                if not isinstance(item, Told | Parked | Ending | Raised):
                    yield item
        finally:
            _SDK_LOG.removeFilter(_not_the_kill)

    async def tell(self, event: Event) -> None:
        """For hooks: put an event into the stream; returns when it was taken."""
        taken = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(Told(event, taken))
        await taken

    def heard(self, hook: Hook) -> Hook:
        """The hook with its errors in the stream: else only the child would learn of them."""

        async def guarded(*given: Any) -> Answer:
            try:
                return await hook(*given)
            except Exception as error:
                self._queue.put_nowait(Raised(error))
                raise

        return guarded

    async def park(self, *_: object) -> Answer:
        """The Stop hook: wait for what comes next."""
        reply: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(Parked(reply))
        return await reply

    async def hold(self) -> None:
        """Never answer: nothing can begin while a hook is waited for."""
        self._queue.put_nowait(Ending())
        await asyncio.get_running_loop().create_future()

    async def _listen(self) -> None:
        try:
            async for message in self.client.receive_messages():
                # before anyone looks at it: a few milliseconds later the next request is out
                if isinstance(message, StreamEvent) and _stop_reason(message.event) in self._stops:
                    self.kill()
                self._queue.put_nowait(message)
            self._queue.put_nowait(EOFError("it ended without a result"))
        except Exception as error:
            self._queue.put_nowait(error)

    def kill(self) -> None:
        """End the process and what it started, at once.

        The SDK's own way gives a busy child five seconds, in which it goes on spending.
        """
        process = getattr(getattr(self._client, "_transport", None), "_process", None)
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, AttributeError):  # no such signal: no such system
            process.send_signal(signal.SIGSTOP)  # looking for what it started takes longer than it needs
        started = descendants(process.pid)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        if self._pump is not None:
            self._pump.cancel()
        if self._client is not None:
            await self._client.disconnect()


def _not_the_kill(record: logging.LogRecord) -> bool:
    """A child that we ended is no error to report."""
    return "exit code -9" not in record.getMessage()


def _stop_reason(event: Mapping[str, Any]) -> str | None:
    delta = event.get("delta")
    if event.get("type") != "message_delta" or not isinstance(delta, Mapping):
        return None
    return delta.get("stop_reason")


def descendants(pid: int) -> list[int]:
    """The processes that a process started (stdio servers), where the system tells."""
    found: list[int] = []
    for thread in _listed(Path(f"/proc/{pid}/task")):
        with contextlib.suppress(OSError):  # a thread may end while we look
            for child in map(int, (thread / "children").read_text(encoding="ascii").split()):
                found += [child, *descendants(child)]
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # no such system, or no such process any more
        return []


def conclude(context: RunContext, result: ResultMessage, retry_after: float | None) -> None:
    """Raise what a result message that is an error means, by its fields."""
    if not result.is_error:
        return
    text = "; ".join(result.errors or ()) or result.result or result.subtype
    limits, steps, usd = context.options.limits, result.num_turns, result.total_cost_usd or 0.0
    if result.subtype == "error_max_turns":
        raise LimitExceeded(
            "max_steps", steps, limits.max_steps, f"{steps} steps are used{REMEDY}--max-steps"
        )
    if result.subtype == "error_max_budget_usd":
        raise LimitExceeded("max_usd", usd, limits.max_usd, f"${usd:.4f} is spent{REMEDY}--max-usd")
    service = Service(context.options.anthropic_base_url, context.options.model)
    status = result.api_error_status
    if status or text.startswith("Prompt is too long"):
        raise explain(Fault(status or 400, None, text, retry_after), service)
    if result.terminal_reason == "api_error":
        remedy = "check ANTHROPIC_BASE_URL, the network and the proxy" if never_sent(text) else "try again"
        raise BackendError(f"{service.base_url} cannot be reached or broke off: {remedy} ({text})")
    raise BackendError(f"The engine ended the conversation: {text}", "agent-sdk")
