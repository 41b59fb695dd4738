"""Progress and pieces of output are numbered with all other events, and those of a lost token are dropped."""

from __future__ import annotations

from uuid import UUID

from aijobs.domain.policy import Retry
from aijobs.store import attempts, claims, jobs
from aijobs.store.attempts import Said
from aijobs.store.claims import Ending, Result
from aijobs.store.db import Connection, Database
from tests.store.make import claim_some, running


def events(connection: Connection) -> list[tuple[str, object]]:
    rows = connection.execute("SELECT seq, type, data FROM ai_events ORDER BY seq").fetchall()
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    return [(row["type"], row["data"].get("text")) for row in rows]


def test_output_of_each_attempt_is_told_apart_by_a_reset(db: Database, tenant: UUID, connection: Connection) -> None:
    first = running(db, connection, tenant)
    attempts.emit(connection, [Said(first.job_id, first.run_token, "a")])
    attempts.emit(connection, [Said(first.job_id, first.run_token, "b")])
    claims.settle(connection, first.job_id, first.run_token, Ending("failed", Retry(0.0, counted=True), None))
    (second,) = claim_some(connection)
    assert attempts.emit(connection, [Said(first.job_id, first.run_token, "stale")]) == frozenset()
    attempts.emit(connection, [Said(second.job_id, second.run_token, "c")])
    attempts.emit(connection, [Said(second.job_id, second.run_token, "d")])
    claims.accept(connection, [Result(second.job_id, second.run_token, "{}")])
    assert attempts.emit(connection, [Said(second.job_id, second.run_token, "after")]) == frozenset()
    assert events(connection) == [
        ("job.queued", None),
        ("job.started", None),
        ("job.output.delta", "a"),
        ("job.output.delta", "b"),
        ("job.attempt_ended", None),
        ("job.retry_scheduled", None),
        ("job.started", None),
        ("job.output.reset", None),
        ("job.output.delta", "c"),
        ("job.output.delta", "d"),
        ("job.attempt_ended", None),
        ("job.succeeded", None),
    ]


def test_progress_is_shown_and_raises_the_version(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    before = jobs.get(db, tenant, claim.job_id)
    assert attempts.progress(connection, [Said(claim.job_id, claim.run_token, '{"done": 1}')]) == {claim.job_id}
    after = jobs.get(db, tenant, claim.job_id)
    assert before is not None and after is not None
    assert after.progress == {"done": 1} and after.version == before.version + 1
    assert events(connection)[-1][0] == "job.progress"


def test_nothing_is_said_once_a_cancel_was_asked_for(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    jobs.request_cancel(db, tenant, claim.job_id)
    assert attempts.progress(connection, [Said(claim.job_id, claim.run_token, "1")]) == frozenset()
    assert attempts.emit(connection, [Said(claim.job_id, claim.run_token, "x")]) == frozenset()
