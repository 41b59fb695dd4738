"""With `stored = true` a chat completion whose reply was lost is found again under our key."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aijobs.config import ProviderSettings
from aijobs.domain.failures import ErrorClass, Usage
from aijobs.errors import ProviderError
from aijobs.providers import openai_stored
from aijobs.providers.base import Lost, NothingFound, Reply, Request
from aijobs.providers.exchange import Exchange
from aijobs.providers.openai_chat import OpenAIChat
from aijobs.simulator import Simulator, SimulatorProcess
from tests.providers.conftest import BODY
from tests.providers.test_faults_after_the_request_is_sent import DELTA, DONE, FINISH, script
from tests.providers.wire import CHUNKED_HEAD, PATIENCE, Peer, Server, chunked, response

Serve = Callable[..., Server]
Script = Callable[[Peer], None]
KEY = "cd" * 32
SECRETS = ("sk-secret-of-ours", "what is the meaning of it all")
LISTED = "GET /v1/chat/completions?metadata%5Baijobs_call%5D=" + KEY + "&limit=20&order=desc"


def adapter(url: str, *, stored: bool = True, read_seconds: float = 0.5, **more: Any) -> OpenAIChat:
    provider = ProviderSettings(
        name="p", adapter="openai-chat", base_url=url, stored=stored, read_seconds=read_seconds, **more
    )
    return OpenAIChat(provider, SECRETS[0])


def exchange(deadline_seconds: float = PATIENCE) -> Exchange:
    return Exchange(deadline_seconds, lambda: None)


def request(**more: Any) -> Request:
    return Request(body={**BODY, **more}, client_request_id="attempt-1", dedupe_key=KEY)


def call(url: str, prompt: str, **settings: Any) -> Reply:
    asked = request(messages=[{"role": "user", "content": prompt}])
    return adapter(url, **settings).call(asked, exchange=exchange())


def ask(url: str, *, by: Exchange | None = None, deltas: list[str] | None = None, **settings: Any) -> Reply:
    lost = Lost(request=request(), operation_id=None, age_seconds=60.0)
    on_delta = None if deltas is None else deltas.append
    return adapter(url, **settings).ask(lost, exchange=by or exchange(), on_delta=on_delta)


def failing(act: Callable[[], Reply]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        act()
    assert not [secret for secret in SECRETS if secret in f"{caught.value} {caught.value.failure}"]
    return caught.value


OURS = {"aijobs_call": KEY}


def completion(text: str | None = "Hi", finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    kept = {"metadata": OURS, "choices": [choice], "usage": usage}
    return {"id": "c-1", "created": 5, "model": "m-1"} | kept | more


def as_json(value: Any, status: int = 200) -> bytes:
    headers = ("Content-Type: application/json", "x-request-id: req-7")
    return response(status, json.dumps(value).encode(), *headers)


def listing(*completions: Any) -> Script:
    return script(as_json({"object": "list", "data": list(completions)}))


def in_turn(*scripts: Script) -> Script:
    turns = iter(scripts)
    return lambda peer: next(turns, scripts[-1])(peer)


def lines(server: Server) -> list[str]:
    return [each.line.removesuffix(" HTTP/1.1") for each in server.requests]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_stored, "_FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(openai_stored, "LISTED_WITHIN_SECONDS", 0.5)


def test_what_is_sent(serve: Serve) -> None:
    server = serve(script(CHUNKED_HEAD, chunked(DELTA, FINISH, DONE)))
    for given, metadata in (({"metadata": {"ours": "yes"}}, {"ours": "yes"}), ({"metadata": None}, {}), ({}, {})):
        adapter(server.url).call(request(**given), exchange=exchange())
        sent = json.loads(server.requests[-1].body)
        assert (sent["store"], sent["metadata"]) == (True, metadata | {"aijobs_call": KEY})
    adapter(server.url, stored=False).call(request(), exchange=exchange())
    assert not json.loads(server.requests[-1].body).keys() & {"store", "metadata"}
    assert adapter(server.url).ask_by == "key"
    assert adapter(server.url, stored=False).ask_by is None
    assert adapter(server.url).cancel("c-1", exchange=exchange()) is None


def test_a_completion_is_found(serve: Serve) -> None:
    server = serve(listing(completion("Hello")))
    deltas: list[str] = []
    reply = ask(server.url, deltas=deltas)
    assert (reply.text, reply.finish_reason, reply.model) == ("Hello", "stop", "m-1")
    assert (reply.provider_operation_id, reply.provider_request_id) == ("c-1", "req-7")
    assert (reply.usage, reply.http_status, deltas) == (Usage(9, 2), 200, ["Hello"])
    assert lines(server) == [LISTED]
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRETS[0]}"


def test_the_newest_that_is_complete_counts(serve: Serve) -> None:
    unfinished = completion("not yet", finish=None, created=9)
    found = [completion("old", created=1), unfinished, None, 7, completion("new", created=3), {}, {"choices": "x"}]
    assert ask(serve(listing(*found)).url).text == "new"


@pytest.mark.parametrize("listed", [{"id": "c/1?"}, {"id": "c/1?", "choices": [{"finish_reason": "stop"}]}])
def test_a_list_without_the_message_leads_to_it(listed: Any, serve: Serve) -> None:
    server = serve(in_turn(listing({"metadata": OURS, **listed}), script(as_json(completion("Hello", "length")))))
    reply = ask(server.url)
    assert (reply.text, reply.finish_reason) == ("Hello", "length")
    assert lines(server) == [LISTED, "GET /v1/chat/completions/c%2F1%3F"]


def test_a_server_that_lists_what_others_made_is_not_believed(serve: Serve) -> None:
    foreign = completion("another's", metadata={"aijobs_call": "ef" * 32})
    with pytest.raises(NothingFound):
        ask(serve(listing(foreign, completion("nobody's", metadata=None))).url)


def test_a_list_may_be_late(serve: Serve) -> None:
    server = serve(in_turn(listing(), listing(), listing(completion())))
    assert ask(server.url).text == "Hi"
    assert len(lines(server)) == 3


def test_what_is_not_listed_in_time_is_not_found(serve: Serve) -> None:
    for data in ([], [completion(finish=None)], "x"):
        server = serve(script(as_json({"data": data})))
        began = time.monotonic()
        with pytest.raises(NothingFound):
            ask(server.url)
        assert 0.2 < time.monotonic() - began < 1.5
        assert 3 < len(lines(server)) < 10


@pytest.mark.usefixtures("no_leaks")
def test_nor_is_it_waited_for_past_the_deadline(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_stored, "LISTED_WITHIN_SECONDS", 10.0)
    server = serve(listing())
    began = time.monotonic()
    error = failing(lambda: ask(server.url, by=exchange(0.5)))
    assert error.failure.askable and error.failure.code == "aborted_deadline"
    assert time.monotonic() - began < 1


def test_what_cannot_be_listed_is_not_found(serve: Serve) -> None:
    for run in (script(as_json({}, 404)), in_turn(listing({"id": "c-1", "metadata": OURS}), script(as_json({}, 404)))):
        with pytest.raises(NothingFound):
            ask(serve(run).url)


TROUBLES: dict[str, tuple[Script, str]] = {
    "no answer": (script(), "reply_lost"),
    "silence": (script(then=Peer.hang), "reply_lost"),
    "reset": (script(then=Peer.reset), "reply_lost"),
    "cut": (script(as_json({"data": [completion()]})[:-9]), "reply_cut"),
    "half a document": (script(b"HTTP/1.1 200 OK\r\n\r\n", b'{"data": ['), "malformed_reply"),
    "no object": (script(as_json([])), "unexpected_reply"),
    "rate limit": (script(as_json({}, 429)), "rate_limited"),
    "server error": (script(as_json({"error": {"message": SECRETS[1]}}, 500)), "provider_error"),
    "refused": (script(as_json({"error": {"message": SECRETS[1]}}, 400)), "provider_refused_request"),
    "too large": (script(as_json({"data": [], "padding": "x" * 3000})), "reply_too_large"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("by_id", [True, False])
def test_what_keeps_from_asking_proves_nothing(by_id: bool, trouble: str, serve: Serve) -> None:
    run, code = TROUBLES[trouble]
    server = serve(in_turn(listing({"id": "c-1", "metadata": OURS}), run) if by_id else run)
    error = failing(lambda: ask(server.url, read_seconds=0.2, max_reply_bytes=2000))
    assert (error.failure.error_class, error.failure.code) == (ErrorClass.UNKNOWN, code)
    assert (error.failure.askable, error.failure.refused) == (True, False)
    assert (server.connections, server.posts) == (1 + by_id, 0)


def test_a_server_that_is_not_there(serve: Serve) -> None:
    server = serve(script())
    server.stop()
    error = failing(lambda: ask(server.url))
    assert (error.failure.code, error.failure.askable) == ("connect_failed", True)
    error = failing(lambda: ask(server.url, by=exchange(-1)))
    assert (error.failure.code, error.failure.askable) == ("aborted_deadline", True)


def test_a_shut_gate_is_told_and_the_call_can_still_be_asked_about(serve: Serve) -> None:
    error = failing(lambda: ask(serve(script(as_json({"error": {"code": "invalid_api_key"}}, 401))).url))
    assert (error.failure.error_class, error.failure.code) == (ErrorClass.GATE, "provider_key_rejected")
    assert (error.failure.askable, error.failure.refused) == (True, True)


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("phase", ["waiting", "pausing", "fetching"])
def test_asking_can_be_ended(phase: str, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_stored, "LISTED_WITHIN_SECONDS", 60.0)
    monkeypatch.setattr(openai_stored, "_FIRST_PAUSE_SECONDS", 20.0)
    silent = script(then=Peer.hang)
    run = {
        "waiting": silent,
        "pausing": listing(),
        "fetching": in_turn(listing({"id": "c-1", "metadata": OURS}), silent),
    }[phase]
    server = serve(run)
    by = exchange()
    threading.Timer(0.3, by.abort, ["cancelled"]).start()
    began = time.monotonic()
    error = failing(lambda: ask(server.url, by=by, read_seconds=60))
    assert time.monotonic() - began < 1.3
    assert (error.failure.code, error.failure.askable) == ("aborted_cancelled", True)
    assert server.connections == 1 + (phase == "fetching")


def test_what_is_found_and_is_no_answer(serve: Serve) -> None:
    error = failing(lambda: ask(serve(listing(completion(None, "content_filter"))).url))
    assert (error.failure.error_class, error.failure.code) == (ErrorClass.PERMANENT, "content_filtered")
    assert error.usage == Usage(9, 2)
    error = failing(lambda: ask(serve(listing(completion(7))).url))
    assert (error.failure.code, error.failure.askable) == ("unexpected_reply", False)
    unfinished = in_turn(listing({"id": "c-1", "metadata": OURS}), script(as_json(completion(finish=None))))
    assert failing(lambda: ask(serve(unfinished).url)).failure.code == "unexpected_reply"


@pytest.mark.parametrize(
    "fault", ["cut_after=1", "reset_after=1", "hang_after=1", "close=headers", "done=off framing=close"]
)
def test_the_simulator_loses_replies_that_are_found(fault: str) -> None:
    with Simulator() as sim:
        prompt = f"[[sim: marker=a text='one two three' delta_ms=20 {fault}]]"
        error = failing(lambda: call(sim.url, prompt, read_seconds=0.3))
        assert error.failure.error_class is ErrorClass.UNKNOWN
        reply = ask(sim.url)
        assert (reply.text, reply.usage.output_tokens) == ("one two three", 3)
        assert (sim.stats()["complete_posts"], sim.paid("a")) == (1, 1)


def test_the_simulator_has_nothing_of_what_it_refused() -> None:
    with Simulator() as sim:
        failing(lambda: call(sim.url, "[[sim: status=500]]"))
        with pytest.raises(NothingFound):
            ask(sim.url)


_KILLED = """
import os, signal, sys
from tests.providers.test_stored_completions import adapter, exchange, request

adapter(sys.argv[1]).call(
    request(messages=[{"role": "user", "content": "[[sim: marker=a delta_ms=100 text='one two three']]"}]),
    exchange=exchange(),
    on_delta=lambda _: os.kill(os.getpid(), signal.SIGKILL),
)
"""


def test_the_answer_of_a_client_that_was_killed_is_found() -> None:
    with SimulatorProcess() as sim:
        root = Path(__file__).parents[2]
        killed = subprocess.run([sys.executable, "-c", _KILLED, sim.url], cwd=root, check=False)
        assert killed.returncode == -9
        assert ask(sim.url).text == "one two three"
        assert (sim.stats()["complete_posts"], sim.paid("a")) == (1, 1)
