"""`make chaos-money`: jobs that end in every way there is, while workers are killed; then every cent is looked for.

Success, permanent failure, attempts used up, cancels at random moments, kill -9, late answers, operators' retries and
resolutions, with and without a budget, at fixed and at metered prices. Prints its seed. Exit status 1 if the audit
finds something, or money is left reserved.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg.conninfo import make_conninfo

from aijobs.domain.jobs import Terms
from aijobs.domain.price_tables import ListedPrice
from aijobs.embedded import EmbeddedPostgres
from aijobs.errors import Contention, InsufficientBudget
from aijobs.store import jobs, ledger, operators, prices
from aijobs.store.db import Database
from aijobs.store.migrate import migrate
from aijobs.store.operators import NoStoredResult, WrongStatus
from tests.chaos.trouble import FAST, Kills, Stops
from tests.workers.fleet import Fleet, audit, fleet_on

SCRIPTS = (
    "delta_ms={ms}",
    "delta_ms={ms}",
    "delta_ms={ms} usage=off",
    "status=400",
    "status=409",
    "close=headers",
    "cut_after=1 delta_ms={ms}",
    "finish=length",
)
TERMS = (
    Terms(tariff="fixed", price_micros=20, reserve_micros=50),
    Terms(tariff="fixed", price_micros=50, reserve_micros=50, on_cancel="charge_delivered"),
    Terms(tariff="metered", margin_percent=25, reserve_micros=400),
    Terms(tariff="metered", margin_percent=0, reserve_micros=400, on_cancel="charge_delivered"),
    Terms(tariff="fixed", price_micros=0, reserve_micros=0),
)


class Crowd:
    """Clients and operators who interfere at random."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet = fleet
        self.dice = random.Random(seed)
        self.db = Database(fleet.dsn, application_name="test crowd", max_size=4)
        self.jobs: dict[UUID, UUID] = {}
        self.done: Counter[str] = Counter()
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.interfere, args=(seed + n,)) for n in range(3)]

    def submit(self, number: int, tenants: list[UUID]) -> None:
        script = self.dice.choice(SCRIPTS).format(ms=self.dice.randint(0, 40))
        tenant = self.dice.choice(tenants)
        given: dict[str, Any] = {
            "payload_json": json.dumps({"prompt": f"[[sim: marker=j{number} text='one two' {script}]]"}),
            "terms": self.dice.choice(TERMS),
            "on_unknown": self.dice.choice(("retry", "hold", "fail")),
            "max_attempts": 2,
            "max_unknown_retries": 1,
        }
        try:
            self.fleet.tenant = tenant
            self.jobs[self.fleet.submit(**given)] = tenant
        except InsufficientBudget:
            self.done["refused for want of money"] += 1

    def interfere(self, seed: int) -> None:
        dice = random.Random(seed)
        while not self.over.is_set():
            if not self.jobs:
                time.sleep(0.05)
                continue
            job_id, tenant = dice.choice(list(self.jobs.items()))
            act = dice.choice(("cancel", "retry", "resolve"))
            with contextlib.suppress(WrongStatus, NoStoredResult, InsufficientBudget, Contention):
                if act == "cancel":
                    jobs.request_cancel(self.db, tenant, job_id)
                elif act == "retry":
                    operators.retry(self.db, tenant, job_id)
                else:
                    self.resolve(tenant, job_id, dice.choice(("retry", "fail", "cancel", "accept")))
                self.done[act] += 1
            time.sleep(0.005)

    def resolve(self, tenant: UUID, job_id: UUID, action: str) -> None:
        operators.resolve(self.db, tenant, job_id, action, lambda kind, stored: json.dumps(stored.result))


def run(jobs_wanted: int, seed: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="aijobs-chaos-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        pgbin = os.environ.get("PGBIN")
        with EmbeddedPostgres(folder / "data", pgbin=Path(pgbin) if pgbin else None) as server:
            dsn = make_conninfo(server.dsn)
            migrate(dsn)
            with fleet_on(dsn, folder) as fleet:
                return _run_on(fleet, server, jobs_wanted, seed)


def _run_on(fleet: Fleet, server: EmbeddedPostgres, jobs_wanted: int, seed: int) -> list[str]:
    from aijobs.store import tenants as store

    price = ListedPrice(provider="sim", model="simulated", input_micros=2_000_000, output_micros=8_000_000)
    prices.set_prices(fleet.db, [price])
    rich, poor, free = (store.create_tenant(fleet.db, name) for name in ("rich", "poor", "free"))
    ledger.grant(fleet.db, rich, 100_000_000)
    ledger.grant(fleet.db, poor, 100_000)
    supervisor = fleet.start(**FAST)
    # Kills make deaths, and supervisors that stand still beyond their leases make late answers.
    troubles = [
        Kills(fleet, supervisor, server, random.Random(seed)),
        Stops(fleet, supervisor, server, random.Random(seed)),
    ]
    crowd = Crowd(fleet, seed)
    for thread in crowd.threads:
        thread.start()
    killing = threading.Event()
    strikers = [threading.Thread(target=_strike_until, args=(killing, trouble)) for trouble in troubles]
    for striker in strikers:
        striker.start()
    started = time.monotonic()
    asked = 0
    while len(crowd.jobs) < jobs_wanted:
        asked += 1
        crowd.submit(asked, [rich, poor, free])
        if asked % 1000 == 0:
            print(f"  {time.monotonic() - started:4.0f} s, {len(crowd.jobs)} jobs made", flush=True)
    crowd.over.set()
    for thread in crowd.threads:
        thread.join()
    _end_all(fleet, crowd)
    killing.set()
    for striker in strikers:
        striker.join()
    left = _end_all(fleet, crowd)
    for trouble in troubles:
        trouble.end()
    fleet.stop(supervisor, seconds=60)
    statuses = fleet.rows("SELECT status, count(*) AS n FROM ai_jobs GROUP BY 1 ORDER BY 1")
    ended = ", ".join(f"{row['n']} {row['status']}" for row in statuses)
    print(f"  {ended}; {dict(crowd.done)}; {', '.join(trouble.told() for trouble in troubles)}")
    crowd.db.close()
    broken = [f"{left} jobs did not end"] if left else []
    for row in fleet.rows(
        "SELECT name, granted_micros, reserved_micros, charged_micros FROM ai_tenants WHERE budgeted"
    ):
        print(f"  {row['name']}: granted {row['granted_micros']}, charged {row['charged_micros']}")
        if row["reserved_micros"]:
            broken.append(f"{row['reserved_micros']} are still reserved for {row['name']}")
    audit(fleet)
    return broken


def _strike_until(over: threading.Event, trouble: Kills) -> None:
    while not over.is_set():
        trouble.strike()


def _end_all(fleet: Fleet, crowd: Crowd, seconds: float = 600.0) -> int:
    """Wait for the jobs, resolving those that are held; how many have not ended."""
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        for row in fleet.rows("SELECT id, tenant_id FROM ai_jobs WHERE status = 'held'"):
            with contextlib.suppress(WrongStatus, NoStoredResult):
                crowd.resolve(row["tenant_id"], row["id"], crowd.dice.choice(("accept", "fail", "cancel")))
        (row,) = fleet.rows("SELECT count(*) AS n FROM ai_jobs WHERE finished_at IS NULL")
        if row["n"] == 0:
            return 0
        time.sleep(0.5)
    return int(row["n"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="make chaos-money", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}, {given.jobs} jobs", flush=True)
    broken = run(given.jobs, given.seed)
    for promise in broken:
        print(f"NOT HELD: {promise}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
