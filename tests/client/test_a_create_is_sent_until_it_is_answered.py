"""A create keeps its key over every repeat, and every refusal is an error of its own that gives nothing away."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import responses

from aijobs.client import (
    ApiError,
    Client,
    Forbidden,
    IdempotencyKeyReused,
    InsufficientBudget,
    NotFound,
    RateLimited,
    Unauthorized,
    Unavailable,
    ValidationFailed,
)
from aijobs.client import transport as transport_module
from tests.client.faults import (
    JOB_ID,
    Behaviour,
    Reply,
    cut,
    document,
    faults,
    half_an_answer,
    job_document,
    limited,
    reset,
)
from tests.client.faults import unavailable as away

URL = "http://jobs.test"
KEY = "aij_abcd_sesame"
SECRET = "open-the-door"
CREATED = document(job_document(), 202)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aijobs.domain.backoff.MINIMUM_SECONDS", 0.01)
    monkeypatch.setattr(transport_module, "BACKOFF_SECONDS", 0.02)


@pytest.mark.parametrize(
    "fault",
    [cut, reset, half_an_answer, away(), away("0.05"), limited("0.05"), lambda reply: reply.raw(502, b"<html>")],
    ids=["cut", "reset", "half", "503", "503 with a wish", "429", "a gateway's 502"],
)
def test_the_same_request_under_the_same_key_is_repeated(fault: Behaviour) -> None:
    with faults(fault, fault, then=CREATED) as server, Client(server.url, KEY) as client:
        job = client.create("chat", {"prompt": SECRET}, user_id="u", run_at=datetime(2027, 1, 1, tzinfo=UTC))
        assert len(server.asked) == 3
        assert {asked.headers["Idempotency-Key"] for asked in server.asked} == {job.idempotency_key}
        assert len({asked.body for asked in server.asked}) == 1
        assert json.loads(server.asked[0].body) == {
            "kind": "chat",
            "payload": {"prompt": SECRET},
            "user_id": "u",
            "run_at": "2027-01-01T00:00:00+00:00",
        }


def test_an_answer_that_does_not_come_is_repeated() -> None:
    never = threading.Event()
    with (
        faults(lambda reply: never.wait(5), then=CREATED) as server,
        Client(server.url, KEY, timeout_seconds=0.3) as client,
    ):
        client.create("chat", {}, idempotency_key="mine")
        assert [asked.headers["Idempotency-Key"] for asked in server.asked] == ["mine", "mine"]
        never.set()


def test_the_wish_of_the_server_is_kept() -> None:
    with faults(away("0.5"), then=CREATED) as server, Client(server.url, KEY) as client:
        client.create("chat", {})
        assert server.asked[1].at - server.asked[0].at >= 0.5


def test_a_wish_beyond_the_time_is_not_waited_for() -> None:
    with faults(then=limited("600")) as server, Client(server.url, KEY, retry_seconds=5) as client:
        with pytest.raises(RateLimited) as caught:
            client.create("chat", {})
        assert caught.value.retry_after_seconds == 600
        assert len(server.asked) == 1


def test_an_error_has_the_key_to_go_on_with() -> None:
    with faults(away(), then=CREATED) as server, Client(server.url, KEY, retry_seconds=0) as client:
        with pytest.raises(Unavailable) as caught:
            client.create("chat", {})
        key = caught.value.idempotency_key
        assert key is not None
        assert client.create("chat", {}, idempotency_key=key).idempotency_key == key
        assert {asked.headers["Idempotency-Key"] for asked in server.asked} == {key}


def test_nobody_there() -> None:
    with Client("http://127.0.0.1:1", KEY, retry_seconds=0.2) as client, pytest.raises(Unavailable) as caught:
        client.create("chat", {"prompt": SECRET})
    assert (caught.value.status, caught.value.code, caught.value.retryable) == (None, "no_answer", True)


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (401, "unauthenticated", Unauthorized),
        (402, "insufficient_budget", InsufficientBudget),
        (403, "forbidden", Forbidden),
        (404, "not_found", NotFound),
        (409, "idempotency_key_reused", IdempotencyKeyReused),
        (409, "wrong_status", ApiError),
        (422, "validation_error", ValidationFailed),
        (400, "malformed_json", ApiError),
        (500, "internal_error", ApiError),
        (418, "from_the_future", ApiError),
    ],
)
@responses.activate
def test_each_problem_is_an_error_of_its_own(status: int, code: str, error: type[ApiError]) -> None:
    faulty = [{"pointer": "#/payload/prompt", "detail": "Missing."}]
    problem = {
        "status": status,
        "code": code,
        "title": "The title",
        "detail": "The detail.",
        "request_id": "r-17",
        "retryable": False,
        "errors": faulty,
    }
    responses.post(f"{URL}/api/ai/jobs", json=problem, status=status, content_type="application/problem+json")
    with Client(URL, KEY) as client, pytest.raises(ApiError) as caught:
        client.create("chat", {"prompt": SECRET}, idempotency_key="k")
    told = caught.value
    assert type(told) is error
    assert (told.status, told.code, told.title, told.detail) == (status, code, "The title", "The detail.")
    assert (told.request_id, told.retryable, told.errors, told.idempotency_key) == ("r-17", False, tuple(faulty), "k")
    assert str(told) == f"{code}: The title. The detail. (request r-17)"
    assert len(responses.calls) == 1


@pytest.mark.parametrize(
    ("status", "body", "kind", "error"),
    [
        (401, "<html>", "text/html", Unauthorized),
        (404, "[]", "application/json", NotFound),
        (500, "{", "application/json", ApiError),
        (302, "", "text/html", ApiError),
        (200, "<html>", "text/html", ApiError),
        (200, '{"a": 1}', "application/json", ApiError),
        (202, "[1]", "application/json", ApiError),
    ],
)
@responses.activate
def test_an_answer_that_is_not_the_apis_own(status: int, body: str, kind: str, error: type[ApiError]) -> None:
    headers = {"Location": "http://elsewhere.test/"}
    responses.post(f"{URL}/api/ai/jobs", body=body, status=status, content_type=kind, headers=headers)
    with Client(URL, KEY) as client, pytest.raises(ApiError) as caught:
        client.create("chat", {})
    assert type(caught.value) is error
    assert len(responses.calls) == 1


@responses.activate
def test_no_error_tells_the_key_or_the_payload() -> None:
    responses.post(f"{URL}/api/ai/jobs", json={"code": "unauthenticated\x1b[2J\n", "title": "T"}, status=401)
    told = []
    for url in (URL, "http://127.0.0.1:1"):
        responses.add_passthru("http://127.0.0.1:1")
        client = Client(url, KEY, retry_seconds=0)
        told.append(repr(client))
        try:
            client.create("chat", {"prompt": SECRET})
        except ApiError as error:
            told += [str(error), repr(error), "".join(traceback.format_exception(error))]
            assert "\x1b" not in str(error)
    assert len(told) == 8
    assert not any("sesame" in text or SECRET in text for text in told)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda client: client.create("chat", {}, idempotency_key="a,b"),
        lambda client: client.create("chat", {}, idempotency_key="a\nb"),
        lambda client: client.create("chat", {}, idempotency_key=""),
        lambda client: client.create("chat", {"n": float("nan")}),
        lambda client: client.create("chat", {}, run_at=datetime(2027, 1, 1)),  # noqa: DTZ001
        lambda client: client.create("chat", {}, wait=-1),
        lambda client: client.wait(JOB_ID, float("nan")),
    ],
)
@responses.activate
def test_a_mistake_in_the_call_sends_nothing(mistake: Callable[[Client], Any]) -> None:
    with Client(URL, KEY) as client, pytest.raises(ValueError):
        mistake(client)
    assert len(responses.calls) == 0


@pytest.mark.parametrize(
    "url", ["jobs.test", "ftp://jobs.test", "http://u:p@jobs.test", "http://jobs.test?a=1", "http://"]
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        Client(url, KEY)


@pytest.mark.parametrize("key", ["aij_a\nb", "aij_é", "aij a"])
def test_a_key_that_is_none_is_not_told(key: str) -> None:
    with pytest.raises(ValueError, match="holds a character") as caught:
        Client(URL, key)
    assert key not in str(caught.value)


@responses.activate
def test_where_and_as_whom_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIJOBS_URL", f"{URL}/below/")
    monkeypatch.setenv("AIJOBS_API_KEY", KEY)
    responses.get(f"{URL}/below/api/ai/jobs/{JOB_ID}", json=job_document())
    with Client() as client:
        assert client.get(JOB_ID).status == "queued"
    assert responses.calls[0].request.headers["Authorization"] == f"Bearer {KEY}"


def test_a_netrc_does_not_replace_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with faults(then=document(job_document())) as server:
        for key in (KEY, ""):
            with Client(server.url, key) as client:
                client.get(JOB_ID)
        assert [asked.headers.get("Authorization") for asked in server.asked] == [f"Bearer {KEY}", None]


@responses.activate
def test_a_key_with_blanks_is_quoted_on_its_way() -> None:
    responses.post(f"{URL}/api/ai/jobs", json=job_document(), status=202)
    with Client(URL, KEY) as client:
        assert client.create("chat", {}, idempotency_key='"two words"').idempotency_key == "two words"
        client.create("chat", {}, idempotency_key='"plain"')
    assert [call.request.headers["Idempotency-Key"] for call in responses.calls] == ['"two words"', "plain"]


@responses.activate
def test_waiting_for_the_answer_is_asked_for_in_whole_seconds() -> None:
    responses.post(f"{URL}/api/ai/jobs", json=job_document("succeeded"), status=200)
    with Client(URL, KEY) as client:
        assert client.create("chat", {}, wait=0.5).ended
        client.create("chat", {}, wait=600)
        client.create("chat", {})
    assert [call.request.headers.get("Prefer") for call in responses.calls] == ["wait=1", "wait=60", None]


@responses.activate
def test_a_list_has_all_pages() -> None:
    first = responses.get(f"{URL}/api/ai/jobs", json={"data": [job_document()] * 2, "next_cursor": "c2"})
    last = responses.get(f"{URL}/api/ai/jobs", json={"data": [job_document("held")], "next_cursor": None})
    with Client(URL, KEY) as client:
        found = list(client.list(status="held", metadata={"a": "b c"}, page_size=2))
    assert [job.status for job in found] == ["queued", "queued", "held"]
    assert first.call_count == last.call_count == 1
    assert responses.calls[0].request.params == {"status": "held", "metadata.a": "b c", "limit": "2"}
    assert responses.calls[1].request.params == {"status": "held", "metadata.a": "b c", "limit": "2", "cursor": "c2"}


def test_an_id_cannot_lead_elsewhere() -> None:
    with faults(then=document(job_document())) as server, Client(server.url, KEY) as client:
        client.get("../budget?x=1")
        assert server.asked[0].path == "/api/ai/jobs/..%2Fbudget%3Fx%3D1"


def test_threads_share_a_client() -> None:
    with faults(then=CREATED) as server, Client(server.url, KEY) as client, ThreadPoolExecutor(8) as threads:
        keys = list(threads.map(lambda number: client.create("chat", {"n": number}).idempotency_key, range(40)))
        assert len(set(keys)) == len({asked.headers["Idempotency-Key"] for asked in server.asked}) == 40


def test_a_closed_client_leaves_no_connection() -> None:
    ended = threading.Event()

    def answer_and_listen(reply: Reply) -> None:
        reply.document(job_document(), 202)
        if reply.connection.recv(1) == b"":
            ended.set()

    with faults(then=answer_and_listen) as server:
        client = Client(server.url, KEY)
        client.create("chat", {})
        assert not ended.is_set()
        client.close()
        assert ended.wait(5)


def test_a_closed_client_says_so() -> None:
    client = Client(URL, KEY)
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.get(JOB_ID)


def test_nothing_of_the_server_is_imported() -> None:
    code = "import sys, aijobs.client; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"psycopg", "flask", "marshmallow", "click", "gunicorn", "statsd"} & set(loaded)
    assert {name for name in loaded if name.startswith(("aijobs.store", "aijobs.api", "aijobs.providers"))} == set()
