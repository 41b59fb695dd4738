"""A worker killed with -9 right after each step of a job, at each sort of provider: what was seen, for the README.

`python -m tests.workers.crash_table` (make crash-table) sees anew and writes the table into the README; the test sees
anew as well, and compares.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo

from aijobs.domain.jobs import JobStatus
from aijobs.embedded import EmbeddedPostgres
from aijobs.store.migrate import migrate
from tests.workers.fleet import ROOT, Fleet, audit, fleet_on
from tests.workers.kill_after import STEPS

CONFIG = """
[providers.background]
adapter = "openai-responses"
base_url = "{url}"

[providers.once]
adapter = "http"
base_url = "{url}/plain"
result_path = "output"
dedupe_header = "Idempotency-Key"

[kinds.background]
uses = "chat"
provider = "background"
model = "simulated"
backoff_seconds = 0.2

[kinds.once]
uses = "http"
provider = "once"
on_unknown = "retry"
backoff_seconds = 0.2
"""
# The kind of each sort of provider, and how the table's head calls it.
SORTS = {
    "chat": "a provider that cannot be asked",
    "background": "one that is asked by its id",
    "once": "one that does a request once per key",
}
NAMES = {
    "claim": "claim",
    "connect": "connect",
    "intend": "intend",
    "send": "send",
    "name": "the provider's id is stored",
    "answer": "answer, not yet recorded",
    "record": "record the call",
    "accept": "accept",
}
BEGIN, END = "<!-- written by make crash-table -->\n", "<!-- end of what is written -->"
Key = tuple[str, str]  # step, sort


def applies(step: str, sort: str) -> bool:
    return step != "name" or sort == "background"


@dataclass(frozen=True)
class Seen:
    """What was there at the end. `call` is the outcome of the dead attempt's call, None if it made none."""

    first: str
    call: str | None
    named: bool
    late: bool
    attempts: int
    sent_again: bool
    paid: int

    @property
    def known(self) -> str:
        """What the database knew when the worker was dead."""
        if self.first == "succeeded":
            return "succeeded"
        if self.call is None:
            return "nothing was sent"
        if self.call == "succeeded" and not self.late:
            return "the answer is stored"
        return "sent, and the provider's id of it" if self.named else "sent, outcome unknown"

    @property
    def told(self) -> str:
        """What happened then, and what was paid for."""
        paid = {1: "paid once", 2: "**paid twice**"}[self.paid]
        if self.attempts == 1:
            return f"nothing is left to do, {paid}"
        if self.call is None:
            return f"claimed again, no attempt counted, {paid}"
        if self.sent_again:
            return f"sent again, {paid}"
        return f"{'the answer is fetched' if self.late else 'the stored answer is used'}, {paid}"


def see(fleet: Fleet, step: str, sort: str, marker: Path) -> Seen:
    """Kill the first worker of a fleet after a step of a job, and look at what became of it."""
    fleet.config.write_text(fleet.config.read_text() + CONFIG.format(url=fleet.simulator.url))
    fleet.start(program=("-m", "tests.workers.kill_after", step, str(marker)), AIJOBS_PROCESSES=2)
    provider = "sim" if sort == "chat" else sort
    job_id = fleet.submit("[[sim: marker=m text=kept first_byte_ms=300]]", kind=sort, provider=provider)
    job = fleet.wait(job_id)
    assert marker.exists(), "nothing was killed, so that nothing is shown"
    assert job.status is JobStatus.SUCCEEDED and "kept" in str(job.result)
    attempts = fleet.attempts(job_id)
    assert attempts[-1]["accepted"]
    (row,) = fleet.rows("SELECT attempts_counted AS counted FROM ai_jobs")
    first = attempts[0]
    call: Mapping[str, Any] = first["calls"][0] if first["calls"] else {}
    assert row["counted"] == len(attempts) - (first["outcome"] == "failed"), "only what may have been paid for counts"
    audit(fleet)
    return Seen(
        first=first["outcome"],
        call=call.get("outcome"),
        named=sort == "background" and call.get("provider_operation_id") is not None,
        late=bool(call.get("late")),
        attempts=len(attempts),
        sent_again=len(attempts) > 1 and bool(attempts[-1]["calls"]),
        paid=fleet.simulator.paid("m"),
    )


def row_of(step: str, seen: Mapping[str, Seen]) -> str:
    """The table's row for a step, from what was seen at each sort of provider."""
    known = next(iter(seen.values())).known
    cells = [seen[sort].told if sort in seen else "" for sort in SORTS]
    return f"| {NAMES[step]} | {known} | {' | '.join(cells)} |"


def main() -> None:
    rows = [
        f"| killed after | what the database knows | {' | '.join(SORTS.values())} |",
        f"|---|---|{'---|' * len(SORTS)}",
    ]
    for step in STEPS:
        seen = {sort: _see_alone(step, sort) for sort in SORTS if applies(step, sort)}
        rows.append(row_of(step, seen))
        print(rows[-1], flush=True)
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    readme.write_text(before + BEGIN + "\n".join(rows) + "\n" + END + rest.split(END)[1], encoding="utf-8")


def _see_alone(step: str, sort: str) -> Seen:
    with tempfile.TemporaryDirectory(prefix="aijobs-crash-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        pgbin = os.environ.get("PGBIN")
        with EmbeddedPostgres(folder / "data", pgbin=Path(pgbin) if pgbin else None) as server:
            dsn = make_conninfo(server.dsn)
            migrate(dsn)
            with fleet_on(dsn, folder) as fleet:
                return see(fleet, step, sort, folder / "died")


if __name__ == "__main__":
    main()
