"""Responses and stored completions outlive the client that asked for them."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from aijobs.simulator import Simulator
from aijobs.simulator.records import Kept
from tests.simulator.client import Reply, chat_body, connect, read_until, send_raw, wait_for


def ask(sim: Simulator, method: str, path: str, body: dict[str, Any] | None = None) -> Reply:
    connection = connect(sim.url)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def body(prompt: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": prompt, **more}


def create(sim: Simulator, prompt: str, **more: Any) -> Reply:
    return ask(sim, "POST", "/v1/responses", body(prompt, **more))


def events_of(reply: Reply) -> list[dict[str, Any]]:
    """The events of a stream, each of which must say in its data what it is called."""
    events = []
    for block in reply.body.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


def begin(sim: Simulator, prompt: str, **more: Any) -> tuple[socket.socket, dict[str, Any]]:
    """A streamed POST of which the first event was read."""
    parts = urlsplit(sim.url)
    sock = socket.create_connection((parts.hostname, parts.port), timeout=10)
    data = json.dumps(body(prompt, stream=True, **more)).encode()
    sock.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    received = read_until(sock, b"\n\n")
    line = received[received.index(b"data: ") + 6 :].split(b"\n")[0]
    response: dict[str, Any] = json.loads(line)["response"]
    return sock, response


def test_a_stream_tells_a_response_from_its_id_to_its_text(sim: Simulator) -> None:
    events = events_of(create(sim, "hello", stream=True))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[0]["response"]["status"] == "in_progress"
    assert text_of(events) == "Simulated answer to: hello"
    final = events[-1]["response"]
    assert (events[-1]["type"], final["status"]) == ("response.completed", "completed")
    assert final["output"][0]["content"][0]["text"] == text_of(events)
    assert final["usage"]["output_tokens"] == 4
    assert final["id"] == events[0]["response"]["id"]


def test_one_document_says_the_same(sim: Simulator) -> None:
    reply = ask(sim, "POST", "/v1/responses", {"model": "m", "input": [{"role": "user", "content": "hello"}]})
    assert reply.json["output"][0]["content"][0]["text"] == "Simulated answer to: hello"
    assert (reply.json["object"], reply.json["status"], reply.json["background"]) == ("response", "completed", False)
    parts = [{"type": "input_text", "text": "hello"}]
    again = create(sim, "x", input=[{"role": "user", "content": parts}])
    assert again.json["output"] == [reply.json["output"][0] | {"id": again.json["output"][0]["id"]}]


@pytest.mark.parametrize(
    "wrong", [b"{", b"[]", b'{"model": "m"}', b'{"model": "m", "input": []}', b'{"input": "x"}', b'{"input": [7]}']
)
def test_what_is_no_request_is_refused(sim: Simulator, wrong: bytes) -> None:
    connection = connect(sim.url)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/responses", wrong)
        assert connection.getresponse().status == 400
    assert sim.paid() == 0


@pytest.mark.parametrize(
    ("asked", "status", "reason"),
    [({"max_output_tokens": 2}, "incomplete", "max_output_tokens"), ({}, "completed", None)],
)
def test_a_limit_makes_it_incomplete(sim: Simulator, asked: dict[str, Any], status: str, reason: str | None) -> None:
    final = events_of(create(sim, "hello", stream=True, **asked))[-1]
    assert final["type"] == f"response.{status}"
    assert (final["response"]["incomplete_details"] or {}).get("reason") == reason


def test_scripts_hold_for_responses_too(sim: Simulator) -> None:
    refused = create(sim, "[[sim: marker=a status=429 retry_after=7 times=1]]", stream=True)
    assert (refused.status, refused.headers["retry-after"]) == (429, "7")
    assert create(sim, "[[sim: marker=a status=429 times=1]]").status == 200
    assert sim.stats()["by_marker"] == {"a": {"posts": 2, "generations": 1}}
    assert create(sim, "[[sim: usage=off]]").json["usage"] is None
    assert create(sim, "[[sim: finish=content_filter]]").json["incomplete_details"] == {"reason": "content_filter"}
    events = events_of(create(sim, "[[sim: done=off]]", stream=True))
    assert events[-1]["type"] == "response.output_item.done"
    failed = events_of(create(sim, "[[sim: error_after=2 error=rate_limit_exceeded]]", stream=True))[-1]
    assert (failed["type"], failed["response"]["error"]["code"]) == ("response.failed", "rate_limit_exceeded")
    assert create(sim, "[[sim: error_after=2]]").status == 500
    assert b'"delta":\n' in create(sim, "[[sim: malformed=1]]", stream=True).body
    assert sim.stats()["complete_posts"] == 8


def test_a_client_that_leaves_ends_what_is_in_the_foreground(sim: Simulator) -> None:
    sock, response = begin(sim, "[[sim: marker=gone tokens=1000 delta_ms=10]]")
    sock.close()
    call = wait_for(lambda: sim.calls("gone")[0]["finished_at"] and sim.calls("gone")[0])
    assert call["tokens_sent"] < 1000
    assert not call["completed"]
    assert call["peer_closed_at"]
    assert ask(sim, "GET", f"/v1/responses/{response['id']}").status == 404


def test_a_client_that_leaves_does_not_end_what_is_in_the_background(sim: Simulator) -> None:
    sock, response = begin(sim, "[[sim: marker=gone tokens=10 delta_ms=10]]", background=True, metadata={"k": "v"})
    assert (response["status"], response["background"], response["metadata"]) == ("queued", True, {"k": "v"})
    sock.close()
    path = f"/v1/responses/{response['id']}"
    assert ask(sim, "GET", path).json["status"] == "in_progress"
    final = wait_for(lambda: (found := ask(sim, "GET", path).json)["status"] == "completed" and found)
    assert len(final["output"][0]["content"][0]["text"].split()) == 10
    assert sim.paid("gone") == sim.stats()["complete_posts"] == 1  # to look at it is no generation


@pytest.mark.parametrize("script", ["cut_after=3", "reset_after=3", "done=off"])
def test_a_broken_stream_can_be_taken_up_again(sim: Simulator, script: str) -> None:
    sock, response = begin(sim, f"[[sim: {script} delta_ms=5 text='one two three four five']]", background=True)
    received = b""
    with contextlib.suppress(ConnectionResetError), sock:
        while b"three" not in received:
            received += sock.recv(65536)
    path = f"/v1/responses/{response['id']}?stream=true"
    whole = events_of(ask(sim, "GET", path))
    assert (text_of(whole), whole[-1]["type"]) == ("one two three four five", "response.completed")
    last = next(event["sequence_number"] for event in whole if event.get("delta") == " three")
    rest = events_of(ask(sim, "GET", f"{path}&starting_after={last}"))
    assert rest == whole[last + 1 :]
    assert text_of(rest) == " four five"


def test_without_a_stream_the_background_answers_at_once(sim: Simulator) -> None:
    reply = create(sim, "[[sim: tokens=2 delta_ms=100 error_after=1]]", background=True)
    assert reply.json["status"] == "in_progress"
    path = f"/v1/responses/{reply.json['id']}"
    failed = wait_for(lambda: (found := ask(sim, "GET", path).json)["status"] != "in_progress" and found)
    assert (failed["status"], failed["error"]["code"], failed["output"]) == ("failed", "server_error", [])


def test_an_answer_that_never_came_was_made_all_the_same(sim: Simulator) -> None:
    for how in ("close", "reset"):
        with pytest.raises((ConnectionError, OSError)):
            create(sim, f"[[sim: marker={how} {how}=headers]]", background=True, stream=True)
        assert sim.paid(how) == 1


def test_cancelling_ends_the_work_and_its_streams(sim: Simulator) -> None:
    sock, response = begin(sim, "[[sim: tokens=1000 delta_ms=1000]]", background=True)
    path = f"/v1/responses/{response['id']}"
    assert ask(sim, "POST", f"{path}/cancel").json["status"] == "cancelled"
    with sock:
        assert b"response.completed" not in read_until(sock, b"0\r\n\r\n")
    assert ask(sim, "GET", path).json["status"] == "cancelled"
    assert ask(sim, "POST", f"{path}/cancel").json["status"] == "cancelled"
    done = create(sim, "quick", background=True).json
    assert ask(sim, "POST", f"/v1/responses/{done['id']}/cancel").json["status"] == "completed"


def test_what_is_not_there_is_not_found(sim: Simulator) -> None:
    there = create(sim, "hello", background=True).json["id"]
    for method, path in (("GET", "none"), ("POST", "none/cancel"), ("POST", there), ("GET", f"{there}/cancel")):
        assert ask(sim, method, f"/v1/responses/{path}").status == 404
    assert ask(sim, "GET", f"/v1/responses/{there}?stream=true&starting_after=x").status == 400


def test_an_id_never_comes_again() -> None:
    ids = set()
    for _ in range(2):
        with Simulator() as sim:
            ids.add(create(sim, "hello").json["id"])
    assert len(ids) == 2


def listed(sim: Simulator, **metadata: str) -> list[dict[str, Any]]:
    query = urlencode({f"metadata[{name}]": value for name, value in metadata.items()})
    found: list[dict[str, Any]] = ask(sim, "GET", f"/v1/chat/completions?{query}").json["data"]
    return found


def complete(sim: Simulator, prompt: str, **more: Any) -> Reply:
    return ask(sim, "POST", "/v1/chat/completions", chat_body(prompt, **more))


def test_a_stored_completion_is_found_by_its_metadata(sim: Simulator) -> None:
    first = complete(sim, "one", store=True, metadata={"k": "a", "n": "1"}).json
    complete(sim, "two", store=True, metadata={"k": "a", "n": "2"}, stream=True)
    complete(sim, "three", store=True, metadata={"k": "b"})
    complete(sim, "four", metadata={"k": "a"})
    assert [each["choices"][0]["message"]["content"][-3:] for each in listed(sim, k="a")] == ["one", "two"]
    assert listed(sim, k="a", n="1") == [first | {"metadata": {"k": "a", "n": "1"}}]
    assert listed(sim, k="c") == []
    newest = ask(sim, "GET", "/v1/chat/completions?metadata%5Bk%5D=a&limit=1&order=desc").json
    assert newest["data"] == listed(sim, k="a", n="2")
    assert newest["has_more"]
    assert ask(sim, "GET", f"/v1/chat/completions/{first['id']}").json["choices"] == first["choices"]
    assert ask(sim, "GET", "/v1/chat/completions/none").status == 404
    assert sim.paid() == 4


def test_a_stored_completion_is_made_to_its_end_without_its_client(sim: Simulator) -> None:
    prompt = "[[sim: marker=gone text='one two three' delta_ms=60]]"
    sock = send_raw(sim.url, chat_body(prompt, stream=True, store=True, metadata={"k": "v"}))
    read_until(sock, b"one")
    sock.close()
    assert wait_for(lambda: sim.calls("gone")[0]["finished_at"])
    assert listed(sim, k="v") == []
    [found] = wait_for(lambda: listed(sim, k="v"))
    assert found["choices"][0]["message"]["content"] == "one two three"
    assert found["usage"]["completion_tokens"] == 3
    assert sim.paid("gone") == 1
    assert not sim.calls("gone")[0]["completed"]


def test_what_fails_is_not_stored(sim: Simulator) -> None:
    for script in ("status=500", "error_after=1"):
        complete(sim, f"[[sim: {script}]]", store=True, metadata={"k": "v"})
    assert listed(sim, k="v") == []
    with pytest.raises((ConnectionError, OSError)):
        complete(sim, "[[sim: close=headers]]", store=True, metadata={"k": "v"})
    assert len(listed(sim, k="v")) == 1


def test_no_more_is_kept_than_there_is_room_for() -> None:
    kept: Kept[int] = Kept(most=2)
    for number in range(3):
        kept.put(str(number), number)
    assert kept.all() == [1, 2]
    assert kept.get("0") is None
