"""The stand-in of the Messages API misbehaves when told: each way as it looks on the wire."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import pytest

from orchestrator.offline import StandIns

Json = dict[str, Any]
FALLBACK_BETA = "server-side-fallback-2026-07-01"
REQUEST: Json = {
    "model": "claude-opus-5-5",
    "max_tokens": 4_000,
    "messages": [{"role": "user", "content": "Is it so?"}],
}
TEXT = {"text": "It is so, as far as anybody here can tell, and it will stay so for a while."}
WITH_FALLBACKS: Json = {**REQUEST, "fallbacks": "default", "betas": [FALLBACK_BETA]}


def raw(client: Any, request: Json = REQUEST) -> list[Json]:
    """The events as they come, known to the SDK or not."""
    with client.beta.messages.create(**request, stream=True) as stream:
        return [event.to_dict(warnings=False) for event in stream]


@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [
        ("401", 401, "authentication_error"),
        ("403", 403, "permission_error"),
        ("413", 413, "request_too_large"),
        ("429", 429, "rate_limit_error"),
        ("500", 500, "api_error"),
        ("529", 529, "overloaded_error"),
    ],
)
def test_an_error_status_comes_in_the_services_shape(
    client: Any, stand_ins: StandIns, fault: str, status: int, kind: str
) -> None:
    """And costs nothing."""
    stand_ins.configure(fault=fault)
    with pytest.raises(anthropic.APIStatusError) as caught:
        client.messages.create(**REQUEST)
    assert caught.value.status_code == status
    assert caught.value.body["error"]["type"] == kind  # type: ignore[index]
    assert stand_ins.bill()["usd"] == 0


def test_a_rate_limit_says_when_to_come_back(client: Any, stand_ins: StandIns) -> None:
    """Retry-After in seconds."""
    stand_ins.configure(fault="429", retry_after=7)
    with pytest.raises(anthropic.RateLimitError) as caught:
        client.messages.create(**REQUEST)
    assert caught.value.response.headers["retry-after"] == "7"


def test_a_fault_hits_as_many_requests_as_told_and_after_as_many(client: Any, stand_ins: StandIns) -> None:
    """The second of three."""
    stand_ins.configure(fault="529", fault_after=1, fault_times=1)
    seen = []
    for _ in range(3):
        try:
            seen.append(client.messages.create(**REQUEST).stop_reason)
        except anthropic.APIStatusError as error:
            seen.append(str(error.status_code))
    assert seen == ["end_turn", "529", "end_turn"]


def test_a_scripted_fault_hits_its_own_request(client: Any, stand_ins: StandIns) -> None:
    """A pass with a status never samples; the next one is played by the next request."""
    stand_ins.script([{"fault": "429"}, TEXT])
    with pytest.raises(anthropic.RateLimitError):
        client.messages.create(**REQUEST)
    assert client.messages.create(**REQUEST).content[-1].text == TEXT["text"]


def test_a_dropped_stream_ends_in_the_middle_and_what_was_generated_is_billed(
    client: Any, stand_ins: StandIns
) -> None:
    """No message_delta, no message_stop; FACTS: the bill knows the pass all the same."""
    stand_ins.configure(thinking=10)
    stand_ins.script([{**TEXT, "fault": "dropped_stream"}])
    seen: list[str] = []
    with (
        pytest.raises(httpx2.RemoteProtocolError),
        client.beta.messages.create(**REQUEST, stream=True) as stream,
    ):
        seen.extend(event.type for event in stream)
    assert "content_block_start" in seen
    assert "message_delta" not in seen
    (entry,) = stand_ins.bill()["passes"]
    assert entry["input_tokens"] > 0
    assert entry["output_tokens"] > 10


def test_an_error_event_ends_a_stream_that_began_well(client: Any, stand_ins: StandIns) -> None:
    """HTTP 200, then overloaded_error inside the stream."""
    stand_ins.script([{**TEXT, "fault": "error_event"}])
    with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        raw(client)


def test_a_silent_stream_says_no_more_after_its_start(client: Any, stand_ins: StandIns) -> None:
    """Only the client's own clock ends it."""
    stand_ins.configure(fault="silent")
    seen: list[str] = []
    impatient = client.with_options(timeout=0.5)
    with (
        pytest.raises(httpx2.ReadTimeout),
        impatient.beta.messages.create(**REQUEST, stream=True) as stream,
    ):
        seen.extend(event.type for event in stream)
    assert seen == ["message_start"]


def test_a_slow_stream_comes_to_its_end(client: Any, stand_ins: StandIns) -> None:
    """Slow is not broken."""
    stand_ins.configure(pace=0.001)
    stand_ins.script([{**TEXT, "fault": "slow"}])
    assert raw(client)[-1]["type"] == "message_stop"


@pytest.mark.parametrize("form", ["stream", "whole"])
def test_a_refusal_is_a_200_with_stop_details(client: Any, stand_ins: StandIns, form: str) -> None:
    """The recording: empty content, category and explanation, a few tokens of output."""
    stand_ins.configure(fault="refusal")
    if form == "stream":
        end = raw(client)[-2]
        details, usage, reason = end["delta"]["stop_details"], end["usage"], end["delta"]["stop_reason"]
    else:
        message = client.beta.messages.create(**REQUEST).to_dict()
        assert message["content"] == []
        details, usage, reason = message["stop_details"], message["usage"], message["stop_reason"]
    assert reason == "refusal"
    assert (details["type"], details["category"]) == ("refusal", "cyber")
    assert usage["output_tokens"] == 5


def test_a_refusal_may_come_with_partial_content(client: Any, stand_ins: StandIns) -> None:
    """FACTS: may have partial content, which is billed."""
    stand_ins.script([{**TEXT, "fault": "partial_refusal"}])
    message = client.beta.messages.create(**REQUEST)
    assert message.stop_reason == "refusal"
    assert TEXT["text"].startswith(message.content[-1].text)


@pytest.mark.parametrize("form", ["stream", "whole"])
def test_a_fallback_is_announced_and_each_attempt_billed_at_its_own_price(
    client: Any, stand_ins: StandIns, form: str
) -> None:
    """The recording: a block at the switch, two iterations, usage of the serving attempt only."""
    stand_ins.configure(thinking=0, caching="uncached")
    stand_ins.script([{**TEXT, "fault": "fallback"}])
    if form == "stream":
        seen = raw(client, WITH_FALLBACKS)
        assert seen[0]["message"]["model"] == "claude-opus-5-5"
        block, usage = seen[1]["content_block"], seen[-2]["usage"]
        assert seen[2] == {"type": "content_block_stop", "index": 0}
    else:
        message = client.beta.messages.create(**WITH_FALLBACKS).to_dict()
        assert message["model"] == "claude-opus-4-8"
        block, usage = message["content"][0], message["usage"]
    assert block["from"] == {"model": "claude-opus-5-5"}
    assert block["to"] == {"model": "claude-opus-4-8"}
    declined, served = usage["iterations"]
    assert (declined["type"], declined["output_tokens"]) == ("message", 0)
    assert (served["type"], served["model"]) == ("fallback_message", "claude-opus-4-8")
    assert usage["input_tokens"] == served["input_tokens"]
    assert usage["output_tokens"] == served["output_tokens"]
    expected = declined["input_tokens"] * 4 + served["input_tokens"] * 5 + served["output_tokens"] * 25
    assert stand_ins.bill()["model_usd"] == pytest.approx(expected / 1e6, abs=1e-12)


def test_a_sticky_fallback_shows_only_in_the_iterations(client: Any, stand_ins: StandIns) -> None:
    """FACTS: for about an hour there is no block, only the fallback_message entry."""
    stand_ins.configure(fault="sticky_fallback")
    message = client.beta.messages.create(**WITH_FALLBACKS)
    assert "fallback" not in [block.type for block in message.content]
    assert [each.type for each in message.usage.iterations] == ["fallback_message"]
    assert message.model == "claude-opus-4-8"


def test_a_decline_without_fallbacks_is_a_refusal(client: Any, stand_ins: StandIns) -> None:
    """Nobody else was asked for."""
    stand_ins.configure(fault="fallback")
    assert client.beta.messages.create(**REQUEST).stop_reason == "refusal"


def test_a_conversation_goes_on_behind_a_fallback(client: Any, stand_ins: StandIns) -> None:
    """The thinking of the model that served is accepted, block and all."""
    stand_ins.configure(thinking=30)
    stand_ins.script([{**TEXT, "fault": "fallback"}])
    first = client.beta.messages.create(**WITH_FALLBACKS)
    turns = [
        *REQUEST["messages"],
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "And then?"},
    ]
    assert client.beta.messages.create(**{**WITH_FALLBACKS, "messages": turns}).stop_reason == "end_turn"


def test_a_compaction_is_an_iteration_that_the_usage_leaves_out(client: Any, stand_ins: StandIns) -> None:
    """The recording: a compaction block first, its tokens only in the iterations, and billed."""
    stand_ins.configure(caching="uncached", thinking=0)
    stand_ins.script([{**TEXT, "fault": "compaction"}])
    turns = [("user", "Is it so? " * 500), ("assistant", "It is."), ("user", "Why?")]
    messages = [{"role": role, "content": text} for role, text in turns]
    message = client.beta.messages.create(**{**REQUEST, "messages": messages})
    assert message.content[0].type == "compaction"
    compaction, rest = message.usage.iterations
    assert (compaction.type, rest.type) == ("compaction", "message")
    assert message.usage.input_tokens == rest.input_tokens < compaction.input_tokens
    expected = (compaction.input_tokens + rest.input_tokens) * 4 + (
        compaction.output_tokens + rest.output_tokens
    ) * 20
    assert stand_ins.bill()["model_usd"] == pytest.approx(expected / 1e6, abs=1e-12)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("max_tokens", "max_tokens"),
        ("context_exceeded", "model_context_window_exceeded"),
        ("unknown_stop_reason", "aurora"),
        ("empty", "end_turn"),
    ],
)
def test_a_response_may_stop_for_any_reason(
    client: Any, stand_ins: StandIns, fault: str, reason: str
) -> None:
    """With part of the text, all of it or none."""
    stand_ins.script([{**TEXT, "fault": fault}])
    message = client.beta.messages.create(**REQUEST)
    assert message.stop_reason == reason
    assert (message.content == []) == (fault == "empty")


def test_a_scripted_stop_reason_is_what_it_says(client: Any, stand_ins: StandIns) -> None:
    """The script has the last word."""
    stand_ins.script([{"text": "A heading", "stop_reason": "pause_turn"}])
    assert client.beta.messages.create(**REQUEST).stop_reason == "pause_turn"


def test_usage_may_be_missing(client: Any, stand_ins: StandIns) -> None:
    """Other services that speak this API leave it out; the bill does not."""
    stand_ins.configure(usage=False)
    assert "usage" not in raw(client)[-2]
    assert stand_ins.bill()["usd"] > 0


def test_a_start_may_come_twice(client: Any, stand_ins: StandIns) -> None:
    """As some proxies send it."""
    stand_ins.configure(fault="double_start")
    assert [event["type"] for event in raw(client)[:2]] == ["message_start"] * 2


def test_what_nobody_knows_yet_may_come(client: Any, stand_ins: StandIns) -> None:
    """Unknown blocks and fields; the SDK hands them on."""
    stand_ins.script([{**TEXT, "fault": "unknown_block"}, {**TEXT, "fault": "unknown_fields"}])
    assert raw(client)[1]["content_block"]["type"] == "aurora"
    assert raw(client)[0]["message"]["aurora"] == 1


@pytest.mark.parametrize("fault", ["unknown_event", "unknown_delta"])
def test_unknown_events_and_deltas_stand_between_the_known_ones(stand_ins: StandIns, fault: str) -> None:
    """Read from the bytes, since the SDK drops or keeps them as it likes."""
    stand_ins.script([{**TEXT, "fault": fault}])
    response = httpx2.post(
        f"{stand_ins.anthropic_base_url}/v1/messages",
        json={**REQUEST, "stream": True},
        headers={"x-api-key": "k", "anthropic-version": "2026-10-21"},
        trust_env=False,
    )
    assert "aurora" in response.text
    assert response.text.count("event: message_stop") == 1


def test_citations_may_come_without_text(client: Any, stand_ins: StandIns) -> None:
    """Case I068: streaming and whole give the same citations."""
    stand_ins.script([{**TEXT, "fault": "citations_only"}, {**TEXT, "fault": "citations_only"}])
    streamed = [e["delta"]["type"] for e in raw(client) if e["type"] == "content_block_delta"]
    assert streamed[0] == "citations_delta"
    whole = client.beta.messages.create(**REQUEST).content[0]
    assert whole.text == ""
    assert len(whole.citations) == 1
