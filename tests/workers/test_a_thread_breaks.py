"""A process one of whose threads has broken ends at once, and its jobs are run by another."""

from __future__ import annotations

from pathlib import Path

import pytest

from aijobs.domain.jobs import JobStatus
from tests.workers.break_thread import OWNERS
from tests.workers.fleet import Fleet, wait_for


@pytest.mark.parametrize("thread", OWNERS)
def test_the_process_ends_and_the_job_does_not(fleet: Fleet, tmp_path: Path, thread: str) -> None:
    marker = tmp_path / "broken"
    supervisor = fleet.start(program=("-m", "tests.workers.break_thread", thread, str(marker)), AIJOBS_PROCESSES=2)
    job = fleet.wait(fleet.submit("[[sim: first_byte_ms=1600]]"))
    assert job.status is JobStatus.SUCCEEDED
    wait_for(marker.exists, "the break")
    wait_for(lambda: f"thread {thread} broke" in fleet.last_lines(), "the words", dump=fleet.last_lines)
    wait_for(lambda: fleet.listening(supervisor) == 2, "the replacement")
