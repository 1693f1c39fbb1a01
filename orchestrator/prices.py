"""What things cost: models from genai-prices, tools from the notes beside their server.

Never a guess and never 0 for something unknown: a price that nobody knows is an error before anything is
spent, unless the user gives one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

from orchestrator.errors import ConfigurationError
from orchestrator.events import ChargeLine, Purpose, ToolCall, ToolResult, Usage
from orchestrator.settings import Server

US_ONLY_FACTOR: Final = 1.1
"""`inference_geo: us` multiplies every token rate (Anthropic's pricing page); genai-prices leaves it out."""
_CUT_OFF: Final = re.compile(
    r"time[d -]{0,2}out|ECONN|EPIPE|hang up|connection[\w ]{0,20}(?:closed|lost|reset)", re.I
)
"""Errors behind which a call may have been carried out all the same."""
FALLBACK_MODELS: Final = ("claude-opus-4-8",)
"""Models that a server-side fallback may put in the place of the one asked for."""


@dataclass(frozen=True)
class Rates:
    """US dollars per token for one request of one model, long-context tier already chosen."""

    input: float
    cache_write: float
    cache_write_1h: float
    cache_read: float
    output: float
    basis: str

    def usd(self, usage: Usage) -> float:
        """What this usage costs at these rates."""
        return (
            usage.input_tokens * self.input
            + usage.cache_write_tokens * self.cache_write
            + usage.cache_write_1h_tokens * self.cache_write_1h
            + usage.cache_read_tokens * self.cache_read
            + usage.output_tokens * self.output
        )

    @property
    def dearest_input(self) -> float:
        """The most that one input token can cost: uncached, or written to the five-minute cache."""
        return max(self.input, self.cache_write)

    def times(self, factor: float) -> Rates:
        """The same rates, each multiplied."""
        return replace(
            self,
            input=self.input * factor,
            cache_write=self.cache_write * factor,
            cache_write_1h=self.cache_write_1h * factor,
            cache_read=self.cache_read * factor,
            output=self.output * factor,
        )


@dataclass(frozen=True)
class Prices:
    """The price book of one run.

    `price_in` and `price_out` (USD per million tokens) stand in for a model that the list does not know,
    `price_call` (USD per call, by tool, server or server/tool) for tools without notes.
    """

    servers: Mapping[str, Server]
    price_in: float | None = None
    price_out: float | None = None
    price_call: Mapping[str, float] | None = None
    inference_geo: str | None = None
    batch: bool = False
    speed: str | None = None

    def rates(self, model: str, prompt_tokens: int, usage: Usage | None = None) -> Rates:
        """Rates for a request of this prompt size. Raises ConfigurationError for an unknown model."""
        if self.price_in is not None and self.price_out is not None:
            rates = _user_rates(self.price_in, self.price_out)
        else:
            tier = usage.service_tier if usage else None
            batch = self.batch or tier == "batch"
            speed = (usage.speed if usage else None) or self.speed
            rates = _listed_rates(model, max(prompt_tokens, 1), batch, speed == "fast")
        geo = (usage.inference_geo if usage else None) or self.inference_geo
        return rates.times(US_ONLY_FACTOR) if geo == "us" else rates

    def knows(self, model: str) -> bool:
        """Whether this model has a price."""
        try:
            self.rates(model, 1)
        except ConfigurationError:
            return False
        return True

    def dearest(self, models: Iterable[str], prompt_tokens: int) -> Rates:
        """Per kind of token, the highest rate among the models that may serve."""
        options = [self.rates(model, prompt_tokens) for model in models]
        return Rates(
            input=max(rates.input for rates in options),
            cache_write=max(rates.cache_write for rates in options),
            cache_write_1h=max(rates.cache_write_1h for rates in options),
            cache_read=max(rates.cache_read for rates in options),
            output=max(rates.output for rates in options),
            basis=options[0].basis,
        )

    def model_lines(
        self, usage: Usage, step: int, purpose: Purpose, *, prompt_tokens: int | None = None
    ) -> list[ChargeLine]:
        """The ledger lines of one iteration, one for its output even where it is 0.

        `prompt_tokens` chooses the long-context tier where usage is a sum over several requests.
        """
        rates = self.rates(
            usage.model, usage.prompt_tokens if prompt_tokens is None else prompt_tokens, usage
        )
        kinds: Sequence[tuple[str, int, float]] = (
            ("input", usage.input_tokens, rates.input),
            ("cache_write", usage.cache_write_tokens, rates.cache_write),
            ("cache_write", usage.cache_write_1h_tokens, rates.cache_write_1h),
            ("cache_read", usage.cache_read_tokens, rates.cache_read),
            ("output", usage.output_tokens, rates.output),
        )
        return [
            ChargeLine(
                item=f"{usage.model} {kind}",
                quantity=quantity,
                unit_usd=rate,
                usd=quantity * rate,
                estimated=False,
                step=step,
                purpose=purpose,
                basis=rates.basis,
            )
            for kind, quantity, rate in kinds
            if quantity or kind == "output"
        ]

    def tool_usd(
        self, server: str, tool: str, arguments: Mapping[str, Any], found: int | None = None
    ) -> tuple[float, float, str]:
        """(quantity, USD per unit, basis) of one call. Raises ConfigurationError for an unknown price.

        `found` is how many results it had, None before it is known: then as many as it asks for.
        """
        given = self.price_call or {}
        for name in (f"{server}/{tool}", tool, server):
            if name in given:
                return 1, given[name], "user"
        offered = self.servers[server].tools if server in self.servers else {}
        if offered and tool not in offered:
            # nobody offered it, so it will be refused; until then it counts as the dearest that is offered
            return max((self.tool_usd(server, name, arguments, found) for name in offered), key=_usd)
        notes = offered.get(tool)
        if notes is not None and notes.usd_per_url is not None:
            urls = arguments.get("urls")
            return (len(urls) if isinstance(urls, list) else 1), notes.usd_per_url, "list"
        if notes is not None and notes.usd_per_call is not None:
            extra = max((_asked(arguments) if found is None else found) - notes.included_results, 0)
            return 1, notes.usd_per_call + extra * notes.extra_result_usd, "list"
        raise ConfigurationError(
            f"the price of {server}/{tool} is not known; give it with --price-call {server}/{tool}=USD"
            " (0 is an answer)"
        )

    def tool_line(
        self, call: ToolCall, result: ToolResult | None, step: int, found: int | None = None
    ) -> ChargeLine | None:
        """The ledger line of one call: the server's own figure where visible, else the list price.

        A call that failed costs nothing; one whose end was not seen (`result` None, or an error that says
        the connection broke or the time was up) is booked as estimated: it may have been carried out.
        """
        unseen = result is None or (result.is_error and bool(_CUT_OFF.search(str(result.content))))
        if result is not None and (result.denied or (result.is_error and not unseen)):
            return None
        if result is not None and not unseen:
            found = _listed(result.content, found)
        quantity, unit, basis = self.tool_usd(call.server, call.tool, call.arguments, found)
        usd = quantity * unit
        reported = _reported_usd(result)
        if reported is not None:
            usd, basis, unit = reported, "server", reported / quantity if quantity else reported
        return ChargeLine(
            item=call.item,
            quantity=quantity,
            unit_usd=unit,
            usd=usd,
            estimated=unseen,
            step=step,
            basis=basis,
        )


def _usd(priced: tuple[float, float, str]) -> float:
    return priced[0] * priced[1]


def _listed(content: Any, found: int | None) -> int | None:
    """How many results there are to pay for: one page may stand behind several of them."""
    results = content.get("results") if isinstance(content, Mapping) else None
    return len(results) if isinstance(results, list) else found


def _asked(arguments: Mapping[str, Any]) -> int:
    """How many results a call asks for, whatever its server calls that argument."""
    return max(
        (n for name, n in arguments.items() if "result" in name.lower() and isinstance(n, int)), default=0
    )


def _reported_usd(result: ToolResult | None) -> float | None:
    costs = [entry["cost_usd"] for entry in result.usage if "cost_usd" in entry] if result else []
    return float(sum(costs)) if costs else None


def _user_rates(price_in: float, price_out: float) -> Rates:
    """The user names two figures; the cache is priced by the published multipliers, reads without rebate."""
    per_token = price_in / 1e6
    return Rates(per_token, per_token * 1.25, per_token * 2, per_token, price_out / 1e6, "user")


@lru_cache(maxsize=4096)
def _listed_rates(model: str, prompt_tokens: int, batch: bool, fast: bool) -> Rates:
    import genai_prices

    context: dict[str, str] = {}
    if batch:
        context["processing"] = "batch"
    if fast:
        context["speed"] = "fast"

    def unit(**tokens: int) -> float:
        # a whole request of this size decides the tier; the rate is what one of its tokens costs
        usage = genai_prices.Usage(**{"input_tokens": prompt_tokens, "output_tokens": 0, **tokens})
        priced = genai_prices.calc_price(
            usage, model_ref=model, provider_id="anthropic", price_context=context or None
        )
        counted = next(iter(tokens.values()), prompt_tokens)
        part = priced.output_price if "output_tokens" in tokens else priced.input_price
        return float(part / counted)

    try:
        row = genai_prices.calc_price(
            genai_prices.Usage(input_tokens=prompt_tokens), model_ref=model, provider_id="anthropic"
        ).model.id
        return Rates(
            input=unit(),
            cache_write=unit(cache_write_tokens=prompt_tokens),
            cache_write_1h=unit(cache_write_tokens=prompt_tokens, cache_write_1h_tokens=prompt_tokens),
            cache_read=unit(cache_read_tokens=prompt_tokens),
            output=unit(output_tokens=1_000),
            basis=f"genai-prices {version('genai-prices')} {row}",
        )
    except LookupError:
        raise ConfigurationError(
            f"the price of model {model!r} is not known; give it with --price-in and --price-out"
            " (USD per million tokens)"
        ) from None
