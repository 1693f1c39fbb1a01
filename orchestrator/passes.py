"""What the passes of a conversation cost while they are under way: booked when they begin, settled by usage.

A pass is booked at an upper bound: its input from what the service said or was shown, on the dearest model
that may serve; its output as far as it is seen to grow, or in full under `worst_case`. See billing.py for
the rates, budget.py for what follows from the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from orchestrator.billing import Billing, Clearing, Teacher
from orchestrator.events import Event, Limits, PassFinished, PassStarted, Purpose, ToolCall, ToolResult, Usage
from orchestrator.prices import FALLBACK_MODELS, Prices, Rates

CONVERSING: Final = ("answer", "correction")
"""Purposes of passes that read the whole conversation; the others stand alone."""
OUTPUT_STEP: Final = 256
"""Output tokens by which a booking grows as a pass goes on."""
IN_FLIGHT: Final = 128
"""Output tokens that may have been generated and not been seen yet."""
LEAST_CLEARED: Final = 0.6
"""Of what old results are estimated at (upper), the share that clearing them surely frees."""
USEFUL_OUTPUT: Final = 512
"""Fewer output tokens than this are not worth a request."""
FINAL_OUTPUT: Final = 4_000
"""Output tokens of the final request where money allows."""
FINAL_PROMPT_BYTES: Final = 2_500
"""Instructions and a least of evidence in the final request, besides the question."""
FINAL_EVIDENCE_BYTES: Final = 40_000
"""Evidence in the final request where money allows."""
ROUNDING: Final = 1e-9
"""US dollars that sums of floats may be off by."""
RESULT_BYTES: Final = 100_000
"""Largest result of a tool without notes that has not shown one yet."""


@dataclass(frozen=True)
class FinalRequest:
    """What the final request may use: tokens out, bytes of evidence in, and its price at most."""

    max_tokens: int
    evidence_bytes: int
    usd: float


@dataclass
class OpenPass:
    started: PassStarted
    max_tokens: int
    output: int
    """Upper estimate of its output so far, what may be in flight included."""
    dearest: tuple[float, Rates]
    """Its input in US dollars, and rates, on the dearest model that may serve: what is booked."""
    served: tuple[float, Rates]
    """The same on the model that is seen to serve: what it is charged at when it is cut short."""
    said: bool
    """Whether the service has said how large its prompt is."""
    unmeasured: bool = False
    """Whether it writes something hidden that nobody has measured: all of max_tokens, if it ends now."""

    @property
    def booked_usd(self) -> float:
        input_usd, rates = self.dearest
        return input_usd + self.started.output_tokens * rates.output

    @property
    def seen_usd(self) -> float:
        """What it costs at most if it ends now."""
        input_usd, rates = self.served
        return input_usd + (self.max_tokens if self.unmeasured else self.output) * rates.output


@dataclass
class Passes:
    """The passes of one run, and the calls between them.

    `learned` is how the service was seen to bill before.
    """

    limits: Limits
    prices: Prices
    model: str
    run: str = ""
    fallbacks: bool = False
    clearing: Clearing | None = None
    learned: Billing | None = None
    opening_bytes: int = 0
    """Bytes of what the conversation begins with: system prompt, tool list, first user turn."""
    unseen_passes: int = 0
    """Passes that may happen between two looks: one with an engine that repeats requests by itself."""
    largest_result: int | None = None
    """Where we write the results ourselves: the longest that the model is shown."""
    question_bytes: int = 0
    """UTF-8 bytes of the question: what the final request repeats."""
    step: int = 0

    def __post_init__(self) -> None:
        self._teacher = Teacher(self.run, self.clearing)
        self._open: dict[int, OpenPass] = {}
        self._unanswered: Callable[[], PassStarted] | None = None
        self._conversed = 0
        self._open_calls: dict[str, ToolCall] = {}
        self._pending_bytes = 0
        self._result_bytes: list[int] = []
        self._maybe_cleared = 0
        """How many of the results, from the oldest, an earlier pass may have cleared already."""
        self._shown: dict[str, int] = {}

    @property
    def billing(self) -> Billing:
        """How the service is taken to bill from here on."""
        if self.limits.worst_case:
            return Billing()
        return self._teacher.billing or self.learned or Billing()

    def recall(self, events: Iterable[Event]) -> None:
        """Take over the results in a conversation that is carried on: the service may clear them."""
        held = [event.bytes for event in events if isinstance(event, ToolResult)]
        self._result_bytes += held
        self._teacher.recall(held)

    def sent(self, purpose: Purpose, max_tokens: int, model: str, prompt_bytes: int) -> None:
        """A request is out. Cut off before its answer begins, it may be billed: it is charged as a pass."""
        self._unanswered = partial(
            self.open_pass, purpose, max_tokens, None, model, prompt_bytes=prompt_bytes
        )

    def refused(self) -> None:
        """The request that was out will not be answered, and is not billed."""
        self._unanswered = None

    def open_pass(
        self,
        purpose: Purpose,
        max_tokens: int,
        usage: Usage | None = None,
        model: str | None = None,
        *,
        prompt_bytes: int = 0,
    ) -> PassStarted:
        """Book the pass that begins now, on `model` where it is not the one asked for.

        `usage` is what the service said at its beginning (input only); None inside a hosted loop, or where it
        says nothing: the context is estimated then from what was shown, and `prompt_bytes` are what the
        request adds to the conversation, or all of it where it stands alone.
        """
        self._unanswered = None
        step = self.step + 1
        before = self._last if purpose in CONVERSING else None
        added = self.billing.tokens(prompt_bytes) if prompt_bytes else 0
        context = self.next_context() + added if purpose in CONVERSING else Billing().tokens(prompt_bytes, 4)
        model = self._priced(model or (usage.model if usage else self.model))
        same = before is not None and before.started.model == model
        reread = before.started.context_tokens if before and same else 0
        said = usage is not None and usage.prompt_tokens > 0
        if usage is not None and said:
            context = usage.prompt_tokens
            rates = self.prices.rates(model, context, usage)
            served = dearest = (rates.usd(usage.model_copy(update={"output_tokens": 0})), rates)
        else:
            served, dearest = (
                (self._input_usd(rates, context, reread), rates)
                for rates in (self.prices.rates(model, context), self._rates(context, model))
            )
        if purpose in CONVERSING:
            self._note_clearing(max(context, self.next_context() + added))
        output = min(IN_FLIGHT + OUTPUT_STEP, max_tokens)
        booked = max_tokens if self.limits.worst_case else output
        started = PassStarted(
            step=step,
            purpose=purpose,
            model=model,
            context_tokens=context,
            output_tokens=booked,
            booked_usd=dearest[0] + booked * dearest[1].output,
        )
        self._open[step] = OpenPass(started, max_tokens, output, dearest, served, said)
        return started

    def grow(self, output_tokens: int) -> PassStarted | None:
        """The open pass has written this much so far (an upper estimate); book more where it needs it."""
        opened = self._open.get(self.step)
        if opened is None or output_tokens + IN_FLIGHT <= opened.output:
            return None
        return self._rebook(opened, output_tokens + IN_FLIGHT + OUTPUT_STEP)

    def unmeasured(self, hidden: bool) -> None:
        """The open pass writes, or no longer writes, something hidden that nobody has measured."""
        if (opened := self._open.get(self.step)) is not None:
            opened.unmeasured = hidden

    def written(self, output_tokens: int, in_flight: int = 0) -> PassStarted | None:
        """The open pass has written (an upper estimate) and will write no more than is in flight."""
        opened = self._open.get(self.step)
        return None if opened is None else self._rebook(opened, output_tokens + in_flight)

    def _rebook(self, opened: OpenPass, output_tokens: int) -> PassStarted | None:
        opened.output = min(output_tokens, opened.max_tokens)
        if self.limits.worst_case or opened.output == opened.started.output_tokens:
            return None
        opened.started = opened.started.model_copy(update={"output_tokens": opened.output})
        opened.started = opened.started.model_copy(update={"booked_usd": opened.booked_usd})
        return opened.started

    def next_context(self, *asked: ToolCall) -> int:
        """Upper estimate of the tokens that the next pass reads, with the results of these calls as well."""
        opened = self._last
        if opened is None:
            return self.billing.tokens(self.opening_bytes + self._pending_bytes)
        waiting = [self.result_bytes(call) for call in self._waiting(*asked)]
        return (
            opened.started.context_tokens
            + opened.output
            + self.billing.tokens(self._pending_bytes + sum(waiting), 1 + len(waiting))
        )

    def result_bytes(self, call: ToolCall) -> int:
        """The largest result that this tool declares or has shown, in bytes."""
        server = self.prices.servers.get(call.server)
        notes = server.tools.get(call.tool) if server else None
        declared = notes.max_chars if notes else RESULT_BYTES
        return max(min(declared, self.largest_result or declared), self._shown.get(call.item, 0))

    def next_pass_usd(self, call: ToolCall) -> float:
        """The pass that reads this call's result, and the passes that may happen unseen."""
        opened = self._last
        context = self.next_context(call)
        rates = self._rates(context)
        reread = opened.started.context_tokens if opened else 0
        output = opened.max_tokens if opened and self.limits.worst_case else OUTPUT_STEP
        once = self._input_usd(rates, context, reread, call) + output * rates.output
        return once * (1 + self.unseen_passes)

    def _largest_prompt(self, event: PassFinished, usage: Usage) -> tuple[int, bool]:
        """The largest prompt behind this usage, and whether the price tier of all its passes is certain.

        Usage may be the sum over several passes. Each reads all that the first one read and more, unless old
        results may have been cleared.
        """
        total, passes = usage.prompt_tokens, len(event.steps)
        if len(event.usage) > 1 or passes < 2:
            return total, True
        opened = [self._open[step] for step in event.steps if step in self._open]
        first = opened[0].started.context_tokens if opened and opened[0].said else 0
        cleared = self.clearing is not None and self.clearing.possible(total, self._result_bytes, Billing())
        least = 0 if cleared else first
        estimated = max((one.started.context_tokens for one in opened), default=total)
        most = min(total - first - (passes - 2) * least, estimated)
        tiers = {self.prices.rates(usage.model, size, usage) for size in (min(least or 1, most), most)}
        return most, len(tiers) == 1

    def _booked_on(self, opened: OpenPass | None) -> str:
        if opened is None:
            return "as booked"
        taught = self.billing.taught_by
        basis = opened.served[1].basis
        return f"{basis}; rates seen in {taught}" if taught else basis

    @property
    def _last(self) -> OpenPass | None:
        """The last pass of the open conversation; the judge is asked beside it."""
        return self._open.get(self._conversed)

    def _priced(self, model: str) -> str:
        """The model to price: the one that served, or the one asked for where a proxy names an unknown."""
        return model if self.prices.knows(model) else self.model

    def _rates(self, context: int, model: str | None = None) -> Rates:
        """Rates at this prompt size: the dearest of the models that may serve, until one was seen to."""
        models: Sequence[str] = (model or self.model,)
        if self.fallbacks and self.billing.taught_by is None:
            models = (*models, *FALLBACK_MODELS)
        return self.prices.dearest(models, context)

    def _input_usd(self, rates: Rates, context: int, reread: int, *asked: ToolCall) -> float:
        """Upper estimate of reading the conversation: as before, or anew where old results may be cleared."""
        usd = self.billing.input_usd(rates, context, reread)
        rule = self.clearing
        held = self._result_bytes + [self.result_bytes(call) for call in self._waiting(*asked)]
        if rule is None or not rule.possible(context, held, self.billing):
            return usd
        old = self._result_bytes[self._maybe_cleared : len(held) - rule.keep]
        freed = int(self.billing.tokens(sum(old), 0) * LEAST_CLEARED)
        return max(usd, self.billing.input_usd(rates, max(context - freed, 0)))

    def _note_clearing(self, context: int) -> None:
        """The pass that begins with this context may clear old results: they cannot be cleared again."""
        if self.clearing is not None and self.clearing.possible(context, self._result_bytes, self.billing):
            self._maybe_cleared = len(self._result_bytes) - self.clearing.keep

    def _waiting(self, *asked: ToolCall) -> list[ToolCall]:
        """The calls whose results the next pass will read, those `asked` for among them."""
        return list((self._open_calls | {call.id: call for call in asked}).values())

    def least_usd(self) -> float:
        """The least that a run can be begun with: one pass and the smallest final answer."""
        context = self.next_context()
        rates = self._rates(context)
        first = self.billing.input_usd(rates, context) + USEFUL_OUTPUT * rates.output
        return first + self.final_usd(USEFUL_OUTPUT, 0)

    def plan_final(self, left: float | None) -> FinalRequest | None:
        """The final request that `left` dollars pay (None: no cap); None when not even the smallest fits."""
        output = min(FINAL_OUTPUT, self.limits.max_output_tokens)
        if left is None:
            return FinalRequest(output, FINAL_EVIDENCE_BYTES, self.final_usd(output, FINAL_EVIDENCE_BYTES))
        least = self.final_usd(min(USEFUL_OUTPUT, output), 0)
        if least > left + ROUNDING:
            return None
        rates = self._rates(self._final_context(FINAL_EVIDENCE_BYTES))
        spare = left - least
        more_output = min(output - USEFUL_OUTPUT, int(spare / 2 / rates.output)) if rates.output else 0
        output = USEFUL_OUTPUT + max(more_output, 0)
        spare = left - self.final_usd(output, 0)
        per_byte = rates.dearest_input * Billing().tokens_per_byte
        evidence = min(FINAL_EVIDENCE_BYTES, int(spare / per_byte)) if per_byte else FINAL_EVIDENCE_BYTES
        while evidence > 0 and self.final_usd(output, evidence) > left:  # rounding, a price tier
            evidence = evidence * 9 // 10 if evidence > 100 else 0
        return FinalRequest(output, evidence, self.final_usd(output, evidence))

    def final_usd(self, output: int, evidence_bytes: int) -> float:
        """The most that a final request of this size costs; its rates are never the learned ones."""
        context = self._final_context(evidence_bytes)
        rates = self._rates(context)
        return Billing().input_usd(rates, context) + output * rates.output

    def _final_context(self, evidence_bytes: int) -> int:
        return Billing().tokens(self.question_bytes + FINAL_PROMPT_BYTES + evidence_bytes, 4)
