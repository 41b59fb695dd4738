"""`make chaos-pay`: what crashes cost. Many jobs at providers of every sort while their workers are killed, stopped,
cut off from the database or answered with faults; then each generation that was paid for is held against the calls.

*Surplus* is what was paid for beyond the first generation of a job's step. Prints its seed. Exit status 1 if a promise
did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg.conninfo import make_conninfo

from aijobs.domain.jobs import Terms
from aijobs.embedded import EmbeddedPostgres
from aijobs.store import ledger
from aijobs.store.migrate import migrate
from tests.chaos import trouble
from tests.workers.fleet import Fleet, audit, fleet_on

CONFIG = """
[providers.background]
adapter = "openai-responses"
base_url = "{url}"
read_seconds = 30

[providers.stored]
adapter = "openai-chat"
base_url = "{url}"
stored = true
read_seconds = 30

[providers.once]
adapter = "http"
base_url = "{url}/plain"
result_path = "output"
dedupe_header = "Idempotency-Key"
read_seconds = 30

[kinds.background]
uses = "chat"
provider = "background"
model = "simulated"
backoff_seconds = 0.2

[kinds.stored]
uses = "chat"
provider = "stored"
model = "simulated"
backoff_seconds = 0.2

[kinds.once]
uses = "http"
provider = "once"
on_unknown = "retry"
backoff_seconds = 0.2

[kinds.steps]
handler = "tests.workers.handlers:steps"
provider = "sim"
model = "simulated"
on_unknown = "retry"
backoff_seconds = 0.2
"""


@dataclass(frozen=True)
class Sort:
    """One sort of job. `surplus` says what may be paid for beyond the first generation of a step.

    Nothing; one for each call whose outcome is unknown; for each of those whose id was not stored; for each that the
    provider itself failed at after it had begun (which it says, or keeps nothing of), as happens among faults alone.
    """

    name: str
    kind: str
    on_unknown: str
    surplus: str  # none | unknown | unnamed | unsaid
    steps: int = 1


SORTS = (
    Sort("cannot be asked, retry", "chat", "retry", "unknown"),
    Sort("cannot be asked, three steps, retry", "steps", "retry", "unknown", steps=3),
    Sort("cannot be asked, hold", "chat", "hold", "none"),
    Sort("cannot be asked, fail", "chat", "fail", "none"),
    Sort("asked by its id", "background", "retry", "unnamed"),
    Sort("asked by our key", "stored", "retry", "unsaid"),
    Sort("done once for our key", "once", "retry", "none"),
)


def submit(fleet: Fleet, sort: Sort, name: str, dice: random.Random, longest_ms: int) -> UUID:
    """A job of a sort. Its calls carry the marker `name.step`."""
    scripts = [
        f"[[sim: marker={name}.{step} text=done first_byte_ms=20 delta_ms={milliseconds}]]"
        for step in range(1, sort.steps + 1)
        for milliseconds in [dice.randint(10, longest_ms // sort.steps)]
    ]
    payload: dict[str, Any] = {"prompts": scripts} if sort.kind == "steps" else {"prompt": scripts[0]}
    return fleet.submit(
        kind=sort.kind,
        payload_json=json.dumps(payload),
        provider={"chat": "sim", "steps": "sim"}.get(sort.kind, sort.kind),
        on_unknown=sort.on_unknown,
        max_unknown_retries=10,
        terms=Terms(tariff="fixed", price_micros=20, reserve_micros=50),
    )


def campaign(
    fleet: Fleet, *, jobs: int, seed: int, longest_ms: int, make_trouble: Callable[[], Any], give_up_seconds: float
) -> Any:
    """Run the jobs under fire; which job is of which sort."""
    dice = random.Random(seed)
    made: dict[UUID, tuple[str, Sort]] = {}
    for number in range(jobs):
        sort = SORTS[number % len(SORTS)]
        made[submit(fleet, sort, f"j{number}", dice, longest_ms)] = (f"j{number}", sort)
    started = said_at = time.monotonic()
    while (left := _unfinished(fleet)) and time.monotonic() - started < give_up_seconds:
        make_trouble()
        if time.monotonic() - said_at > 15:
            said_at = time.monotonic()
            print(f"  {time.monotonic() - started:4.0f} s, {left} jobs left", flush=True)
    return made


def _unfinished(fleet: Fleet) -> int:
    (row,) = fleet.rows("SELECT count(*) AS n FROM ai_jobs WHERE status IN ('queued', 'running')")
    return int(row["n"])


def judge(fleet: Fleet, made: dict[UUID, tuple[str, Sort]]) -> tuple[list[dict[str, Any]], list[str]]:
    """A row of figures for each sort, and the promises that did not hold."""
    paid = {marker: tally["generations"] for marker, tally in fleet.simulator.stats()["by_marker"].items()}
    statuses = {row["id"]: row["status"] for row in fleet.rows("SELECT id, status FROM ai_jobs")}
    may: dict[str, Counter[tuple[UUID, int]]] = {name: Counter() for name in ("none", "unknown", "unnamed", "unsaid")}
    for row in fleet.rows(
        "SELECT job_id, step, outcome = 'failed' AS failed, provider_operation_id IS NULL AS unnamed,"
        " asked_at IS NOT NULL AS unsaid"
        " FROM ai_calls WHERE outcome = 'unknown' OR late OR (outcome = 'failed' AND provider_operation_id IS NOT NULL)"
    ):
        step = int(row["step"][4:]) if row["step"].startswith("step") else 1
        # What the provider itself says that it failed at, after it had begun, is paid for by the simulator's count.
        of_the_provider = fleet.simulator.options.fault_rate > 0 and (row["failed"] or row["unsaid"])
        may["unknown"][row["job_id"], step] += 1
        may["unnamed"][row["job_id"], step] += row["unnamed"] or of_the_provider
        may["unsaid"][row["job_id"], step] += of_the_provider
    table, broken = [], []
    for sort in SORTS:
        ids = [job_id for job_id, (_, of) in made.items() if of is sort]
        surplus = allowed = 0
        for job_id in ids:
            for step in range(1, sort.steps + 1):
                over = max(0, paid.get(f"{made[job_id][0]}.{step}", 0) - 1)
                most = may[sort.surplus][job_id, step]
                surplus, allowed = surplus + over, allowed + most
                if over > most:
                    broken.append(
                        f"{sort.name}: job {job_id} step {step}: {over} paid for beyond the first, not {most}"
                    )
        ended = Counter(statuses[job_id] for job_id in ids)
        table.append({"sort": sort.name, "jobs": len(ids), "surplus": surplus, "at most": allowed, **ended})
        broken += _wrong_ends(sort, ended, len(ids))
    return table, broken


def _wrong_ends(sort: Sort, ended: Counter[str], jobs: int) -> list[str]:
    expected = {
        "retry": {"succeeded", "failed", "held"},
        "hold": {"succeeded", "held"},
        "fail": {"succeeded", "failed"},
    }
    broken = [f"{sort.name}: {n} {status}" for status, n in ended.items() if status not in expected[sort.on_unknown]]
    if sort.on_unknown == "retry" and ended["succeeded"] < 0.99 * jobs:
        broken.append(f"{sort.name}: only {ended['succeeded']} of {jobs} succeeded")
    return broken


def run(scenario: str, *, jobs: int, seed: int) -> list[str]:
    """One scenario on a database of its own; the promises that did not hold."""
    print(f"{scenario}: {jobs} jobs, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="aijobs-chaos-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        pgbin = os.environ.get("PGBIN")
        with EmbeddedPostgres(folder / "data", pgbin=Path(pgbin) if pgbin else None) as server:
            dsn = make_conninfo(server.dsn)
            migrate(dsn)
            options = {"fault_rate": 0.15, "seed": seed} if scenario == "faults" else {}
            with fleet_on(dsn, folder, **options) as fleet:
                fleet.config.write_text(fleet.config.read_text() + CONFIG.format(url=fleet.simulator.url))
                ledger.grant(fleet.db, fleet.tenant, 50 * jobs)
                supervisor = fleet.start(**trouble.FAST)
                troubled = trouble.SCENARIOS[scenario](fleet, supervisor, server, random.Random(seed))
                made = campaign(
                    fleet,
                    jobs=jobs,
                    seed=seed,
                    longest_ms=trouble.LONGEST_MS[scenario],
                    make_trouble=troubled.strike,
                    give_up_seconds=900,
                )
                troubled.end()
                left = _unfinished(fleet)
                broken = [] if not left else [f"{left} jobs did not end"]
                fleet.stop(supervisor, seconds=60)
                table, wrong = judge(fleet, made)
                for row in table:
                    print(
                        "  "
                        + ", ".join(f"{key} {value}" if key != "sort" else f"{value}:" for key, value in row.items())
                    )
                print(f"  {troubled.told()}", flush=True)
                audit(fleet)
    return [f"{scenario}: {promise}" for promise in broken + wrong]


def main() -> None:
    parser = argparse.ArgumentParser(prog="make chaos-pay", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000, help="of the scenario `kill`; the others run a third")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--scenario", choices=sorted(trouble.SCENARIOS), action="append")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    broken: list[str] = []
    for scenario in given.scenario or trouble.SCENARIOS:
        broken += run(scenario, jobs=given.jobs if scenario == "kill" else given.jobs // 3, seed=given.seed)
    for promise in broken:
        print(f"NOT HELD: {promise}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
