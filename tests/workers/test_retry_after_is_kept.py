"""What a provider asks for with Retry-After is kept, whatever its form; nonsense is not, and no job waits in a slot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from uuid import UUID

from aijobs.domain.jobs import JobStatus
from tests.workers.fleet import Fleet, audit, wait_for

NONSENSE = ("0", "-5", "abc", "NaN", "", "-3", "Thu, 01 Jan 1970 00:00:00 GMT")
HUGE = ("999999999", "99999999999999999999", "Fri, 01 Jan 9999 00:00:00 GMT")


def waited(fleet: Fleet, job_id: UUID) -> float:
    first, second = fleet.attempts(job_id)
    ended, began = (datetime.fromisoformat(row) for row in (first["finished_at"], second["started_at"]))
    return (began - ended).total_seconds()


def test_each_form_is_kept_bounded_or_left_aside(fleet: Fleet) -> None:
    def submit(number: int, header: str, name: str = "retry_after") -> UUID:
        return fleet.submit(f"[[sim: marker=j{number} status=429 times=1 {name}='{header}']]", max_attempts=1)

    in_three = format_datetime(datetime.now(UTC) + timedelta(seconds=3), usegmt=True)
    kept = {
        submit(n, header): seconds for n, (header, seconds) in enumerate({"2": 2.0, " 2 ": 2.0, "1.5": 1.5}.items())
    }
    kept[submit(10, "1500", "retry_after_ms")] = 1.5
    by_date = submit(11, in_three)
    own = [submit(20 + number, header) for number, header in enumerate(NONSENSE)]
    huge = [submit(40 + number, header) for number, header in enumerate(HUGE)]
    fleet.start(AIJOBS_PROCESSES=1, AIJOBS_THREADS=2)
    others = [fleet.submit("[[sim: marker=other]]") for _ in range(5)]
    assert {fleet.wait(job_id, seconds=15).status for job_id in others} == {JobStatus.SUCCEEDED}
    for job_id, seconds in kept.items():
        assert fleet.wait(job_id).status is JobStatus.SUCCEEDED
        assert seconds <= waited(fleet, job_id) < seconds + 3
    assert fleet.wait(by_date).status is JobStatus.SUCCEEDED
    for job_id in own:
        assert fleet.wait(job_id).status is JobStatus.SUCCEEDED
        assert 0.1 < waited(fleet, job_id) < 3, "the kind's own backoff, and never at once"
    wait_for(lambda: all(fleet.job(job_id).attempts == 1 for job_id in huge), "the refusals")
    for job_id in huge:
        (row,) = fleet.rows(
            "SELECT status, extract(epoch FROM run_at - now()) AS ahead, attempts_counted FROM ai_jobs WHERE id = %s",
            job_id,
        )
        assert row["status"] == "queued" and 800 < row["ahead"] <= 903 and row["attempts_counted"] == 0
    assert "Traceback" not in fleet.logs.read_text()
    audit(fleet)
