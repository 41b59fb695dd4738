"""In the background only the first event can be lost: whatever breaks later, the answer is fetched and not bought."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aijobs.domain.failures import ErrorClass, Usage
from aijobs.errors import NotSent, ProviderError
from aijobs.providers import responses_work
from aijobs.providers.base import NothingFound, Reply
from aijobs.providers.exchange import Exchange
from aijobs.simulator import Simulator, SimulatorProcess
from tests.providers.test_responses import (
    BODY,
    DEDUPE,
    USAGE,
    Client,
    Script,
    answer,
    as_json,
    client,
    created,
    delta,
    document,
    ended,
    event,
    failing,
    stream,
)
from tests.providers.wire import CHUNKED_HEAD, PATIENCE, Peer, Server, chunked, response

Serve = Callable[..., Server]
U, P, T, G = ErrorClass.UNKNOWN, ErrorClass.PERMANENT, ErrorClass.TRANSIENT, ErrorClass.GATE
FIRST_PAUSE_SECONDS = responses_work._FIRST_PAUSE_SECONDS
__all__ = ["client"]  # the fixture


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses_work, "_FIRST_PAUSE_SECONDS", 0.02)


def in_turn(*scripts: Script) -> Script:
    """One script for each connection, in order; the last one for all that follow."""
    turns = iter(range(len(scripts)))
    lock = threading.Lock()

    def run(peer: Peer) -> None:
        with lock:
            turn = next(turns, len(scripts) - 1)
        scripts[turn](peer)

    return run


def cut(*events: bytes) -> Script:
    """Events, then the end of the connection where none should be."""
    return stream(*events, then=lambda _: None)


def lines(server: Server) -> list[str]:
    return [request.line.removesuffix(" HTTP/1.1") for request in server.requests]


@contextmanager
def aborted_after(exchange: Exchange, fact: Callable[[], bool]) -> Iterator[Callable[[], float]]:
    """End the exchange once the fact is true; gives how long ago that was."""
    moments: list[float] = []

    def wait() -> None:
        until = time.monotonic() + PATIENCE
        while not fact() and time.monotonic() < until:
            time.sleep(0.002)
        moments.append(time.monotonic())
        exchange.abort("cancelled")

    thread = threading.Thread(target=wait)
    thread.start()
    yield lambda: time.monotonic() - moments[0]
    thread.join()


def test_what_is_sent(client: Client, serve: Serve) -> None:
    server = serve(stream(created(), ended()))
    client.call(server.url, body={"metadata": {"ours": "yes"}})
    assert json.loads(server.requests[0].body) == {
        **BODY,
        "stream": True,
        "background": True,
        "store": True,
        "metadata": {"ours": "yes", "aijobs_call": DEDUPE},
    }
    assert client.adapter(server.url).ask_by == "operation"


def test_the_id_is_stored_before_the_second_event_is_read(client: Client, serve: Serve) -> None:
    stored = threading.Event()

    def run(peer: Peer) -> None:
        peer.request()
        peer.send(CHUNKED_HEAD, chunked(created(), end=False))
        assert stored.wait(PATIENCE)  # else no second event ever comes
        peer.send(chunked(delta("Hi", 1), ended(number=2)))

    def store(operation_id: str) -> None:
        assert client.deltas == []
        client.operations.append(operation_id)
        stored.set()

    assert client.call(serve(run).url, on_operation=store).text == "Hi"
    assert client.operations == ["resp_1"]


def test_the_id_is_stored_before_an_event_that_came_with_it_is_taken(client: Client, serve: Serve) -> None:
    server = serve(stream(created() + delta("Hi", 1) + ended(number=2)))
    client.call(server.url, on_operation=lambda _: client.operations.append(f"after {client.deltas}"))
    assert client.operations == ["after []"]


def test_what_storing_the_id_raises_comes_through(client: Client, serve: Serve) -> None:
    def refuse(operation_id: str) -> None:
        raise OSError("no room")

    server = serve(stream(created(), ended()))
    with pytest.raises(OSError, match="no room"):
        client.call(server.url, on_operation=refuse)
    assert server.connections == 1


BREAKS: dict[str, Callable[[Peer], None] | None] = {
    "cut": lambda _: None,
    "reset": Peer.reset,
    "silence": Peer.hang,
    "a framed end": None,
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_stream_that_breaks_is_taken_up_where_it_broke(how: str, client: Client, serve: Serve) -> None:
    rest = stream(delta(" three", 3), ended(text="one two three", number=4))
    server = serve(in_turn(stream(created(), delta("one", 1), delta(" two", 2), then=BREAKS[how]), rest))
    reply = client.call(server.url, read_seconds=0.2)
    assert (reply.text, client.deltas) == ("one two three", ["one", " two", " three"])
    assert (reply.provider_operation_id, reply.provider_request_id) == ("resp_1", "req-7")
    assert lines(server) == ["POST /v1/responses", "GET /v1/responses/resp_1?stream=true&starting_after=2"]
    assert client.operations == ["resp_1"]


def test_it_can_break_again_and_again(client: Client, serve: Serve) -> None:
    pieces = [cut(delta(f" {number}", number)) for number in range(1, 4)]
    server = serve(in_turn(cut(created()), *pieces, stream(ended(text=" 1 2 3", number=4))))
    assert client.call(server.url).text == " 1 2 3"
    assert client.deltas == [" 1", " 2", " 3"]
    assert (server.posts, server.connections) == (1, 5)


def test_a_server_that_begins_anew_shows_nothing_twice(client: Client, serve: Serve) -> None:
    again = stream(created(), delta("one", 1), delta(" two", 2), ended(text="one two", number=3))
    server = serve(in_turn(cut(created(), delta("one", 1)), again))
    assert client.call(server.url).text == "one two"
    assert client.deltas == ["one", " two"]


def test_a_gap_is_filled_from_the_whole(client: Client, serve: Serve) -> None:
    late = stream(delta(" three", 3), ended(text="one two three", number=4))
    server = serve(in_turn(cut(created(), delta("one", 1)), late))
    assert client.call(server.url).text == "one two three"
    assert client.deltas == ["one", " two three"]
    nowhere = stream(delta(" three", 3), ended(output=None, number=4))
    server = serve(in_turn(cut(created(), delta("one", 1)), nowhere))
    assert failing(lambda: client.call(server.url)).failure.code == "unexpected_reply"


def test_what_is_not_numbered_is_not_taken_up_but_looked_at(client: Client, serve: Serve) -> None:
    states = [answer(as_json(document("queued"))), answer(as_json(document("completed", "one two", usage=USAGE)))]
    server = serve(in_turn(cut(created(None), delta("one")), *states))
    reply = client.call(server.url)
    assert (reply.text, reply.usage.input_tokens, client.deltas) == ("one two", 9, ["one", " two"])
    assert lines(server) == ["POST /v1/responses", *["GET /v1/responses/resp_1"] * 2]


def test_a_server_that_does_not_take_up_is_asked_for_the_whole(client: Client, serve: Serve) -> None:
    whole = answer(as_json(document("completed", "one two")))
    for refusal in (answer(as_json({"error": {"message": "x"}}, 400)), answer(as_json({}, 404)), stream(created())):
        server = serve(in_turn(cut(created(), delta("one", 1)), refusal, whole))
        assert client.call(server.url).text == "one two"
        assert lines(server)[2:] == ["GET /v1/responses/resp_1"]
    # Or it answers at once with the whole.
    server = serve(in_turn(cut(created(), delta("one", 1)), whole))
    assert client.call(server.url).text == "one two"
    assert server.connections == 2


def test_a_server_that_does_not_stream_at_all(client: Client, serve: Serve) -> None:
    whole = answer(as_json(document("incomplete", "So", incomplete_details={"reason": "max_output_tokens"})))
    server = serve(in_turn(answer(as_json(document("queued"))), whole))
    reply = client.call(server.url)
    assert (reply.text, reply.finish_reason) == ("So", "length")
    assert client.operations == ["resp_1"]
    assert (server.posts, server.connections) == (1, 2)


TROUBLES: dict[str, Script] = {
    "no answer": answer(),
    "reset": lambda peer: (peer.request(), peer.reset())[0] and None,
    "rate limit": answer(as_json({"error": {"code": "rate_limit_exceeded"}}, 429)),
    "server error": answer(as_json({}, 500)),
    "gateway": answer(response(502, b"<html>", "Content-Type: text/html")),
    "not JSON": answer(response(200, b"<html>")),
    "half a document": answer(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"),
    "an error in a 200": answer(as_json({"error": {"code": "server_error"}})),
    "no response": answer(as_json([])),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_on_the_way_is_waited_out(trouble: str, client: Client, serve: Serve) -> None:
    whole = answer(as_json(document("completed", "Hi")))
    server = serve(in_turn(cut(created()), TROUBLES[trouble], TROUBLES[trouble], whole))
    assert client.call(server.url).text == "Hi"
    assert (server.posts, server.connections) == (1, 4)


def test_a_server_that_is_away_for_a_while(client: Client, serve: Serve) -> None:
    with SimulatorProcess() as sim:
        calls: list[Any] = []
        body = {"input": "[[sim: marker=a cut_after=2 text='one two three']]"}
        thread = threading.Thread(target=lambda: calls.append(client.call(sim.url, body=body)))
        thread.start()
        while not client.deltas:
            time.sleep(0.005)
        os.kill(sim.pid, 19)  # stopped: it takes connections and says nothing
        time.sleep(1)
        os.kill(sim.pid, 18)
        thread.join(PATIENCE)
        assert [reply.text for reply in calls] == ["one two three"]
        assert sim.stats()["complete_posts"] == 1


def test_an_error_event_need_not_be_the_end_of_the_response(client: Client, serve: Serve) -> None:
    whole = answer(as_json(document("completed", "one two")))
    server = serve(in_turn(stream(created(), delta("one", 1), event("error", 2, code="server_error")), answer(), whole))
    assert client.call(server.url).text == "one two"
    early = serve(stream(event("error", 0, code="server_is_overloaded")))
    assert failing(lambda: client.call(early.url)).failure.code == "provider_overloaded"


def test_the_events_may_be_too_many_and_the_answer_small(client: Client, serve: Serve) -> None:
    many = stream(created(), *(delta("x", number) for number in range(1, 40)), then=Peer.hang)
    whole = answer(as_json(document("completed", "x" * 40)))
    server = serve(in_turn(many, answer(), whole))
    assert client.call(server.url, max_reply_bytes=2000).text == "x" * 40
    assert "".join(client.deltas) == "x" * 40
    huge = answer(as_json(document("completed", "x" * 3000)))
    server = serve(in_turn(cut(created(None)), huge))
    error = failing(lambda: client.call(server.url, max_reply_bytes=2000))
    assert (error.failure.code, error.failure.askable, server.connections) == ("reply_too_large", False, 2)


LOST_CREATES: dict[str, tuple[Script, str]] = {
    "no answer": (answer(), "reply_lost"),
    "headers only": (answer(CHUNKED_HEAD), "reply_cut"),
    "half the first event": (answer(CHUNKED_HEAD, chunked(created()[:-9], end=False)), "reply_cut"),
    "no id": (cut(event("response.created", 0, response={"id": 7})), "reply_cut"),
    "not JSON": (cut(b"data: {oops\n\n"), "malformed_reply"),
}


@pytest.mark.parametrize("fault", LOST_CREATES)
def test_a_create_that_is_lost_before_its_id_cannot_be_asked_about(fault: str, client: Client, serve: Serve) -> None:
    run, code = LOST_CREATES[fault]
    server = serve(run)
    error = failing(lambda: client.call(server.url))
    assert (error.failure.error_class, error.failure.code, error.failure.askable) == (U, code, False)
    assert error.provider_operation_id is None
    assert (server.connections, client.operations) == (1, [])


@pytest.mark.parametrize(
    ("final", "error_class", "code"),
    [
        (document("failed", error={"code": "server_error"}, usage=USAGE), T, "provider_error"),
        (document("failed", error={"code": "rate_limit_exceeded"}, usage=USAGE), T, "rate_limited"),
        (document("failed", error={"code": "bio_policy"}, usage=USAGE), P, "provider_refused_request"),
        (document("cancelled", usage=USAGE), T, "provider_cancelled"),
        (document("incomplete", incomplete_details={"reason": "content_filter"}, usage=USAGE), P, "content_filtered"),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_an_end_that_is_no_answer(
    asked: bool, final: Any, error_class: ErrorClass, code: str, client: Client, serve: Serve
) -> None:
    server = serve(answer(as_json(final)) if asked else in_turn(cut(created(None)), answer(as_json(final))))
    error = failing(lambda: client.ask(server.url) if asked else client.call(server.url))
    assert (error.failure.error_class, error.failure.code, error.failure.askable) == (error_class, code, False)
    assert (error.provider_operation_id, error.usage) == ("resp_1", Usage(9, 5, 3, 2))
    assert (error.http_status, error.phase) == (200, "headers")


def test_what_is_refused_while_it_works_is_never_taken_for_a_refusal_of_the_work(client: Client, serve: Serve) -> None:
    for status in (401, 402, 404):
        server = serve(in_turn(cut(created(None)), answer(as_json({}, status))))
        error = failing(lambda url=server.url: client.call(url))
        assert (error.failure.error_class, error.failure.askable, error.failure.refused) == (U, True, False)
        assert error.provider_operation_id == "resp_1"
        assert server.connections == 2


class Held:
    """A server in one phase of a call, where it keeps silent; `reached` says that it does."""

    def __init__(self, *before: Script, last: Script) -> None:
        self.silent = threading.Event()

        def run(peer: Peer) -> None:
            last(peer)
            self.silent.set()
            peer.hang()

        self.script = in_turn(*before, run)


def first(peer: Peer) -> None:
    peer.request()
    peer.send(CHUNKED_HEAD, chunked(created(), delta("Hi", 1), end=False))


def unanswered(peer: Peer) -> None:
    peer.request()


def resumed(peer: Peer) -> None:
    peer.request()
    peer.send(CHUNKED_HEAD, chunked(delta("Hi", 1), end=False))


PHASES: dict[str, Callable[[], Held]] = {
    "in the stream": lambda: Held(last=first),
    "before the resumed stream": lambda: Held(cut(created()), last=unanswered),
    "in the resumed stream": lambda: Held(cut(created()), last=resumed),
    "while it is looked at": lambda: Held(cut(created(None)), last=unanswered),
    "in the body of what is looked at": lambda: Held(
        cut(created(None)), last=answer(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")
    ),
}


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("phase", PHASES)
def test_it_can_be_ended_in_every_phase(phase: str, client: Client, serve: Serve) -> None:
    held = PHASES[phase]()
    server = serve(held.script)
    exchange = client.exchange()
    with aborted_after(exchange, held.silent.is_set) as since:
        error = failing(lambda: client.call(server.url, exchange=exchange, read_seconds=60))
        assert since() < 1
    assert (error.failure.error_class, error.failure.code) == (U, "aborted_cancelled")
    assert (error.failure.askable, error.provider_operation_id, server.posts) == (True, "resp_1", 1)


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("asked", [True, False])
def test_it_can_be_ended_in_a_pause(asked: bool, client: Client, serve: Serve) -> None:
    queued = answer(as_json(document("queued")))
    server = serve(queued if asked else in_turn(cut(created(None)), queued))
    exchange = client.exchange()
    with aborted_after(exchange, lambda: server.connections >= 7) as since:
        call = client.ask if asked else client.call
        error = failing(lambda: call(server.url, exchange=exchange))
        assert since() < 1
    assert (error.failure.code, error.failure.askable) == ("aborted_cancelled", True)
    assert server.connections == 7


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("phase", ["before the id", "in the stream", "in a pause", "while it is looked at"])
def test_the_deadline_holds(phase: str, client: Client, serve: Serve) -> None:
    queued, silent = answer(as_json(document("queued"))), Held(last=unanswered).script
    script = {
        "before the id": silent,
        "in the stream": Held(last=first).script,
        "in a pause": in_turn(cut(created(None)), queued),
        "while it is looked at": in_turn(cut(created(None)), silent),
    }[phase]
    server = serve(script)
    began = time.monotonic()
    error = failing(lambda: client.call(server.url, exchange=client.exchange(0.8), read_seconds=60))
    assert 0.7 < time.monotonic() - began < 1.8
    assert (error.failure.error_class, error.failure.code) == (U, "aborted_deadline")
    assert error.failure.askable == (phase != "before the id")


def test_an_answer_that_is_whole_is_kept_though_the_call_was_ended(client: Client, serve: Serve) -> None:
    exchange = client.exchange()
    server = serve(stream(created() + ended()))
    assert client.call(server.url, exchange=exchange, on_operation=lambda _: exchange.abort("cancelled")).text == "Hi"


def test_before_it_is_sent_it_ends_unsent(client: Client, serve: Serve) -> None:
    server = serve(stream(created(), ended()))
    exchange = client.exchange()
    exchange.abort("drain")
    with pytest.raises(NotSent, match="drain"):
        client.call(server.url, exchange=exchange)
    assert server.connections == 0


def test_pauses_grow_and_are_bounded(client: Client, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def pause(self: Exchange, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(Exchange, "pause", pause)
    monkeypatch.setattr(responses_work, "_FIRST_PAUSE_SECONDS", FIRST_PAUSE_SECONDS)
    queued = answer(as_json(document("queued")))
    server = serve(in_turn(*[queued] * 8, answer(as_json(document("completed", "Hi")))))
    assert client.ask(server.url).text == "Hi"
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert max(pauses) == responses_work._LONGEST_PAUSE_SECONDS


def test_a_wish_to_be_left_alone_is_heeded(client: Client, serve: Serve) -> None:
    busy = answer(as_json({}, 429, "retry-after: 30"))
    server = serve(in_turn(cut(created(None)), busy))
    error = failing(lambda: client.call(server.url, exchange=client.exchange(1.5)))
    assert error.failure.code == "aborted_deadline"
    assert server.connections == 2
    error = failing(lambda: client.ask(serve(busy).url))
    assert (error.failure.retry_after_seconds, error.failure.askable) == (30.0, True)


def test_asking_waits_for_the_answer(client: Client, serve: Serve) -> None:
    working = [answer(as_json(document(status))) for status in ("queued", "in_progress")]
    server = serve(in_turn(*working, answer(as_json(document("completed", "Hi", usage=USAGE), 200, "x-request-id: r"))))
    reply = client.ask(server.url, "resp_1")
    assert (reply.text, reply.finish_reason, reply.provider_operation_id) == ("Hi", "stop", "resp_1")
    assert reply.usage == Usage(9, 5, 3, 2)
    assert client.deltas == ["Hi"]
    assert lines(server) == ["GET /v1/responses/resp_1"] * 3


def test_an_id_is_written_into_the_path_as_it_is(client: Client, serve: Serve) -> None:
    odd = "resp/..?x=%41&y#" + "z" * 400
    server = serve(stream(event("response.created", 0, response={"id": odd}), ended()))
    client.call(server.url)
    assert client.operations == [odd]
    server = serve(answer(as_json(document("completed", "Hi"))))
    assert client.ask(server.url, odd).provider_operation_id == odd
    assert lines(server) == ["GET /v1/responses/resp%2F..%3Fx%3D%2541%26y%23" + "z" * 400]


def test_asking_for_what_is_not_there_finds_nothing(client: Client, serve: Serve) -> None:
    server = serve(answer(as_json({"error": {"message": "No such response"}}, 404)))
    with pytest.raises(NothingFound):
        client.ask(server.url)
    with pytest.raises(NothingFound):
        client.ask(server.url, None)
    assert server.connections == 1


REFUSALS = {
    **TROUBLES,
    "forbidden": answer(as_json({}, 403)),
    "silence": Held(last=unanswered).script,
    "redirect": answer(response(307, b"", "Location: /elsewhere")),
}


@pytest.mark.parametrize("trouble", REFUSALS)
def test_what_keeps_from_asking_proves_nothing(trouble: str, client: Client, serve: Serve) -> None:
    server = serve(REFUSALS[trouble])
    error = failing(lambda: client.ask(server.url, read_seconds=0.3))
    assert (error.failure.error_class, error.failure.askable, error.failure.refused) == (U, True, False)
    assert (error.provider_operation_id, server.connections) == ("resp_1", 1)


def test_asking_a_server_that_is_not_there(client: Client, serve: Serve) -> None:
    server = serve(answer())
    server.stop()
    error = failing(lambda: client.ask(server.url))
    assert (error.failure.error_class, error.failure.code, error.failure.askable) == (U, "connect_failed", True)
    error = failing(lambda: client.ask(server.url, exchange=client.exchange(-1)))
    assert (error.failure.error_class, error.failure.code, error.failure.askable) == (U, "aborted_deadline", True)


def test_a_shut_gate_is_told_and_the_call_can_still_be_asked_about(client: Client, serve: Serve) -> None:
    for body in ({}, {"error": {"code": "invalid_api_key", "message": "sk-secret-of-ours"}}):
        server = serve(answer(as_json(body, 401)))
        error = failing(lambda url=server.url: client.ask(url))
        assert (error.failure.error_class, error.failure.askable, error.failure.refused) == (G, True, True)
        assert error.failure.code == "provider_key_rejected"


def test_a_response_that_an_empty_account_stopped_is_not_asked_about_for_ever(client: Client, serve: Serve) -> None:
    server = serve(answer(as_json(document("failed", error={"code": "insufficient_quota"}))))
    error = failing(lambda: client.ask(server.url))
    assert (error.failure.error_class, error.failure.askable, error.failure.refused) == (T, False, False)


@pytest.mark.usefixtures("no_leaks")
def test_asking_ends_with_its_deadline(client: Client, serve: Serve) -> None:
    server = serve(answer(as_json(document("in_progress"))))
    began = time.monotonic()
    error = failing(lambda: client.ask(server.url, exchange=client.exchange(0.7)))
    assert 0.6 < time.monotonic() - began < 1.7
    assert (error.failure.error_class, error.failure.code, error.failure.askable) == (U, "aborted_deadline", True)


@pytest.mark.parametrize(
    ("reply", "stopped"),
    [
        (as_json(document("cancelled")), True),
        (as_json(document("completed", "Hi")), True),
        (as_json(document("in_progress")), False),
        (as_json({}, 404), False),
        (as_json({}, 500), False),
        (as_json([]), False),
        (as_json({"status": ["cancelled"]}), False),
        (response(200, b"<html>"), False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", False),
        (b"", False),
    ],
)
def test_cancelling(reply: bytes, stopped: bool, client: Client, serve: Serve) -> None:
    server = serve(answer(reply))
    assert client.adapter(server.url).cancel("resp_1", exchange=client.exchange()) is stopped
    assert lines(server) == ["POST /v1/responses/resp_1/cancel"]
    assert server.requests[0].body == b""


def test_cancelling_raises_nothing(client: Client, serve: Serve) -> None:
    server = serve(Held(last=unanswered).script)
    adapter = client.adapter(server.url, read_seconds=60)
    began = time.monotonic()
    assert adapter.cancel("resp_1", exchange=client.exchange(0.3)) is False
    assert adapter.cancel("resp_1", exchange=client.exchange(-1)) is False
    assert time.monotonic() - began < 2
    server.stop()
    assert adapter.cancel("resp_1", exchange=client.exchange()) is False


@pytest.mark.parametrize("script", ["cut_after=2", "reset_after=2", "hang_after=2", "done=off", "malformed=1"])
def test_the_simulator_breaks_off_and_is_paid_once(script: str, client: Client) -> None:
    with Simulator() as sim:
        body = {"input": f"[[sim: marker=a text='one two three four' delta_ms=20 {script}]]"}
        reply = client.call(sim.url, body=body)
        assert reply.text == "one two three four" == "".join(client.deltas)
        assert reply.usage.output_tokens == 4
        assert (sim.stats()["complete_posts"], sim.paid("a")) == (1, 1)


def test_the_simulator_is_told_to_stop(client: Client) -> None:
    with Simulator() as sim:
        exchange = client.exchange()
        body = {"input": "[[sim: tokens=1000 delta_ms=20]]"}
        with aborted_after(exchange, lambda: len(client.deltas) > 2):
            error = failing(lambda: client.call(sim.url, exchange=exchange, body=body))
        assert error.failure.askable
        adapter = client.adapter(sim.url)
        assert adapter.cancel(client.operations[0], exchange=client.exchange()) is True
        assert failing(lambda: client.ask(sim.url, client.operations[0])).failure.code == "provider_cancelled"
        assert adapter.cancel("resp_none", exchange=client.exchange()) is False


_KILLED = """
import os, signal, sys
from tests.providers.test_responses import Client

def store(operation_id):
    with open(sys.argv[2], "w") as file:
        file.write(operation_id)
    os.kill(os.getpid(), signal.SIGKILL)

Client().call(sys.argv[1], body={"input": "[[sim: marker=a delta_ms=100 text='one two three']]"}, on_operation=store)
"""


def test_the_answer_of_a_client_that_was_killed_is_found(client: Client, tmp_path: Path) -> None:
    with SimulatorProcess() as sim:
        stored = tmp_path / "operation"
        root = Path(__file__).parents[2]
        killed = subprocess.run([sys.executable, "-c", _KILLED, sim.url, str(stored)], cwd=root, check=False)
        assert killed.returncode == -9
        reply = client.ask(sim.url, stored.read_text())
        assert (reply.text, reply.usage.output_tokens) == ("one two three", 3)
        assert (sim.stats()["complete_posts"], sim.paid("a")) == (1, 1)


def test_many_breaks_at_any_moment_lose_and_double_nothing(client: Client) -> None:
    with Simulator() as sim:
        for number in range(12):
            client.deltas.clear()
            how = ("cut_after", "reset_after")[number % 2]
            text = f"a b c d e f {number}"
            body = {"input": f"[[sim: marker={number} text='{text}' delta_ms=3 {how}={number % 8}]]"}
            assert client.call(sim.url, body=body).text == text == "".join(client.deltas)
            assert sim.paid(str(number)) == 1


def test_an_ending_error_names_its_call(client: Client, serve: Serve) -> None:
    server = serve(in_turn(cut(created(None)), answer(as_json(document("completed", output=7)))))
    error = failing(lambda: client.call(server.url))
    assert isinstance(error, ProviderError)
    assert (error.failure.code, error.provider_operation_id) == ("unexpected_reply", "resp_1")


def test_a_reply_is_a_reply_whoever_shows_it(serve: Serve) -> None:
    """Without anybody to show the text to, or to store the id."""
    quiet = Client()
    server = serve(in_turn(cut(created(), delta("Hi", 1)), stream(ended(number=2))))
    reply = quiet.adapter(server.url).call(quiet.request(), exchange=quiet.exchange())
    assert isinstance(reply, Reply)
    assert reply.text == "Hi"


@pytest.mark.usefixtures("no_leaks")
def test_ended_at_any_moment_it_is_found_or_was_never_sent_or_has_no_id(client: Client) -> None:
    """The moment is left to chance. Whatever comes of it, nothing is paid for twice, and what has an id is found."""
    dice = random.Random(7)
    outcomes: set[str] = set()
    with Simulator() as sim:
        for number in range(30):
            client.operations.clear()
            marker, exchange = f"call-{number}", client.exchange()
            timer = threading.Timer(dice.uniform(0, 0.05), exchange.abort, ["cancelled"])
            timer.start()
            body = {"input": f"[[sim: marker={marker} text='one two three' delta_ms=10 cut_after={number % 3}]]"}
            try:
                outcome, text = "reply", client.call(sim.url, exchange=exchange, body=body).text
            except NotSent:
                outcome, text = "unsent", ""
                assert sim.paid(marker) == 0
            except ProviderError as error:
                assert error.failure.code == "aborted_cancelled"
                assert error.failure.askable == bool(client.operations)
                outcome, text = "no id", ""
                if client.operations:
                    outcome, text = "found", client.ask(sim.url, client.operations[0]).text
            timer.join()
            assert text == ("one two three" if outcome in ("reply", "found") else "")
            assert sim.paid(marker) <= 1
            outcomes.add(outcome)
    assert "found" in outcomes
