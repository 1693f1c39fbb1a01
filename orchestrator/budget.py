"""The budget around a hosted loop: a fold over events, the ledger, and the admission of the next call.

Ceilings stand in `Limits` (frozen); this class holds the counters. Money is never counted below what the
service may bill: a pass is booked at an upper bound when it begins and stays so until usage settles it, and
a call is let through only while the pass that reads its result and the final request still fit. How soft a
ceiling is: a pass that has begun is paid for, so `max_usd` holds as far as the bounds do (see billing.py);
`max_steps` and `max_calls` are exact.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any, Final, Literal

from orchestrator.billing import Billing, Clearing, Teacher
from orchestrator.errors import LimitExceeded
from orchestrator.events import (
    Charge,
    ChargeLine,
    Event,
    LimitName,
    LimitReached,
    Limits,
    PassFinished,
    PassStarted,
    Purpose,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from orchestrator.prices import FALLBACK_MODELS, Prices, Rates

CONVERSING: Final = ("answer", "correction")
"""Purposes of passes that read the whole conversation; the others stand alone."""
USEFUL_OUTPUT: Final = 512
"""Fewer output tokens than this are not worth a request."""
OUTPUT_STEP: Final = 256
"""Output tokens by which a booking grows as a pass goes on."""
IN_FLIGHT: Final = 128
"""Output tokens that may have been generated and not been seen yet."""
LEAST_CLEARED: Final = 0.6
"""Of what old results are estimated at (upper), the share that clearing them surely frees."""
FINAL_OUTPUT: Final = 4_000
"""Output tokens of the final request where money allows."""
FINAL_PROMPT_BYTES: Final = 2_500
"""Instructions and a least of evidence in the final request, besides the question."""
FINAL_EVIDENCE_BYTES: Final = 40_000
"""Evidence in the final request where money allows."""
RESULT_BYTES: Final = 100_000
"""Largest result of a tool without notes that has not shown one yet."""
REPEATED_CALLS: Final = 3
EMPTY_SEARCHES: Final = 3
REPEATED_TEXT: Final = (200, 5)
"""Characters, and how often they may stand in one answer."""
ROUNDING: Final = 1e-9
"""US dollars that sums of floats may be off by."""
REMEDY: Final = "; raise it with "


@dataclass(frozen=True)
class Denial:
    """Why a call is not let through: the limit, the words for the model, and whether the loop ends."""

    limit: LimitExceeded
    message: str
    ends: bool


@dataclass(frozen=True)
class FinalRequest:
    """What the final request may use: tokens out, bytes of evidence in, and its price at most."""

    max_tokens: int
    evidence_bytes: int
    usd: float


@dataclass
class _Pass:
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
class Budget:
    """The counters of one run against its `Limits`.

    `sources_in` counts the sources in a tool result; `record_spent` is told the spend, bookings included,
    whenever it changes (the daily cap listens); `learned` is how the service was seen to bill before.
    """

    limits: Limits
    prices: Prices
    model: str
    run: str = ""
    fallbacks: bool = False
    clearing: Clearing | None = None
    learned: Billing | None = None
    question_bytes: int = 0
    """UTF-8 bytes of the question: what the final request repeats."""
    opening_bytes: int = 0
    """Bytes of what the conversation begins with: system prompt, tool list, first user turn."""
    unseen_passes: int = 0
    """Passes that may happen between two looks: one with an engine that repeats requests by itself."""
    largest_result: int | None = None
    """Where we write the results ourselves: the longest that the model is shown."""
    capped_by: Literal["max_usd", "daily_usd"] = "max_usd"
    """Which option the cap comes from."""
    sources_in: Callable[[Any], int] | None = None
    record_spent: Callable[[float], None] | None = None
    lines: list[ChargeLine] = field(default_factory=list)
    step: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    warnings: list[LimitName] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._teacher = Teacher(self.run, self.clearing)
        self._open: dict[int, _Pass] = {}
        self._unanswered: Callable[[], PassStarted] | None = None
        self._conversed = 0
        self._booked: dict[int, float] = {}
        self._open_calls: dict[str, ToolCall] = {}
        self._pending_bytes = 0
        self._result_bytes: list[int] = []
        self._shown: dict[str, int] = {}
        self._signatures: Counter[str] = Counter()
        self._empty = 0
        self._denied_in_a_row = 0
        self._text = ""
        self._text_checked = 0

    # --- the ledger -------------------------------------------------------------------------------

    @property
    def charged(self) -> float:
        """US dollars of all ledger lines."""
        return sum(line.usd for line in self.lines)

    @property
    def spent(self) -> float:
        """US dollars charged, and booked for passes and calls that are not settled yet."""
        return self.charged + sum(self._booked.values()) + self._calls_usd()

    @property
    def remaining(self) -> float | None:
        """US dollars left, None without a cap."""
        return None if self.limits.max_usd is None else self.limits.max_usd - self.spent

    @property
    def billing(self) -> Billing:
        """How the service is taken to bill from here on."""
        if self.limits.worst_case:
            return Billing()
        return self._teacher.billing or self.learned or Billing()

    def book(self, event: Event) -> Event:
        """The event as it goes on record: a call with what it costs at most, any other as it is."""
        if not isinstance(event, ToolCall) or event.server not in self.prices.servers:
            return event
        quantity, unit, _ = self.prices.tool_usd(event.server, event.tool, event.arguments)
        return event.model_copy(update={"booked_usd": quantity * unit})

    def see(self, event: Event) -> list[Event]:
        """Fold one event; returns what follows from it: charges, a result larger than declared."""
        self._teacher.see(event)
        match event:
            case PassStarted():
                self._fold_pass_started(event)
            case PassFinished():
                return self._settle(event)
            case Charge():
                self._fold_charge(event)
            case ToolCall():
                self._open_calls[event.id] = event
                self._text = ""
                self._text_checked = 0
                self._tell()
            case ToolResult():
                return self._fold_result(event)
            case TextDelta():
                self._text += event.text
        return []

    def judge(self, event: Event) -> None:
        """Raises LimitExceeded when the run must not go on after this event, which was folded before."""
        match event:
            case PassStarted():
                self._judge_money(event)
            case ToolResult() if not event.denied and self._empty >= EMPTY_SEARCHES:
                raise LimitExceeded(
                    "empty_searches",
                    self._empty,
                    EMPTY_SEARCHES,
                    f"{self._empty} searches in a row found nothing or failed; ask in other words,"
                    " or see doctor",
                )
            case TextDelta():
                self._judge_repetition()

    def replay(self, events: Iterable[Event]) -> None:
        """Take over the spend and the conversation of earlier runs without judging them again."""
        for event in events:
            self._teacher.see(event)
            match event:
                case PassStarted():
                    self.step = max(self.step, event.step)
                    self._booked[event.step] = event.booked_usd
                case Charge():
                    self._fold_charge(event)
                case ToolCall():
                    self._open_calls[event.id] = event
                    self._count(event)
                case ToolResult():
                    self._open_calls.pop(event.id, None)

    def recall(self, events: Iterable[Event]) -> None:
        """Take over the results in a conversation that is carried on: the service may clear them."""
        held = [event.bytes for event in events if isinstance(event, ToolResult)]
        self._result_bytes += held
        self._teacher.recall(held)

    def settle_open(self) -> list[Charge]:
        """Charges for everything that was cut short, at its upper bound, marked as estimated."""
        if self._unanswered is not None:
            started = self._unanswered()
            self._booked[started.step] = started.booked_usd
        charges: list[Charge] = []
        for step, booked in list(self._booked.items()):
            opened = self._open.get(step)
            usd = opened.seen_usd if opened else booked
            line = ChargeLine(
                item=f"{opened.started.model if opened else self.model} input and output",
                quantity=1,
                unit_usd=usd,
                usd=usd,
                estimated=True,
                step=step,
                purpose=opened.started.purpose if opened else "answer",
                basis=self._booked_on(opened),
            )
            charges.append(Charge(line=line, settles=(step,)))
        for call in list(self._open_calls.values()):
            line_or_none = self.prices.tool_line(call, None, self.step)
            if line_or_none is not None:
                charges.append(Charge(line=line_or_none))
        self._open_calls.clear()
        return charges

    # --- one pass ---------------------------------------------------------------------------------

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
        self._open[step] = _Pass(started, max_tokens, output, dearest, served, said)
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

    def _rebook(self, opened: _Pass, output_tokens: int) -> PassStarted | None:
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
        return max(
            min(declared, self.largest_result or declared), self._shown.get(f"{call.server}/{call.tool}", 0)
        )

    def max_tokens(self, prompt_bytes: int, *, hosted: bool = True, model: str | None = None) -> int:
        """Output tokens that the next request may use; raises LimitExceeded below the useful floor.

        `prompt_bytes` is what the request adds to the conversation, or all of it where it is not `hosted`
        (no tools, in no conversation). Under `worst_case` the room is shared out over several passes, since
        each of them counts at its full max_tokens.
        """
        ceiling = self.limits.max_output_tokens
        if self.limits.max_usd is None:
            return ceiling
        billing = self.billing if hosted else Billing()
        context = billing.tokens(prompt_bytes) + (self.next_context() if hosted else 0)
        rates = self._rates(context, model)
        opened = self._last if hosted else None
        reread = opened.started.context_tokens if opened else 0
        reserve = self.reserve_usd() if hosted else 0.0
        room = self.limits.max_usd - self.spent - reserve - self._input_usd(rates, context, reread)
        fits = int(room / rates.output) if rates.output else ceiling
        if fits < min(USEFUL_OUTPUT, ceiling):
            least = self.limits.max_usd - room + USEFUL_OUTPUT * rates.output
            dollars = f"{ceil(least * 100) / 100:.2f}"
            by = f"--max-usd {dollars}" if self.capped_by == "max_usd" else f"${dollars}{self._remedy}"
            raise LimitExceeded(
                self.capped_by,
                least,
                self.limits.max_usd,
                f"${self.limits.max_usd:g} cannot pay one pass and the final answer: it takes at least {by}",
            )
        if hosted and self.limits.worst_case:
            fits = max(fits // 4, USEFUL_OUTPUT)
        return min(ceiling, fits)

    def least_usd(self) -> float:
        """The least that a run can be begun with: one pass and the smallest final answer."""
        context = self.next_context()
        rates = self._rates(context)
        first = self.billing.input_usd(rates, context) + USEFUL_OUTPUT * rates.output
        return first + self._final_usd(USEFUL_OUTPUT, 0)

    # --- the final request ------------------------------------------------------------------------

    def reserve_usd(self) -> float:
        """What is kept for the final answer: its least price, or the reserved share if that is more."""
        if self.limits.max_usd is None:
            return 0.0
        return max(self._final_usd(USEFUL_OUTPUT, 0), self.limits.reserve * self.limits.max_usd)

    def final_request(self) -> FinalRequest | None:
        """The final request that what is left can pay; None when not even the smallest fits."""
        left = self.remaining
        output = min(FINAL_OUTPUT, self.limits.max_output_tokens)
        if left is None:
            return FinalRequest(output, FINAL_EVIDENCE_BYTES, self._final_usd(output, FINAL_EVIDENCE_BYTES))
        least = self._final_usd(min(USEFUL_OUTPUT, output), 0)
        if least > left + ROUNDING:
            return None
        rates = self._rates(self._final_context(FINAL_EVIDENCE_BYTES))
        spare = left - least
        more_output = min(output - USEFUL_OUTPUT, int(spare / 2 / rates.output)) if rates.output else 0
        output = USEFUL_OUTPUT + max(more_output, 0)
        spare = left - self._final_usd(output, 0)
        per_byte = rates.dearest_input * Billing().tokens_per_byte
        evidence = min(FINAL_EVIDENCE_BYTES, int(spare / per_byte)) if per_byte else FINAL_EVIDENCE_BYTES
        while evidence > 0 and self._final_usd(output, evidence) > left:  # rounding, a price tier
            evidence = evidence * 9 // 10 if evidence > 100 else 0
        return FinalRequest(output, evidence, self._final_usd(output, evidence))

    def _final_context(self, evidence_bytes: int) -> int:
        return Billing().tokens(self.question_bytes + FINAL_PROMPT_BYTES + evidence_bytes, 4)

    def _final_usd(self, output: int, evidence_bytes: int) -> float:
        context = self._final_context(evidence_bytes)
        rates = self._rates(context)
        return Billing().input_usd(rates, context) + output * rates.output

    # --- one call ---------------------------------------------------------------------------------

    def admit(self, call: ToolCall) -> Denial | None:
        """Whether this call may reach its server: None, or why not and whether the loop ends.

        A pure question until it denies: a denial that does not end the loop is remembered, since each
        further asking is a paid pass.
        """
        denial = (
            self._over_steps() or self._over_money(call) or self._repeated(call) or self._over_calls(call)
        )
        if denial is None:
            self._denied_in_a_row = 0
            self._count(call)
        elif not denial.ends:
            self._denied_in_a_row += 1
            if self._denied_in_a_row >= 2:
                denial = Denial(denial.limit, denial.message, ends=True)
        return denial

    def _count(self, call: ToolCall) -> None:
        self.calls.update({call.tool, call.server, f"{call.server}/{call.tool}"})
        self._signatures[_signature(call)] += 1

    def _over_steps(self) -> Denial | None:
        limit = self.limits.max_steps
        if limit is None or self.step + 1 < limit:
            return None
        what = f"{self.step} of {limit} steps are used and the last one is kept for the answer"
        return _denial(
            LimitExceeded("max_steps", self.step + 1, limit, f"{what}{REMEDY}--max-steps"), ends=True
        )

    def _over_money(self, call: ToolCall) -> Denial | None:
        cap = self.limits.max_usd
        if cap is None:
            return None
        quantity, unit, _ = self.prices.tool_usd(call.server, call.tool, call.arguments)
        needed = self.spent + self._next_pass_usd(call) + self.reserve_usd()
        if call.id not in self._open_calls:
            needed += quantity * unit
        if needed <= cap + ROUNDING:
            return None
        what = (
            f"${self.spent:.4f} of ${cap:g} is spent and reading one more result could cost"
            f" ${self._next_pass_usd(call):.4f} (would need ${needed:.2f})"
        )
        return _denial(LimitExceeded(self.capped_by, needed, cap, what + self._remedy), ends=True)

    def _next_pass_usd(self, call: ToolCall) -> float:
        """The pass that reads this call's result, and the passes that may happen unseen."""
        opened = self._last
        context = self.next_context(call)
        rates = self._rates(context)
        reread = opened.started.context_tokens if opened else 0
        output = opened.max_tokens if opened and self.limits.worst_case else OUTPUT_STEP
        once = self._input_usd(rates, context, reread, call) + output * rates.output
        return once * (1 + self.unseen_passes)

    def _repeated(self, call: ToolCall) -> Denial | None:
        times = self._signatures[_signature(call)] + 1
        if times < REPEATED_CALLS:
            return None
        what = f"{call.tool} was already called {times - 1} times with the same arguments"
        return _denial(LimitExceeded("repeated_calls", times, REPEATED_CALLS - 1, what), ends=True)

    def _over_calls(self, call: ToolCall) -> Denial | None:
        for name in (f"{call.server}/{call.tool}", call.tool, call.server):
            cap = self.limits.max_calls.get(name)
            if cap is not None and self.calls[name] >= cap:
                used = self.calls[name]
                what = f"{name} may be called {cap} times and was called {used} times"
                limit = LimitExceeded("max_calls", used + 1, cap, f"{what}{REMEDY}--max-calls {name}=N")
                return _denial(limit, ends=False)
        return None

    # --- folds ------------------------------------------------------------------------------------

    def _fold_pass_started(self, event: PassStarted) -> None:
        if event.step > self.step:
            self.step = event.step
            if event.purpose in CONVERSING:
                self._conversed = event.step
                self._pending_bytes = 0
        self._booked[event.step] = event.booked_usd
        self._tell()

    def _judge_money(self, event: PassStarted) -> None:
        cap = self.limits.max_usd
        reserve = self.reserve_usd() if event.purpose in CONVERSING else 0.0
        if cap is not None and self.spent + reserve > cap + ROUNDING:
            raise LimitExceeded(
                self.capped_by,
                self.spent + reserve,
                cap,
                f"${self.spent:.4f} of ${cap:g} is spent and the rest is kept for the answer{self._remedy}",
            )

    def _settle(self, event: PassFinished) -> list[Event]:
        """Charge lines for the usage of these passes; without usage they stay at what was booked."""
        if not event.exact:
            return [charge for charge in self.settle_open() if set(charge.settles) <= set(event.steps)]
        whole = len(event.usage) == len(event.steps)
        lines: list[ChargeLine] = []
        for at, usage in enumerate(event.usage):
            step = event.steps[at] if whole else event.steps[-1]
            known = usage.model_copy(update={"model": self._priced(usage.model)})
            size, certain = self._largest_prompt(event, known)
            estimated = not certain or known.model != usage.model
            lines += [
                line.model_copy(update={"estimated": estimated})
                for line in self.prices.model_lines(known, step, event.purpose, prompt_tokens=size)
            ]
        if not lines:  # the service reported, and reported nothing
            rates = self._rates(1)
            lines = [
                ChargeLine(
                    item=f"{event.model} output",
                    quantity=0,
                    unit_usd=rates.output,
                    usd=0.0,
                    estimated=False,
                    step=event.steps[-1] if event.steps else self.step,
                    purpose=event.purpose,
                )
            ]
        last = len(lines) - 1
        return [Charge(line=line, settles=event.steps if at == last else ()) for at, line in enumerate(lines)]

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

    def _booked_on(self, opened: _Pass | None) -> str:
        if opened is None:
            return "as booked"
        taught = self.billing.taught_by
        basis = opened.served[1].basis
        return f"{basis}; rates seen in {taught}" if taught else basis

    def _fold_charge(self, event: Charge) -> None:
        self.lines.append(event.line)
        for step in event.settles:
            self._booked.pop(step, None)
        self._tell()

    def _fold_result(self, event: ToolResult) -> list[Event]:
        call = self._open_calls.pop(event.id, None)
        self._pending_bytes += event.bytes
        self._result_bytes.append(event.bytes)
        if call is None:
            return []
        follows: list[Event] = []
        found = self.sources_in(event.content) if self.sources_in and not event.is_error else 0
        line = self.prices.tool_line(call, event, self.step, found)
        if line is not None:
            follows.append(Charge(line=line))
        if not event.denied:
            follows += self._oversized(call, event)
            self._empty = 0 if found else self._empty + 1
        return follows

    def _oversized(self, call: ToolCall, event: ToolResult) -> list[Event]:
        largest = self.result_bytes(call)
        name = f"{call.server}/{call.tool}"
        self._shown[name] = max(self._shown.get(name, 0), event.bytes)
        if event.bytes <= largest:
            return []
        return [
            LimitReached(
                limit="result_size",
                value=event.bytes,
                ceiling=largest,
                action=f"{name} returned more than the {largest} bytes it was taken to return at most;"
                " the larger size counts from here on",
            )
        ]

    def _judge_repetition(self) -> None:
        length, times = REPEATED_TEXT
        if len(self._text) - self._text_checked < length:
            return
        self._text_checked = len(self._text)
        if self._text.count(self._text[-length:]) >= times:
            raise LimitExceeded(
                "repeated_text", times, times - 1, f"the answer repeats the same {length} characters"
            )

    # --- helpers ----------------------------------------------------------------------------------

    @property
    def _remedy(self) -> str:
        return f"{REMEDY}--{self.capped_by.replace('_', '-')}"

    @property
    def _last(self) -> _Pass | None:
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
        old = self._result_bytes[: len(held) - rule.keep]
        freed = int(self.billing.tokens(sum(old), 0) * LEAST_CLEARED)
        return max(usd, self.billing.input_usd(rates, max(context - freed, 0)))

    def _waiting(self, *asked: ToolCall) -> list[ToolCall]:
        """The calls whose results the next pass will read, those `asked` for among them."""
        return list((self._open_calls | {call.id: call for call in asked}).values())

    def _calls_usd(self) -> float:
        total = 0.0
        for call in self._open_calls.values():
            quantity, unit, _ = self.prices.tool_usd(call.server, call.tool, call.arguments)
            total += quantity * unit
        return total

    def _tell(self) -> None:
        if self.record_spent is not None:
            self.record_spent(self.spent)


def _signature(call: ToolCall) -> str:
    """The same call whatever the order of its arguments and of the items in its lists."""
    return json.dumps(
        [call.server, call.tool, _canonical(call.arguments)], sort_keys=True, ensure_ascii=False
    )


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((_canonical(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    return " ".join(value.split()).casefold() if isinstance(value, str) else value


def _denial(limit: LimitExceeded, *, ends: bool) -> Denial:
    """One wording for both readers: the user reads which option raises the limit, the model what to do."""
    what = str(limit).partition(REMEDY)[0]
    advice = "Answer now with what you have found." if ends else "Use another tool, or answer now."
    return Denial(limit, f"Not allowed: {what}. {advice}", ends)
