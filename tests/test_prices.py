"""Prices: what the list says, what the user gives, and that nothing is guessed."""

import pytest

from orchestrator.errors import ConfigurationError
from orchestrator.events import ToolCall, ToolResult, Usage
from orchestrator.prices import Prices
from orchestrator.settings import Server, ToolNotes

SERVERS = {
    "parallel-search": Server(
        name="parallel-search",
        tools={
            "web_search": ToolNotes(role="search", usd_per_call=0.001),
            "web_fetch": ToolNotes(role="fetch", usd_per_url=0.001),
        },
    ),
    "bare": Server(name="bare"),
}


@pytest.mark.parametrize(
    ("model", "prompt", "per_million"),
    [
        ("claude-opus-5-5", 1_000, (4, 5, 8, 0.20, 20)),
        ("claude-sonnet-5-5", 1_000, (2, 2.5, 4, 0.10, 10)),
        ("claude-haiku-5-5", 100_000, (0.10, 0.125, 0.20, 0.01, 0.50)),
        ("claude-haiku-5-5", 100_001, (0.50, 0.625, 1.00, 0.05, 2.50)),
        ("claude-opus-4-8", 1_000, (5, 6.25, 10, 0.50, 25)),
        ("claude-haiku-4-5", 1_000, (1, 1.25, 2, 0.10, 5)),
        ("claude-fable-5-2", 1_000, (8, 10, 16, 0.20, 40)),
    ],
)
def test_the_published_rates_hold(model: str, prompt: int, per_million: tuple[float, ...]) -> None:
    rates = Prices({}).rates(model, prompt)
    found = (rates.input, rates.cache_write, rates.cache_write_1h, rates.cache_read, rates.output)
    assert [rate * 1e6 for rate in found] == pytest.approx(per_million)
    assert model in rates.basis


def test_a_region_costs_a_tenth_more_batch_half_and_fast_mode_double() -> None:
    base = Prices({}).rates("claude-opus-5-5", 1_000)
    assert Prices({}, inference_geo="us").rates("claude-opus-5-5", 1_000).output == pytest.approx(
        base.output * 1.1
    )
    assert Prices({}, batch=True).rates("claude-opus-5-5", 1_000).input == pytest.approx(base.input / 2)
    assert Prices({}, speed="fast").rates("claude-opus-5-5", 1_000).input == pytest.approx(base.input * 2)
    said = Usage(model="claude-opus-5-5", input_tokens=1_000, inference_geo="us", speed="fast")
    line, _ = Prices({}).model_lines(said, 1, "answer")
    assert line.usd == pytest.approx(1_000 * 8e-6 * 1.1)


def test_a_model_that_nobody_knows_the_price_of_is_refused_until_the_user_gives_one() -> None:
    """Case I011: unknown is not free."""
    with pytest.raises(ConfigurationError, match="--price-in and --price-out"):
        Prices({}).rates("my-local-model", 1)
    rates = Prices({}, price_in=0, price_out=0).rates("my-local-model", 1)
    assert (rates.input, rates.output, rates.basis) == (0, 0, "user")


def test_a_tool_without_a_price_is_refused_and_zero_is_an_answer() -> None:
    with pytest.raises(ConfigurationError, match="--price-call bare/find=USD"):
        Prices(SERVERS).tool_usd("bare", "find", {})
    for name in ("bare", "find", "bare/find"):
        assert Prices(SERVERS, price_call={name: 0.0}).tool_usd("bare", "find", {}) == (1, 0.0, "user")


def test_a_fetch_is_priced_by_the_url_and_a_search_by_the_call() -> None:
    prices = Prices(SERVERS)
    assert prices.tool_usd("parallel-search", "web_fetch", {"urls": ["a", "b", "c"]})[:2] == (3, 0.001)
    assert prices.tool_usd("parallel-search", "web_search", {"search_queries": ["a", "b"]})[:2] == (1, 0.001)


def test_a_call_that_failed_or_was_denied_is_not_charged_and_one_without_end_is_estimated() -> None:
    call = ToolCall(id="1", server="parallel-search", tool="web_search", arguments={})
    failed = ToolResult(id="1", content="", is_error=True, ms=None, chars=0, bytes=0)
    assert Prices(SERVERS).tool_line(call, failed, 1) is None
    line = Prices(SERVERS).tool_line(call, None, 1)
    assert line is not None
    assert (line.usd, line.estimated, line.basis) == (0.001, True, "list")
