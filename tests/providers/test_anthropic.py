"""Anthropic's messages: their request, their events, their usage."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from aijobs.config import ProviderSettings
from aijobs.domain.failures import ErrorClass, Usage
from aijobs.errors import ProviderError
from aijobs.providers.anthropic import Anthropic
from aijobs.providers.base import Reply, Request
from aijobs.providers.exchange import Exchange
from tests.providers.wire import CHUNKED_HEAD, PATIENCE, Peer, Server, chunked, response

Serve = Callable[..., Server]
START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "model": "m-1",
        "usage": {
            "input_tokens": 5,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 300,
            "output_tokens": 1,
        },
    },
}
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
STOP = {"type": "message_stop"}


def text(said: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": said}}


def end(reason: str | None = "end_turn", tokens: int = 7) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": tokens}}


def error(kind: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": "words"}}


def streaming(*events: dict[str, Any]) -> Callable[[Peer], None]:
    pieces = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]

    def run(peer: Peer) -> None:
        peer.request()
        peer.send(CHUNKED_HEAD, chunked(*pieces))

    return run


def adapter_at(url: str, **settings: Any) -> Anthropic:
    return Anthropic(ProviderSettings(name="p", adapter="anthropic", base_url=url, read_seconds=1, **settings), "key-1")


def call(url: str, shown: list[str] | None = None) -> Reply:
    request = Request(body={"model": "m", "max_tokens": 9, "messages": []}, client_request_id="id", dedupe_key="k")
    listener = None if shown is None else shown.append
    return adapter_at(url).call(request, exchange=Exchange(PATIENCE, lambda: None), on_delta=listener)


def failing(url: str) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        call(url)
    return raised.value


def test_a_message_is_its_text_with_all_that_was_read(serve: Serve) -> None:
    thinking = {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}}
    unknown = {"type": "something_new", "data": 1}
    server = serve(streaming(START, {"type": "ping"}, BLOCK, thinking, text("He"), unknown, text("y"), end(), STOP))
    shown: list[str] = []
    reply = call(server.url, shown)
    assert (reply.text, shown, reply.finish_reason, reply.model) == ("Hey", ["He", "y"], "stop", "m-1")
    # Their input tokens leave out the cache's: 5 + 20 + 300 were read.
    assert reply.usage == Usage(input_tokens=325, output_tokens=7, cached_tokens=300, cache_write_tokens=20)
    (request,) = server.requests
    assert request.headers["x-api-key"] == "key-1" and "authorization" not in request.headers
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert json.loads(request.body)["stream"] is True


def test_a_chat_is_put_in_their_terms() -> None:
    messages = [
        {"role": "system", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "developer", "content": "c"},
        {"role": "assistant", "content": "d"},
    ]
    wanted = {"model": "m", "messages": messages, "stop": ["x"], "temperature": 0.5}
    assert adapter_at("http://x", default_max_tokens=77).chat_body(wanted) == {
        "model": "m",
        "max_tokens": 77,
        "system": "a\n\nc",
        "messages": [messages[1], messages[3]],
        "stop_sequences": ["x"],
        "temperature": 0.5,
    }


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
    ],
)
def test_why_it_stopped_is_told_in_the_words_of_chats(serve: Serve, reason: str, told: str) -> None:
    assert call(serve(streaming(START, BLOCK, text("x"), end(reason), STOP)).url).finish_reason == told


def test_a_refusal_without_a_word_is_permanent_and_billed(serve: Serve) -> None:
    raised = failing(serve(streaming(START, end("refusal"), STOP)).url)
    assert (raised.failure.error_class, raised.failure.code) == (ErrorClass.PERMANENT, "content_filtered")
    assert raised.usage is not None and raised.usage.input_tokens == 325


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([START, BLOCK, text("x")], "reply_cut"),
        ([START, BLOCK, text("x"), end()], "reply_cut"),
        ([START, BLOCK, text("x"), STOP], "reply_incomplete"),
        ([], "reply_cut"),
    ],
)
def test_only_its_own_end_is_an_end(serve: Serve, events: list[dict[str, Any]], code: str) -> None:
    raised = failing(serve(streaming(*events)).url)
    assert (raised.failure.error_class, raised.failure.code) == (ErrorClass.UNKNOWN, code)
    if events:  # what was read is known even of a reply that broke off
        assert raised.usage is not None and raised.usage.input_tokens == 325


@pytest.mark.parametrize(
    ("before", "kind", "error_class"),
    [
        ([], "overloaded_error", ErrorClass.TRANSIENT),
        ([START], "rate_limit_error", ErrorClass.TRANSIENT),
        ([START, BLOCK], "overloaded_error", ErrorClass.TRANSIENT),
        ([START], "invalid_request_error", ErrorClass.PERMANENT),
        ([START], "authentication_error", ErrorClass.GATE),
        ([START], "api_error", ErrorClass.UNKNOWN),
        ([START], "never_heard_of", ErrorClass.UNKNOWN),
        ([START, BLOCK, text("x")], "overloaded_error", ErrorClass.UNKNOWN),
    ],
)
def test_an_error_inside_a_200_is_no_success(
    serve: Serve, before: list[dict[str, Any]], kind: str, error_class: ErrorClass
) -> None:
    assert failing(serve(streaming(*before, error(kind))).url).failure.error_class is error_class


@pytest.mark.parametrize(
    ("status", "kind", "detail", "error_class", "refused"),
    [
        (400, "invalid_request_error", None, ErrorClass.PERMANENT, False),
        (400, "invalid_request_error", "request_body_timeout", ErrorClass.TRANSIENT, False),
        (400, "invalid_request_error", "organization_on_hold", ErrorClass.GATE, True),
        (401, "authentication_error", None, ErrorClass.GATE, True),
        (402, "billing_error", None, ErrorClass.GATE, True),
        (403, "permission_error", None, ErrorClass.PERMANENT, False),
        (404, "not_found_error", None, ErrorClass.PERMANENT, False),
        (409, "conflict_error", None, ErrorClass.TRANSIENT, False),
        (413, "request_too_large", None, ErrorClass.PERMANENT, False),
        (429, "rate_limit_error", None, ErrorClass.TRANSIENT, True),
        (429, "rate_limit_error", "ramp_limit_exceeded", ErrorClass.TRANSIENT, True),
        (429, "rate_limit_error", "enforced_spend_limit_reached", ErrorClass.GATE, True),
        (429, "rate_limit_error", "contract_spend_limit_reached", ErrorClass.GATE, True),
        (500, "api_error", None, ErrorClass.UNKNOWN, False),
        (504, "timeout_error", None, ErrorClass.UNKNOWN, False),
        (529, "overloaded_error", None, ErrorClass.TRANSIENT, True),
    ],
)
def test_their_table_of_errors(
    serve: Serve, status: int, kind: str, detail: str | None, error_class: ErrorClass, refused: bool
) -> None:
    told: dict[str, Any] = {"type": kind, "message": "words"}
    if detail is not None:
        told["details"] = {"error_code": detail}
    body = json.dumps({"type": "error", "error": told}).encode()

    def run(peer: Peer) -> None:
        peer.request()
        peer.send(response(status, body, "request-id: req_9"))

    raised = failing(serve(run).url)
    assert (raised.failure.error_class, raised.failure.refused) == (error_class, refused)
    assert raised.provider_request_id == "req_9"


def test_a_server_that_does_not_stream_is_understood(serve: Serve) -> None:
    document = {
        "id": "msg_2",
        "type": "message",
        "model": "m-1",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hey"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 2, "output_tokens": 3},
    }

    def run(peer: Peer) -> None:
        peer.request()
        peer.send(response(200, json.dumps(document).encode(), "Content-Type: application/json"))

    reply = call(serve(run).url)
    assert (reply.text, reply.usage) == ("Hey", Usage(2, 3, None, None))
