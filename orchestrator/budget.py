"""The budget around a hosted loop: a fold over events, the ledger, and the admission of the next call.

Ceilings stand in `Limits` (frozen); this class holds the counters. Money is never counted below what the
service may bill: a pass is booked at an upper bound when it begins and stays so until usage settles it, and
a call is let through only while the pass that reads its result and the final request still fit. How soft a
ceiling is: a pass that has begun is paid for, so `max_usd` holds as far as the bounds do (see billing.py);
`max_steps` and `max_calls` are exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final, Literal

from orchestrator.billing import Billing
from orchestrator.errors import LimitExceeded
from orchestrator.events import (
    Charge,
    ChargeLine,
    Event,
    LimitReached,
    PassFinished,
    PassStarted,
    TextDelta,
    ToolCall,
    ToolResult,
)
from orchestrator.leftovers import left_open
from orchestrator.loops import Loops
from orchestrator.passes import CONVERSING, ROUNDING, USEFUL_OUTPUT, FinalRequest, Passes

REMEDY: Final = "; raise it with "


@dataclass(frozen=True)
class Denial:
    """Why a call is not let through: the limit, the words for the model, and whether the loop ends."""

    limit: LimitExceeded
    message: str
    ends: bool


@dataclass
class Budget(Passes):
    """The counters of one run against its `Limits`.

    `sources_in` counts the sources in a tool result; `record_spent` is told the spend, bookings included,
    whenever it changes (the daily cap listens).
    """

    capped_by: Literal["max_usd", "daily_usd"] = "max_usd"
    """Which option the cap comes from."""
    sources_in: Callable[[Any], int] | None = None
    record_spent: Callable[[float], None] | None = None
    lines: list[ChargeLine] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._booked: dict[int, float] = {}
        self._lost_calls: list[ToolCall] = []
        self._loops = Loops()
        self._denied_in_a_row = 0

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
                self._loops.asked()
                self._tell(ahead=self.next_pass_usd(event))
            case ToolResult():
                return self._fold_result(event)
            case TextDelta():
                self._loops.wrote(event.text)
        return []

    def judge(self, event: Event) -> None:
        """Raises LimitExceeded when the run must not go on after this event, which was folded before."""
        match event:
            case PassStarted():
                self._judge_money(event)
            case ToolResult() if not event.denied:
                self._loops.judge_searches()
            case TextDelta():
                self._loops.judge_text()

    def replay(self, events: Iterable[Event]) -> None:
        """Take over the spend and the conversation of earlier runs without judging them again."""
        replayed = list(events)
        passes, self._lost_calls = left_open(replayed)
        self._booked |= {started.step: started.booked_usd for started in passes}
        for event in replayed:
            self._teacher.see(event)
            match event:
                case PassStarted():
                    self.step = max(self.step, event.step)
                case Charge():
                    self._fold_charge(event)
                case ToolCall():
                    self._count(event)

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
        unpaid = [*self._lost_calls, *self._open_calls.values()]
        lines = (self.prices.tool_line(call, None, self.step) for call in unpaid)
        charges += [Charge(line=line) for line in lines if line is not None]
        self._lost_calls.clear()
        self._open_calls.clear()
        return charges

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

    def reserve_usd(self) -> float:
        """What is kept for the final answer: its least price, or the reserved share if that is more."""
        if self.limits.max_usd is None:
            return 0.0
        return max(self.final_usd(USEFUL_OUTPUT, 0), self.limits.reserve * self.limits.max_usd)

    def final_request(self) -> FinalRequest | None:
        """The final request that what is left can pay; None when not even the smallest fits."""
        return self.plan_final(self.remaining)

    def admit(self, call: ToolCall) -> Denial | None:
        """Whether this call may reach its server: None, or why not and whether the loop ends.

        A pure question until it denies: a denial that does not end the loop is remembered, since each
        further asking is a paid pass.
        """
        repeated = self._loops.repeated(call)
        denial = (
            self._over_steps()
            or self._over_money(call)
            or (repeated and _denial(repeated, ends=True))
            or self._over_calls(call)
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
        self.calls.update({call.tool, call.server, call.item})
        self._loops.called(call)

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
        needed = self.spent + self.next_pass_usd(call) + self.reserve_usd()
        if call.id not in self._open_calls:
            needed += quantity * unit
        if needed <= cap + ROUNDING:
            return None
        what = (
            f"${self.spent:.4f} of ${cap:g} is spent and reading one more result could cost"
            f" ${self.next_pass_usd(call):.4f} (would need ${needed:.2f})"
        )
        return _denial(LimitExceeded(self.capped_by, needed, cap, what + self._remedy), ends=True)

    def _over_calls(self, call: ToolCall) -> Denial | None:
        for name in (call.item, call.tool, call.server):
            cap = self.limits.max_calls.get(name)
            if cap is not None and self.calls[name] >= cap:
                used = self.calls[name]
                what = f"{name} may be called {cap} times and was called {used} times"
                limit = LimitExceeded("max_calls", used + 1, cap, f"{what}{REMEDY}--max-calls {name}=N")
                return _denial(limit, ends=False)
        return None

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
        if not event.exact or not event.usage:
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
        last = len(lines) - 1
        return [Charge(line=line, settles=event.steps if at == last else ()) for at, line in enumerate(lines)]

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
            self._loops.found(found)
        return follows

    def _oversized(self, call: ToolCall, event: ToolResult) -> list[Event]:
        largest, name = self.result_bytes(call), call.item
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

    @property
    def _remedy(self) -> str:
        return f"{REMEDY}--{self.capped_by.replace('_', '-')}"

    def _calls_usd(self) -> float:
        calls = [*self._lost_calls, *self._open_calls.values()]
        priced = (self.prices.tool_usd(call.server, call.tool, call.arguments) for call in calls)
        return sum(quantity * unit for quantity, unit, _ in priced)

    def _tell(self, ahead: float = 0.0) -> None:
        """Tell the spend; `ahead` is what may be billed before the next event is seen."""
        if self.record_spent is not None:
            self.record_spent(self.spent + ahead)


def _denial(limit: LimitExceeded, *, ends: bool) -> Denial:
    """One wording for both readers: the user reads which option raises the limit, the model what to do."""
    what = str(limit).partition(REMEDY)[0]
    advice = "Answer now with what you have found." if ends else "Use another tool, or answer now."
    return Denial(limit, f"Not allowed: {what}. {advice}", ends)
