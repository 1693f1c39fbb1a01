"""Everything that must be right before a run may spend anything: what is wrong here ends with exit code 2."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from orchestrator import __version__, prompts, trace
from orchestrator.backends import Backend, RunContext, choose, sessions
from orchestrator.billing import Billing, Teacher
from orchestrator.budget import Budget, Clearing
from orchestrator.daily import DailyCap
from orchestrator.errors import ConfigurationError, LimitExceeded, UsageError
from orchestrator.events import Checkpoint, Ending, LimitReached, RunFailed, RunStarted
from orchestrator.prices import Prices
from orchestrator.result import resumed
from orchestrator.settings import ANTHROPIC_URL, Options, Server
from orchestrator.sources import Registry, clean
from orchestrator.trace import Record, Trace

MAX_QUESTION_BYTES: Final = 1_000_000
TOOL_LIST_BYTES: Final = 6_000
"""What one server's tool list adds to the context: Parallel's two tools are about this."""
PREAMBLE_BYTES: Final = 1_000
"""What engine or service put around our prompts."""
RUNS_LOOKED_AT: Final = 20
"""How many of the newest run files may teach how the service bills."""
PACKAGES: Final = ("anthropic", "claude-agent-sdk", "mcp", "genai-prices")


@dataclass(frozen=True)
class Prepared:
    """One run before its first event."""

    question: str
    prompt: str
    """The first user turn."""
    context: RunContext
    backend: Backend
    trace: Trace
    started: RunStarted
    earlier: Sequence[Sequence[Record]]
    """The runs that it resumes or follows up, oldest first."""


@asynccontextmanager
async def prepare(question: str, options: Options, *, resume: str | None = None) -> AsyncIterator[Prepared]:
    """What a run begins with. Raises UsageError (nothing was sent, no run file is left) when it may not.

    `resume` names the run to complete; the question is then that run's.
    """
    async with AsyncExitStack() as stack:
        if options.offline and options.anthropic_base_url == ANTHROPIC_URL:
            from orchestrator.offline import stand_ins

            double = await stack.enter_async_context(stand_ins(corpus=options.corpus))
            options = options.with_stand_ins(double.anthropic_base_url, double.server_urls)
        yield _build(question, options, resume, stack)


def _build(question: str, options: Options, resume: str | None, held: AsyncExitStack) -> Prepared:
    run_id = trace.new_run_id()
    earlier = _earlier(options, resume)
    counted = resumed(earlier) if resume and earlier else []
    question = _question(question, earlier if resume else [])
    servers = options.servers()
    name, reason = options.choose_backend()
    _key(options)
    registry = Registry()
    for record in (record for run in earlier for record in run):
        registry.see(record.event)
    ids_shown = name == "agent-sdk"
    system = prompts.system(ids_shown=ids_shown)
    path = options.runs_folder / f"{run_id}.jsonl"
    folder = None if options.no_content else trace.session_folder(path)
    checkpoints = _conversation(earlier, name, options.model) if options.follow_up and not resume else ()
    if name == "agent-sdk" and sessions.find(folder, checkpoints) is None:
        checkpoints = ()
    prompt = _prompt(question, earlier, registry, fresh=not checkpoints)
    started = RunStarted(
        question=question,
        backend=name,
        backend_reason=reason,
        model=options.model,
        limits=options.limits,
        servers=tuple(server.name for server in servers),
        versions={"orchestrator": __version__} | {name: version(name) for name in PACKAGES},
        offline=options.offline,
        base_url=options.anthropic_base_url,
        key_fingerprint=hashlib.sha256(_key(options).encode()).hexdigest()[:8],
        effort=options.effort,
        follow_up=None if resume else _id(options.follow_up, options.runs_folder),
        resumes=_id(resume, options.runs_folder),
    )
    budget = Budget(
        limits=options.limits,
        prices=_prices(options, servers),
        model=options.model,
        run=run_id,
        fallbacks=options.uses_fallbacks,
        clearing=_clearing(options) if name == "connector" else None,
        learned=None if options.offline else learned(options.runs_folder, started),
        question_bytes=len(question.encode()),
        opening_bytes=len((system + prompt).encode()) + len(servers) * TOOL_LIST_BYTES + PREAMBLE_BYTES,
        unseen_passes=1 if name == "agent-sdk" else 0,
        largest_result=options.max_chars if name == "agent-sdk" else None,
        sources_in=lambda content: len(registry.add(content)),
    )
    budget.replay(record.event for run in counted for record in run)
    _require_room(budget, options, run_id, held)
    context = RunContext(
        run_id=run_id,
        system=system,
        options=options,
        servers=servers,
        budget=budget,
        registry=registry,
        earlier=checkpoints,
        folder=folder,
    )
    file = Trace(path, run_id, content=not options.no_content, secrets=options.secrets())
    held.callback(file.close)
    return Prepared(question, prompt, context, choose(context, name), file, started, earlier)


def _earlier(options: Options, resume: str | None) -> list[list[Record]]:
    """The runs that this one goes on from, oldest first."""
    named = resume or options.follow_up
    if not named:
        return []
    chain = trace.chain(trace.find(named, options.runs_folder))
    trace.require_content(chain[-1], "go on from")
    ending = chain[-1][-1].event
    if resume and isinstance(ending, Ending) and ending.status == "done":
        raise UsageError(
            f"Run {chain[-1][0].run} is done: ask on with --follow-up {chain[-1][0].run} QUESTION."
        )
    return chain


def _question(question: str, interrupted: Sequence[Sequence[Record]]) -> str:
    if interrupted:
        first = interrupted[-1][0].event
        question = first.question if isinstance(first, RunStarted) else question
    question = clean(question).strip()
    if not question:
        raise UsageError('The question is empty: orchestrator ask "When did Hubble launch?"')
    if len(question.encode()) > MAX_QUESTION_BYTES:
        raise UsageError(f"The question is larger than {MAX_QUESTION_BYTES:,} bytes: ask a shorter one.")
    return question


def _key(options: Options) -> str:
    if options.anthropic_api_key is None:
        raise UsageError(
            "ANTHROPIC_API_KEY is not set: export it, or try --offline, which needs no key and no network."
        )
    return options.anthropic_api_key.get_secret_value()


def _conversation(earlier: Sequence[Sequence[Record]], backend: str, model: str) -> tuple[Checkpoint, ...]:
    """The checkpoints to carry on, where the conversation is whole, of this backend and of this model."""
    for run in earlier:
        first = run[0].event
        if not isinstance(first, RunStarted) or (first.backend, first.model) != (backend, model):
            return ()
        if any(isinstance(record.event, LimitReached | RunFailed) for record in run):
            return ()  # its answer came from a request outside the conversation
    return trace.checkpoints(earlier) or ()


def _prompt(question: str, earlier: Sequence[Sequence[Record]], registry: Registry, *, fresh: bool) -> str:
    """The first turn: the question, and for a conversation that cannot be carried on what it had found."""
    text = question
    if earlier and fresh:
        evidence = registry.evidence(question, prompts.EVIDENCE_BYTES)
        text = prompts.going_on(question, _told(earlier), evidence)
    return prompts.question(text, datetime.now(UTC).date())


def _told(earlier: Iterable[Sequence[Record]]) -> list[tuple[str, str]]:
    """Questions and answers of the earlier runs."""
    pairs = []
    for run in earlier:
        first, last = run[0].event, run[-1].event
        if isinstance(first, RunStarted) and isinstance(last, Ending) and last.answer:
            pairs.append((first.question, last.answer))
    return pairs


def _id(run: str | None, folder: Path) -> str | None:
    return trace.find(run, folder).stem if run else None


def _prices(options: Options, servers: Sequence[Server]) -> Prices:
    """The price book; every price that this run may need is looked up now."""
    prices = Prices(
        servers={server.name: server for server in servers},
        price_in=options.price_in,
        price_out=options.price_out,
        price_call=options.price_call,
    )
    prices.rates(options.model, 1)
    if options.judge:
        prices.rates(options.judge_model, 1)
    for server in servers:
        for tool in server.tools:
            prices.tool_usd(server.name, tool, {})
        if not server.tools and not any(name.partition("/")[0] == server.name for name in options.price_call):
            raise ConfigurationError(
                f"What a call of {server.name} costs is not known: give it with"
                f" --price-call {server.name}=USD (0 is an answer)."
            )
    return prices


def _clearing(options: Options) -> Clearing | None:
    return None if options.clear_trigger is None else Clearing(options.clear_trigger, options.clear_keep)


def _require_room(budget: Budget, options: Options, run_id: str, held: AsyncExitStack) -> None:
    """Refuse limits in which no answer fits; lower the cap to what the day has left."""
    limits = budget.limits
    if limits.max_usd == 0 or limits.max_seconds == 0:
        raise UsageError("A limit of 0 allows nothing: raise --max-usd or --max-seconds, or give `none`.")
    if limits.max_steps is not None and limits.max_steps < 2:
        raise UsageError("It takes two steps to search and to answer: --max-steps 2 or more, or `none`.")
    try:
        budget.max_tokens(0)
        if options.daily_usd is not None:
            cap = DailyCap(options.state_folder / "daily.sqlite3", options.daily_usd)
            wanted = None if limits.max_usd is None else limits.max_usd - budget.spent
            reservation = held.enter_context(cap.reserve(run_id, wanted, budget.least_usd()))
            before = budget.spent
            budget.record_spent = lambda usd: reservation.record_spent(usd - before)
            budget.limits = limits.model_copy(update={"max_usd": before + reservation.usd})
            budget.max_tokens(0)
    except LimitExceeded as limit:
        raise UsageError(f"{limit}. Nothing was sent.") from None


def learned(folder: Path, like: RunStarted) -> Billing | None:
    """How the service billed the last run of the same model, servers, address and key; never offline ones."""
    same = ("model", "servers", "base_url", "key_fingerprint", "backend")
    for path in reversed(trace.run_files(folder)[-RUNS_LOOKED_AT:]):
        try:
            records = trace.read(path)
        except UsageError:
            continue
        first = records[0].event if records else None
        if not isinstance(first, RunStarted) or first.offline:
            continue
        if all(getattr(first, name) == getattr(like, name) for name in same):
            teacher = Teacher(path.stem)
            for record in records:
                teacher.see(record.event)
            if teacher.billing is not None:
                return teacher.billing
    return None
