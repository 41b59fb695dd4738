"""Every error is a problem with a request id, also those of Flask and those nobody expected."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from aijobs.api.problems import PROBLEMS
from aijobs.store import jobs
from aijobs.store.db import Connection
from tests.api.client import CHAT, Client, problem_of

Make = Callable[..., Client]


@pytest.mark.parametrize(
    "path", ["/", "/api/ai", "/api/ai/jobs/", "//api/ai/jobs", "/favicon.ico", "/static/x", "/api/ai/jobs/a/b/c"]
)
def test_an_unknown_address_is_not_found(shared_client: Client, path: str) -> None:
    assert problem_of(shared_client.get(path))["code"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/api/ai/jobs", "GET, HEAD, POST"),
        ("OPTIONS", "/api/ai/jobs", "GET, HEAD, POST"),
        ("DELETE", "/api/ai/jobs/x", "GET, HEAD"),
        ("GET", "/api/ai/jobs/x/cancel", "POST"),
        ("BREW", "/health/live", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(shared_client: Client, method: str, path: str, allow: str) -> None:
    answered = shared_client.request(method, path)
    assert problem_of(answered)["code"] == "method_not_allowed"
    assert answered.headers["Allow"] == allow


@pytest.mark.usefixtures("impatient")
def test_a_database_that_is_away_is_unavailable_and_says_when_to_come_back(make_client: Make) -> None:
    away = make_client(database_url="host=/nonexistent dbname=none")
    for answered in (away.create(), away.get("/api/ai/jobs"), away.get("/api/nothing")):
        problem = problem_of(answered)
        assert (problem["status"], problem["code"], problem["retryable"]) == (503, "unavailable", True)
        assert int(answered.headers["Retry-After"]) >= 1
        assert "nonexistent" not in answered.text


def test_a_defect_is_an_internal_error_whose_log_line_quotes_no_payload(
    client: Client, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """PostgreSQL's message about a refused row holds the whole row."""
    connection.execute("ALTER TABLE ai_jobs ADD CONSTRAINT never CHECK (queue <> 'default')")
    with caplog.at_level(logging.ERROR):
        answered = client.create({"kind": "chat", "payload": {"prompt": "a secret prompt"}}, X_Request_Id="mine-1")
    problem = problem_of(answered)
    assert (problem["status"], problem["code"], problem["request_id"]) == (500, "internal_error", "mine-1")
    (record,) = [record for record in caplog.records if record.name == "aijobs.api.problems"]
    assert record.__dict__["request_id"] == "mine-1"
    assert "CheckViolation" in record.getMessage()
    assert "secret" not in record.getMessage() + answered.text
    assert record.exc_info is None


def test_an_error_of_the_code_itself_is_internal_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "list_page", lambda *_, **__: 1 / 0)
    assert problem_of(client.get("/api/ai/jobs"))["code"] == "internal_error"


@pytest.mark.parametrize("given", ["a", "A-1.b_c:d", "x" * 128])
def test_a_sane_request_id_is_kept(shared_client: Client, given: str) -> None:
    assert shared_client.get("/health/live", **{"X-Request-Id": given}).headers["X-Request-Id"] == given


@pytest.mark.parametrize("given", ["", " ", "x" * 129, "a b", "a,b", "a/b", '"', "<script>", "é"])
def test_another_one_is_replaced(shared_client: Client, given: str) -> None:
    made = shared_client.get("/health/live", **{"X-Request-Id": given}).headers["X-Request-Id"]
    assert len(made) == 32
    assert made != given


def test_request_ids_differ(shared_client: Client) -> None:
    assert len({shared_client.get("/health/live").headers["X-Request-Id"] for _ in range(20)}) == 20


def test_the_table_of_problems_is_sound() -> None:
    assert all(400 <= problem.status < 600 for problem in PROBLEMS.values())
    assert all(code == code.lower() and code.isidentifier() for code in PROBLEMS)
    assert {code for code, problem in PROBLEMS.items() if problem.retryable} == {
        "request_timeout",
        "internal_error",
        "unavailable",
    }


def test_a_wrong_host_header_is_no_internal_error(shared_client: Client) -> None:
    for host in ("a b", "x" * 500, "[", "é", "a,b", ":0"):
        assert shared_client.request("POST", "/api/ai/jobs", json=CHAT, headers={"Host": host}).status_code == 400
