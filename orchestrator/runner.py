"""One run, from question to checked answer. Read this first, then events.py, then one backend.

    run -> Run.run -> Backend.conversation -> turn      (the hosted loop, as events)
                            -> Backend.answer                    (the final request, when a limit ends it)

Every event goes through `Run.emit`: the trace writes it, the sources look at it, listeners are told, what
follows from it is emitted, and last the budget judges it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator import outcome, prompts
from orchestrator.backends import Conversation, choose
from orchestrator.budget import REMEDY
from orchestrator.citations import Checked, check, correction
from orchestrator.claims import judge
from orchestrator.errors import (
    BackendError,
    Interrupted,
    LimitExceeded,
    McpUnavailable,
    RateLimited,
    RunError,
)
from orchestrator.events import (
    CitationsChecked,
    Event,
    LimitReached,
    RunFailed,
    RunFinished,
    TextDelta,
    ToolCall,
)
from orchestrator.result import Result, fold
from orchestrator.settings import Options
from orchestrator.starting import Prepared, prepare
from orchestrator.trace import Record

FINAL_SECONDS: Final = 30.0
"""Of `max_seconds`, what is kept for the final request, though never more than a fifth."""

JUDGE_OUTPUT: Final = 4_000
"""Output tokens of the judge's one request."""

Listener = Callable[[Record], None]
log = logging.getLogger(__name__)


async def run(
    question: str,
    options: Options | None = None,
    listeners: Sequence[Listener] = (),
    *,
    resume: str | None = None,
) -> Result:
    """Research one question; `resume` names an unfinished run to complete instead.

    `options` are as on the command line, by default from environment and settings files. `listeners` are
    called with every record as it is written. Raises UsageError when nothing was begun; everything that
    goes wrong later is the result's status.
    """
    async with prepare(question, options or Options(), resume=resume) as prepared:
        return await Run(prepared, listeners).run()


async def stream(
    question: str, options: Options | None = None, *, resume: str | None = None
) -> AsyncGenerator[Record]:
    """The records of one run as they are written; leaving the loop early interrupts the run."""
    records: asyncio.Queue[Record | None] = asyncio.Queue()
    task = asyncio.create_task(run(question, options, [records.put_nowait], resume=resume))
    task.add_done_callback(lambda _: records.put_nowait(None))
    try:
        while (record := await records.get()) is not None:
            yield record
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass
class Run:
    """The state of one run."""

    prepared: Prepared
    listeners: Sequence[Listener] = ()
    now: Callable[[], float] = time.monotonic
    records: list[Record] = field(default_factory=list)
    draft: str = ""
    """The answer as far as it is written: text behind the last tool call."""
    checked: Checked | None = None
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.backend = self.prepared.backend
        self.options = self.prepared.context.options
        self.budget = self.prepared.context.budget
        self.registry = self.prepared.context.registry
        self.ids_shown = self.backend.ids_shown
        self._known_before = len(self.registry)

    async def run(self) -> Result:
        """Run to the end and return the result; a run that fails has one too.

        The only place where errors become a status. Cancellation is recorded as `interrupted` and goes on.
        """
        began = self.now()
        failure: RunError | None = Interrupted("stopped before it was done; go on with resume")
        try:
            self.emit(self.prepared.started)
            await self._answer(began)
            failure = None
        except RunError as error:
            failure = error
        except Exception as error:
            log.debug("a fault of our own", exc_info=True)
            failure = BackendError(f"{type(error).__name__}: {error} (a fault of this program)", "ours")
        finally:
            try:
                self._settle()
            finally:  # a listener that fails again must not keep the ending out of the file
                self.emit(self._ending(failure, self.now() - began))
        return fold([*self.prepared.earlier, self.records], self.prepared.trace.path)

    def emit(self, *events: Event) -> None:
        """Let events through the folds, in the order that keeps the record ahead of any consequence."""
        records = self.prepared.trace.write_all([self.budget.book(event) for event in events])
        for record in records:
            self.records.append(record)
            self.registry.see(record.event)
        try:
            for record in records:
                for listener in self.listeners:
                    listener(record)
        finally:  # a listener that fails must not keep money off the ledger
            for event in events:
                self._fold(event)
        for event in events:
            self.budget.judge(event)

    def _fold(self, event: Event) -> None:
        match event:
            case TextDelta():
                self.draft += event.text
            case ToolCall():
                self.draft = ""
        follows = self.budget.see(event)
        if follows:
            self.emit(*follows)

    async def _answer(self, began: float) -> None:
        """The loop, and where a limit or a failure ends it, the final request from what was found."""
        limit_seconds = self.options.limits.max_seconds
        kept = min(FINAL_SECONDS, limit_seconds / 5) if limit_seconds is not None else 0.0
        last = None if limit_seconds is None else began + limit_seconds
        loop_end = None if last is None else last - kept
        try:
            await self._converse(loop_end)
        except LimitExceeded as limit:
            self._settle()
            self._reach(limit, "answering from what was found" if len(self.registry) else "nothing was found")
            if len(self.registry):
                await self._final(limit, last)
            elif limit.limit != "empty_searches":
                if not self.draft.strip():  # what was written already is not given up for "nothing was found"
                    await self._final(limit, last)
                raise
        except (BackendError, McpUnavailable, RateLimited) as error:
            if not outcome.searched_well(self.records):
                raise
            self._settle()
            self.warnings.append(f"{prompts.plain(error)}; the answer is from what was found before")
            await self._final(error, last)

    async def _converse(self, deadline: float | None) -> None:
        async with AsyncExitStack() as open_until_the_end:
            async with self._until(deadline):
                conversation = await open_until_the_end.enter_async_context(self.backend.conversation())
            await self._take(conversation.turn(self.prepared.prompt), deadline)
            prompt = await self._review(deadline)
            if prompt is not None and self._affordable(prompt):
                await self._correct(conversation, prompt, deadline)

    async def _correct(self, conversation: Conversation, prompt: str, deadline: float | None) -> None:
        """The one correction turn; where it comes to nothing, the answer stays as it is."""
        before, self.draft = self.draft, ""
        try:
            await self._take(conversation.turn(prompt, "correction"), deadline)
        except RunError as error:
            self._settle()
            self._give_up(error, "the answer was not corrected")
            self.draft = ""
        if self.draft.strip():
            await self._review(deadline)
        else:
            self.draft = before

    async def _final(self, reason: RunError, deadline: float | None) -> None:
        """The final request, and once more where its citations do not hold.

        Raises `reason` when no answer comes of it; what had been written before is kept then.
        """
        partial, self.draft = self.draft, ""
        if not await self._request_answer(reason, "", deadline):
            if len(self.draft) <= len(partial):
                self.draft, self.ids_shown = partial, self.backend.ids_shown
            raise reason
        wanted = await self._review(deadline)
        if wanted is None:
            return
        before = self.draft
        if await self._request_answer(reason, f"\n\n{wanted}", deadline):
            await self._review(deadline)
        else:
            self.draft = before

    async def _request_answer(self, reason: RunError, wanted: str, deadline: float | None) -> bool:
        """One final request; whether the draft holds its answer. What it left unfinished stands there too."""
        self.draft, self.ids_shown = "", True
        plan = self.budget.final_request()
        if plan is None:
            return False
        evidence = self.registry.evidence(self.prepared.question, plan.evidence_bytes)
        prompt = prompts.final(self.prepared.question, evidence, prompts.plain(reason)) + wanted
        try:
            self._require_step()
            await self._take(self.backend.answer(prompt, plan.max_tokens), deadline)
        except RunError as error:
            self._settle()
            self._give_up(error, "the final request came to nothing")
            return False
        return bool(self.draft.strip())

    async def _take(self, events: AsyncIterator[Event], deadline: float | None) -> None:
        """Emit everything a backend says, until it ends, a limit is reached or the time is up."""
        async with self._until(deadline), _closing(events):
            async for event in events:
                self.emit(event)

    @asynccontextmanager
    async def _until(self, deadline: float | None) -> AsyncIterator[None]:
        """End what takes longer. Raises LimitExceeded."""
        left = None if deadline is None else max(deadline - self.now(), 0.0)
        try:
            async with asyncio.timeout(left) as clock:
                yield
        except TimeoutError:
            if not clock.expired():
                raise
            seconds = self.options.limits.max_seconds
            raise LimitExceeded(
                "max_seconds", seconds or 0, seconds, f"{seconds:g} seconds are up{REMEDY}--max-seconds"
            ) from None

    async def _review(self, deadline: float | None) -> str | None:
        """Check the draft from scratch; the correction turn's prompt where it needs one."""
        checked = check(self.draft, self.registry, ids_shown=self.ids_shown)
        if self.options.judge:
            checked = await self._judged(checked, deadline)
        self.checked = checked
        self.emit(CitationsChecked(verdicts=checked.verdicts, coverage=checked.coverage))
        return correction(checked, self.registry, strict=self.options.strict)

    async def _judged(self, checked: Checked, deadline: float | None) -> Checked:
        """Put what words could not settle to a small model, where the budget pays it."""
        asked = judge.open_cases(checked.verdicts, self.registry)
        if not asked:
            return checked
        prompt = judge.judge_prompt([(at, v.sentence, texts) for at, (v, texts) in enumerate(asked)])
        options = self.options.model_copy(update={"model": self.options.judge_model})
        backend = choose(replace(self.prepared.context, options=options), self.backend.name)
        before, self.draft = self.draft, ""
        try:
            self._require_step()
            room = self.budget.max_tokens(len(prompt.encode()), hosted=False, model=options.model)
            await self._take(backend.answer(prompt, min(room, JUDGE_OUTPUT), "judge"), deadline)
            said = judge.parse_verdicts(self.draft, len(asked))
        except RunError as error:
            self._settle()
            self._give_up(error, "the judge could not be asked")
            return checked
        finally:
            self.draft = before
        return checked.judged({verdict: said[at] for at, (verdict, _) in enumerate(asked)})

    def _affordable(self, prompt: str) -> bool:
        """Whether a correction turn fits into money and steps; else the answer stays as it is."""
        try:
            self._require_step()
            self.budget.max_tokens(len(prompt.encode()))
        except LimitExceeded as limit:
            self._give_up(limit, "the answer was not corrected")
            return False
        return True

    def _require_step(self) -> None:
        """Raises LimitExceeded when all steps are used."""
        used, most = self.budget.step, self.options.limits.max_steps
        if most is not None and used >= most:
            what = f"all {most} steps are used{REMEDY}--max-steps"
            raise LimitExceeded("max_steps", used + 1, most, what)

    def _settle(self) -> None:
        charges = self.budget.settle_open()
        if charges:
            self.emit(*charges)

    def _give_up(self, error: RunError, outcome: str) -> None:
        """Say why something that was tried besides came to nothing."""
        if isinstance(error, LimitExceeded):
            self._reach(error, outcome)
        else:
            self.warnings.append(f"{outcome}: {prompts.plain(error)}")

    def _reach(self, limit: LimitExceeded, done: str) -> None:
        self.emit(
            LimitReached(
                limit=limit.limit, value=limit.value, ceiling=limit.ceiling, action=f"{limit}; {done}"
            )
        )

    def _ending(self, error: RunError | None, seconds: float) -> RunFinished | RunFailed:
        if error is None:
            found_more, strict = len(self.registry) > self._known_before, self.options.strict
            status, message = outcome.of(
                self.draft, self.checked, self.records, found_more=found_more, strict=strict
            )
        else:
            status, message = error.status, str(error)
        common = {
            "status": status,
            "answer": self.draft,
            "ids_shown": self.ids_shown,
            "seconds": seconds,
            "message": message,
            "warnings": tuple(self.warnings),
        }
        if error is None or isinstance(error, LimitExceeded):
            return RunFinished.model_validate(common)
        return RunFailed.model_validate(common | {"boundary": error.boundary})


@asynccontextmanager
async def _closing(events: AsyncIterator[Event]) -> AsyncIterator[None]:
    """Close a backend's stream on every way out: garbage collection would do it some time later."""
    try:
        yield
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
