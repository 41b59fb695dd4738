"""What the benchmarks share: a database with production's durability, workers, and ways to look."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from aijobs.embedded import EmbeddedPostgres
from aijobs.store.migrate import migrate

ROOT = Path(__file__).parents[2]
CONFIG = """
[kinds.noop]
handler = "tests.benchmarks.handlers:noop"
price_micros = 20
reserve_micros = 50
[kinds.sleep]
handler = "tests.benchmarks.handlers:sleep"
"""
FILL = """
WITH made AS (
    INSERT INTO ai_jobs (id, tenant_id, idempotency_key, request_hash, kind, queue, priority, status, payload, run_at,
        order_at, max_attempts, on_unknown, max_unknown_retries)
    SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
            || '7' || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid,
        (SELECT id FROM ai_tenants LIMIT 1), %(key)s || n, decode('01' || repeat('00', 32), 'hex'), %(kind)s, 'default',
        0, 'queued', %(payload)s::jsonb, now(), now(), 3, 'retry', 1
    FROM generate_series(1, %(count)s) n
    RETURNING id, tenant_id
)
INSERT INTO ai_events (job_id, seq, tenant_id, type) SELECT id, 1, tenant_id, 'job.queued' FROM made
"""


class Rig:
    """One PostgreSQL with its defaults (fsync on), and a fresh database for each figure."""

    def __init__(self, server: EmbeddedPostgres, config: Path) -> None:
        self._server = server
        self.config = config
        self._made = 0

    def fresh_database(self) -> str:
        self._made += 1
        name = f"bench_{self._made}"
        with psycopg.connect(self._server.dsn, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}")
        dsn = make_conninfo(self._server.dsn, dbname=name)
        migrate(dsn)
        with psycopg.connect(dsn, autocommit=True) as made:
            made.execute("INSERT INTO ai_tenants (id, name) VALUES (gen_random_uuid(), 'bench')")
        return dsn

    def environment(self, dsn: str, **settings: object) -> dict[str, str]:
        fixed = {"AIJOBS_DATABASE_URL": dsn, "AIJOBS_CONFIG": str(self.config), "PYTHONPATH": str(ROOT)}
        return {**os.environ, **fixed, **{name: str(value) for name, value in settings.items()}}

    @contextmanager
    def workers(self, dsn: str, **settings: object) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "aijobs", "work"],
            env=self.environment(dsn, **settings),
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: len(children(process.pid)) >= int(str(settings.get("AIJOBS_PROCESSES", 2))), "workers")
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@contextmanager
def rig() -> Iterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="aijobs-bench-") as folder:
        Path(folder).chmod(0o711)
        config = Path(folder) / "config.toml"
        config.write_text(CONFIG)
        pgbin = os.environ.get("PGBIN")
        with EmbeddedPostgres(Path(folder) / "data", pgbin=Path(pgbin) if pgbin else None) as server:
            yield Rig(server, config)


def fill(dsn: str, kind: str, count: int, payload: str = "{}") -> None:
    """Queue many jobs at once, as creates would have."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(FILL, {"key": f"{kind}-{time.time()}-", "kind": kind, "count": count, "payload": payload})
        connection.execute("VACUUM ANALYZE ai_jobs")


def count(dsn: str, status: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM ai_jobs WHERE status = %s", [status]).fetchone()
        return int(row[0]) if row else 0


def one(dsn: str, query: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


def wait_for(fact: Callable[[], bool], what: str, seconds: float = 120.0, pause: float = 0.01) -> float:
    """Wait until something is true; how long that took."""
    started = time.perf_counter()
    while not fact():
        if time.perf_counter() - started > seconds:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(pause)
    return time.perf_counter() - started


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def pss_kib(pids: list[int]) -> int:
    """Memory of processes, shared pages divided among their users."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total
