"""A paid answer that cannot be written, because the database is away, outlives the process that has it."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path
from uuid import uuid4

from aijobs.domain.jobs import JobStatus
from aijobs.embedded import EmbeddedPostgres
from tests.workers.fleet import Fleet, audit, children, wait_for

PATIENT = {"AIJOBS_LEASE_SECONDS": 30, "AIJOBS_HEARTBEAT_SECONDS": 5}


def kept(fleet: Fleet) -> list[Path]:
    return sorted(fleet.data_dir.glob("spool/*/*.json"))


def with_answers_on_disk(fleet: Fleet, postgres: EmbeddedPostgres) -> int:
    """The pid of a supervisor whose workers hold twelve answers, and have no database."""
    supervisor = fleet.start(**PATIENT)
    jobs = [fleet.submit("[[sim: marker=m first_byte_ms=1000]]") for _ in range(12)]
    for job_id in jobs:
        fleet.wait_until_sent(job_id)
    postgres.stop_server("immediate")
    wait_for(lambda: len(kept(fleet)) == 12, "twelve answers on disk", dump=fleet.last_lines)
    return supervisor.pid


def succeeded_once_each(fleet: Fleet) -> bool:
    rows = fleet.rows("SELECT status, count(*) AS n, max(attempts) AS attempts FROM ai_jobs GROUP BY 1")
    return [row["status"] for row in rows] == ["succeeded"] and fleet.simulator.paid("m") == 12


def test_killed_workers_answers_are_delivered_before_their_jobs_are_given_back(
    fleet: Fleet, postgres: EmbeddedPostgres
) -> None:
    supervisor = with_answers_on_disk(fleet, postgres)
    for path in kept(fleet):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for pid in children(supervisor):
        os.kill(pid, signal.SIGKILL)
    postgres.start_server()
    wait_for(lambda: succeeded_once_each(fleet), "twelve jobs", dump=fleet.last_lines)
    assert kept(fleet) == []
    audit(fleet)


def test_whatever_runs_next_on_the_data_folder_delivers_them(fleet: Fleet, postgres: EmbeddedPostgres) -> None:
    """As after a power cut: nobody is left who could know, and the leases have not run out."""
    supervisor = with_answers_on_disk(fleet, postgres)
    os.killpg(supervisor, signal.SIGKILL)
    for folder in fleet.data_dir.glob("spool/*"):
        (folder / "00000099.unfinished").write_text('{"kind": "en')  # cut in the middle of a write
    postgres.start_server()
    fleet.start(**PATIENT)
    wait_for(lambda: fleet.rows("SELECT count(*) AS n FROM ai_calls WHERE outcome = 'succeeded'")[0]["n"] == 12, "12")
    fleet.rows("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'running' RETURNING id")
    wait_for(lambda: succeeded_once_each(fleet), "twelve jobs", dump=fleet.last_lines)
    wait_for(lambda: len(list(fleet.data_dir.glob("spool/*"))) == 2, "the living workers' folders alone")
    audit(fleet)


def test_the_living_deliver_their_own_and_leave_nothing_behind(fleet: Fleet, postgres: EmbeddedPostgres) -> None:
    supervisor = with_answers_on_disk(fleet, postgres)
    postgres.start_server()
    wait_for(lambda: succeeded_once_each(fleet), "twelve jobs", dump=fleet.last_lines)
    assert fleet.rows("SELECT max(attempts) AS n FROM ai_jobs") == [{"n": 1}]
    wait_for(lambda: kept(fleet) == [], "an empty spool")
    os.kill(supervisor, signal.SIGTERM)
    wait_for(lambda: not list(fleet.data_dir.glob("spool/*")), "no folder")


def test_without_a_place_to_keep_answers_nothing_new_is_begun(fleet: Fleet, postgres: EmbeddedPostgres) -> None:
    (fleet.data_dir).mkdir()
    (fleet.data_dir / "spool").write_text("a file where the folder should be")
    fleet.start(AIJOBS_PROCESSES=1, **PATIENT)
    job_id = fleet.submit("[[sim: marker=m first_byte_ms=800]]")
    fleet.wait_until_sent(job_id)
    postgres.stop_server("immediate")
    wait_for(lambda: "claiming stops" in fleet.logs.read_text(), "a complaint", dump=fleet.last_lines)
    postgres.start_server()
    assert fleet.wait(job_id).status is JobStatus.SUCCEEDED
    # The database is back, so that nothing is at stake any more.
    assert fleet.wait(fleet.submit("hello")).status is JobStatus.SUCCEEDED
    assert fleet.simulator.paid("m") == 1


def test_what_cannot_be_delivered_is_left_aside_and_keeps_nobody_from_work(fleet: Fleet) -> None:
    folder = fleet.data_dir / "spool" / "dead-worker"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    result = {"job_id": str(uuid4()), "run_token": str(uuid4()), "result_json": '{"text": "\\u0000"}', "used": []}
    (folder / "00000001.json").write_text(json.dumps({"kind": "accepted", "value": result}))
    (folder / "00000002.json").write_text('{"kind": "accep')
    (folder / "00000003.json").write_text('{"kind": "unheard of", "value": {}}')
    (folder / "00000004.json").mkdir()
    fleet.start(AIJOBS_PROCESSES=1)
    assert fleet.wait(fleet.submit("hello")).status is JobStatus.SUCCEEDED
    assert sorted(path.suffix for path in folder.iterdir()) == ["", *[".undelivered"] * 4]
