"""Requests that wait are answered when there is something to say, and never wait in the way of others."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from tests.streams.site import Site, in_threads
from tests.workers.fleet import Fleet


def test_a_create_that_waits_is_answered_with_the_result(site: Site) -> None:
    started = time.monotonic()
    answered = site.create("text=kept delta_ms=500", Prefer="wait=20")
    assert (answered.status, answered.headers["Preference-Applied"]) == (200, "wait")
    assert answered.json["status"] == "succeeded" and answered.json["result"]["text"] == "kept"
    assert "Retry-After" not in answered.headers and answered.headers["Location"]
    assert time.monotonic() - started < 10


def test_a_client_that_knows_only_post_and_a_timeout_gets_its_result_by_the_same_key(site: Site) -> None:
    key = uuid4().hex
    first = site.create("text=kept marker=m first_byte_ms=4000", key=key, Prefer="wait=2")
    assert (first.status, first.json["status"]) == (202, "running")
    assert first.headers["Preference-Applied"] == "wait" and first.headers["Retry-After"]
    again = site.create("text=kept marker=m first_byte_ms=4000", key=key, Prefer="wait=25")
    assert (again.status, again.json["result"]["text"]) == (200, "kept")
    assert again.headers["Idempotent-Replayed"] == "true" and again.json["job_id"] == first.json["job_id"]
    assert site.fleet.simulator.paid("m") == 1


@pytest.mark.parametrize("prefer", ["wait=x", "wait", "wait=", "respond-async", "wait=-1", "wait=0"])
def test_a_preference_that_cannot_be_granted_is_ignored(site: Site, prefer: str) -> None:
    answered = site.create("text=x first_byte_ms=5000", Prefer=prefer)
    assert answered.status == 202
    site.cancel(UUID(answered.json["job_id"]))


def test_a_wait_for_a_change_ends_with_each_change(site: Site) -> None:
    job_id = site.submit("text=x delta_ms=2500")
    path = f"/api/ai/jobs/{job_id}?wait=20"
    seen, etag = [], ""
    while not seen or seen[-1] not in ("succeeded", "failed"):
        answered = site.api.request("GET", path, **({"If-None-Match": etag} if etag else {}))
        assert answered.status == 200, answered.status
        seen.append(answered.json["status"])
        etag = answered.headers["ETag"]
    assert seen[-1] == "succeeded" and 1 <= len(seen) <= 3
    # What has ended does not change: nothing is waited for.
    started = time.monotonic()
    assert site.api.request("GET", path).status == 200
    assert site.api.request("GET", path, **{"If-None-Match": etag}).status == 304
    assert time.monotonic() - started < 5


def test_a_wait_without_news_ends_in_time(site: Site) -> None:
    job_id = site.submit("text=x first_byte_ms=20000")
    site.fleet.wait_until_sent(job_id)
    etag = site.api.request("GET", f"/api/ai/jobs/{job_id}").headers["ETag"]
    for headers, status in (({"If-None-Match": etag}, 304), ({}, 200)):
        started = time.monotonic()
        answered = site.api.request("GET", f"/api/ai/jobs/{job_id}?wait=1.5", **headers)
        assert answered.status == status and 1.4 < time.monotonic() - started < 8
    assert site.api.request("GET", f"/api/ai/jobs/{job_id}?wait=20", **{"If-None-Match": '"other"'}).status == 200
    site.cancel(job_id)


@pytest.mark.parametrize("query", ["?wait=x", "?wait=-1", "?wait=", "?wait=1&wait=2", "?weight=3", "?wait=1e3"])
def test_a_wait_that_is_no_number_is_refused(site: Site, query: str) -> None:
    job_id = site.submit("text=x")
    answered = site.api.request("GET", f"/api/ai/jobs/{job_id}{query}")
    assert (answered.status, answered.json["code"]) == (400, "invalid_query")


def test_a_wait_is_woken_and_does_not_poll(make_site: Callable[..., Site], fleet: Fleet) -> None:
    """Forty waiters of one process cost the database a handful of statements while nothing happens."""
    fleet.start()
    site = make_site(AIJOBS_WEB_PROCESSES="1")
    jobs = [site.submit("text=x first_byte_ms=4000") for _ in range(8)]
    for job_id in jobs:
        fleet.wait_until_sent(job_id)
    answers: list[str] = []

    def wait(job_id: UUID) -> None:
        answered = site.api.request("GET", f"/api/ai/jobs/{job_id}", Prefer="wait=30")
        answers.append(answered.json["status"])

    def xacts() -> int:
        (row,) = fleet.rows("SELECT xact_commit AS n FROM pg_stat_database WHERE datname = current_database()")
        return int(row["n"])

    before = xacts()
    in_threads([lambda job_id=job_id: wait(job_id) for job_id in jobs for _ in range(5)])  # type: ignore[misc]
    assert answers == ["succeeded"] * 40
    assert xacts() - before < 400, "each waiter asked by itself"


def test_a_cancel_ends_the_waits_at_once(site: Site) -> None:
    job_id = site.submit("text=x first_byte_ms=30000")
    site.fleet.wait_until_sent(job_id)
    took: list[float] = []

    def wait() -> None:
        started = time.monotonic()
        path = f"/api/ai/jobs/{job_id}"
        answered = site.api.request("GET", path, Prefer="wait=30")
        while answered.json["status"] != "cancelled":
            answered = site.api.request("GET", path, Prefer="wait=30")
        took.append(time.monotonic() - started)

    in_threads([wait] * 5 + [lambda: (time.sleep(1), site.cancel(job_id))])  # type: ignore[list-item]
    assert max(took) < 10
