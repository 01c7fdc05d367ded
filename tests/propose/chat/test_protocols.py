"""Bytes to events to answers, for both protocols, whatever pieces they come in and whatever a server makes up."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.propose.chat.anthropic import Messages
from keepfast.propose.chat.sse import MOST_BYTES, Events
from keepfast.propose.chat.talk import (
    TOOL,
    Call,
    Count,
    Decoder,
    Echo,
    Key,
    Malformed,
    Question,
    Reply,
    Results,
    Spoken,
    Stop,
    Told,
    TooLong,
)
from keepfast.propose.chat.text import tool
from keepfast.propose.chat.wire import ChatCompletions
from tests.propose.chat.talking import PROTOCOLS, events

CALLS = (("call_a", TOOL, '{"edits": "x y z"}'), ("call_b", TOOL, "{"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), lambda x: st.lists(x, max_size=3), max_leaves=6
)
NAMES = (
    "choices",
    "delta",
    "content",
    "tool_calls",
    "index",
    "function",
    "usage",
    "error",
    "message",
    "type",
    "finish_reason",
    "prompt_tokens",
)
HOSTILE = st.dictionaries(st.sampled_from(NAMES), JSON | st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4), max_size=6)


def decoder(protocol: str) -> Decoder:
    return ChatCompletions(costs=True).decoder() if protocol == "chat" else Messages().decoder()


def played(protocol: str, found: list[tuple[str, object]]) -> Reply:
    made = decoder(protocol)
    for event, data in found:
        made.feed(event, data if isinstance(data, str) else json.dumps(data))
    assert made.finished
    return made.reply()


# --------------------------------------------------------------------------------------------- events


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=12), max_size=5), st.data())
@settings(deadline=None)
def test_events_do_not_depend_on_the_pieces(texts: list[str], data: st.DataObject) -> None:
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    sent = "".join(f": ping{end}event: e{end}data: {text}{end}data:{text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    made, found = Events(), []
    for start, stop in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        found += list(made.feed(sent[start:stop]))
    found += list(made.end())
    assert found == [("e", f"{text}\n{text.removeprefix(' ')}") for text in texts]


def test_an_event_without_an_end_is_taken_at_the_end() -> None:
    made = Events()
    assert list(made.feed(b"data: 1\n\ndata: 2")) == [("", "1")]
    assert list(made.end()) == [("", "2")]


def test_an_event_has_a_longest_length() -> None:
    for piece in (b"x" * 65536, b"data: " + b"x" * 65530 + b"\n"):
        with pytest.raises(Malformed, match="longer than"):
            fed(Events(), [piece] * (MOST_BYTES // 65536 + 2))


def test_an_event_is_utf_8() -> None:
    with pytest.raises(Malformed, match="not UTF-8"):
        list(Events().feed(b"data: \xff\n\n"))


def fed(made: Events, pieces: list[bytes]) -> None:
    for piece in pieces:
        list(made.feed(piece))
    list(made.end())


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_hostile_bytes_are_malformed_or_events(pieces: list[bytes]) -> None:
    with contextlib.suppress(Malformed):
        fed(Events(), pieces)


# --------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_is_put_together(protocol: str) -> None:
    got = played(protocol, events(protocol, "Grüße, wörld of kernels", given=1234, taken=77, cached=1000, calls=CALLS))
    assert got.text == "Grüße, wörld of kernels"
    assert got.calls == tuple(Call(*call) for call in CALLS)
    assert (got.count.input_tokens, got.count.output_tokens, got.count.cached_tokens, got.count.reported) == (1234, 77, 1000, True)
    assert got.model in ("some-model-1", "claude-x-1")
    assert got.stop is Stop.END


@pytest.mark.parametrize(("protocol", "reason", "stop"), [
    ("chat", "length", Stop.LENGTH), ("chat", "content_filter", Stop.REFUSED), ("chat", "stop", Stop.END),
    ("anthropic", "max_tokens", Stop.LENGTH), ("anthropic", "refusal", Stop.REFUSED), ("anthropic", "end_turn", Stop.END),
])  # fmt: skip
def test_why_it_ended(protocol: str, reason: str, stop: Stop) -> None:
    assert played(protocol, events(protocol, "x", stop=reason)).stop is stop


def test_a_refusal_of_chat_completions() -> None:
    got = played("chat", [("", {"choices": [{"delta": {"refusal": "I will not."}}]}), *events("chat", "")])
    assert (got.stop, got.text) == (Stop.REFUSED, "I will not.")


def test_anthropic_counts_caches_into_the_input_and_later_counts_win() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 3000, "output_tokens": 1}
    later = {"output_tokens": 9, "input_tokens": 11}
    got = played("anthropic", [
        ("message_start", {"type": "message_start", "message": {"model": "m", "usage": usage}}),
        ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": later}),
    ])  # fmt: skip
    assert got.count == Count(3211, 9, 200, 3000, reported=True)


def test_other_ways_to_count() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 4, "cost": 0.25}
    got = played(
        "chat", [("", {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}), ("", {"usage": usage}), ("", "[DONE]")]
    )
    assert got.count == Count(10, 2, 4, dollars=0.25, reported=True)


@pytest.mark.parametrize("value", [-1, 1e300, "7", True, None, [], float("nan")])
def test_a_count_that_is_none_is_no_count(value: Any) -> None:
    got = played("chat", [("", {"usage": {"prompt_tokens": value, "completion_tokens": 3}}), ("", "[DONE]")])
    assert got.count == Count()


def test_halves_of_a_surrogate_pair_are_joined_and_single_ones_replaced() -> None:
    halves = [("", {"choices": [{"delta": {"content": half}}]}) for half in ("a\ud83d", "\ude00b", "\ud83d")]
    assert played("chat", [*halves, ("", "[DONE]")]).text == "a\U0001f600b\ufffd"


def test_a_server_that_leaves_out_the_index_of_a_call() -> None:
    pieces = [
        {"id": "a", "function": {"name": "t", "arguments": "{"}},
        {"function": {"arguments": "}"}},
        {"id": "b", "function": {"name": "u"}},
    ]
    got = played("chat", [*(("", {"choices": [{"delta": {"tool_calls": [p]}}]}) for p in pieces), ("", "[DONE]")])
    assert got.calls == (Call("a", "t", "{}"), Call("b", "u", ""))


def test_parts_of_content_are_joined() -> None:
    got = played("chat", [("", {"choices": [{"delta": {"content": [{"type": "text", "text": "x"}, {"text": "y"}]}}]}), ("", "[DONE]")])
    assert got.text == "xy"


@pytest.mark.parametrize(("protocol", "error", "status"), [
    ("chat", {"code": 429, "message": "slow"}, 429), ("chat", {"code": "insufficient_quota", "message": "slow"}, 402),
    ("chat", {"message": "slow"}, 500), ("chat", "slow", 500), ("anthropic", {"type": "overloaded_error", "message": "slow"}, 529),
    ("anthropic", {"type": "authentication_error", "message": "slow"}, 401), ("anthropic", {"message": "slow"}, 500),
])  # fmt: skip
def test_errors_within_a_stream(protocol: str, error: object, status: int) -> None:
    with pytest.raises(Spoken, match="slow") as raised:
        decoder(protocol).feed("error", json.dumps({"type": "error", "error": error}))
    assert raised.value.status == status


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("data", ["", "no", "[1]", "{", "[" * 100_000, '{"a": ' + "1" * 5000 + "}"])
def test_what_is_no_object_is_malformed(protocol: str, data: str) -> None:
    with pytest.raises(Malformed):
        decoder(protocol).feed("", data)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(found=st.lists(HOSTILE, max_size=5))
@settings(deadline=None)
def test_hostile_objects_are_read_or_refused(protocol: str, found: list[dict[str, Any]]) -> None:
    made = decoder(protocol)
    try:
        for data in found:
            made.feed(str(data.get("type")), json.dumps(data))
    except (Malformed, Spoken, TooLong):
        return
    got = made.reply()
    json.loads(got.echo)
    got.text.encode()


def endless(made: Decoder, found: list[tuple[str, object]]) -> None:
    for event, data in found * 100_000:
        made.feed(event, json.dumps(data).replace("xxxxxxx", "x" * 10_000))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_without_end_is_cut(protocol: str) -> None:
    made = decoder(protocol)
    with pytest.raises(TooLong):
        endless(made, events(protocol, "x" * 70)[:5])


def test_answers_that_were_not_streamed() -> None:
    chat = ChatCompletions().decoder()
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    chat.whole(json.dumps({"model": "m", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": usage}))
    assert (chat.reply().text, chat.reply().count) == ("hi", Count(3, 4, reported=True))
    made = Messages().decoder()
    block = {"type": "tool_use", "id": "a", "name": "t", "input": {"edits": "x"}}
    content = [{"type": "text", "text": "hi"}, block]
    usage = {"input_tokens": 3, "output_tokens": 4}
    made.whole(json.dumps({"type": "message", "model": "m", "content": content, "stop_reason": "tool_use", "usage": usage}))
    assert (made.reply().text, made.reply().calls) == ("hi", (Call("a", "t", '{"edits":"x"}'),))
    assert made.reply().count == Count(3, 4, reported=True)


# --------------------------------------------------------------------------------------------- requests


def question(protocol: str) -> Question:
    got = played(protocol, events(protocol, "hm", calls=CALLS))
    messages = (Told("brief", "pages"), Echo(got.echo), Results((("call_a", "slow"), ("call_b", "bad"))), Told("last"))
    return Question("m", "rules", messages, tool(), False, 500)


def test_a_request_of_chat_completions() -> None:
    body = json.loads(ChatCompletions("max_completion_tokens", extra='{"reasoning_effort": "high"}').body(question("chat")))
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert body["messages"][1]["content"] == "pages\nbrief"
    assert body["messages"][2]["tool_calls"][1] == {"id": "call_b", "type": "function", "function": {"name": TOOL, "arguments": "{"}}
    assert body["messages"][3] == {"role": "tool", "tool_call_id": "call_a", "content": "slow"}
    assert (body["max_completion_tokens"], body["tool_choice"], body["reasoning_effort"]) == (500, "none", "high")
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    assert body["tools"][0]["function"]["parameters"]["required"] == ["edits"]


def test_a_request_of_anthropic() -> None:
    body = json.loads(Messages().body(question("anthropic")))
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]
    marked = {"type": "text", "text": "pages", "cache_control": {"type": "ephemeral"}}
    assert body["messages"][0]["content"][0] == marked
    assert body["messages"][1]["content"][1] == {"type": "tool_use", "id": "call_a", "name": TOOL, "input": {"edits": "x y z"}}
    assert body["messages"][1]["content"][2]["input"] == {}
    assert [c["type"] for c in body["messages"][2]["content"]] == ["tool_result", "tool_result", "text"]
    assert (body["max_tokens"], body["tool_choice"], body["system"][0]["text"]) == (500, {"type": "none"}, "rules")
    assert json.dumps(body).count("cache_control") == 3, "the protocol takes four"
    assert b"cache_control" not in Messages(cache=False).body(question("anthropic"))


def test_thinking_goes_back_with_its_signature() -> None:
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}
    deltas = [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "s1"}]
    pieces = [("", {"type": "content_block_delta", "index": 0, "delta": d}) for d in deltas]
    got = played("anthropic", [("", block), *pieces, ("", {"type": "message_stop"})])
    assert json.loads(got.echo)["content"] == [{"type": "thinking", "thinking": "hm", "signature": "s1"}]
    assert got.text == ""


def test_headers_hold_the_key_and_no_key_is_no_header() -> None:
    assert dict(ChatCompletions().headers(Key("k"))) == {"authorization": "Bearer k"}
    assert dict(ChatCompletions().headers(Key(""))) == {}
    assert dict(Messages().headers(Key("k"))) == {"anthropic-version": "2023-06-01", "x-api-key": "k"}
