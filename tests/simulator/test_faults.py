"""Each fault happens exactly as its directive says."""

from __future__ import annotations

import http.client
import json

import pytest

from aijobs.simulator import Simulator
from tests.simulator.client import ask, chat_body, post, read_all, read_until, send_raw, wait_for


@pytest.mark.parametrize(
    ("script", "status", "type_", "code"),
    [
        ("status=400", 400, "invalid_request_error", None),
        ("status=401", 401, "invalid_request_error", "invalid_api_key"),
        ("status=429", 429, "rate_limit_error", "rate_limit_exceeded"),
        ("status=429 error=insufficient_quota", 429, "insufficient_quota", "insufficient_quota"),
        ("error=insufficient_quota", 429, "insufficient_quota", "insufficient_quota"),
        ("error=context_length_exceeded", 400, "invalid_request_error", "context_length_exceeded"),
        ("status=500", 500, "server_error", None),
        ("status=503", 503, "service_unavailable_error", "server_is_overloaded"),
        ("status=529", 529, "overloaded_error", None),
        ("status=418", 418, "invalid_request_error", None),
        ("status=599", 599, "server_error", None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_answer_looks_like_one(
    sim: Simulator, script: str, status: int, type_: str, code: str | None, stream: bool
) -> None:
    reply = ask(sim.url, f"secret [[sim: {script}]]", stream=stream)
    assert reply.status == status
    assert (reply.json["error"]["type"], reply.json["error"]["code"]) == (type_, code)
    assert b"secret" not in reply.body


@pytest.mark.parametrize("status", [502, 504, 520])
def test_a_gateway_answers_html(sim: Simulator, status: int) -> None:
    reply = ask(sim.url, f"[[sim: status={status}]]")
    assert reply.status == status
    assert reply.headers["content-type"] == "text/html"
    assert reply.body.startswith(b"<html>")


def test_an_error_answer_carries_the_headers_of_its_script(sim: Simulator) -> None:
    date = "Wed, 21 Oct 2026 07:28:00 GMT"
    reply = ask(sim.url, f"[[sim: status=503 retry_after='{date}' retry_after_ms=1500 should_retry=false]]")
    assert reply.headers["retry-after"] == date
    assert reply.headers["retry-after-ms"] == "1500"
    assert reply.headers["x-should-retry"] == "false"
    assert ask(sim.url, "[[sim: status=307]]").headers["location"] == "/elsewhere"
    assert ask(sim.url, "[[sim: status=204]]").body == b""
    assert ask(sim.url, "[[sim: status=200 text=fine]]").json["choices"][0]["message"]["content"] == "fine"


def test_hang_headers_never_answers(sim: Simulator) -> None:
    sock = send_raw(sim.url, chat_body("[[sim: hang=headers marker=silent]]"))
    wait_for(lambda: sim.stats()["open"])
    sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        sock.recv(1)
    sock.close()
    assert wait_for(lambda: sim.calls("silent")[0]["peer_closed_at"])


def test_close_headers_closes_without_a_byte(sim: Simulator) -> None:
    assert read_all(send_raw(sim.url, chat_body("[[sim: close=headers]]"))) == b""


def test_reset_headers_resets(sim: Simulator) -> None:
    with pytest.raises(ConnectionResetError):
        read_all(send_raw(sim.url, chat_body("[[sim: reset=headers]]")))


def test_a_status_line_that_is_none_and_headers_that_stop(sim: Simulator) -> None:
    with pytest.raises(http.client.BadStatusLine):
        ask(sim.url, "[[sim: malformed=status]]")
    received = read_all(send_raw(sim.url, chat_body("[[sim: malformed=headers]]")))
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\n\r\n" not in received


def test_malformed_json(sim: Simulator) -> None:
    with pytest.raises(json.JSONDecodeError):
        ask(sim.url, "[[sim: malformed=1]]").json  # noqa: B018
    events = ask(sim.url, "[[sim: malformed=1]]", stream=True).events
    assert isinstance(events[1], str)
    assert events[-1] == "[DONE]"


@pytest.mark.parametrize("after", [0, 2, 5, 99])
def test_cut_after_closes_in_the_middle_of_a_stream(sim: Simulator, after: int) -> None:
    received = read_all(send_raw(sim.url, chat_body(f"[[sim: tokens=5 cut_after={after}]]", stream=True)))
    assert received.count(b"chat.completion.chunk") == 1 + min(after, 5)
    assert b'finish_reason":"stop' not in received
    assert not received.endswith(b"0\r\n\r\n")
    wait_for(lambda: sim.calls()[0]["finished_at"])
    assert sim.calls()[0]["tokens_sent"] == min(after, 5)
    assert not sim.calls()[0]["completed"]


@pytest.mark.parametrize("after", [0, 5, 99])
def test_cut_after_cuts_a_whole_answer_too(sim: Simulator, after: int) -> None:
    with pytest.raises(http.client.IncompleteRead):
        ask(sim.url, f"[[sim: tokens=5 cut_after={after}]]")


def test_a_cut_without_framing_is_a_quiet_end(sim: Simulator) -> None:
    reply = ask(sim.url, "[[sim: tokens=5 cut_after=2 framing=close]]", stream=True)
    assert len(reply.events) == 1 + 2


@pytest.mark.parametrize("stream", [False, True])
def test_reset_after_resets_when_the_deltas_have_arrived(sim: Simulator, stream: bool) -> None:
    sock = send_raw(sim.url, chat_body("[[sim: tokens=5 reset_after=3]]", stream=stream))
    received = b""
    with sock, pytest.raises(ConnectionResetError):
        while data := sock.recv(65536):
            received += data
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    if stream:
        assert received.count(b"chat.completion.chunk") == 1 + 3


@pytest.mark.parametrize("stream", [False, True])
def test_hang_after_goes_silent(sim: Simulator, stream: bool) -> None:
    sock = send_raw(sim.url, chat_body("[[sim: tokens=5 hang_after=2]]", stream=stream))
    read_until(sock, b"chat.completion", times=3 if stream else 1)
    sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        sock.recv(1)
    sock.close()
    wait_for(lambda: sim.calls()[0]["peer_closed_at"])


def test_error_after_is_an_event_and_the_end(sim: Simulator) -> None:
    events = ask(sim.url, "[[sim: tokens=5 error_after=2 error=server_is_overloaded]]", stream=True).events
    assert len(events) == 1 + 2 + 1
    assert events[-1]["error"]["code"] == "server_is_overloaded"
    assert ask(sim.url, "[[sim: error_after=0]]", stream=True).events[-1]["error"]["type"] == "server_error"
    assert ask(sim.url, "[[sim: error_after=2 error=server_is_overloaded]]").status == 503
    wait_for(lambda: sim.stats()["open"] == 0)
    assert not any(call["completed"] for call in sim.calls())
    assert sim.stats()["generations"] == 3


def test_the_earliest_break_is_the_one(sim: Simulator) -> None:
    events = ask(sim.url, "[[sim: tokens=5 cut_after=4 error_after=1]]", stream=True).events
    assert len(events) == 1 + 1 + 1


def test_done_off_ends_without_done(sim: Simulator) -> None:
    reply = ask(sim.url, "[[sim: done=off]]", stream=True)
    assert reply.events[-1]["choices"][0]["finish_reason"] == "stop"
    wait_for(lambda: sim.stats()["open"] == 0)
    assert not sim.calls()[0]["completed"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_emoji_arrives_in_two_halves(sim: Simulator, stream: bool) -> None:
    sock = send_raw(sim.url, chat_body("[[sim: split_emoji=1 text=smile]]", stream=stream))
    first = sock.recv(65536)
    assert b"smile" in first
    with pytest.raises(UnicodeDecodeError):
        first.removesuffix(b"\r\n").decode()
    assert "\N{SLIGHTLY SMILING FACE}" in ask(sim.url, "[[sim: split_emoji=1]]", stream=stream).body.decode()
    sock.close()


def test_a_lone_surrogate_arrives_as_an_escape(sim: Simulator) -> None:
    assert rb"\ud83d" in ask(sim.url, "[[sim: lone_surrogate=1]]").body
    assert ask(sim.url, "[[sim: lone_surrogate=1 text=a]]", stream=True).text == "a\ud83d"


def test_times_counts_by_marker(sim: Simulator) -> None:
    replies = [ask(sim.url, f"{number} [[sim: marker=m status=503 times=2 text=ok]]") for number in range(4)]
    assert [reply.status for reply in replies] == [503, 503, 200, 200]
    assert replies[-1].json["choices"][0]["message"]["content"] == "ok"
    sim.reset()
    assert ask(sim.url, "[[sim: marker=m status=503 times=2]]").status == 503


def test_times_counts_by_prompt_where_there_is_no_marker(sim: Simulator) -> None:
    for prompt in ("one", "two"):
        script = f"{prompt} [[sim: close=headers times=1]]"
        assert read_all(send_raw(sim.url, chat_body(script))) == b""
        # Each attempt of a client has a request id of its own, so that says nothing about the prompt being the same.
        assert post(sim.url, chat_body(script), X_Client_Request_Id="second").status == 200


_NOT_MEANT = [
    "statsu=503",
    "status",
    "status=abc",
    "status=1",
    "error=nothing",
    "text='open",
    'text="open',
    r'text="\x"',
    "tokens=-1",
    "delta_ms=nan",
    "delta_ms=inf",
    "usage=thrice",
    "hang=body",
    r'retry_after="1\r\nx: y"',
    "=",
    "x y",
]


@pytest.mark.parametrize("script", _NOT_MEANT)
@pytest.mark.parametrize("where", ["prompt", "header"])
def test_a_script_that_cannot_be_meant_is_a_400(sim: Simulator, script: str, where: str) -> None:
    in_prompt = where == "prompt"
    reply = ask(sim.url, f"[[sim: {script}]]") if in_prompt else post(sim.url, chat_body(), X_Simulator=script)
    assert reply.status == 400
    assert reply.json["error"]["code"] == "simulator_directive"
    assert sim.stats()["generations"] == 0


def test_random_faults_are_the_same_for_the_same_seed() -> None:
    def outcomes(seed: int) -> list[str]:
        with Simulator(fault_rate=0.5, seed=seed) as sim:
            return [_outcome(sim) for _ in range(60)]

    first = outcomes(1)
    assert first == outcomes(1) != outcomes(2)
    assert 15 < first.count("ok") < 45
    assert len(set(first)) > 5


def _outcome(sim: Simulator) -> str:
    try:
        reply = ask(sim.url, "hi", stream=True)
    except (http.client.HTTPException, OSError) as error:
        return type(error).__name__
    if reply.status != 200:
        return str(reply.status)
    return "ok" if reply.events[-1] == "[DONE]" else "no end"


def test_a_fault_of_ones_own_is_the_only_one() -> None:
    with Simulator(fault_rate=1.0) as sim:
        assert ask(sim.url, "[[sim: status=529]]").status == 529
