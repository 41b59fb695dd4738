"""A job's end is told to its receiver: signed, until it is taken, and in nobody's way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from aijobs.domain.jobs import JobStatus
from aijobs.store import jobs, operators, tenants, webhooks
from aijobs.store.db import connect
from tests.webhooks.receiver import Received, receiver
from tests.workers.fleet import Fleet, audit, fleet_on, wait_for
from workers import courier
from workers.courier import Courier


@pytest.fixture
def fleet(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("AIJOBS_WEBHOOKS_ALLOW", "127.0.0.0/8")
    monkeypatch.setenv("AIJOBS_REAP_SECONDS", "0.3")
    with fleet_on(database_url, tmp_path) as made:
        yield made
        audit(made)


def told(fleet: Fleet, job_id: UUID) -> dict[str, Any]:
    (row,) = webhooks.list_all(fleet.db, job_id=job_id)
    return row


def wait_told(fleet: Fleet, job_id: UUID, status: str = "delivered") -> dict[str, Any]:
    wait_for(lambda: told(fleet, job_id)["status"] == status, status, dump=fleet.last_lines)
    return told(fleet, job_id)


def signing(fleet: Fleet) -> list[str]:
    with fleet.db.connection() as connection:
        return webhooks.secrets_of(connection, fleet.tenant)


def tried_again_now(fleet: Fleet) -> None:
    fleet.rows("UPDATE ai_webhook_deliveries SET due_at = now() WHERE status = 'pending' AND token IS NULL")


def test_every_kind_of_end_is_told_once_and_signed(fleet: Fleet) -> None:
    with receiver() as there:
        fleet.start()
        ends = {
            "succeeded": fleet.submit("[[sim: text=secret-answer]]", webhook_url=there.url + "/a", user_id="u-1"),
            "failed": fleet.submit("[[sim: status=400]]", webhook_url=there.url + "/b"),
            "cancelled": fleet.submit(run_at="2099-01-01T00:00:00Z", webhook_url=there.url + "/c"),
        }
        silent = fleet.submit("[[sim: text=x]]")
        jobs.request_cancel(fleet.db, fleet.tenant, ends["cancelled"])
        for status, job_id in ends.items():
            fleet.wait(job_id)
            row = wait_told(fleet, job_id)
            assert (row["type"], row["tries"], row["last_status"]) == (f"job.{status}", 1, 204)
        fleet.wait(silent)
        assert webhooks.list_all(fleet.db, job_id=silent) == []
        (secret,) = signing(fleet)
        for path, (status, job_id) in zip("abc", ends.items(), strict=True):
            (one,) = there.at(f"/{path}")
            said = one.verified(secret)
            assert said["type"] == f"job.{status}" and said["timestamp"].endswith("Z")
            assert said["data"]["job_id"] == str(job_id) and said["data"]["status"] == status
            assert b"secret-answer" not in one.body
            assert one.id == str(told(fleet, job_id)["id"])
        with pytest.raises(WebhookVerificationError):
            there.at("/a")[0].verified("whsec_" + "A" * 43 + "=")
        assert secret not in fleet.last_lines()


def test_an_operators_retry_is_another_end(fleet: Fleet) -> None:
    with receiver() as there:
        fleet.start()
        job_id = fleet.submit("[[sim: status=400]]", webhook_url=there.url + "/a")
        fleet.wait(job_id)
        wait_told(fleet, job_id)
        operators.retry(fleet.db, fleet.tenant, job_id)
        wait_for(lambda: len(webhooks.list_all(fleet.db, job_id=job_id, status="delivered")) == 2, "both ends")
        assert len({one.id for one in there.at("/a")}) == 2


def test_what_is_not_taken_is_tried_again_under_the_same_id(fleet: Fleet) -> None:
    def answer(_: Received, before: int) -> Any:
        return [500, None, (302, {"Location": "/elsewhere"}), (503, {"Retry-After": "120"}), 200][before]

    with receiver(answer) as there:
        fleet.start()
        job_id = fleet.submit("[[sim: text=x]]", webhook_url=there.url + "/a")
        fleet.wait(job_id)
        for tries, status, error in ((1, 500, None), (2, None, "no_answer"), (3, 302, None), (4, 503, None)):
            wait_for(
                lambda tries=tries: (told(fleet, job_id)["tries"], told_token(fleet)) == (tries, None),  # type: ignore[misc]
                f"try {tries}",
                dump=fleet.last_lines,
            )
            row = told(fleet, job_id)
            assert (row["status"], row["last_status"], row["last_error"]) == ("pending", status, error)
            tried_again_now(fleet)
        wait_told(fleet, job_id)
        assert len({one.id for one in there.at("/a")}) == 1 and there.at("/elsewhere") == []
        assert len(there.at("/a")) == 5


def told_token(fleet: Fleet) -> Any:
    (row,) = fleet.rows("SELECT token FROM ai_webhook_deliveries")
    return row["token"]


def test_after_a_day_it_is_given_up_and_may_be_replayed(fleet: Fleet) -> None:
    answers = {"status": 500}
    with receiver(lambda _, __: answers["status"]) as there:
        fleet.start()
        job_id = fleet.submit("[[sim: text=x]]", webhook_url=there.url + "/a")
        fleet.wait(job_id)
        wait_for(lambda: told(fleet, job_id)["tries"] == 1, "a try")
        fleet.rows("UPDATE ai_webhook_deliveries SET tries = 6, due_at = now(), token = NULL")
        row = wait_told(fleet, job_id, "failed")
        assert (row["tries"], row["last_status"]) == (7, 500)
        answers["status"] = 200
        run = aijobs(fleet, "webhooks", "replay", "--job", str(job_id))
        assert run.returncode == 0, run.stderr
        wait_told(fleet, job_id)
        assert len({one.id for one in there.at("/a")}) == 1


def test_a_receiver_that_is_gone_is_left_alone_until_it_is_enabled(fleet: Fleet) -> None:
    answers = {"status": 410}
    with receiver(lambda _, __: answers["status"]) as there:
        fleet.start()
        url = there.url + "/a"
        first = fleet.submit("[[sim: text=x]]", webhook_url=url)
        fleet.wait(first)
        wait_told(fleet, first, "disabled")
        later = fleet.submit("[[sim: text=x]]", webhook_url=url)
        fleet.wait(later)
        assert told(fleet, later)["status"] == "disabled" and told(fleet, later)["tries"] == 0
        answers["status"] = 200
        assert aijobs(fleet, "webhooks", "enable", url, "--tenant", str(fleet.tenant)).returncode == 0
        assert aijobs(fleet, "webhooks", "enable", url, "--tenant", str(fleet.tenant)).returncode == 1
        again = fleet.submit("[[sim: text=x]]", webhook_url=url)
        fleet.wait(again)
        wait_told(fleet, again)
        assert len(there.at("/a")) == 2


def test_both_secrets_sign_while_one_replaces_the_other(fleet: Fleet) -> None:
    with receiver() as there:
        rotate = ("webhooks", "secrets", "rotate", "--tenant", str(fleet.tenant))
        old = aijobs(fleet, *rotate).stdout.strip()
        new = aijobs(fleet, *rotate).stdout.strip()
        fleet.start()
        job_id = fleet.submit("[[sim: text=x]]", webhook_url=there.url + "/a")
        fleet.wait(job_id)
        wait_told(fleet, job_id)
        for secret in (old, new):
            assert there.at("/a")[0].verified(secret)["data"]["job_id"] == str(job_id)
        assert signing(fleet) == [new, old]
        last = aijobs(fleet, *rotate, "--keep-hours", "0", "--json")
        assert signing(fleet) == [json.loads(last.stdout)["secret"]], "those of before are not to sign any more"
        assert not any(secret in fleet.last_lines() for secret in (old, new))


def test_a_tenants_first_secret_is_made_when_it_is_asked_for(fleet: Fleet) -> None:
    listing = ("webhooks", "secrets", "list", "--json", "--tenant", str(fleet.tenant))
    first, again = (json.loads(aijobs(fleet, *listing).stdout) for _ in range(2))
    assert first == again and [row["secret"] for row in first] == signing(fleet)
    for command in ("list", "rotate"):
        run = aijobs(fleet, "webhooks", "secrets", command, "--tenant", str(UUID(int=1)))
        assert run.returncode == 1 and "no tenant" in run.stderr and "Traceback" not in run.stderr


def test_of_secrets_made_at_once_each_that_was_shown_signs(fleet: Fleet) -> None:
    made = [tenants.new_webhook_secret() for _ in range(8)]

    def rotate(secret: str) -> None:
        webhooks.rotate_secret(fleet.db, fleet.tenant, secret, keep_seconds=60)

    threads = [threading.Thread(target=rotate, args=(secret,)) for secret in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(signing(fleet)) == sorted(made)


def test_a_slow_receiver_delays_neither_jobs_nor_other_receivers(fleet: Fleet) -> None:
    def answer(one: Received, _: int) -> int:
        if one.path == "/slow":
            time.sleep(8)
        return 200

    with receiver(answer) as there:
        fleet.start(AIJOBS_PROCESSES=1)
        slow = [fleet.submit(kind="noop", webhook_url=there.url + "/slow") for _ in range(60)]
        for job_id in slow:
            fleet.wait(job_id)
        wait_for(lambda: len(there.at("/slow")) >= 2, "slow ones under way")
        other = tenants.create_tenant(fleet.db, "other")
        started = time.monotonic()
        fast = fleet.submit(kind="noop", webhook_url=there.url + "/fast", tenant_id=other)
        wait_for(lambda: len(there.at("/fast")) == 1, "the other's", 6.0, fleet.last_lines)
        assert time.monotonic() - started < 6 and len(there.at("/slow")) <= 2
        wait_for(lambda: bool(webhooks.list_all(fleet.db, job_id=fast, status="delivered")), "its record")


def test_a_worker_that_dies_with_a_delivery_loses_it_to_the_next(fleet: Fleet) -> None:
    def answer(_: Received, before: int) -> int:
        if before == 0:
            time.sleep(5)
        return 200

    with receiver(answer) as there:
        first = fleet.start(AIJOBS_PROCESSES=1)
        job_id = fleet.submit("[[sim: text=x]]", webhook_url=there.url + "/a")
        fleet.wait(job_id)
        wait_for(lambda: len(there.at("/a")) == 1, "the first try")
        os.killpg(first.pid, signal.SIGKILL)
        fleet.start(AIJOBS_PROCESSES=1)
        time.sleep(1)
        assert len(there.at("/a")) == 1, "its time was not up"
        fleet.rows("UPDATE ai_webhook_deliveries SET due_at = now()")
        row = wait_told(fleet, job_id)
        assert row["tries"] == 2 and len({one.id for one in there.at("/a")}) == 1


def test_an_address_that_may_not_be_called_is_not_even_connected_to(fleet: Fleet) -> None:
    with receiver() as there:
        fleet.start(AIJOBS_WEBHOOKS_ALLOW="10.9.0.0/16")
        job_id = fleet.submit("[[sim: text=x]]", webhook_url=there.url + "/a")
        named = fleet.submit("[[sim: text=x]]", webhook_url=there.url.replace("127.0.0.1", "localhost") + "/b")
        for job in (job_id, named):
            fleet.wait(job)
            wait_for(lambda job=job: told(fleet, job)["tries"] == 1, "a try")  # type: ignore[misc]
            wait_for(lambda job=job: told(fleet, job)["last_error"] == "address_refused", "the refusal")  # type: ignore[misc]
        assert there.received == []


def test_they_are_listed_and_replayed_only_when_they_have_ended(fleet: Fleet) -> None:
    job_id = fleet.submit(run_at="2099-01-01T00:00:00Z", webhook_url="http://127.0.0.1:9/a")
    jobs.request_cancel(fleet.db, fleet.tenant, job_id)
    assert fleet.job(job_id).status is JobStatus.CANCELLED
    (row,) = json.loads(aijobs(fleet, "webhooks", "list", "--json").stdout)
    assert (row["job_id"], row["status"], row["tries"]) == (str(job_id), "pending", 0)
    assert "job.cancelled" in aijobs(fleet, "webhooks", "list", "--job", str(job_id)).stdout
    assert aijobs(fleet, "webhooks", "replay", row["id"]).returncode == 1
    assert aijobs(fleet, "webhooks", "replay").returncode == 2


def test_what_is_under_way_at_a_deploy_is_settled_and_not_told_twice(fleet: Fleet) -> None:
    def answer(one: Received, _: int) -> int:
        time.sleep(1.5 if one.path == "/a" else 0.0)
        return 200

    with receiver(answer) as there:
        first = fleet.start(AIJOBS_PROCESSES=1)
        told_late = fleet.submit(kind="noop", webhook_url=there.url + "/a")
        fleet.submit("[[sim: first_byte_ms=3000]]", webhook_url=there.url + "/b")
        wait_for(lambda: len(there.at("/a")) == 1, "the try")
        fleet.wait_until_sent(fleet.rows("SELECT id FROM ai_jobs WHERE kind = 'chat'")[0]["id"])
        assert fleet.stop(first) == 0
        assert told(fleet, told_late)["status"] == "delivered"
        assert fleet.rows("SELECT name FROM ai_duties WHERE holder IS NOT NULL") == []
        fleet.start(AIJOBS_PROCESSES=1)
        wait_for(lambda: len(there.at("/b")) == 1, "the other's", dump=fleet.last_lines)
        assert len(there.at("/a")) == 1


def test_whatever_breaks_in_a_try_breaks_that_try_alone(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    real = courier.post

    def post(url: str, **more: Any) -> Any:
        if url.endswith("/odd"):
            raise RuntimeError("whsec_in_a_message")
        return real(url, **more)

    monkeypatch.setattr(courier, "post", post)
    with receiver() as there:
        odd = ended_job(fleet, there.url + "/odd")
        even = ended_job(fleet, there.url + "/even")
        working = Courier(
            lambda: connect(fleet.dsn, application_name="test courier"),
            worker_id="w-1",
            allowed=(ip_network("127.0.0.0/8"),),
        )
        working.start()
        working.duty_is_vacant()
        try:
            wait_told(fleet, even)
            wait_for(lambda: told(fleet, odd)["last_error"] == "not_sent", "the odd one's record")
            assert told(fleet, odd)["status"] == "pending" and working.is_alive()
        finally:
            working.stop()
        assert not working.is_alive()


def test_a_tenant_with_many_hosts_leaves_room_for_others(fleet: Fleet) -> None:
    other = tenants.create_tenant(fleet.db, "other")
    for number in range(40):
        ended_job(fleet, f"https://host-{number}.example/")
    theirs = ended_job(fleet, "https://host.example/", tenant_id=other)
    duty = {"worker_id": "w-1", "hold_seconds": 5.0, "per_receiver": 2, "per_tenant": 6, "lease_seconds": 60.0}
    with connect(fleet.dsn, application_name="test claim") as connection:
        found = webhooks.claim(connection, limit=32, **duty)
        claimed = [delivery.job_id for delivery in found.deliveries]
        assert len(claimed) == 7 and theirs in claimed
        assert webhooks.claim(connection, limit=32, **duty).deliveries == []
        webhooks.deliver(connection, found.deliveries[0], 200)
        assert len(webhooks.claim(connection, limit=32, **duty).deliveries) == (claimed[0] != theirs)
        another = webhooks.claim(connection, limit=32, **{**duty, "worker_id": "w-2"})
        assert not another.on_duty and another.deliveries == []


def ended_job(fleet: Fleet, url: str, **given: Any) -> UUID:
    """A job that ends without a worker, and its delivery with it."""
    job_id = fleet.submit(run_at="2099-01-01T00:00:00Z", webhook_url=url, **given)
    jobs.request_cancel(fleet.db, given.get("tenant_id", fleet.tenant), job_id)
    return job_id


def aijobs(fleet: Fleet, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "AIJOBS_DATABASE_URL": fleet.dsn}
    command = [sys.executable, "-m", "aijobs", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)


def test_a_slow_host_is_one_receiver_whatever_paths_it_is_told_at(fleet: Fleet) -> None:
    def answer(one: Received, _: int) -> int:
        if one.path.startswith("/slow"):
            time.sleep(8)
        return 200

    with receiver(answer) as slow, receiver() as other_host:
        fleet.start(AIJOBS_PROCESSES=1)
        made = [fleet.submit(kind="noop", webhook_url=f"{slow.url}/slow/{number}") for number in range(40)]
        for job_id in made:
            fleet.wait(job_id)
        wait_for(lambda: len(slow.received) >= 2, "slow ones under way")
        other = tenants.create_tenant(fleet.db, "other")
        fleet.submit(kind="noop", webhook_url=other_host.url + "/fast", tenant_id=other)
        wait_for(lambda: len(other_host.received) == 1, "the other tenant's", 5.0, fleet.last_lines)
        assert len(slow.received) == 2


def test_a_fleet_that_has_just_started_delivers_though_it_does_not_reap_yet(fleet: Fleet) -> None:
    with receiver() as there:
        fleet.start(AIJOBS_PROCESSES=1, AIJOBS_LEASE_SECONDS=180, AIJOBS_HEARTBEAT_SECONDS=45)
        job_id = fleet.submit(kind="noop", webhook_url=there.url + "/a")
        fleet.wait(job_id)
        wait_for(lambda: len(there.received) == 1, "the delivery", 6.0, fleet.last_lines)
