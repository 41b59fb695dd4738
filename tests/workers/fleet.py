"""Real worker processes on a real database and a simulated provider, and the facts that must hold after every test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from aijobs.domain.jobs import Job, JobStatus
from aijobs.simulator import SimulatorProcess
from aijobs.store import audit as store_audit
from aijobs.store import jobs
from aijobs.store.db import Database, connect
from aijobs.store.notify import Notifier
from tests.store.make import new_job

ROOT = Path(__file__).parents[2]
# Small enough for a test, in the proportions of the defaults.
FAST = {
    "AIJOBS_LEASE_SECONDS": "3",
    "AIJOBS_HEARTBEAT_SECONDS": "0.75",
    "AIJOBS_POLL_SECONDS": "1",
    "AIJOBS_ATTEMPT_SECONDS": "10",
    "AIJOBS_DRAIN_SECONDS": "5",
    "AIJOBS_PROCESSES": "2",
    "AIJOBS_THREADS": "8",
    "AIJOBS_LOG": "text",
}
CONFIG = """
[providers.sim]
adapter = "openai-chat"
base_url = "{url}"
read_seconds = 30

[kinds.chat]
provider = "sim"
model = "simulated"
max_attempts = 10
backoff_seconds = 0.2
{policy}

[kinds.noop]
handler = "tests.workers.handlers:noop"
"""


class Fleet:
    """One database, one simulator, and however many supervisors a test starts."""

    def __init__(self, database_url: str, folder: Path, simulator: SimulatorProcess, policy: str) -> None:
        self.dsn = database_url
        self.simulator = simulator
        self.config = folder / "aijobs.toml"
        self.config.write_text(CONFIG.format(url=simulator.url, policy=policy))
        self.logs = folder / "workers.log"
        self.data_dir = folder / "data"
        self.db = Database(database_url, application_name="test", max_size=4)
        self._notifier = Notifier(database_url, application_name="test notifier")
        self._supervisors: list[subprocess.Popen[bytes]] = []
        self.tenant = self._make_tenant()

    def _make_tenant(self) -> UUID:
        from aijobs.store import tenants

        return tenants.create_tenant(self.db, "fleet")

    def start(
        self, *, program: Sequence[str] = ("-m", "aijobs", "work"), **settings: object
    ) -> subprocess.Popen[bytes]:
        """A supervisor with its workers, ready to claim."""
        process = self.start_without_waiting(program=program, **settings)
        wanted = int(str(settings.get("AIJOBS_PROCESSES", FAST["AIJOBS_PROCESSES"])))
        wait_for(lambda: self.listening(process) >= wanted, "workers that listen", dump=self.last_lines)
        return process

    def start_without_waiting(
        self, *, program: Sequence[str] = ("-m", "aijobs", "work"), **settings: object
    ) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **FAST,
            "AIJOBS_DATABASE_URL": self.dsn,
            "AIJOBS_CONFIG": str(self.config),
            "AIJOBS_DATA_DIR": str(self.data_dir),
            "PYTHONPATH": str(ROOT),
            **{name: str(value) for name, value in settings.items()},
        }
        with self.logs.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *program], env=environment, cwd=ROOT, stderr=log, start_new_session=True
            )
        self._supervisors.append(process)
        return process

    def listening(self, supervisor: subprocess.Popen[bytes]) -> int:
        """How many of the supervisor's children have their claim connection."""
        pids = children(supervisor.pid)
        rows = self.rows(
            "SELECT application_name AS name FROM pg_stat_activity WHERE application_name LIKE 'aijobs claim %'"
        )
        return sum(any(f"-{pid}-" in row["name"] for row in rows) for pid in pids)

    def stop(self, supervisor: subprocess.Popen[bytes], seconds: float = 20.0) -> int:
        """SIGTERM, and the exit status."""
        supervisor.terminate()
        return supervisor.wait(seconds)

    def submit(self, prompt: str = "hello", kind: str = "chat", **given: Any) -> UUID:
        """Create a job as the API does: commit, then hint."""
        payload = given.pop("payload_json", json.dumps({"prompt": prompt}))
        fresh: dict[str, Any] = {"kind": kind, "payload_json": payload, "model": "simulated", "max_attempts": 10}
        job = jobs.create(self.db, new_job(self.tenant, **(fresh | given))).job
        self._notifier.notify(job.queue)
        return job.id

    def job(self, job_id: UUID) -> Job:
        job = jobs.get(self.db, self.tenant, job_id)
        assert job is not None
        return job

    def attempts(self, job_id: UUID) -> list[dict[str, Any]]:
        found = jobs.attempts(self.db, self.tenant, job_id)
        assert found is not None
        return found

    def wait(self, job_id: UUID, *statuses: JobStatus, seconds: float = 30.0) -> Job:
        """The job when it has one of the statuses; by default, any terminal one."""
        wanted = statuses or (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)
        wait_for(lambda: self.job(job_id).status in wanted, f"job {job_id} in {wanted}", seconds, self.last_lines)
        return self.job(job_id)

    def wait_until_sent(self, job_id: UUID, attempt: int = 1) -> None:
        wait_for(
            lambda: any(row["number"] == attempt and row["calls"] for row in self.attempts(job_id)),
            f"call of attempt {attempt}",
            dump=self.last_lines,
        )
        # Its row is there before its first byte is: what is stopped in between has cost nothing.
        named = f"{job_id}.{attempt}."
        wait_for(
            lambda: any((call["client_request_id"] or "").startswith(named) for call in self.simulator.calls()),
            "the request at the provider",
            dump=self.last_lines,
        )

    def owner(self, job_id: UUID) -> int:
        """The pid of the process that runs the job."""
        (row,) = self.rows("SELECT worker_id FROM ai_jobs WHERE id = %s", job_id)
        return int(row["worker_id"].split("-")[-2])

    def rows(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        with psycopg.connect(self.dsn, autocommit=True, row_factory=dict_row) as connection:
            cursor = connection.execute(query.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def last_lines(self) -> str:
        return self.logs.read_text()[-4000:] if self.logs.exists() else ""

    def close(self) -> None:
        for supervisor in self._supervisors:
            if supervisor.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(supervisor.pid, signal.SIGCONT)
                    os.killpg(supervisor.pid, signal.SIGKILL)
                supervisor.wait()
        # Children of a killed supervisor end by themselves, but a test must not leave them even so long.
        for supervisor in self._supervisors:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(supervisor.pid, signal.SIGKILL)
        self._notifier.close()
        self.db.close()


@contextmanager
def fleet_on(database_url: str, folder: Path, policy: str = "", **simulator_options: Any) -> Iterator[Fleet]:
    with SimulatorProcess(**simulator_options) as simulator:
        fleet = Fleet(database_url, folder, simulator, policy)
        try:
            yield fleet
        finally:
            fleet.close()


def audit(fleet: Fleet) -> None:
    """What must hold once everything is quiet, whatever happened before."""
    problems: list[str] = []
    with connect(fleet.dsn, application_name="test audit") as connection:
        for name, rows in store_audit.broken(connection):
            problems += [f"{name}: {row}" for row in rows]
    assert problems == []
    assert fleet.rows(_NOBODY_IS_IDLE) == []
    assert posts_without_a_call(fleet) == []


def posts_without_a_call(fleet: Fleet) -> list[str]:
    """Every complete POST at the provider has exactly one call row that reached `sent`."""
    posts = Counter(call["client_request_id"] for call in fleet.simulator.calls())
    rows = fleet.rows("SELECT job_id || '.' || attempt || '.' || step AS id FROM ai_calls WHERE sent_at IS NOT NULL")
    recorded = {row["id"] for row in rows}
    return [f"{request}: {count} posts" for request, count in posts.items() if count != 1 or request not in recorded]


_NOBODY_IS_IDLE = """
    SELECT pid, query FROM pg_stat_activity
    WHERE datname = current_database() AND state LIKE 'idle in transaction%'
      AND state_change < now() - interval '1 second'"""


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def wait_for(fact: Callable[[], bool], what: str, seconds: float = 30.0, dump: Callable[[], str] = lambda: "") -> float:
    """Wait until something is true; how long that took."""
    started = time.monotonic()
    while not fact():
        if time.monotonic() - started > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what}\n{dump()}")
        time.sleep(0.02)
    return time.monotonic() - started
