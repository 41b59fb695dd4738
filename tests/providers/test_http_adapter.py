"""A generic service: what its configuration calls a success, and where its result is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from aijobs.config import ProviderSettings
from aijobs.domain.failures import ErrorClass, Usage
from aijobs.errors import ProviderError
from aijobs.providers.base import Reply, Request
from aijobs.providers.exchange import Exchange
from aijobs.providers.http import Http
from tests.providers.wire import PATIENCE, Peer, Server, response

Serve = Callable[..., Server]


def answering(document: Any, status: int = 200) -> Callable[[Peer], None]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()

    def run(peer: Peer) -> None:
        peer.request()
        peer.send(response(status, body, "Content-Type: application/json"))

    return run


def call(url: str, key: str = "k" * 64, **settings: Any) -> Reply:
    adapter = Http(ProviderSettings(name="p", adapter="http", base_url=url, read_seconds=1, **settings), None)
    request = Request(body={"a": [1, {"b": "x"}]}, client_request_id="id", dedupe_key=key)
    return adapter.call(request, exchange=Exchange(PATIENCE, lambda: None))


def code_of(act: Callable[[], Reply]) -> tuple[ErrorClass, str]:
    with pytest.raises(ProviderError) as raised:
        act()
    return raised.value.failure.error_class, raised.value.failure.code


def test_the_body_is_sent_to_the_configured_url_and_the_result_is_at_its_path(serve: Serve) -> None:
    server = serve(answering({"data": {"items": [{"text": "yes"}]}, "usage": {"input_tokens": 3, "output_tokens": 4}}))
    reply = call(server.url, result_path="data.items.0.text")
    assert (reply.value, reply.text, reply.usage) == ("yes", "yes", Usage(3, 4, None, None))
    (request,) = server.requests
    assert request.line.split(" ")[:2] == ["POST", "/v1"] and json.loads(request.body) == {"a": [1, {"b": "x"}]}


@pytest.mark.parametrize("value", [None, 0, False, [], {"a": 1}, "text", 1.5])
def test_without_a_path_the_whole_answer_is_the_result(serve: Serve, value: Any) -> None:
    assert call(serve(answering(value)).url).value == value


@pytest.mark.parametrize("path", ["missing", "data.x", "data.items.7", "data.items.one", "data.items.-1"])
def test_a_result_that_is_not_there_is_unknown_for_the_work_was_done(serve: Serve, path: str) -> None:
    url = serve(answering({"data": {"items": ["a"]}})).url
    assert code_of(lambda: call(url, result_path=path)) == (ErrorClass.UNKNOWN, "unexpected_reply")


@pytest.mark.parametrize(
    ("status", "accepted"), [("ok", True), (True, True), (1, True), ("failed", False), (None, False)]
)
def test_a_body_can_say_that_it_is_no_success(serve: Serve, status: Any, accepted: bool) -> None:
    url = serve(answering({"status": status, "text": "t"})).url

    def act() -> Reply:
        return call(url, success_path="status", success_values=("ok", "true", "1"), result_path="text")

    if accepted:
        assert act().value == "t"
    else:
        assert code_of(act) == (ErrorClass.PERMANENT, "not_successful")


@pytest.mark.parametrize(("status", "accepted"), [(200, False), (201, True), (202, False), (204, False)])
def test_only_the_configured_statuses_are_a_success(serve: Serve, status: int, accepted: bool) -> None:
    url = serve(answering({}, status)).url
    if accepted:
        assert call(url, success_statuses=(201,)).http_status == 201
    else:
        assert code_of(lambda: call(url, success_statuses=(201,)))[0] is ErrorClass.UNKNOWN


def test_our_key_stands_in_the_configured_header_and_in_no_other(serve: Serve) -> None:
    server = serve(answering({}))
    call(server.url, key="f" * 64, dedupe_header="X-Once")
    call(server.url, key="f" * 64)
    assert [request.headers.get("x-once") for request in server.requests] == ["f" * 64, None]
    assert "f" * 64 not in server.requests[1].headers.values()


def test_what_the_database_cannot_store_is_taken_out(serve: Serve) -> None:
    url = serve(answering(b'{"a\\u0000": ["\\ud800", "x\\u0000y", "\\ud83d\\ude00"]}')).url
    assert call(url).value == {"a": ["\N{REPLACEMENT CHARACTER}", "xy", "\N{GRINNING FACE}"]}


@pytest.mark.parametrize("body", [b"[" * 200 + b"]" * 200, b"NaN", b'{"a": Infinity}', b"", b"{"])
def test_what_is_no_reasonable_json_is_unknown(serve: Serve, body: bytes) -> None:
    url = serve(answering(body)).url
    assert code_of(lambda: call(url)) == (ErrorClass.UNKNOWN, "malformed_reply")
