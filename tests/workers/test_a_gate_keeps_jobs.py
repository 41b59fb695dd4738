"""A provider that rejects our key is left alone by all workers; its jobs wait and spend no attempt."""

from __future__ import annotations

import time

from aijobs.domain.jobs import JobStatus
from tests.workers.fleet import Fleet, audit, wait_for


def gate(fleet: Fleet) -> dict[str, object]:
    rows = fleet.rows("SELECT state, reason, code, refusals FROM ai_gates")
    return rows[0] if rows else {}


def test_a_rejected_key_shuts_the_gate_until_one_job_gets_through(fleet: Fleet) -> None:
    supervisor = fleet.start()
    first = fleet.submit("[[sim: marker=first error=invalid_api_key times=1]]", max_attempts=1)
    wait_for(lambda: gate(fleet).get("state") == "shut", "a shut gate", dump=fleet.last_lines)
    rejected = fleet.submit("[[sim: marker=second error=invalid_api_key times=1]]", max_attempts=1)
    waiting = [rejected, *(fleet.submit(f"[[sim: marker=w{number}]]", max_attempts=1) for number in range(5))]
    other = fleet.submit(kind="noop", provider=None)
    assert fleet.wait(other).status is JobStatus.SUCCEEDED
    time.sleep(1.5)  # more than a poll
    assert {fleet.job(job_id).status for job_id in (first, *waiting)} == {JobStatus.QUEUED}
    assert len(fleet.simulator.calls()) == 1
    assert fleet.listening(supervisor) == 2

    fleet.rows("UPDATE ai_gates SET probe_at = now() RETURNING provider")
    wait_for(lambda: len(fleet.simulator.calls()) == 2, "one probe", dump=fleet.last_lines)
    time.sleep(1.5)
    assert len(fleet.simulator.calls()) == 2 and gate(fleet)["state"] == "shut"

    fleet.rows("UPDATE ai_gates SET probe_at = now() RETURNING provider")
    assert {fleet.wait(job_id).status for job_id in (first, *waiting)} == {JobStatus.SUCCEEDED}
    assert gate(fleet) == {"state": "open", "reason": "account", "code": "provider_key_rejected", "refusals": 0}
    (row,) = fleet.rows("SELECT max(attempts_counted) AS counted, max(attempts) AS made FROM ai_jobs")
    assert row["counted"] == 1 and row["made"] == 2
    audit(fleet)


def test_an_overload_of_many_jobs_is_waited_for_without_spending_attempts(fleet: Fleet) -> None:
    fleet.start()
    jobs = [fleet.submit("[[sim: marker=m error=server_is_overloaded times=52]]", max_attempts=1) for _ in range(11)]
    assert {fleet.wait(job_id, seconds=60).status for job_id in jobs} == {JobStatus.SUCCEEDED}
    (row,) = fleet.rows("SELECT max(attempts_counted) AS counted FROM ai_jobs")
    assert row["counted"] == 1
    assert fleet.simulator.paid("m") == 11
    assert (gate(fleet)["state"], gate(fleet)["reason"]) == ("open", "overload")
    assert "the gate of provider sim is shut (provider_overloaded)" in fleet.logs.read_text()
    audit(fleet)
