"""What counts as an answer of a response, and what is taken from it: in the foreground, by one request."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from aijobs.config import ProviderSettings
from aijobs.domain.failures import ErrorClass, Usage
from aijobs.errors import NotSent, ProviderError
from aijobs.providers.base import Lost, Reply, Request
from aijobs.providers.exchange import Exchange
from aijobs.providers.openai_responses import OpenAIResponses
from aijobs.simulator import Simulator
from tests.providers.wire import CHUNKED_HEAD, OPEN_HEAD, PATIENCE, STREAM_HEAD, Peer, Server, chunked, response

Serve = Callable[..., Server]
Script = Callable[[Peer], None]
U, P, T, G = ErrorClass.UNKNOWN, ErrorClass.PERMANENT, ErrorClass.TRANSIENT, ErrorClass.GATE
SECRET = "what is the meaning of it all"
BODY = {"model": "m", "input": [{"role": "user", "content": SECRET}]}
KEY = "sk-secret-of-ours"
DEDUPE = "ab" * 32


class Client:
    """Makes calls with short timeouts, and keeps what it was told in the meantime."""

    def __init__(self) -> None:
        self.deltas: list[str] = []
        self.operations: list[str] = []

    def adapter(self, url: str, *, background: bool = True, read_seconds: float = 0.5, **more: Any) -> OpenAIResponses:
        provider = ProviderSettings(
            name="p",
            adapter="openai-responses",
            base_url=url,
            background=background,
            read_seconds=read_seconds,
            **{"connect_seconds": 0.5} | more,
        )
        return OpenAIResponses(provider, KEY)

    def exchange(self, deadline_seconds: float = PATIENCE) -> Exchange:
        return Exchange(deadline_seconds, lambda: None)

    def request(self, **more: Any) -> Request:
        return Request(body={**BODY, **more}, client_request_id="attempt-1", dedupe_key=DEDUPE)

    def call(
        self,
        url: str,
        *,
        exchange: Exchange | None = None,
        body: dict[str, Any] | None = None,
        on_operation: Callable[[str], None] | None = None,
        **settings: Any,
    ) -> Reply:
        return self.adapter(url, **settings).call(
            self.request(**(body or {})),
            exchange=exchange or self.exchange(),
            on_delta=self.deltas.append,
            on_operation=on_operation or self.operations.append,
        )

    def ask(
        self, url: str, operation_id: str | None = "resp_1", *, exchange: Exchange | None = None, **settings: Any
    ) -> Reply:
        lost = Lost(request=self.request(), operation_id=operation_id, age_seconds=60.0)
        adapter = self.adapter(url, **settings)
        return adapter.ask(lost, exchange=exchange or self.exchange(), on_delta=self.deltas.append)


@pytest.fixture
def client() -> Client:
    return Client()


def event(kind: str, number: int | None = None, **fields: Any) -> bytes:
    numbered = {} if number is None else {"sequence_number": number}
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **numbered, **fields})}\n\n".encode()


def document(status: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    output = (
        [] if text is None else [{"type": "reasoning"}, {"type": "message", "role": "assistant", "content": [part]}]
    )
    return {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "model": "m-1",
        "output": output,
        "error": None,
    } | more


def created(number: int | None = 0) -> bytes:
    return event("response.created", number, response=document("in_progress"))


def delta(text: str, number: int | None = None) -> bytes:
    return event("response.output_text.delta", number, item_id="x", output_index=1, content_index=0, delta=text)


def ended(status: str = "completed", text: str | None = "Hi", number: int | None = 9, **more: Any) -> bytes:
    return event(f"response.{status}", number, response=document(status, text, **more))


def stream(*events: bytes, then: Callable[[Peer], None] | None = None) -> Script:
    """Take the request, send the events, and end the stream as framed, unless something else comes then."""

    def run(peer: Peer) -> None:
        peer.request()
        peer.send(CHUNKED_HEAD, chunked(*events, end=then is None))
        if then is not None:
            then(peer)

    return run


def answer(*pieces: bytes) -> Script:
    def run(peer: Peer) -> None:
        peer.request()
        peer.send(*pieces)

    return run


def as_json(value: Any, status: int = 200, *headers: str) -> bytes:
    return response(status, json.dumps(value).encode(), "Content-Type: application/json", *headers)


def failing(call: Callable[[], Reply]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        call()
    said = f"{caught.value} {caught.value.failure}"
    assert SECRET not in said
    assert KEY not in said
    return caught.value


USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 14,
}


def test_a_chat_in_its_terms(client: Client) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    wanted = {"model": "m", "messages": messages, "max_tokens": 7, "temperature": 0.5, "top_p": 1.0}
    assert client.adapter("http://x/v1").chat_body(wanted) == {
        "model": "m",
        "input": messages,
        "max_output_tokens": 7,
        "temperature": 0.5,
        "top_p": 1.0,
    }


def test_a_stream(client: Client, serve: Serve) -> None:
    server = serve(stream(created(), delta("Hel"), delta("lo"), ended("completed", "Hello", usage=USAGE)))
    reply = client.call(server.url, background=False)
    assert (reply.text, reply.finish_reason, reply.model, reply.http_status) == ("Hello", "stop", "m-1", 200)
    assert (reply.provider_operation_id, reply.provider_request_id) == ("resp_1", "req-7")
    assert reply.usage == Usage(input_tokens=9, output_tokens=5, cached_tokens=3, reasoning_tokens=2)
    assert client.deltas == ["Hel", "lo"]
    assert client.operations == []


def test_what_is_sent(client: Client, serve: Serve) -> None:
    server = serve(stream(created(), ended()))
    client.call(server.url, background=False, body={"temperature": 0})
    request = server.requests[0]
    assert request.line == "POST /v1/responses HTTP/1.1"
    assert json.loads(request.body) == {**BODY, "temperature": 0, "stream": True}
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["x-client-request-id"] == "attempt-1"
    assert client.adapter(server.url, background=False).ask_by is None
    assert client.adapter(server.url, background=False).cancel("resp_1", exchange=client.exchange()) is None


def test_a_server_that_does_not_stream(client: Client, serve: Serve) -> None:
    whole = document("completed", "Whole", usage=USAGE)
    for pieces in ([as_json(whole)], [b"HTTP/1.1 200 OK\r\n\r\n", b"\xef\xbb\xbf" + json.dumps(whole).encode()]):
        reply = client.call(serve(answer(*pieces)).url, background=False)
        assert (reply.text, reply.finish_reason, reply.usage.input_tokens) == ("Whole", "stop", 9)
    assert client.deltas == ["Whole", "Whole"]


def test_the_last_event_suffices_without_a_framed_end(client: Client, serve: Serve) -> None:
    assert client.call(serve(answer(OPEN_HEAD, created(), ended())).url, background=False).text == "Hi"
    endless = stream(created(), ended(), then=Peer.hang)
    assert client.call(serve(endless).url, background=False, read_seconds=60).text == "Hi"


@pytest.mark.parametrize(
    ("reason", "finish"), [("max_output_tokens", "length"), ("steered", "steered"), (7, "incomplete")]
)
def test_an_incomplete_answer_is_an_answer(reason: Any, finish: str, client: Client, serve: Serve) -> None:
    last = ended("incomplete", "Once upon", incomplete_details={"reason": reason}, usage=USAGE)
    reply = client.call(serve(stream(created(), delta("Once upon"), last)).url, background=False)
    assert (reply.text, reply.finish_reason, reply.usage.output_tokens) == ("Once upon", finish, 5)


def test_a_limit_that_reasoning_used_up_is_an_answer_without_text(client: Client, serve: Serve) -> None:
    last = ended("incomplete", None, output=[{"type": "reasoning"}], incomplete_details={"reason": "max_output_tokens"})
    reply = client.call(serve(stream(created(), last)).url, background=False)
    assert (reply.text, reply.finish_reason) == ("", "length")


def test_a_filtered_answer_is_one_if_there_is_text(client: Client, serve: Serve) -> None:
    details = {"incomplete_details": {"reason": "content_filter"}, "usage": USAGE}
    server = serve(stream(created(), delta("Some"), ended("incomplete", "Some", **details)))
    assert client.call(server.url, background=False).finish_reason == "content_filter"
    server = serve(stream(created(), ended("incomplete", None, **details)))
    error = failing(lambda: client.call(server.url, background=False))
    assert (error.failure.error_class, error.failure.code) == (P, "content_filtered")
    assert error.usage is not None
    assert error.usage.input_tokens == 9


def test_a_refusal_is_an_answer(client: Client, serve: Serve) -> None:
    message = {"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]}
    said = event("response.refusal.delta", 1, delta="I will ")
    server = serve(stream(created(), said, ended(output=[message])))
    assert client.call(server.url, background=False).text == "I will not."
    assert client.deltas == ["I will ", "not."]


def test_a_last_event_that_leaves_the_text_out_means_the_pieces(client: Client, serve: Serve) -> None:
    for output in ([], None):
        server = serve(stream(created(), delta("He"), delta("y"), ended(output=output)))
        assert client.call(server.url, background=False).text == "Hey"
    server = serve(stream(created(), ended(output=None)))
    assert failing(lambda: client.call(server.url, background=False)).failure.code == "unexpected_reply"


def test_odd_things_do_no_harm(client: Client, serve: Serve) -> None:
    server = serve(
        stream(
            b": comment\n\n",
            b"data:\n\n",
            event("response.created", None, response={"id": "a b", "usage": "much", "model": 7}),
            event("response.created", None, response={"id": "resp_1"}),
            event("response.something.new", None, delta="not text"),
            event("response.output_item.added", None, item=None),
            b'event: response.output_text.delta\ndata: {"delta": "Hi"}\n\n',
            event("response.in_progress", None, response=None),
            ended(number=None, usage=None),
            b"data: [DONE]\n\n",
        )
    )
    reply = client.call(server.url, background=False)
    assert (reply.text, reply.provider_operation_id, reply.usage) == ("Hi", "resp_1", Usage())
    assert client.deltas == ["Hi"]


def test_text_is_made_fit_to_be_stored(client: Client, serve: Serve) -> None:
    server = serve(
        stream(created(), delta("a\ud83d"), delta("\ude00b\0\udc81"), ended(text="a\ud83d\ude00b\0\udc81c\ud83d"))
    )
    reply = client.call(server.url, background=False)
    assert reply.text == "a\U0001f600b\ufffdc\ufffd" == "".join(client.deltas)


@pytest.mark.parametrize("shown", [True, False])
def test_text_is_bounded_though_wrong_bytes_grow(shown: bool, client: Client, serve: Serve) -> None:
    events = [created(), delta("XX") if shown else ended(text="XX")]
    server = serve(stream(*(each.replace(b"XX", b"\xff" * 500) for each in events)))
    error = failing(lambda: client.call(server.url, background=False, max_reply_bytes=1400))
    assert error.failure.code == "reply_too_large"
    assert error.failure.message == "The reply is too large: more than 1400 bytes of text."


@pytest.mark.parametrize(
    ("error", "error_class", "code", "refused"),
    [
        ({"code": "server_error", "message": "x"}, T, "provider_error", False),
        ({"code": "vector_store_timeout", "message": "x"}, T, "provider_error", False),
        ({"code": "rate_limit_exceeded", "message": "x"}, T, "rate_limited", False),
        ({"code": "invalid_prompt", "message": "Too odd."}, P, "provider_refused_request", False),
        ({"code": "bio_policy", "message": "Too odd."}, P, "provider_refused_request", False),
        ({"code": "insufficient_quota", "message": "x"}, G, "provider_quota_used_up", True),
        ({"code": ["x"], "message": "Too odd."}, P, "provider_refused_request", False),
        (None, P, "provider_refused_request", False),
    ],
)
def test_a_failed_response(
    error: Any, error_class: ErrorClass, code: str, refused: bool, client: Client, serve: Serve
) -> None:
    server = serve(stream(created(), delta("So"), ended("failed", None, error=error, usage=USAGE)))
    caught = failing(lambda: client.call(server.url, background=False))
    failure = caught.failure
    assert (failure.error_class, failure.code, failure.refused) == (error_class, code, refused)
    assert ("Too odd." in failure.message) == (error_class is P and error is not None)
    assert (caught.provider_operation_id, caught.usage) == ("resp_1", Usage(9, 5, 3, 2))


def test_a_failure_that_quotes_the_prompt_is_not_repeated(client: Client, serve: Serve) -> None:
    for code in ("invalid_prompt", "bio_policy"):
        error = {"code": code, "message": f"We do not like: {SECRET}"}
        server = serve(stream(created(), ended("failed", None, error=error)))
        assert failing(lambda url=server.url: client.call(url, background=False)).failure.error_class is P


@pytest.mark.parametrize("wrapped", [True, False])
def test_an_error_event(wrapped: bool, client: Client, serve: Serve) -> None:
    def run(*before: bytes, code: str) -> Script:
        said = {"code": code, "message": SECRET}
        return stream(created(), *before, event("error", 3, **({"error": said} if wrapped else said)))

    overloaded = failing(lambda: client.call(serve(run(code="server_is_overloaded")).url, background=False))
    assert (overloaded.failure.error_class, overloaded.failure.refused) == (T, False)
    late = failing(lambda: client.call(serve(run(delta("So"), code="server_is_overloaded")).url, background=False))
    assert (late.failure.error_class, late.failure.code) == (U, "stream_error")
    unnamed = failing(lambda: client.call(serve(run(code="odd")).url, background=False))
    assert (unnamed.failure.error_class, unnamed.failure.code) == (U, "stream_error")


@pytest.mark.parametrize(
    ("status", "body", "error_class", "code"),
    [
        (400, {"message": "No.", "type": "invalid_request_error"}, P, "provider_refused_request"),
        (401, {"message": f"Bad key {KEY}", "code": "invalid_api_key"}, G, "provider_key_rejected"),
        (429, {"message": "x", "code": "rate_limit_exceeded"}, T, "rate_limited"),
        (429, {"message": "x", "type": "insufficient_quota"}, G, "provider_quota_used_up"),
        (500, {"message": SECRET, "type": "server_error"}, U, "provider_error"),
        (503, {"message": "x"}, T, "provider_overloaded"),
    ],
)
@pytest.mark.parametrize("background", [True, False])
def test_an_error_status(
    background: bool, status: int, body: Any, error_class: ErrorClass, code: str, client: Client, serve: Serve
) -> None:
    server = serve(answer(as_json({"error": body}, status, "x-request-id: req-9")))
    error = failing(lambda: client.call(server.url, background=background))
    assert (error.failure.error_class, error.failure.code, error.failure.askable) == (error_class, code, False)
    assert (error.http_status, error.provider_request_id, server.posts) == (status, "req-9", 1)


LOST: dict[str, tuple[Script, str]] = {
    "no answer": (answer(), "reply_lost"),
    "cut after a delta": (stream(created(), delta("Hi"), then=lambda _: None), "reply_cut"),
    "silent after a delta": (stream(created(), delta("Hi"), then=Peer.hang), "reply_cut"),
    "a framed end before the last event": (stream(created(), delta("Hi")), "reply_cut"),
    "an empty stream": (answer(response(200, b"", "Content-Type: text/event-stream")), "reply_cut"),
    "an event that is not JSON": (stream(created(), b"data: {oops\n\n"), "malformed_reply"),
    "an event that is a list": (stream(created(), b"data: []\n\n"), "unexpected_reply"),
    "an empty document": (answer(response(200)), "malformed_reply"),
    "half a document": (answer(response(200, b'{"status": "completed",')), "malformed_reply"),
    "a document of another kind": (answer(as_json({"choices": []})), "unexpected_reply"),
    "a document without its text": (answer(as_json({"status": "completed"})), "unexpected_reply"),
    "a text of another kind": (stream(created(), ended(text=7)), "unexpected_reply"),
    "a document that is not final": (answer(as_json(document("in_progress"))), "reply_cut"),
    "no content": (answer(response(204)), "unexpected_reply"),
    "a cut document": (answer(STREAM_HEAD + b"Content-Length: 500\r\n\r\n", created()), "reply_cut"),
}


@pytest.mark.parametrize("fault", LOST)
def test_in_the_foreground_what_does_not_come_whole_is_lost(fault: str, client: Client, serve: Serve) -> None:
    run, code = LOST[fault]
    server = serve(run)
    error = failing(lambda: client.call(server.url, background=False, read_seconds=0.2))
    assert (error.failure.error_class, error.failure.code, error.failure.askable) == (U, code, False)
    assert (server.posts, server.connections) == (1, 1)


@pytest.mark.usefixtures("no_leaks")
def test_in_the_foreground_it_can_be_ended(client: Client, serve: Serve) -> None:
    server = serve(stream(created(), delta("Hi"), then=Peer.hang))
    exchange = client.exchange()
    threading.Timer(0.2, exchange.abort, ["cancelled"]).start()
    began = time.monotonic()
    error = failing(lambda: client.call(server.url, exchange=exchange, background=False, read_seconds=60))
    assert (error.failure.error_class, error.failure.code) == (U, "aborted_cancelled")
    assert time.monotonic() - began < 1.2
    with pytest.raises(NotSent, match="cancelled"):
        client.call(server.url, exchange=exchange, background=False)


def test_with_the_simulator(client: Client) -> None:
    with Simulator() as sim:
        reply = client.call(sim.url, background=False, body={"input": "hello", "max_output_tokens": 3})
        assert (reply.text, reply.finish_reason) == ("Simulated answer to:", "length")
        assert "".join(client.deltas) == reply.text
        assert reply.usage.output_tokens == 3
        error = failing(lambda: client.call(sim.url, background=False, body={"input": "[[sim: error_after=1]]"}))
        assert (error.failure.error_class, error.failure.code) == (T, "provider_error")
        error = failing(lambda: client.call(sim.url, background=False, body={"input": "[[sim: cut_after=1]]"}))
        assert (error.failure.error_class, error.failure.code) == (U, "reply_cut")
        assert sim.stats()["complete_posts"] == 3
