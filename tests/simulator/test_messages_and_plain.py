"""The simulator's messages and its generic service count as its chats do; the latter does a key's work once."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any

import pytest

from aijobs.simulator import Simulator


def post(sim: Simulator, path: str, document: Any, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", sim.port, timeout=10)
    named = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, json.dumps(document), named)
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    return reply.status, body


def message(script: str, **more: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": f"hi [[sim: {script}]]"}]
    return {"model": "m", "max_tokens": 50, "messages": said, **more}


def test_a_message_whole_and_in_events() -> None:
    with Simulator() as sim:
        status, body = post(sim, "/v1/messages", message("marker=a text='one two'"))
        whole = json.loads(body)
        assert (status, whole["content"][0]["text"], whole["stop_reason"]) == (200, "one two", "end_turn")
        _, body = post(sim, "/v1/messages", message("marker=a text='one two'", stream=True))
        names = [line[7:] for line in body.decode().splitlines() if line.startswith("event: ")]
        assert names[0] == "message_start" and names[-1] == "message_stop" and "ping" in names
        assert sim.paid("a") == 2


def test_a_message_without_max_tokens_and_a_refused_one_are_errors_in_their_shape() -> None:
    with Simulator() as sim:
        without = message("marker=a")
        del without["max_tokens"]
        for document, status, kind in (
            (without, 400, "invalid_request_error"),
            (message("marker=a error=overloaded_error"), 529, "overloaded_error"),
        ):
            got, body = post(sim, "/v1/messages", document)
            assert (got, json.loads(body)["error"]["type"]) == (status, kind)
        assert sim.paid("a") == 0


def test_a_key_has_its_work_done_once() -> None:
    with Simulator() as sim:
        document = {"prompt": "[[sim: marker=a text=done]]"}
        first = post(sim, "/v1/plain", document, Idempotency_Key="k1")
        assert post(sim, "/v1/plain", document, Idempotency_Key="k1") == first
        assert json.loads(first[1])["output"] == {"text": "done"}
        post(sim, "/v1/plain", document, Idempotency_Key="k2")
        post(sim, "/v1/plain", document)
        assert sim.paid("a") == 3 and sim.stats()["complete_posts"] == 4


@pytest.mark.parametrize("fault", ["close=headers", "first_byte_ms=400"])
def test_a_keys_work_goes_on_without_its_client(fault: str) -> None:
    with Simulator() as sim:
        document = {"prompt": f"[[sim: marker=a text=done {fault} times=1]]"}

        def leave() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", sim.port, timeout=0.1)
            connection.request("POST", "/v1/plain", json.dumps(document), {"Idempotency-Key": "k"})
            with pytest.raises((OSError, http.client.HTTPException)):
                connection.getresponse()
            connection.close()

        leaving = threading.Thread(target=leave)
        leaving.start()
        leaving.join()
        began = time.monotonic()
        status, body = post(sim, "/v1/plain", document, Idempotency_Key="k")
        assert (status, json.loads(body)["output"]["text"]) == (200, "done")
        assert time.monotonic() - began < 2
        assert sim.paid("a") == 1


def test_what_was_refused_was_not_done() -> None:
    with Simulator() as sim:
        document = {"prompt": "[[sim: marker=a text=done status=500 times=1]]"}
        assert post(sim, "/v1/plain", document, Idempotency_Key="k")[0] == 500
        assert post(sim, "/v1/plain", document, Idempotency_Key="k")[0] == 200
        assert sim.paid("a") == 1
        assert post(sim, "/v1/plain", ["no prompt"])[0] == 400
