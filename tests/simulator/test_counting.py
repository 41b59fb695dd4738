"""What it counts is what somebody would have to pay for."""

from __future__ import annotations

import dataclasses
import json
from urllib.parse import urlsplit

import pytest

from aijobs.simulator import Simulator
from aijobs.simulator.records import Records
from tests.simulator.client import ask, chat_body, connect, get, post, read_until, send_raw, wait_for

_FREE = ["status=400", "status=401", "status=429", "status=503", "status=529", "status=500 paid=no"]
_PAID = ["", "status=408", "status=500", "status=502", "status=504", "malformed=1", "done=off", "status=503 paid=yes"]


@pytest.mark.parametrize(("script", "paid"), [(each, False) for each in _FREE] + [(each, True) for each in _PAID])
def test_refused_work_is_free_and_all_other_is_paid(sim: Simulator, script: str, paid: bool) -> None:
    ask(sim.url, f"[[sim: marker=a {script}]]")
    assert sim.paid("a") == sim.stats()["generations"] == int(paid)
    assert sim.stats()["by_marker"] == {"a": {"posts": 1, "generations": int(paid)}}


@pytest.mark.parametrize("script", ["hang=headers", "close=headers", "reset=headers", "first_byte_ms=60000"])
def test_work_without_an_answer_is_paid(sim: Simulator, script: str) -> None:
    sock = send_raw(sim.url, chat_body(f"[[sim: marker=a {script}]]"))
    assert wait_for(lambda: sim.paid("a")) == 1
    sock.close()


def test_half_a_request_is_no_post(sim: Simulator) -> None:
    connection = connect(sim.url)
    connection.putrequest("POST", "/v1/chat/completions")
    connection.putheader("Content-Length", "100")
    connection.endheaders(b"half")
    wait_for(lambda: sim.stats()["requests"])
    connection.close()
    ask(sim.url, "after it")
    assert sim.stats()["requests"] == 2
    assert sim.stats()["complete_posts"] == 1


def test_a_record_tells_who_asked_and_how_it_ended(sim: Simulator) -> None:
    post(sim.url, chat_body("secret", stream=True), X_Client_Request_Id="attempt-1")
    wait_for(lambda: sim.stats()["completed"])
    [call] = sim.calls("attempt-1")
    assert call.pop("received_at") <= call.pop("finished_at")
    assert call == {
        "marker": "attempt-1",
        "client_request_id": "attempt-1",
        "stream": True,
        "generation": True,
        "status": 200,
        "tokens_sent": 4,
        "completed": True,
        "peer_closed_at": None,
    }
    post(sim.url, chat_body("[[sim: marker=job-1]]"), X_Client_Request_Id="attempt-2")
    assert [call["client_request_id"] for call in sim.calls("job-1")] == ["attempt-2"]
    assert sim.calls("attempt-2") == []
    assert "secret" not in json.dumps([sim.stats(), sim.calls()])


def test_a_peer_that_closes_is_noticed_and_its_generation_stops(sim: Simulator) -> None:
    sock = send_raw(sim.url, chat_body("[[sim: marker=gone tokens=1000 delta_ms=10]]", stream=True))
    read_until(sock, b'"content":"', times=4)
    sock.close()
    call = wait_for(lambda: sim.calls("gone")[0]["finished_at"] and sim.calls("gone")[0])
    assert call["received_at"] < call["peer_closed_at"] <= call["finished_at"]
    assert 3 <= call["tokens_sent"] < 1000
    assert not call["completed"]
    assert sim.stats()["peer_closed"] == 1


def test_a_peer_that_closes_is_noticed_without_any_delay_and_without_reading(sim: Simulator) -> None:
    sock = send_raw(sim.url, chat_body("[[sim: marker=gone tokens=100000]]", stream=True))
    sock.recv(1)
    sock.close()
    call = wait_for(lambda: sim.calls("gone")[0]["finished_at"] and sim.calls("gone")[0])
    assert call["peer_closed_at"]
    assert call["tokens_sent"] < 100_000


def test_the_same_is_told_over_http(sim: Simulator) -> None:
    ask(sim.url, "[[sim: marker=a/b&c]]")
    ask(sim.url, "[[sim: marker=other]]")
    wait_for(lambda: sim.stats()["open"] == 0)
    assert get(sim.url, "/simulator/stats") == sim.stats()
    assert get(sim.url, "/simulator/calls?marker=a%2Fb%26c") == sim.calls("a/b&c")
    assert len(get(sim.url, "/simulator/calls")) == 2
    assert get(sim.url, "/simulator/reset", "POST")["requests"] == 0
    assert sim.calls() == []


def test_what_was_open_at_a_reset_does_not_count_after_it(sim: Simulator) -> None:
    sock = send_raw(sim.url, chat_body("[[sim: hang=headers]]"))
    wait_for(lambda: sim.stats()["open"])
    sim.reset()
    sock.close()
    ask(sim.url, "after it")
    wait_for(lambda: sim.stats()["completed"])
    assert sim.stats()["peer_closed"] == 0


def test_memory_is_bounded() -> None:
    records = Records(most=10)
    for number in range(50):
        record = records.post(f"id-{number}")
        records.decide(record, generation=True)
        records.finish(record, completed=True, peer_closed_at=None)
        records.turn(number)
    stats = records.stats()
    assert (stats["records"], len(stats["by_marker"]), stats["generations"]) == (10, 10, 50)
    assert len(records._turns) == 10


def test_calls_can_be_read_after_the_end() -> None:
    with Simulator() as sim:
        sock = send_raw(sim.url, chat_body("[[sim: marker=a hang=headers]]"))
        wait_for(lambda: sim.paid("a"))
    [call] = sim.calls("a")
    assert call["finished_at"] and not call["completed"] and not call["peer_closed_at"]
    sock.close()


def test_a_simulator_says_when_its_port_is_taken() -> None:
    with Simulator() as sim:
        second = Simulator(port=urlsplit(sim.url).port)
        with pytest.raises(OSError, match="in use"):
            second.start()


def test_options_out_of_range_are_refused() -> None:
    for wrong in ({"port": 70000}, {"tokens": -1}, {"delta_ms": -1.0}, {"fault_rate": 1.5}):
        with pytest.raises(ValueError):
            Simulator(**wrong)
    assert dataclasses.asdict(Simulator(tokens=3).options)["tokens"] == 3
