"""`make chaos`: many jobs while a worker process is killed every second; then every promise is checked.

Prints its seed. Exit status 1 if a promise did not hold.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo

from aijobs.embedded import EmbeddedPostgres
from aijobs.store.migrate import migrate
from tests.workers.fleet import Fleet, audit, children, fleet_on


def campaign(
    fleet: Fleet, *, jobs: int, longest_ms: int, kill_seconds: float, seed: int, give_up_seconds: float
) -> dict[str, Any]:
    """Run the jobs under fire; what became of them."""
    dice = random.Random(seed)
    supervisor = fleet.start(AIJOBS_PROCESSES=3, AIJOBS_THREADS=10, AIJOBS_LEASE_SECONDS=10, AIJOBS_HEARTBEAT_SECONDS=2)
    ids = [
        fleet.submit(
            f"[[sim: marker=j{number} first_byte_ms={dice.randint(20, longest_ms)} delta_ms=5]]", max_unknown_retries=10
        )
        for number in range(jobs)
    ]
    kills = 0
    started = time.monotonic()
    while (left := _unfinished(fleet)) and time.monotonic() - started < give_up_seconds:
        time.sleep(kill_seconds)
        victims = children(supervisor.pid)
        if victims:
            try:
                os.kill(dice.choice(victims), signal.SIGKILL)
                kills += 1
            except ProcessLookupError:
                continue  # it was a release in progress, and has ended
    fleet.stop(supervisor)
    statuses = Counter(fleet.job(job_id).status.value for job_id in ids)
    posts = len(fleet.simulator.calls())
    return {"jobs": jobs, "kills": kills, "left": left, "statuses": dict(statuses), "posts": posts, "seed": seed}


def _unfinished(fleet: Fleet) -> int:
    (row,) = fleet.rows("SELECT count(*) AS n FROM ai_jobs WHERE status IN ('queued', 'running')")
    return int(row["n"])


def judge(result: dict[str, Any]) -> list[str]:
    """The promises that did not hold."""
    statuses = result["statuses"]
    succeeded = statuses.get("succeeded", 0)
    broken = []
    if result["left"]:
        broken.append(f"{result['left']} jobs did not end")
    if succeeded < 0.99 * result["jobs"]:
        broken.append(f"only {succeeded} of {result['jobs']} succeeded")
    if succeeded + statuses.get("failed", 0) != result["jobs"]:
        broken.append(f"some jobs neither succeeded nor failed: {statuses}")
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    # A job must have a fair chance of outliving its worker: with one of three killed each second, a call of 1.5 s has
    # about an even one, and ten attempts leave a job in a thousand.
    longest_ms = 1500
    with tempfile.TemporaryDirectory(prefix="aijobs-chaos-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        pgbin = os.environ.get("PGBIN")
        with EmbeddedPostgres(folder / "data", pgbin=Path(pgbin) if pgbin else None) as server:
            dsn = make_conninfo(server.dsn)
            migrate(dsn)
            with fleet_on(dsn, folder) as fleet:
                result = campaign(
                    fleet,
                    jobs=given.jobs,
                    longest_ms=longest_ms,
                    kill_seconds=1.0,
                    seed=given.seed,
                    give_up_seconds=600,
                )
                print(result)
                broken = judge(result)
                audit(fleet)
    for promise in broken:
        print(f"NOT HELD: {promise}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
