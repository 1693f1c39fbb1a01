"""Each limit exactly at, one over, zero and none; what is booked, settled and estimated."""

import pytest

from orchestrator.billing import Billing
from orchestrator.budget import Budget
from orchestrator.errors import LimitExceeded
from orchestrator.events import (
    Charge,
    Event,
    LimitReached,
    Limits,
    PassFinished,
    PassStarted,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from orchestrator.prices import Prices
from orchestrator.settings import Server, ToolNotes

OPUS = "claude-opus-5-5"
SEARCH = Server(
    name="parallel-search",
    tools={
        "web_search": ToolNotes(role="search", usd_per_call=0.001, max_chars=40_000),
        "web_fetch": ToolNotes(role="fetch", usd_per_url=0.001, max_chars=40_000),
    },
)


def budget(**limits: object) -> Budget:
    return Budget(
        limits=Limits.model_validate(limits),
        prices=Prices(servers={SEARCH.name: SEARCH}),
        model=OPUS,
        sources_in=lambda content: len(content) if isinstance(content, list) else 0,
    )


def play(counters: Budget, *events: Event | None) -> list[Event]:
    """Fold events and what follows from them, judging each, as a run does."""
    seen: list[Event] = []
    for event in events:
        if event is None:
            continue
        seen.append(event)
        follows = counters.see(event)
        seen += play(counters, *follows)
        counters.judge(event)
    return seen


def search(at: int = 1, query: str = "", server: str = "parallel-search") -> ToolCall:
    return ToolCall(
        id=f"call-{at}",
        server=server,
        tool="web_search",
        arguments={"search_queries": [query or f"query {at}"]},
    )


def result(at: int = 1, *, size: int = 2_000, found: int = 1, error: bool = False) -> ToolResult:
    return ToolResult(
        id=f"call-{at}", content=["source"] * found, is_error=error, ms=3.0, chars=size, bytes=size
    )


def begin(counters: Budget, prompt_tokens: int = 3_000) -> PassStarted:
    return counters.open_pass("answer", 16_000, Usage(model=OPUS, input_tokens=prompt_tokens))


def finish(counters: Budget, *steps: int, **tokens: int) -> PassFinished:
    return PassFinished(
        steps=steps or (counters.step,),
        purpose="answer",
        model=OPUS,
        usage=(Usage(model=OPUS, **tokens),),
        stop_reason="end_turn",
        exact=True,
    )


def test_a_pass_is_booked_when_it_begins_and_settled_to_the_cent_when_usage_arrives() -> None:
    counters = budget()
    started = begin(counters)
    play(counters, started)
    assert counters.spent == pytest.approx(started.booked_usd)
    assert counters.spent > 3_000 * 4e-6
    play(counters, finish(counters, input_tokens=3_000, output_tokens=100))
    assert counters.spent == pytest.approx(3_000 * 4e-6 + 100 * 20e-6, abs=1e-12)
    assert not any(line.estimated for line in counters.lines)


def test_a_pass_without_usage_stays_at_its_booking_and_is_marked_estimated() -> None:
    """Case I016: the request counts even if its usage never arrives."""
    counters = budget()
    started = begin(counters)
    lost = PassFinished(steps=(1,), purpose="answer", model=OPUS, usage=(), stop_reason=None, exact=False)
    play(counters, started, lost)
    assert counters.spent == pytest.approx(started.booked_usd)
    assert [line.estimated for line in counters.lines] == [True]


def test_a_booking_grows_with_the_output_and_never_beyond_max_tokens() -> None:
    counters = budget(max_usd=None)
    play(counters, begin(counters))
    sizes = [grown.output_tokens for at in range(0, 20_000, 100) if (grown := counters.grow(at))]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 16_000
    assert all(size - at >= 256 for at, size in zip(range(0, 15_000, 100), [512], strict=False))


def test_every_iteration_is_charged_at_its_own_models_price() -> None:
    """A fallback is paid twice: the declined attempt and the serving one."""
    counters = budget()
    play(counters, begin(counters))
    event = PassFinished(
        steps=(1,),
        purpose="answer",
        model="claude-opus-4-8",
        usage=(
            Usage(model=OPUS, input_tokens=408),
            Usage(model="claude-opus-4-8", kind="fallback_message", input_tokens=412, output_tokens=264),
        ),
        stop_reason="end_turn",
        exact=True,
    )
    play(counters, event)
    assert counters.spent == pytest.approx(408 * 4e-6 + 412 * 5e-6 + 264 * 25e-6, abs=1e-12)


def test_above_100k_prompt_tokens_the_whole_request_costs_the_long_context_rate() -> None:
    """Case I005: tier prices belong into the reservation too."""
    counters = Budget(Limits(), Prices(servers={}), "claude-haiku-5-5")
    started = counters.open_pass("answer", 1_000, Usage(model="claude-haiku-5-5", input_tokens=100_001))
    assert started.booked_usd >= 100_001 * 0.5e-6
    cheap = counters.open_pass("answer", 1_000, Usage(model="claude-haiku-5-5", input_tokens=100_000))
    assert cheap.booked_usd < 100_001 * 0.2e-6


@pytest.mark.parametrize(("steps", "calls"), [(2, 0), (3, 1), (5, 3)])
def test_n_steps_allowed_means_exactly_n_with_the_answer(steps: int, calls: int) -> None:
    """Cases I025 and I038: a step is one sampling pass, and the last one is kept for the answer."""
    counters = budget(max_steps=steps, max_usd=None)
    allowed = 0
    while True:
        play(counters, begin(counters), search(counters.step))
        if counters.admit(search(counters.step)):
            break
        play(counters, result(counters.step), finish(counters, input_tokens=1))
        allowed += 1
    assert allowed == calls
    assert counters.step == steps - 1


def test_a_capped_tool_is_denied_with_what_is_left_and_the_model_may_use_another_one() -> None:
    counters = budget(max_calls={"web_search": 1}, max_usd=None)
    play(counters, begin(counters), search(1))
    assert counters.admit(search(1)) is None
    denial = counters.admit(search(2))
    assert denial is not None
    assert not denial.ends
    assert "may be called 1 times" in denial.message
    assert "--max-calls parallel-search/web_search=N" not in denial.message
    assert "--max-calls web_search=N" in str(denial.limit)


def test_zero_calls_means_none_and_no_cap_means_any_number() -> None:
    """Case I008: no limit is not the same as nothing allowed."""
    none = budget(max_calls={"web_search": 0})
    play(none, begin(none), search(1))
    assert none.admit(search(1)) is not None
    free = budget(max_calls={"web_search": None}, max_usd=None, max_steps=None)
    for at in range(200):
        play(free, begin(free), search(at))
        assert free.admit(search(at)) is None
        play(free, result(at), finish(free, input_tokens=1))


def test_a_second_denial_in_a_row_ends_the_loop_since_each_asking_is_a_paid_pass() -> None:
    counters = budget(max_calls={"web_search": 0})
    play(counters, begin(counters), search(1))
    first, second = counters.admit(search(1)), counters.admit(search(2))
    assert first is not None
    assert second is not None
    assert (first.ends, second.ends) == (False, True)


def test_the_third_identical_call_ends_the_searching_whatever_the_order_of_its_arguments() -> None:
    """Case I022."""
    counters = budget(max_usd=None, max_steps=None)
    play(counters, begin(counters))
    orders = [{"a": 1, "b": ["x", "y"]}, {"b": ["y", "x"], "a": 1}, {"b": ["x", "Y "], "a": 1}]
    calls = [
        ToolCall(id=str(at), server="parallel-search", tool="web_search", arguments=arguments)
        for at, arguments in enumerate(orders)
    ]
    denials = [counters.admit(call) for call in calls]
    assert denials[:2] == [None, None]
    assert denials[2] is not None
    assert denials[2].limit.limit == "repeated_calls"


def test_three_empty_or_failed_searches_in_a_row_end_the_run_and_a_hit_resets_the_count() -> None:
    """Case I020."""
    counters = budget(max_usd=None, max_steps=None)
    play(counters, begin(counters))
    outcomes = [(0, False), (0, True), (1, False), (0, False), (0, True)]
    for at, (found, error) in enumerate(outcomes):
        play(counters, search(at), result(at, found=found, error=error))
    play(counters, search(9))
    with pytest.raises(LimitExceeded) as caught:
        play(counters, result(9, found=0))
    assert caught.value.limit == "empty_searches"


def test_an_honest_run_of_200_distinct_calls_is_not_taken_for_a_loop() -> None:
    """Case I023."""
    counters = budget(max_usd=None, max_steps=None)
    for at in range(200):
        play(counters, begin(counters), search(at))
        assert counters.admit(search(at)) is None
        play(counters, result(at), finish(counters, input_tokens=100, output_tokens=10))


def test_an_answer_that_repeats_the_same_200_characters_five_times_is_ended() -> None:
    counters = budget(max_usd=None)
    play(counters, begin(counters))
    with pytest.raises(LimitExceeded) as caught:
        for _ in range(40):
            play(counters, TextDelta(text="the same words again and again, " * 2))
    assert caught.value.limit == "repeated_text"
    honest = budget(max_usd=None)
    play(honest, begin(honest))
    for at in range(2_000):
        play(honest, TextDelta(text=f"sentence number {at} says something new. "))


def test_a_call_is_admitted_only_while_the_pass_that_reads_it_and_the_final_request_fit() -> None:
    counters = budget(max_usd=0.50)
    admitted = 0
    for at in range(50):
        play(counters, begin(counters, 3_000 + at * 12_000), search(at))
        denial = counters.admit(search(at))
        if denial:
            assert denial.limit.limit == "max_usd"
            assert "--max-usd" in str(denial.limit)
            break
        play(counters, result(at, size=40_000), finish(counters, input_tokens=3_000 + at * 12_000))
        admitted += 1
    assert admitted >= 2
    assert counters.spent + counters.reserve_usd() <= 0.50 + 1e-9


def test_a_result_larger_than_declared_is_named_and_its_size_counts_from_then_on() -> None:
    counters = budget()
    play(counters, begin(counters), search(1))
    seen = play(counters, result(1, size=90_000))
    assert [event.limit for event in seen if isinstance(event, LimitReached)] == ["result_size"]
    assert counters.result_bytes(search(2)) == 90_000


def test_a_failed_call_costs_nothing_and_an_unfinished_one_is_estimated() -> None:
    counters = budget()
    play(counters, begin(counters), search(1), search(2))
    play(counters, result(1, error=True))
    charges = counters.settle_open()
    assert [(c.line.item, c.line.estimated) for c in charges if "/" in c.line.item] == [
        ("parallel-search/web_search", True)
    ]


def test_the_servers_own_figure_wins_over_the_list_price() -> None:
    counters = budget()
    play(counters, begin(counters), search(1))
    seen = play(
        counters,
        result(1).model_copy(update={"usage": ({"name": "sku_search", "count": 1, "cost_usd": 0.005},)}),
    )
    (line,) = (event.line for event in seen if isinstance(event, Charge))
    assert (line.usd, line.basis) == (0.005, "server")


def test_the_final_request_is_priced_before_it_is_sent_and_always_fits_in_what_is_left() -> None:
    for cents in range(2, 101):
        counters = budget(max_usd=cents / 100)
        counters.question_bytes = 80
        plan = counters.final_request()
        if plan is not None:
            assert plan.usd <= cents / 100 + 1e-9
            assert plan.max_tokens >= 512
    assert budget(max_usd=0.005).final_request() is None


def test_a_cap_that_cannot_pay_one_pass_and_the_answer_names_the_smallest_that_can() -> None:
    counters = budget(max_usd=0.02)
    counters.opening_bytes = 9_000
    with pytest.raises(LimitExceeded, match=r"--max-usd 0\.\d\d") as caught:
        counters.max_tokens(0)
    smallest = float(str(caught.value).split()[-1])
    enough = budget(max_usd=smallest)
    enough.opening_bytes = 9_000
    assert enough.max_tokens(0) >= 512


def test_spend_survives_a_crash_and_what_was_open_stays_booked() -> None:
    """Case I128: budget after resume = budget before the crash + new calls."""
    before = budget()
    events = play(
        before, begin(before), search(1), result(1), finish(before, input_tokens=3_000, output_tokens=9)
    )
    open_pass = begin(before, 5_000)
    events += play(before, open_pass)
    after = budget()
    after.replay(events)
    assert after.spent == pytest.approx(before.spent)
    assert after.step == before.step
    play(after, *after.settle_open())
    assert after.spent == pytest.approx(before.spent)


def test_under_worst_case_nothing_that_was_seen_makes_a_pass_cheaper() -> None:
    seen = Billing(tokens_per_byte=0.2, reread_share=1.0, taught_by="earlier")
    trusting, wary = budget(), budget(worst_case=True)
    trusting.learned = wary.learned = seen
    assert wary.billing == Billing()
    assert trusting.billing == seen
    assert begin(wary).booked_usd > begin(trusting).booked_usd


def test_a_model_that_a_proxy_renames_is_charged_as_the_one_asked_for_and_marked_estimated() -> None:
    counters = budget()
    play(counters, counters.open_pass("answer", 1_000, Usage(model="our-proxy-name", input_tokens=1_000)))
    event = finish(counters, input_tokens=1_000).model_copy(
        update={"usage": (Usage(model="our-proxy-name", input_tokens=1_000),)}
    )
    play(counters, event)
    assert {(line.item, line.estimated) for line in counters.lines} == {
        (f"{OPUS} input", True),
        (f"{OPUS} output", True),
    }


def test_results_beyond_those_included_are_booked_as_asked_for_and_charged_as_found() -> None:
    notes = ToolNotes(role="search", usd_per_call=0.007, extra_result_usd=0.001)
    prices = Prices(servers={"exa": Server(name="exa", tools={"find": notes})})
    call = ToolCall(id="1", server="exa", tool="find", arguments={"numResults": 30})
    assert prices.tool_usd("exa", "find", call.arguments)[1] == pytest.approx(0.027)
    done = ToolResult(id="1", content="", is_error=False, ms=None, chars=0, bytes=0)
    line = prices.tool_line(call, done, 1, found=12)
    assert line is not None
    assert line.usd == pytest.approx(0.009)
