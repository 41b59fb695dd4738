"""A job is read until it ends; a list is paged without gaps."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID, uuid4

import pytest

from aijobs.api.listing import write_cursor
from aijobs.domain.jobs import ListFilter
from aijobs.store.db import Connection, Database
from tests.api.client import CHAT, Client, problem_of
from tests.store.make import in_state, running


def test_a_job_is_read_as_it_was_created(client: Client) -> None:
    job = client.created()
    answered = client.get(job["links"]["self"])
    assert (answered.status_code, answered.json) == (200, job)
    assert answered.headers["ETag"] == '"1"'
    assert answered.headers["Cache-Control"] == "private, no-cache"
    assert answered.headers["Vary"] == "Authorization"
    assert answered.headers["Retry-After"] == "1"


def test_an_id_may_be_written_in_capitals(client: Client) -> None:
    job = client.created()
    assert client.get(f"/api/ai/jobs/{job['job_id'].upper()}").json == job


@pytest.mark.parametrize("header", ['"1"', 'W/"1"', '"0", W/"1"', '"x","1" ,', "*", ' "1" '])
def test_an_unchanged_job_is_not_sent_again(shared_client: Client, header: str) -> None:
    job = shared_client.created()
    answered = shared_client.get(job["links"]["self"], **{"If-None-Match": header})
    assert (answered.status_code, answered.data) == (304, b"")
    assert answered.headers["ETag"] == '"1"'
    assert answered.headers["Cache-Control"] == "private, no-cache"
    assert answered.headers["Vary"] == "Authorization"
    assert answered.headers["X-Request-Id"]


@pytest.mark.parametrize("header", ['"2"', "1", '"11"', "", ",", '"1', '1", "1', 'w/"1"', '"1" "1"'])
def test_a_tag_that_does_not_match_brings_the_job(shared_client: Client, header: str) -> None:
    job = shared_client.created()
    assert shared_client.get(job["links"]["self"], **{"If-None-Match": header}).status_code == 200


def test_the_tag_changes_with_the_job_and_not_with_replays(client: Client) -> None:
    job = client.created(key="k")
    client.created(key="k")
    assert client.get(job["links"]["self"]).headers["ETag"] == '"1"'
    client.post(job["links"]["cancel"])
    answered = client.get(job["links"]["self"], **{"If-None-Match": '"1"'})
    assert (answered.status_code, answered.headers["ETag"]) == (200, '"2"')
    assert "Retry-After" not in answered.headers


@pytest.mark.parametrize("query", ["?weight=5", "?x"])
def test_unknown_parameters_are_refused(shared_client: Client, query: str) -> None:
    job = shared_client.created()
    for address in (job["links"]["self"], job["links"]["attempts"]):
        assert problem_of(shared_client.get(address + query))["code"] == "invalid_query"


def test_the_list_is_paged_newest_first(client: Client) -> None:
    created = [client.created()["job_id"] for _ in range(7)]
    seen: list[str] = []
    address: str | None = "/api/ai/jobs?limit=3"
    pages = 0
    while address is not None:
        page = client.get(address).json
        seen += [job["job_id"] for job in page["data"]]
        address = page["next_cursor"] and f"/api/ai/jobs?limit=3&cursor={page['next_cursor']}"
        pages += 1
        client.created()  # what arrives meanwhile shifts nothing
    assert pages == 3
    assert seen == sorted(created, reverse=True)


def test_a_last_page_that_is_full_has_no_next(client: Client) -> None:
    for _ in range(2):
        client.created()
    page = client.get("/api/ai/jobs?limit=2").json
    assert (len(page["data"]), page["next_cursor"]) == (2, None)


def test_a_page_has_twenty_jobs_unless_asked_otherwise(client: Client) -> None:
    for _ in range(21):
        client.created()
    assert len(client.get("/api/ai/jobs").json["data"]) == 20
    assert len(client.get("/api/ai/jobs?limit=100").json["data"]) == 21


def test_the_list_can_be_narrowed(client: Client) -> None:
    jobs = {
        "plain": client.created(),
        "other": client.created({**CHAT, "queue": "other", "user_id": "u 1&é", "metadata": {"k": "v=1", "l": "w"}}),
        "report": client.created({"kind": "report", "payload": {}, "metadata": {"k": "x"}}),
    }
    client.post(jobs["plain"]["links"]["cancel"])
    expected = {
        "status=cancelled": ["plain"],
        "status=queued": ["other", "report"],
        "kind=report": ["report"],
        "queue=other": ["other"],
        "user_id=u+1%26%C3%A9": ["other"],
        "metadata.k=v%3D1": ["other"],
        "metadata.k=v%3D1&metadata.l=w&status=queued": ["other"],
        "metadata.k=v%3D1&metadata.l=x": [],
        "kind=report&queue=other": [],
    }
    for query, names in expected.items():
        found = {job["job_id"] for job in client.get(f"/api/ai/jobs?{query}").json["data"]}
        assert found == {jobs[name]["job_id"] for name in names}, query


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=101", "limit=-1", "limit=1.5", "limit=", "limit=%D9%A1", "limit=010", "limit=1&limit=2",
        "status=done", "status=", "status=queued&status=failed", "kind=", "user_id=%00", "user_id=%FF",
        "user_id=%ED%A0%80", "metadata.=v", "metadata=v", "metadata.k", "metadata.%00=x", "unknown=1", "offset=5",
        "wait=1", "queue=" + "q" * 600,
        "cursor=", "cursor=x", "cursor=AAAA", "cursor=%C3%A9", "cursor=" + "A" * 39, "cursor=" + "A" * 500,
    ],
)  # fmt: skip
def test_a_query_that_cannot_be_served_is_refused(shared_client: Client, query: str) -> None:
    problem = problem_of(shared_client.get(f"/api/ai/jobs?{query}"))
    assert (problem["status"], problem["code"]) == (400, "invalid_query")


def test_a_cursor_serves_only_the_list_it_came_from(client: Client, foreign_client: Client) -> None:
    for _ in range(3):
        client.created()
        foreign_client.created()
    cursor = client.get("/api/ai/jobs?limit=1").json["next_cursor"]
    assert client.get(f"/api/ai/jobs?limit=2&cursor={cursor}").status_code == 200
    assert client.get(f"/api/ai/jobs?status=queued&cursor={cursor}").status_code == 400
    assert foreign_client.get(f"/api/ai/jobs?cursor={cursor}").status_code == 400


def test_a_cursor_changed_anywhere_is_refused(client: Client, tenant: UUID) -> None:
    cursor = write_cursor(uuid4(), tenant, ListFilter())
    assert client.get(f"/api/ai/jobs?cursor={cursor}").status_code == 200
    for place, letter in itertools.product(range(len(cursor)), "Ab"):
        changed = cursor[:place] + letter + cursor[place + 1 :]
        if changed != cursor and place < len(cursor) - 1:
            assert client.get(f"/api/ai/jobs?cursor={changed}").status_code == 400, changed


@pytest.mark.parametrize("state", ["running", "held", "succeeded", "failed", "cancelled"])
def test_each_state_is_shown(client: Client, db: Database, connection: Connection, tenant: UUID, state: Any) -> None:
    from aijobs.domain.jobs import JobStatus

    job_id = in_state(db, connection, tenant, JobStatus(state))
    answered = client.get(f"/api/ai/jobs/{job_id}")
    job = answered.json
    assert job["status"] == state
    assert (job["result"] is not None) == (state == "succeeded")
    assert (job["error"] is not None) >= (state == "failed")
    assert (job["finished_at"] is not None) == ("Retry-After" not in answered.headers)
    assert job["attempts"] == 1


def test_attempts_are_listed(client: Client, db: Database, connection: Connection, tenant: UUID) -> None:
    claim = running(db, connection, tenant)
    answered = client.get(f"/api/ai/jobs/{claim.job_id}/attempts")
    (attempt,) = answered.json["data"]
    assert (attempt["number"], attempt["outcome"], attempt["worker"], attempt["calls"]) == (1, None, "w1", [])
    assert answered.headers["Cache-Control"] == "no-store"


def test_a_job_that_nobody_claimed_has_no_attempts(client: Client) -> None:
    assert client.get(client.created()["links"]["attempts"]).json == {"data": []}


def test_a_head_request_is_a_get_without_the_body(shared_client: Client) -> None:
    job = shared_client.created()
    answered = shared_client.request("HEAD", job["links"]["self"])
    assert (answered.status_code, answered.data, answered.headers["ETag"]) == (200, b"", '"1"')
