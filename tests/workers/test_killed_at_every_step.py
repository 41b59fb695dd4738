"""A worker killed with -9 right after each step of a job: what the database then knows, and what was paid for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from aijobs.domain.jobs import JobStatus
from tests.workers.fleet import ROOT, Fleet
from tests.workers.kill_after import STEPS


@dataclass(frozen=True)
class Crash:
    """`first` is the outcome of the attempt that died, `call` of its call (None: there is none to know of)."""

    step: str
    first: str
    call: str | None
    attempts: int
    counted: int
    paid: int


CRASHES = [
    Crash("claim", first="failed", call=None, attempts=2, counted=1, paid=1),
    Crash("connect", first="failed", call=None, attempts=2, counted=1, paid=1),
    Crash("intend", first="unknown", call="unknown", attempts=2, counted=2, paid=1),
    Crash("send", first="unknown", call="unknown", attempts=2, counted=2, paid=2),
    Crash("answer", first="unknown", call="unknown", attempts=2, counted=2, paid=2),
    Crash("record", first="failed", call="succeeded", attempts=2, counted=1, paid=1),
    Crash("accept", first="succeeded", call="succeeded", attempts=1, counted=1, paid=1),
]


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.step)
def test_killed_after(fleet: Fleet, tmp_path: Path, crash: Crash) -> None:
    marker = tmp_path / "died"
    fleet.start(program=("-m", "tests.workers.kill_after", crash.step, str(marker)), AIJOBS_PROCESSES=2)
    job_id = fleet.submit("[[sim: marker=m text=kept first_byte_ms=200]]")
    job = fleet.wait(job_id)
    assert marker.exists(), "nothing was killed, so that this test has shown nothing"
    assert (job.status, job.result["text"]) == (JobStatus.SUCCEEDED, "kept")
    first, *_, last = [*fleet.attempts(job_id), *fleet.attempts(job_id)[-1:]]
    assert first["outcome"] == crash.first
    assert [call["outcome"] for call in first["calls"]] == ([] if crash.call is None else [crash.call])
    assert last["accepted"]
    (row,) = fleet.rows("SELECT attempts, attempts_counted AS counted FROM ai_jobs")
    assert row == {"attempts": crash.attempts, "counted": crash.counted}
    assert fleet.simulator.paid("m") == crash.paid


def test_every_step_has_its_crash() -> None:
    assert tuple(crash.step for crash in CRASHES) == STEPS


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.step)
def test_the_readme_says_of_each_step_what_was_seen(crash: Crash) -> None:
    table = (ROOT / "README.md").read_text().split("| killed after |")[1].split("\n\n")[0]
    (row,) = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith(f"| {crash.step}")]
    _, known, _, paid_twice = row
    assert paid_twice.startswith("yes") == (crash.paid == 2)
    assert ("unknown" in known) == (crash.first == "unknown")
