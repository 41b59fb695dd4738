"""A wait ends with the job, at its own time, or with an error that says which; never because a server was restarted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from aijobs.client import Client, Job, JobCancelled, JobFailed, JobHeld, NotFound, Unavailable, WaitTimeout
from aijobs.client import transport as transport_module
from tests.client.faults import JOB_ID, Reply, cut, faults, job_document, reset, unavailable


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aijobs.domain.backoff.MINIMUM_SECONDS", 0.01)
    monkeypatch.setattr(transport_module, "BACKOFF_SECONDS", 0.02)


class Polled:
    """A job that goes on to its next status as it is told to, and a server that holds requests for a change or not."""

    def __init__(self, *, holds: bool, etags: bool = True, **given: Any) -> None:
        self.version = 1
        self.status = "queued"
        self.holds = holds
        self.etags = etags
        self.given = given

    def becomes(self, status: str) -> None:
        self.status, self.version = status, self.version + 1

    def __call__(self, reply: Reply) -> None:
        known = reply.asked.headers.get("If-None-Match")
        if self.holds and "Prefer" in reply.asked.headers:
            until = time.monotonic() + float(reply.asked.headers["Prefer"].removeprefix("wait="))
            while known == self._etag() and time.monotonic() < until:
                time.sleep(0.01)
        headers = {"Retry-After": "0.1"} | ({"ETag": self._etag()} if self.etags else {})
        if self.etags and known == self._etag():
            reply.raw(304, b"", **headers)
        else:
            reply.document(job_document(self.status, **self.given), **headers)

    def _etag(self) -> str:
        return f'"{self.version}"'


def updates_of(polled: Polled, *then: str) -> tuple[list[str], Callable[[Job], None]]:
    """What a wait was told, and a listener that has the job go on each time it is told."""
    seen: list[str] = []
    left = list(then)

    def on_update(job: Job) -> None:
        seen.append(job.status)
        if left:
            polled.becomes(left.pop(0))

    return seen, on_update


@pytest.mark.parametrize(("holds", "etags"), [(True, True), (False, True), (False, False)])
def test_each_state_is_told_and_the_end_returned(holds: bool, etags: bool) -> None:
    polled = Polled(holds=holds, etags=etags)
    seen, on_update = updates_of(polled, "running", "held", "running", "succeeded")
    with faults(then=polled) as server, Client(server.url, "aij_k") as client:
        job = client.wait(JOB_ID, 20, on_update=on_update)
    assert job.status == "succeeded"
    assert seen == ["queued", "running", "held", "running", "succeeded"]


def test_a_server_that_holds_is_asked_once_for_each_state() -> None:
    polled = Polled(holds=True)
    seen, on_update = updates_of(polled, "running", "succeeded")
    with faults(then=polled) as server, Client(server.url, "aij_k") as client:
        client.wait(JOB_ID, 20, on_update=on_update)
        assert len(server.asked) == len(seen) == 3
        assert [asked.headers.get("If-None-Match") for asked in server.asked] == [None, '"1"', '"2"']
        assert [asked.headers.get("Prefer") for asked in server.asked] == [None, "wait=19", "wait=19"]


def test_a_server_that_does_not_hold_is_asked_as_often_as_it_wishes() -> None:
    with faults(then=Polled(holds=False)) as server, Client(server.url, "aij_k") as client:
        begun = time.monotonic()
        with pytest.raises(WaitTimeout) as caught:
            client.wait(JOB_ID, 1)
        assert 0.9 < time.monotonic() - begun < 2
        assert 6 <= len(server.asked) <= 13
    assert caught.value.job is not None
    assert caught.value.job.status == "queued"


def test_a_restart_is_waited_through() -> None:
    polled = Polled(holds=True)
    seen, on_update = updates_of(polled, "running", "succeeded")
    plan = [polled, cut, reset, unavailable("0.05"), unavailable(), polled, cut]
    with faults(*plan, then=polled) as server, Client(server.url, "aij_k") as client:
        assert client.wait(JOB_ID, 20, on_update=on_update).status == "succeeded"
    assert seen == ["queued", "running", "succeeded"]


def test_a_server_that_stays_away_is_told_of() -> None:
    once = Polled(holds=True)
    with faults(once, then=cut) as server, Client(server.url, "aij_k", retry_seconds=0.3) as client:
        begun = time.monotonic()
        with pytest.raises(Unavailable):
            client.wait(JOB_ID, 30)
        assert time.monotonic() - begun < 5


def test_the_time_is_kept_while_the_server_is_away() -> None:
    with faults(Polled(holds=True), then=cut) as server, Client(server.url, "aij_k") as client:
        begun = time.monotonic()
        with pytest.raises(WaitTimeout) as caught:
            client.wait(JOB_ID, 1)
        assert time.monotonic() - begun < 2
    assert caught.value.job is not None


def test_the_time_is_kept_while_the_server_is_silent() -> None:
    with faults(Polled(holds=True), then=lambda reply: time.sleep(4)) as server, Client(server.url, "aij_k") as client:
        begun = time.monotonic()
        with pytest.raises(WaitTimeout):
            client.wait(JOB_ID, 1)
        assert time.monotonic() - begun < 3


def test_no_time_is_one_look() -> None:
    with faults(then=Polled(holds=True)) as server, Client(server.url, "aij_k") as client:
        with pytest.raises(WaitTimeout):
            client.wait(JOB_ID, 0)
        assert len(server.asked) == 1


def test_ends_without_success_are_errors() -> None:
    error = {"code": "content_refused", "class": "permanent", "message": "a sentence of the provider"}
    polled = Polled(holds=True, error=error)
    with faults(then=polled) as server, Client(server.url, "aij_k") as client:
        polled.becomes("failed")
        with pytest.raises(JobFailed) as failed:
            client.wait(JOB_ID, 5)
        assert (failed.value.error, failed.value.job.status) == (error, "failed")
        assert str(failed.value) == f"job {JOB_ID} has failed: content_refused"
        with pytest.raises(JobFailed):
            failed.value.job.wait()
        polled.becomes("cancelled")
        with pytest.raises(JobCancelled):
            client.wait(JOB_ID, 5)


def test_a_held_job_is_an_error_only_if_asked_for() -> None:
    polled = Polled(holds=True)
    polled.becomes("held")
    with faults(then=polled) as server, Client(server.url, "aij_k") as client:
        with pytest.raises(JobHeld):
            client.wait(JOB_ID, 5, raise_if_held=True)
        with pytest.raises(WaitTimeout, match="it is held"):
            client.wait(JOB_ID, 0.2)


def test_a_job_that_is_not_there() -> None:
    with faults(then=lambda reply: reply.problem(404, "not_found")) as server, Client(server.url, "aij_k") as client:
        with pytest.raises(NotFound):
            client.wait(JOB_ID, 5)
        assert len(server.asked) == 1
