"""What counts as an answer of a chat completion, and what is taken from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from aijobs.domain.failures import ErrorClass, Usage
from aijobs.errors import ProviderError
from tests.providers.conftest import BODY, Client
from tests.providers.test_faults_after_the_request_is_sent import DELTA, DONE, FINISH, script
from tests.providers.wire import CHUNKED_HEAD, OPEN_HEAD, STREAM_HEAD, Server, chunked, response

Serve = Callable[..., Server]


def chunk(content: str | None = None, *, finish: str | None = None, index: int = 0, **fields: Any) -> bytes:
    delta = {} if content is None else {"content": content}
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c-1", "model": "m-1", "choices": [choice]} | fields).encode() + b"\n\n"


def stream(*events: bytes) -> Callable[..., None]:
    return script(CHUNKED_HEAD, chunked(*events, DONE))


def test_a_stream(client: Client, serve: Serve) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}
    server = serve(stream(chunk("Hel"), chunk("lo"), chunk(finish="stop"), chunk(choices=[], usage=usage)))
    exchange = client.exchange()
    reply = client.call(server.url, exchange=exchange)
    assert (reply.text, reply.finish_reason, reply.model, reply.http_status) == ("Hello", "stop", "m-1", 200)
    assert (reply.provider_request_id, reply.provider_operation_id) == ("req-7", "c-1")
    assert reply.usage == Usage(input_tokens=5, output_tokens=2, cached_tokens=3)
    assert client.deltas == ["Hel", "lo"]
    assert exchange.phase == "headers"
    assert exchange.first_byte_seconds is not None
    assert exchange.first_byte_seconds >= 0


def test_what_is_sent(client: Client, serve: Serve) -> None:
    server = serve(stream(chunk("x", finish="stop")))
    client.call(server.url + "/", body={**BODY, "temperature": 0, "stream_options": {"include_obfuscation": False}})
    request = server.requests[0]
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    sent = json.loads(request.body)
    assert sent == {**BODY, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    assert request.headers["authorization"] == "Bearer sk-secret-of-ours"
    assert request.headers["x-client-request-id"] == "attempt-1"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["content-length"] == str(len(request.body))


@pytest.mark.usefixtures("trusted")
def test_over_tls_and_through_a_proxy(client: Client, serve: Serve, proxy: Any) -> None:
    server = serve(stream(chunk("x", finish="stop")), tls=True)
    assert client.call(server.url).text == "x"
    assert client.call(server.url, proxy=proxy.url).text == "x"
    assert [line.rpartition(" ")[0] for line in proxy.lines] == [f"CONNECT localhost:{server.port}"]


def test_a_server_that_does_not_stream(client: Client, serve: Serve) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Whole"}, "finish_reason": "stop"}
    document = json.dumps({"id": "c-2", "choices": [choice], "usage": {"prompt_tokens": 1}}).encode()
    for run in (
        script(response(200, document, "Content-Type: application/json")),
        script(response(200, b"\xef\xbb\xbf" + document)),
        script(b"HTTP/1.1 200 OK\r\n\r\n", document),  # half a document would not parse
    ):
        reply = client.call(serve(run).url)
        assert (reply.text, reply.finish_reason, reply.usage) == ("Whole", "stop", Usage(input_tokens=1))


def test_the_end_mark_suffices_without_a_framed_end(client: Client, serve: Serve) -> None:
    assert client.call(serve(script(OPEN_HEAD, DELTA, FINISH, DONE)).url).text == "Hi"
    assert client.call(serve(script(CHUNKED_HEAD, chunked(DELTA, FINISH, DONE, end=False))).url).text == "Hi"


def test_a_framed_end_suffices_without_the_end_mark(client: Client, serve: Serve) -> None:
    assert client.call(serve(script(CHUNKED_HEAD, chunked(DELTA, FINISH))).url).text == "Hi"
    with_length = STREAM_HEAD + f"Content-Length: {len(DELTA + FINISH)}\r\n\r\n".encode()
    assert client.call(serve(script(with_length, DELTA, FINISH)).url).text == "Hi"


def test_every_choice_must_have_finished(client: Client, serve: Serve) -> None:
    first, second = chunk("a", finish="stop"), chunk("b", index=1)
    with pytest.raises(ProviderError) as caught:
        client.call(serve(stream(first, second)).url)
    assert caught.value.failure.code == "reply_incomplete"
    assert client.call(serve(stream(first, second, chunk(index=1, finish="length"))).url).text == "a"


def test_odd_things_that_compatible_servers_send(client: Client, serve: Serve) -> None:
    server = serve(
        stream(
            b": OPENROUTER PROCESSING\n\n",
            b"data:\n\n",
            b"event: ping\ndata: {}\n\n",
            b'data: {"choices": null, "usage": null}\n\n',
            b'data: {"choices": [null, 7], "error": null}\n\n',
            chunk("", finish=""),
            b'data: {"choices": [{"delta": {"reasoning_content": "hm", "content": null}}]}\n\n',
            b'data: {"choices": [{"delta": null}]}\n\n',
            b'data: {"choices": [{"delta": {"content": [{"type": "text", "text": "Yes"}, {"type": "thinking"}]}}]}\n\n',
            b'data:{"choices":[{"delta":{"content":"."},"finish_reason":"stop"}],"model":7,"id":["x"]}\r\n\r\n',
        )
    )
    reply = client.call(server.url)
    assert (reply.text, reply.finish_reason, reply.provider_operation_id) == ("Yes.", "stop", "c-1")


USAGES: list[tuple[list[Any], Usage]] = [
    ([], Usage()),
    ([None, None], Usage()),
    ([{"prompt_tokens": 1, "completion_tokens": 1}, {"prompt_tokens": 1, "completion_tokens": 9}], Usage(1, 9)),
    ([{"prompt_tokens": 1, "completion_tokens": 9}, None, "much", {}, {"prompt_tokens": None}], Usage(1, 9)),
    ([{"prompt_tokens": -1, "completion_tokens": True, "total_tokens": 5}], Usage()),
    ([{"prompt_tokens": "7", "completion_tokens": 1e9}], Usage()),
    ([{"prompt_tokens": 10**30, "completion_tokens": 3}], Usage(output_tokens=3)),
    (
        [{"prompt_tokens": 4, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 2}}],
        Usage(4, 3, reasoning_tokens=2),
    ),
    ([{"prompt_tokens": 4, "prompt_tokens_details": None, "completion_tokens_details": []}], Usage(4)),
]


@pytest.mark.parametrize(("reported", "usage"), USAGES)
def test_the_last_usage_that_makes_sense_counts(
    reported: list[Any], usage: Usage, client: Client, serve: Serve
) -> None:
    server = serve(stream(*(chunk("x", usage=each) for each in reported), chunk(finish="stop")))
    assert client.call(server.url).usage == usage


def raw(content: str) -> bytes:
    """A delta whose content is written as given, escapes and all."""
    return b'data: {"choices":[{"index":0,"delta":{"content":"' + content.encode() + b'"}}]}\n\n'


def test_text_is_made_fit_to_be_stored(client: Client, serve: Serve) -> None:
    deltas = [raw(r"a\ud83d"), raw(r"\ude00b"), raw(r"\udc81"), raw(r"c\u0000d"), raw(r"\ud83d")]
    reply = client.call(serve(stream(*deltas, chunk(finish="stop"))).url)
    assert reply.text == "a\U0001f600b\ufffdcd\ufffd"
    assert "".join(client.deltas) == reply.text
    for delta in client.deltas:
        delta.encode()


def test_text_is_bounded_though_wrong_bytes_grow(client: Client, serve: Serve) -> None:
    wrong = b'data: {"choices":[{"delta":{"content":"' + b"\xff" * 1000 + b'"}}]}\n\n'
    with pytest.raises(ProviderError) as caught:
        client.call(serve(stream(wrong, chunk(finish="stop"))).url, max_reply_bytes=2000)
    assert caught.value.failure.code == "reply_too_large"


def test_a_cut_off_answer_is_an_answer(client: Client, serve: Serve) -> None:
    reply = client.call(serve(stream(chunk("Once upon"), chunk(finish="length"))).url)
    assert (reply.text, reply.finish_reason) == ("Once upon", "length")


def test_a_refusal_is_an_answer(client: Client, serve: Serve) -> None:
    refusal = b'data: {"choices":[{"index":0,"delta":{"content":null,"refusal":"I will not."}}]}\n\n'
    reply = client.call(serve(stream(refusal, chunk(finish="stop"))).url)
    assert (reply.text, reply.finish_reason) == ("I will not.", "stop")


def test_a_filtered_answer_is_one_if_there_is_text(client: Client, serve: Serve) -> None:
    reply = client.call(serve(stream(chunk("Some"), chunk(finish="content_filter"))).url)
    assert (reply.text, reply.finish_reason) == ("Some", "content_filter")
    with pytest.raises(ProviderError) as caught:
        client.call(serve(stream(chunk(finish="content_filter", usage={"prompt_tokens": 9}))).url)
    assert caught.value.failure.error_class is ErrorClass.PERMANENT
    assert caught.value.failure.code == "content_filtered"
    assert caught.value.usage == Usage(input_tokens=9)


def test_what_a_listener_raises_comes_through(client: Client, serve: Serve) -> None:
    class Refusing(list[str]):
        def append(self, delta: str) -> None:
            raise OSError("disk full")

    client.deltas = Refusing()
    with pytest.raises(OSError, match="disk full"):
        client.call(serve(stream(chunk("x", finish="stop"))).url)


def test_a_burst_of_many_events_is_read_quickly(client: Client, serve: Serve) -> None:
    count = 20_000
    server = serve(stream(chunk("x") * count, chunk(finish="stop")))
    assert len(client.call(server.url).text) == count
