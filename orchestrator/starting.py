"""Everything that must be right before a run may spend anything: what is wrong here ends with exit code 2."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from orchestrator import __version__, prompts, trace
from orchestrator.backends import Backend, RunContext, choose
from orchestrator.billing import Clearing
from orchestrator.budget import Budget
from orchestrator.daily import DailyCap
from orchestrator.errors import ConfigurationError, LimitExceeded, UsageError
from orchestrator.events import RunStarted
from orchestrator.past import Past, learned
from orchestrator.prices import Prices
from orchestrator.settings import Options, Server
from orchestrator.sources import Registry, clean
from orchestrator.trace import Record, Trace

MAX_QUESTION_BYTES: Final = 1_000_000
TOOL_LIST_BYTES: Final = 6_000
"""What one server's tool list adds to the context: Parallel's two tools are about this."""
PREAMBLE_BYTES: Final = 1_000
"""What engine or service put around our prompts."""
ENGINE_RESULT: Final = 50_000
"""The longest result that the Agent SDK shows its model: above it stands a preview."""
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
        if options.offline and not options.at_stand_ins:
            from orchestrator.offline import stand_ins

            double = await stack.enter_async_context(stand_ins(corpus=options.corpus))
            options = options.with_stand_ins(double.anthropic_base_url, double.server_urls)
        yield _build(question, options, resume, stack)


def _build(question: str, options: Options, resume: str | None, held: AsyncExitStack) -> Prepared:
    run_id = trace.new_run_id()
    path = options.runs_folder / f"{run_id}.jsonl"
    folder = None if options.no_content else trace.session_folder(path)
    past = Past.find(options, resume)
    question = _question(past.question or question)
    registry = past.registry()
    started = _started(question, options, past)
    conversation = past.conversation(started, folder)
    ids_shown = started.backend == "agent-sdk"
    prompt = past.first_turn(question, registry, fresh=not conversation, ids_shown=ids_shown)
    context = RunContext(
        run_id=run_id,
        system=prompts.system(ids_shown=ids_shown),
        options=options,
        servers=options.servers(),
        budget=_budget(started, options, run_id, registry),
        registry=registry,
        earlier=conversation,
        folder=folder,
    )
    context.budget.opening_bytes += len((context.system + prompt).encode())
    context.budget.replay(past.spent())
    context.budget.recall(past.held() if conversation else ())
    _require_room(context.budget, options, run_id, held)
    file = Trace(path, run_id, content=not options.no_content, secrets=options.secrets())
    held.callback(file.close)
    return Prepared(question, prompt, context, choose(context, started.backend), file, started, past.runs)


def _started(question: str, options: Options, past: Past) -> RunStarted:
    backend, reason = options.choose_backend()
    return RunStarted(
        question=question,
        backend=backend,
        backend_reason=reason,
        model=options.model,
        limits=options.limits,
        servers=tuple(server.name for server in options.servers()),
        versions={"orchestrator": __version__} | {name: version(name) for name in PACKAGES},
        offline=options.offline,
        base_url=options.anthropic_base_url,
        key_fingerprint=hashlib.sha256(_key(options).encode()).hexdigest()[:8],
        effort=options.effort,
        follow_up=None if past.resumes else past.run,
        resumes=past.run if past.resumes else None,
    )


def _budget(started: RunStarted, options: Options, run_id: str, registry: Registry) -> Budget:
    engine = started.backend == "agent-sdk"
    clearing = None
    if options.clear_trigger is not None and not engine:
        clearing = Clearing(options.clear_trigger, options.clear_keep, options.clear_at_least)
    return Budget(
        limits=options.limits,
        prices=_prices(options, options.servers()),
        model=options.model,
        run=run_id,
        fallbacks=options.uses_fallbacks and not engine,
        clearing=clearing,
        learned=None if options.offline else learned(options.runs_folder, started, clearing),
        question_bytes=len(started.question.encode()),
        opening_bytes=len(started.servers) * TOOL_LIST_BYTES + PREAMBLE_BYTES,
        unseen_passes=1 if engine else 0,
        largest_result=min(options.max_chars or ENGINE_RESULT, ENGINE_RESULT) if engine else None,
        sources_in=lambda content: len(registry.add(content)),
    )


def _question(question: str) -> str:
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


def _require_room(budget: Budget, options: Options, run_id: str, held: AsyncExitStack) -> None:
    """Refuse limits in which no answer fits; lower the cap to what the day has left."""
    limits = budget.limits
    if limits.max_usd == 0 or limits.max_seconds == 0:
        raise UsageError("A limit of 0 allows nothing: raise --max-usd or --max-seconds, or give `none`.")
    if limits.max_steps is not None and limits.max_steps < budget.step + 2:
        used = f" and {budget.step} are used" if budget.step else ""
        raise UsageError(
            f"It takes two steps to search and to answer{used}:"
            f" --max-steps {budget.step + 2} or more, or `none`."
        )
    try:
        budget.max_tokens(0)
        if options.daily_usd is not None:
            cap = DailyCap(options.daily_file, options.daily_usd)
            wanted = None if limits.max_usd is None else limits.max_usd - budget.spent
            reservation = held.enter_context(cap.reserve(run_id, wanted, budget.least_usd()))
            before = budget.spent
            budget.record_spent = lambda usd: reservation.record_spent(usd - before)
            budget.limits = limits.model_copy(update={"max_usd": before + reservation.usd})
            if wanted is None or reservation.usd < wanted:
                budget.capped_by = "daily_usd"
            budget.max_tokens(0)
    except LimitExceeded as limit:
        raise UsageError(f"{limit}. Nothing was sent.") from None
