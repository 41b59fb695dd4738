"""The client against the API as it is run: what is lost on the way, killed and restarted makes no second job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from aijobs.client import (
    Client,
    IdempotencyKeyReused,
    InsufficientBudget,
    JobCancelled,
    JobFailed,
    NotFound,
    Unauthorized,
    ValidationFailed,
)
from aijobs.store import ledger, tenants
from aijobs.store.db import Database
from tests.client.conftest import Api, LosesAnswers
from tests.workers.fleet import Fleet

SLOW = "[[sim: text='A slow answer.' first_byte_ms=1500]]"


def count_of_jobs(fleet: Fleet) -> int:
    (row,) = fleet.rows("SELECT count(*) AS jobs FROM ai_jobs")
    return int(row["jobs"])


def test_an_answer_lost_on_the_way_makes_no_second_job(fleet: Fleet, api: Api) -> None:
    def nothing() -> None:
        return

    with LosesAnswers(api.port, nothing, nothing) as network, Client(network.url, api.key) as client:
        job = client.create("chat", {"prompt": "once"})
        assert [b"202" in answer for answer in network.lost] == [True, True]
    assert job.replayed
    assert count_of_jobs(fleet) == 1


def test_a_server_killed_between_the_commit_and_the_answer_makes_no_second_job(fleet: Fleet, api: Api) -> None:
    restarted = threading.Thread(target=api.start)

    def kill_and_restart_later() -> None:
        api.kill()
        restarted.start()

    with LosesAnswers(api.port, kill_and_restart_later) as network, Client(network.url, api.key) as client:
        job = client.create("chat", {"prompt": "once"})
        restarted.join()
        assert b"202" in network.lost[0]
    assert job.replayed
    assert count_of_jobs(fleet) == 1


def test_a_wait_survives_a_restart(fleet: Fleet, api: Api) -> None:
    fleet.start()
    with Client(api.url, api.key) as client:
        job = client.create("chat", {"prompt": SLOW})
        seen: list[str] = []

        def restart_once(update: Any) -> None:
            seen.append(update.status)
            if len(seen) == 1:
                api.kill()
                threading.Thread(target=api.start).start()

        done = job.wait(40, on_update=restart_once)
    assert (done.status, done.text) == ("succeeded", "A slow answer.")
    assert seen[-1] == "succeeded"


def test_a_stream_survives_a_restart_with_every_event_once(fleet: Fleet, api: Api) -> None:
    fleet.start()
    with Client(api.url, api.key) as client:
        job = client.create("chat", {"prompt": "[[sim: tokens=60 delta_ms=60]]"})
        events: list[int] = []
        text = client.text(job.job_id, timeout=60, on_event=lambda event: events.append(event.seq))
        restart: threading.Thread | None = None
        for _ in text:
            if restart is None:
                api.kill()
                restart = threading.Thread(target=api.start)
                restart.start()
        assert restart is not None
        restart.join()
        assert text.job is not None
        assert text.text == text.job.text
        assert events == list(range(1, len(events) + 1))
        assert [event.seq for event in client.stream(job.job_id)] == events
        assert list(client.stream(job.job_id, events[-1])) == []


def test_ends_and_what_is_told_of_them(fleet: Fleet, api: Api) -> None:
    fleet.start()
    with Client(api.url, api.key) as client:
        refused = client.create("chat", {"prompt": "[[sim: status=400]]"}, metadata={"part": "a b"}, user_id="u-1")
        with pytest.raises(JobFailed) as failed:
            refused.wait(30)
        assert failed.value.error is not None
        assert failed.value.error["class"] == "permanent"
        assert [attempt["number"] for attempt in client.attempts(refused.job_id)] == [1]
        later = client.create("chat", {"prompt": "x"}, run_at="2090-01-01T00:00:00Z")
        assert later.cancel().status == "cancelled"
        with pytest.raises(JobCancelled):
            later.wait(5)
        assert [job.job_id for job in client.list(page_size=1)] == [later.job_id, refused.job_id]
        assert [job.job_id for job in client.list(metadata={"part": "a b"})] == [refused.job_id]
        assert later.refresh().ended
        assert client.usage(group_by="kind")["data"]
        assert client.budget()["budgeted"] is False


def test_refusals(fleet: Fleet, api: Api, db: Database) -> None:
    with Client(api.url, api.key) as client:
        client.create("chat", {"prompt": "a"}, idempotency_key="k")
        refusals: list[tuple[type[Exception], Callable[[], Any]]] = [
            (IdempotencyKeyReused, lambda: client.create("chat", {"prompt": "b"}, idempotency_key="k")),
            (ValidationFailed, lambda: client.create("chat", {"prompt": 7})),
            (ValidationFailed, lambda: client.create("nothing", {})),
            (NotFound, lambda: client.get("none")),
            (NotFound, lambda: client.cancel("0193a000-0000-7000-8000-000000000001")),
            (Unauthorized, lambda: Client(api.url, "aij_nobody_x").get("none")),
            (Unauthorized, lambda: Client(api.url, "").create("chat", {"prompt": "a"})),
        ]
        for error, refused in refusals:
            with pytest.raises(error):
                refused()
        with pytest.raises(ValidationFailed) as caught:
            client.create("chat", {"prompt": 7})
        assert [fault["pointer"] for fault in caught.value.errors] == ["#/payload/prompt"]
    ledger.grant(db, poor := tenants.create_tenant(db, "poor"), 500)
    with Client(api.url, tenants.create_key(db, poor)) as client:
        with pytest.raises(InsufficientBudget):
            client.create("report", {})
        assert client.budget()["available_micros"] == 500
    assert count_of_jobs(fleet) == 1
