"""Once the provider may hold the request, only an answer that says so proves that nothing was done. And nothing, at any
level, over any route, ever sends it a second time."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable

import pytest

from aijobs.domain.failures import ErrorClass
from aijobs.errors import ProviderError
from tests.providers.conftest import Client
from tests.providers.wire import CHUNKED_HEAD, OPEN_HEAD, PATIENCE, STREAM_HEAD, Peer, Proxy, Server, chunked, response

Serve = Callable[..., Server]
Script = Callable[[Peer], None]

DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
STREAM_WITH_LENGTH = STREAM_HEAD + b"Content-Length: 5000\r\n\r\n"
U, P, T, G = ErrorClass.UNKNOWN, ErrorClass.PERMANENT, ErrorClass.TRANSIENT, ErrorClass.GATE


def script(*pieces: bytes, then: Callable[[Peer], None] | None = None) -> Script:
    """Take the request, send the pieces, then go silent, reset or just close."""

    def run(peer: Peer) -> None:
        peer.request()
        peer.send(*pieces)
        if then is not None:
            then(peer)

    return run


LOST: dict[str, tuple[Script, str]] = {
    "no answer": (script(then=Peer.hang), "reply_lost"),
    "reset": (script(then=Peer.reset), "reply_lost"),
    "closed": (script(), "reply_lost"),
    "half a status line": (script(b"HTTP/1."), "reply_lost"),
    "garbage": (script(b"\x00\xff garbage\r\n\r\n"), "reply_lost"),
    "endless header": (script(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000), "reply_lost"),
    "too many headers": (script(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"), "reply_lost"),
    "headers that stop": (
        script(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n", then=Peer.hang),
        "reply_lost",
    ),
    "half the headers": (script(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Mo"), "reply_cut"),
    "no headers but a status": (script(b"HTTP/1.1 200 OK\r\n"), "malformed_reply"),
    "early hints": (script(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), "unexpected_reply"),
    "cut with a length": (script(STREAM_WITH_LENGTH, DELTA), "reply_cut"),
    "reset with a length": (script(STREAM_WITH_LENGTH, DELTA, then=Peer.reset), "reply_cut"),
    "cut between chunks": (script(CHUNKED_HEAD, chunked(DELTA, end=False)), "reply_cut"),
    "cut in a chunk": (script(CHUNKED_HEAD, chunked(DELTA, end=False)[:-10]), "reply_cut"),
    "reset in chunks": (script(CHUNKED_HEAD, chunked(DELTA, end=False), then=Peer.reset), "reply_cut"),
    "silent after a delta": (script(CHUNKED_HEAD, chunked(DELTA, end=False), then=Peer.hang), "reply_cut"),
    "silent before a delta": (script(CHUNKED_HEAD, then=Peer.hang), "reply_cut"),
    "not the size of a chunk": (script(CHUNKED_HEAD, chunked(DELTA, end=False), b"zz\r\n"), "reply_cut"),
    "quiet end without a length": (script(OPEN_HEAD, DELTA), "reply_cut"),
    "quiet end after the finish": (script(OPEN_HEAD, DELTA, FINISH), "reply_cut"),
    "framed end before the finish": (script(CHUNKED_HEAD, chunked(DELTA)), "reply_cut"),
    "end mark before the finish": (script(CHUNKED_HEAD, chunked(DELTA, DONE)), "reply_incomplete"),
    "bad gzip": (script(response(200, b"no gzip", "Content-Encoding: gzip")), "reply_cut"),
    "cut gzip": (
        script(response(200, gzip.compress(b'{"choices": []}')[:-12], "Content-Encoding: gzip")),
        "malformed_reply",
    ),
    "empty document": (script(response(200, b"", "Content-Type: application/json")), "malformed_reply"),
    "empty stream": (script(response(200, b"", "Content-Type: text/event-stream")), "malformed_reply"),
    "not JSON": (script(response(200, b"<html>login</html>", "Content-Type: text/html")), "malformed_reply"),
    "half a document": (script(response(200, b'{"choices": [', "Content-Type: application/json")), "malformed_reply"),
    "NaN": (script(response(200, b'{"choices": NaN}')), "malformed_reply"),
    "nested without end": (script(response(200, b"[" * 100_000)), "malformed_reply"),
    "a number without end": (script(response(200, b'{"created": ' + b"1" * 10_000 + b"}")), "malformed_reply"),
    "an event that is not JSON": (script(CHUNKED_HEAD, chunked(DELTA, b"data: {oops\n\n")), "malformed_reply"),
    "a list": (script(response(200, b"[]")), "unexpected_reply"),
    "no choices": (script(response(200, b'{"choices": []}')), "unexpected_reply"),
    "choices of another kind": (script(response(200, b'{"choices": {"0": 1}}')), "unexpected_reply"),
    "no content": (script(response(204)), "unexpected_reply"),
    "contents of another kind": (
        script(response(200, b'{"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]}')),
        "unexpected_reply",
    ),
}


@pytest.mark.parametrize("fault", LOST)
def test_a_reply_that_does_not_come_whole_is_unknown_and_asked_once(fault: str, client: Client, serve: Serve) -> None:
    run, code = LOST[fault]
    server = serve(run)
    exchange = client.exchange()
    with pytest.raises(ProviderError) as caught:
        client.call(server.url, exchange=exchange, read_seconds=0.2)
    failure = caught.value.failure
    assert (failure.error_class, failure.code) == (U, code)
    assert not failure.refused
    assert exchange.sent_possible
    assert caught.value.phase == ("sent" if code == "reply_lost" else "headers")
    assert (server.posts, server.connections, client.hook_calls) == (1, 1, 1)


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("route", ["tls", "proxy", "connect"])
@pytest.mark.parametrize("fault", ["no answer", "reset", "closed", "quiet end without a length", "cut between chunks"])
def test_no_route_sends_a_request_twice(fault: str, route: str, client: Client, serve: Serve, proxy: Proxy) -> None:
    run, code = LOST[fault]
    server = serve(run, tls=route != "proxy")
    through = None if route == "tls" else proxy.url
    began = time.monotonic()
    with pytest.raises(ProviderError) as caught:
        client.call(server.url, proxy=through, read_seconds=0.3)
    assert (caught.value.failure.error_class, caught.value.failure.code) == (U, code)
    assert (server.posts, server.connections, client.hook_calls) == (1, 1, 1)
    assert len(proxy.lines) == (0 if route == "tls" else 1)
    assert time.monotonic() - began < PATIENCE / 2


def test_no_connection_is_used_a_second_time(client: Client, serve: Serve) -> None:
    """Even by a server that keeps it open, whatever we asked: it would be closed just as the next request leaves."""

    document = b'{"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}'

    def stay(peer: Peer) -> None:
        while True:
            peer.request()
            peer.send(response(200, document, "Connection: keep-alive"))

    server = serve(stay)
    for _ in range(3):
        assert client.call(server.url).text == "Hi"
    assert (server.posts, server.connections) == (3, 3)
    assert all(request.headers["connection"] == "close" for request in server.requests)


def test_a_reply_larger_than_allowed_is_not_read_on(client: Client, serve: Serve) -> None:
    endless = b"data: " + b"x" * 1000 + b"\n"
    for head in (OPEN_HEAD, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"):
        server = serve(script(head, endless * 100, then=Peer.hang))
        with pytest.raises(ProviderError) as caught:
            client.call(server.url, max_reply_bytes=50_000)
        assert (caught.value.failure.error_class, caught.value.failure.code) == (U, "reply_too_large")


def test_a_packed_reply_cannot_outgrow_the_limit(client: Client, serve: Serve) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    server = serve(script(response(200, bomb, "Content-Encoding: gzip")))
    with pytest.raises(ProviderError) as caught:
        client.call(server.url, max_reply_bytes=100_000)
    assert caught.value.failure.code == "reply_too_large"


def error(**fields: object) -> bytes:
    return json.dumps({"error": {"message": "No.", "type": None, "param": None, "code": None} | fields}).encode()


HTML = b"<html><body>Bad gateway</body></html>"
# status, body -> class, code, refused
STATUSES = [
    (301, b"", P, "provider_redirect", False),
    (304, b"", P, "provider_redirect", False),
    (400, error(type="invalid_request_error"), P, "provider_refused_request", False),
    (400, error(type="invalid_request_error", code="context_length_exceeded"), P, "context_length_exceeded", False),
    (400, error(type="BadRequestError", code=400), P, "provider_refused_request", False),
    (400, error(code="content_filter"), P, "content_filtered", False),
    (400, HTML, P, "provider_refused_request", False),
    (401, error(type="invalid_request_error", code="invalid_api_key"), G, "provider_key_rejected", True),
    (401, error(type="invalid_request_error"), G, "provider_key_rejected", True),
    (401, b"", G, "provider_key_rejected", True),
    (402, b"", G, "provider_account_stopped", True),
    (403, error(type="permission_error"), P, "provider_refused_request", False),
    (403, error(type="billing_error"), G, "provider_account_stopped", True),
    (404, error(type="invalid_request_error", code="model_not_found"), P, "provider_refused_request", False),
    (404, b'{"error": "model not found"}', P, "provider_refused_request", False),
    (405, b"", P, "provider_refused_request", False),
    (408, HTML, U, "provider_timeout", False),
    (409, error(type="invalid_request_error"), T, "provider_conflict", False),
    (413, HTML, P, "provider_refused_request", False),
    (415, b"", P, "provider_refused_request", False),
    (422, error(), P, "provider_refused_request", False),
    (425, b"", T, "provider_too_early", False),
    (429, error(type="rate_limit_error", code="rate_limit_exceeded"), T, "rate_limited", True),
    (429, b"", T, "rate_limited", True),
    (429, error(type="invalid_request_error"), T, "rate_limited", True),
    (429, error(type="insufficient_quota", code="insufficient_quota"), G, "provider_quota_used_up", True),
    (429, error(type="insufficient_quota", code="project_spend_limit_exceeded"), G, "provider_quota_used_up", True),
    (429, error(type="insufficient_quota", code=None), G, "provider_quota_used_up", True),
    (429, error(type="insufficient_quota", code="rate_limit_exceeded"), G, "provider_quota_used_up", True),
    (499, b"", U, "provider_closed", False),
    (500, error(type="server_error"), U, "provider_error", False),
    (500, error(type="rate_limit_error"), U, "provider_error", False),
    (502, HTML, U, "provider_error", False),
    (503, error(type="service_unavailable_error", code="server_is_overloaded"), T, "provider_overloaded", True),
    (503, error(type="unavailable_error", code=503), T, "provider_overloaded", True),
    (503, HTML, T, "provider_overloaded", True),
    (504, error(type="insufficient_quota"), U, "provider_error", False),
    (520, HTML, U, "provider_error", False),
    (521, HTML, T, "provider_unreachable", False),
    (522, HTML, T, "provider_unreachable", False),
    (523, HTML, T, "provider_unreachable", False),
    (524, HTML, U, "provider_error", False),
    (529, error(type="overloaded_error"), T, "provider_overloaded", True),
    (599, b"[" * 100_000, U, "provider_error", False),
    (201, b"{}", U, "unexpected_reply", False),
]


@pytest.mark.parametrize(("status", "body", "error_class", "code", "refused"), STATUSES)
def test_what_a_status_means(
    status: int, body: bytes, error_class: ErrorClass, code: str, refused: bool, client: Client, serve: Serve
) -> None:
    server = serve(script(response(status, body, "x-request-id: req-9", "Location: /elsewhere")))
    with pytest.raises(ProviderError) as caught:
        client.call(server.url)
    failure = caught.value.failure
    assert (failure.error_class, failure.code, failure.refused) == (error_class, code, refused)
    assert (caught.value.http_status, caught.value.phase) == (status, "headers")
    assert caught.value.provider_request_id == "req-9"
    assert str(status) in failure.message or status == 201
    assert server.posts == 1


def test_a_status_counts_though_its_body_is_cut(client: Client, serve: Serve) -> None:
    for then in (Peer.reset, Peer.hang):
        server = serve(script(b"HTTP/1.1 429 No\r\nContent-Length: 500\r\nRetry-After: 7\r\n\r\n{", then=then))
        with pytest.raises(ProviderError) as caught:
            client.call(server.url, read_seconds=0.2)
        assert caught.value.failure.refused
        assert caught.value.failure.retry_after_seconds == 7


def test_an_error_page_without_end_is_not_read_to_the_end(client: Client, serve: Serve) -> None:
    server = serve(script(b"HTTP/1.1 503 No\r\n\r\n", b"x" * 1_000_000, then=Peer.hang))
    with pytest.raises(ProviderError) as caught:
        client.call(server.url, read_seconds=PATIENCE)
    assert caught.value.failure.code == "provider_overloaded"


def test_retry_after_is_passed_on(client: Client, serve: Serve) -> None:
    for header, seconds in (("Retry-After: 2", 2), ("retry-after-ms: 1500", 1.5), ("Retry-After: -5", None)):
        server = serve(script(response(429, b"", header)))
        with pytest.raises(ProviderError) as caught:
            client.call(server.url)
        assert caught.value.failure.retry_after_seconds == seconds


def test_what_the_provider_says_helps_the_tenant_and_tells_no_secret(client: Client, serve: Serve) -> None:
    prompt = "what is the meaning of it all"
    for sentence, told in (
        ("Unsupported value: 'temperature' must be 1.", True),
        ("Wrong key: sk-secret-of-ours, sorry", False),
        (f"Cannot parse '{prompt}'", False),
        (f"Cannot parse '{prompt[4:24]}...'", False),
    ):
        server = serve(script(response(400, error(message=sentence))))
        with pytest.raises(ProviderError) as caught:
            client.call(server.url)
        assert (sentence in str(caught.value)) is told
        assert "sk-secret" not in str(caught.value)
        assert "meaning" not in str(caught.value)


def test_a_message_is_bounded_and_clean(client: Client, serve: Serve) -> None:
    server = serve(script(response(400, error(message="a\0b\ud800\n" + "x" * 10_000))))
    with pytest.raises(ProviderError) as caught:
        client.call(server.url)
    message = caught.value.failure.message
    assert len(message) <= 500
    assert message.isprintable()
