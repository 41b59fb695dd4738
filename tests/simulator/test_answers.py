"""Without a fault it answers as a provider does, and always the same."""

from __future__ import annotations

import http.client
import json
import time

import pytest

from aijobs.simulator import Simulator
from tests.simulator.client import ask, chat_body, connect, get, post, send_raw, wait_for


def test_an_answer_echoes_the_prompt_with_plausible_usage(sim: Simulator) -> None:
    reply = ask(sim.url, "hello there")
    assert reply.status == 200
    assert reply.headers["x-request-id"].startswith("req-sim-")
    assert reply.json["object"] == "chat.completion"
    assert reply.json["model"] == "m"
    [choice] = reply.json["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Simulated answer to: hello there", "refusal": None}
    assert choice["finish_reason"] == "stop"
    usage = reply.json["usage"]
    assert usage["completion_tokens"] == 5
    assert usage["total_tokens"] == usage["prompt_tokens"] + 5 > 5


def test_a_stream_says_the_same_in_deltas_and_ends_with_done(sim: Simulator) -> None:
    reply = ask(sim.url, "hello there", stream=True, stream_options={"include_usage": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.text == "Simulated answer to: hello there"
    *chunks, last, usage, done = reply.events
    assert done == "[DONE]"
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert len(chunks) == 1 + 5
    assert all(chunk["usage"] is None for chunk in [*chunks, last])
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 5


def test_a_stream_tells_its_usage_only_when_asked(sim: Simulator) -> None:
    assert all("usage" not in event for event in ask(sim.url, "hi", stream=True).events[:-1])


def test_scripts_are_not_echoed_and_the_header_wins(sim: Simulator) -> None:
    assert ask(sim.url, "hi [[sim: delta_ms=0]]").json["choices"][0]["message"]["content"].endswith(": hi")
    reply = post(sim.url, chat_body("[[sim: text=prompt]]"), X_Simulator="text=header")
    assert reply.json["choices"][0]["message"]["content"] == "header"


def test_only_the_last_user_message_is_a_script_and_parts_are_read(sim: Simulator) -> None:
    messages = [
        {"role": "user", "content": "[[sim: status=500]]"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "[[sim: text=parts]]"}, {"type": "image_url"}]},
        {"role": "system", "content": "[[sim: status=500]]"},
    ]
    reply = post(sim.url, {"model": "m", "messages": messages})
    assert reply.json["choices"][0]["message"]["content"] == "parts"


@pytest.mark.parametrize("text", ["one", " two  words\nand more ", "a\u0000b", "grüße 🙂", ""])
@pytest.mark.parametrize("tokens", ["", " tokens=7"])
def test_an_exact_text_arrives_exactly(sim: Simulator, text: str, tokens: str) -> None:
    prompt = f"[[sim: text={json.dumps(text)}{tokens}]]"
    assert ask(sim.url, prompt).json["choices"][0]["message"]["content"] == text
    streamed = ask(sim.url, prompt, stream=True)
    assert streamed.text == text
    if tokens:
        assert len(streamed.events) == 1 + 7 + 2


def test_tokens_is_the_number_of_deltas(sim: Simulator) -> None:
    reply = ask(sim.url, "[[sim: tokens=40]]", stream=True, stream_options={"include_usage": True})
    assert len(reply.events) == 1 + 40 + 3
    assert reply.events[-2]["usage"]["completion_tokens"] == 40


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_most_tokens_of_a_request_cut_the_answer(sim: Simulator, name: str) -> None:
    reply = ask(sim.url, "[[sim: tokens=40]]", **{name: 3})
    assert reply.json["usage"]["completion_tokens"] == 3
    assert reply.json["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_the_reason_to_finish(sim: Simulator, finish: str) -> None:
    assert ask(sim.url, f"[[sim: finish={finish}]]").json["choices"][0]["finish_reason"] == finish
    assert ask(sim.url, f"[[sim: finish={finish}]]", stream=True).events[-2]["choices"][0]["finish_reason"] == finish


def test_usage_off_and_twice(sim: Simulator) -> None:
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    assert not [event for event in ask(sim.url, "[[sim: usage=off]]", **asked).events[:-1] if event["usage"]]
    first, second = [event for event in ask(sim.url, "[[sim: usage=twice]]", **asked).events[:-1] if event["usage"]]
    assert first["usage"] == second["usage"]
    assert "usage" not in ask(sim.url, "[[sim: usage=off]]").json


def test_delays_are_kept(sim: Simulator) -> None:
    began = time.monotonic()
    ask(sim.url, "[[sim: first_byte_ms=60 tokens=5 delta_ms=20]]", stream=True)
    assert time.monotonic() - began >= 0.16
    began = time.monotonic()
    ask(sim.url, "[[sim: first_byte_ms=60 tokens=5 delta_ms=20]]")
    assert time.monotonic() - began >= 0.16


def test_deltas_arrive_one_by_one(sim: Simulator) -> None:
    sock = send_raw(sim.url, chat_body("[[sim: marker=slow tokens=3 delta_ms=60000 first_byte_ms=0]]", stream=True))
    received = b""
    while b'"role":"assistant"' not in received:
        received += sock.recv(65536)
    assert b"Simulated" not in received
    assert sim.calls("slow")[0]["tokens_sent"] == 0
    sock.close()
    wait_for(lambda: sim.calls("slow")[0]["peer_closed_at"])


def test_a_connection_serves_many_requests(sim: Simulator) -> None:
    connection = connect(sim.url)
    for stream in (False, True, False, True):
        connection.request("POST", "/v1/chat/completions", json.dumps(chat_body("hi", stream=stream)))
        response = connection.getresponse()
        sock = connection.sock
        assert b"Simulated" in response.read()
        assert connection.sock is sock is not None
    connection.close()


def test_connection_close_is_obeyed_and_an_old_client_is_served(sim: Simulator) -> None:
    assert post(sim.url, chat_body(), Connection="close").headers["connection"] == "close"
    connection = connect(sim.url)
    connection._http_vsn, connection._http_vsn_str = 10, "HTTP/1.0"
    connection.request("POST", "/v1/chat/completions", json.dumps(chat_body("hi", stream=True)))
    response = connection.getresponse()
    assert response.getheader("transfer-encoding") is None
    assert response.read().endswith(b"data: [DONE]\n\n")
    connection.close()


def test_framing_close_has_neither_chunks_nor_length(sim: Simulator) -> None:
    for stream in (False, True):
        reply = ask(sim.url, "[[sim: framing=close text=fine]]", stream=stream)
        assert not {"transfer-encoding", "content-length"} & set(reply.headers)
        assert reply.headers["connection"] == "close"
        assert b"fine" in reply.body


def test_a_client_that_waits_for_100_continue_is_told_to(sim: Simulator) -> None:
    data = json.dumps(chat_body()).encode()
    connection = connect(sim.url)
    connection.putrequest("POST", "/v1/chat/completions")
    connection.putheader("Content-Length", str(len(data)))
    connection.putheader("Expect", "100-continue")
    connection.endheaders()
    assert connection.sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.send(data)
    assert connection.getresponse().status == 200
    connection.close()


def test_its_pages_say_that_it_is_no_provider(sim: Simulator) -> None:
    assert "not a provider" in get(sim.url, "/")["about"]
    models = get(sim.url, "/v1/models")
    assert models["object"] == "list"
    assert {model["owned_by"] for model in models["data"]} == {"aijobs-simulator"}
    assert get(sim.url, "/v1/nothing")["error"]["code"] == "model_not_found"


_BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b"[" * 100_000,
    b"\xff",
    b'{"model": "m"}',
    b'{"model": "m", "messages": []}',
    b'{"model": "m", "messages": [1]}',
    b'{"model": "m", "messages": [{"role": "user", "content": 1}]}',
    b'{"messages": [{}]}',
]


@pytest.mark.parametrize("body", _BAD_BODIES)
def test_a_bad_body_is_a_400_and_costs_nothing(sim: Simulator, body: bytes) -> None:
    reply = post(sim.url, body)
    assert reply.status == 400
    assert reply.json["error"]["type"] == "invalid_request_error"
    assert sim.stats()["generations"] == 0
    assert sim.stats()["complete_posts"] == 1


def test_what_is_not_http_is_refused(sim: Simulator) -> None:
    for line, status in ((b"hello\r\n\r\n", 400), (b"GET / HTTP/2.0\r\n\r\n", 505), (b"x" * 200_000, 431)):
        connection = connect(sim.url)
        connection.connect()
        connection.sock.sendall(line)
        response = http.client.HTTPResponse(connection.sock)
        response.begin()
        assert response.status == status
        connection.close()


def test_a_body_without_a_length_or_too_long_is_refused(sim: Simulator) -> None:
    assert post(sim.url, b"", Transfer_Encoding="chunked").status == 411
    assert post(sim.url, b"", Content_Length="99999999").status == 413
    assert post(sim.url, b"", Content_Length="-1").status == 400
