"""Whatever a handler does harms its own job and no other, and no lease is extended for work that nobody does."""

from __future__ import annotations

import json

import pytest

from aijobs.domain.jobs import JobStatus
from tests.workers.fleet import Fleet

CONFIG = """
[kinds.odd]
handler = "tests.workers.handlers:odd"
max_attempts = 2
backoff_seconds = 0.1
attempt_seconds = 2

[kinds.missing]
handler = "tests.workers.handlers:no_such_function"
"""


def add_kind(fleet: Fleet, text: str) -> None:
    fleet.config.write_text(fleet.config.read_text() + text)


@pytest.mark.parametrize(
    "raises",
    ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "MemoryError", "RecursionError", "Unprintable"],
)
def test_an_exception_of_any_kind_ends_the_attempt_and_not_the_worker(fleet: Fleet, raises: str) -> None:
    add_kind(fleet, CONFIG.split("[kinds.missing]")[0])
    supervisor = fleet.start(AIJOBS_PROCESSES=1, AIJOBS_THREADS=1)
    odd = fleet.submit(kind="odd", payload_json=json.dumps({"raise": raises}), max_attempts=2)
    job = fleet.wait(odd)
    assert job.error is not None
    assert (job.status, job.error["code"], job.attempts) == (JobStatus.FAILED, "attempts_exhausted", 2)
    assert fleet.attempts(odd)[0]["error"]["code"] == "handler_error"
    assert fleet.wait(fleet.submit("hello")).status is JobStatus.SUCCEEDED
    assert fleet.listening(supervisor) == 1


@pytest.mark.parametrize(
    ("result", "code"), [("nan", "handler_error"), ("nul", "unstorable_result"), ("object", "handler_error")]
)
def test_a_result_that_cannot_be_stored_fails_its_own_job(fleet: Fleet, result: str, code: str) -> None:
    add_kind(fleet, CONFIG.split("[kinds.missing]")[0])
    fleet.start(AIJOBS_PROCESSES=1)
    good = [fleet.submit(kind="noop") for _ in range(5)]
    odd = fleet.submit(kind="odd", payload_json=json.dumps({"result": result}), max_attempts=1)
    assert fleet.wait(odd).status is JobStatus.FAILED
    assert fleet.attempts(odd)[0]["error"]["code"] == code
    assert {fleet.wait(job_id).status for job_id in good} == {JobStatus.SUCCEEDED}


def test_a_handler_that_holds_the_interpreter_loses_no_lease(fleet: Fleet) -> None:
    """Parsing in one piece keeps all threads of the process waiting; the heartbeat must get through all the same."""
    add_kind(fleet, CONFIG.split("[kinds.missing]")[0])
    fleet.start(AIJOBS_PROCESSES=1)
    busy = [fleet.submit(kind="odd", payload_json='{"parse": 2}', max_attempts=1) for _ in range(4)]
    for job_id in busy:
        job = fleet.wait(job_id)
        assert (job.status, job.attempts) == (JobStatus.SUCCEEDED, 1)


def test_a_handler_that_cannot_be_imported_stops_the_start_with_a_sentence(fleet: Fleet) -> None:
    add_kind(fleet, CONFIG)
    supervisor = fleet.start_without_waiting()
    assert supervisor.wait(20) == 2
    assert "[kinds.missing] handler 'tests.workers.handlers:no_such_function'" in fleet.last_lines()


def test_a_handlers_module_that_raises_stops_the_start_instead_of_being_tried_for_ever(fleet: Fleet) -> None:
    add_kind(fleet, '[kinds.broken]\nhandler = "tests.workers.broken_handlers:anything"\n')
    supervisor = fleet.start_without_waiting()
    assert supervisor.wait(20) == 3
    assert "ZeroDivisionError" in fleet.last_lines()


def test_a_schema_that_is_not_migrated_stops_the_start_with_a_sentence(fleet: Fleet) -> None:
    fleet.rows("DELETE FROM ai_schema_migrations")
    supervisor = fleet.start_without_waiting()
    assert supervisor.wait(20) == 4
    assert "aijobs migrate" in fleet.last_lines()
