"""Prices, budgets, usage, stats and the audit on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from aijobs.cli.usage import chart_lines
from aijobs.domain.jobs import Terms
from aijobs.store import claims, jobs
from aijobs.store.claims import Result
from aijobs.store.db import Connection, Database
from tests.cli.test_commands import aijobs
from tests.store.make import claim_some, new_job

OWN = """
[[prices]]
provider = "sim"
model = "m"
input = "0.15"
output = "0.60"
"""
TABLE = {
    "m-1": {"litellm_provider": "openai", "input_cost_per_token": 1.5e-07, "output_cost_per_token": 6e-07},
    "m-2": {"litellm_provider": "other", "input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06},
}


def test_prices_are_imported_from_both_forms_and_listed(database_url: str, tmp_path: Path) -> None:
    own, table = tmp_path / "own.toml", tmp_path / "model_prices_and_context_window.json"
    own.write_text(OWN)
    table.write_text(json.dumps(TABLE))
    dry = aijobs("prices", "import", str(own), "--dry-run", AIJOBS_DATABASE_URL=database_url)
    assert (dry.returncode, dry.stdout.splitlines()[-1]) == (0, "1 prices would be imported")
    assert aijobs("prices", "import", str(own), AIJOBS_DATABASE_URL=database_url).returncode == 0
    done = aijobs(
        "prices", "import", str(table), "--provider", "main", "--source", "openai", "--json",
        AIJOBS_DATABASE_URL=database_url,
    )  # fmt: skip
    assert json.loads(done.stdout) == {"imported": 1, "left": []}
    listed = json.loads(aijobs("prices", "list", "--json", AIJOBS_DATABASE_URL=database_url).stdout)
    assert [(row["provider"], row["model"], row["input_micros"], row["in_force"]) for row in listed] == [
        ("main", "m-1", 150_000, True),
        ("sim", "m", 150_000, True),
    ]


@pytest.mark.parametrize(
    ("name", "text", "options", "words"),
    [
        ("x.toml", "[[prices]]\nprovider = 'p'", [], "is missing"),
        ("x.toml", "not toml", [], "x.toml"),
        ("x.json", "{}", [], "needs --provider"),
        ("x.json", "{}", ["--provider", "p"], "no prices of 'p'"),
        ("x.json", "[]", ["--provider", "p"], "no JSON object"),
    ],
)
def test_a_table_that_cannot_be_read_is_told(
    database_url: str, tmp_path: Path, name: str, text: str, options: list[str], words: str
) -> None:
    (tmp_path / name).write_text(text)
    done = aijobs("prices", "import", str(tmp_path / name), *options, AIJOBS_DATABASE_URL=database_url)
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


def test_a_tenant_is_given_money_and_corrected(database_url: str) -> None:
    made = aijobs("tenants", "create", "acme", "--budget-micros", "100", "--json", AIJOBS_DATABASE_URL=database_url)
    tenant = json.loads(made.stdout)["tenant_id"]
    done = aijobs("tenants", "grant", tenant, "50", AIJOBS_DATABASE_URL=database_url)
    assert done.stdout == "granted 150, reserved 0, charged 0, available 150\n"
    done = aijobs("tenants", "adjust", "--reason", "a mistake", tenant, "--", "-60", AIJOBS_DATABASE_URL=database_url)
    assert done.stdout == "granted 90, reserved 0, charged 0, available 90\n"
    done = aijobs("tenants", "adjust", "--reason", "more", tenant, "--", "-91", AIJOBS_DATABASE_URL=database_url)
    assert done.returncode == 1 and "reserved or charged" in done.stderr
    (row,) = json.loads(aijobs("tenants", "list", "--json", AIJOBS_DATABASE_URL=database_url).stdout)
    assert (row["budgeted"], row["granted_micros"]) == (True, 90)


def test_usage_stats_and_audit(database_url: str, db: Database, connection: Connection, tenant: UUID) -> None:
    terms = Terms(tariff="fixed", price_micros=20, reserve_micros=50)
    for _ in range(2):
        jobs.create(db, new_job(tenant, terms=terms))
    (claim,) = claim_some(connection)
    claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])
    (row,) = json.loads(aijobs("usage", "--group-by", "kind", "--json", AIJOBS_DATABASE_URL=database_url).stdout)
    assert (row["group"], row["jobs"], row["accepted"], row["charged_micros"]) == ("noop", 2, 1, 20)
    as_csv = aijobs("usage", "--tenant", str(tenant), "--csv", AIJOBS_DATABASE_URL=database_url).stdout.splitlines()
    assert as_csv[0].startswith("group,jobs,accepted") and len(as_csv) == 2
    told = json.loads(aijobs("stats", "--json", AIJOBS_DATABASE_URL=database_url).stdout)
    assert told["queues"][0]["queued"] == 1 and told["total"]["accepted"] == 1
    for command in (["usage"], ["usage", "--chart"], ["stats"], ["audit"]):
        done = aijobs(*command, AIJOBS_DATABASE_URL=database_url)
        assert done.returncode == 0 and done.stdout, command
    connection.execute("DELETE FROM ai_events WHERE seq = 1 AND job_id = %s", [claim.job_id])
    done = aijobs("audit", "--json", AIJOBS_DATABASE_URL=database_url)
    assert done.returncode == 1
    assert [row["job_id"] for row in json.loads(done.stdout)["broken"]["events_are_gapless"]] == [str(claim.job_id)]


def test_the_chart_compares_by_the_cost_of_an_accepted_job() -> None:
    def row(group: str, cost: int | None, accepted: int) -> dict[str, object]:
        return {"group": group, "cost_per_accepted_micros": cost, "accepted": accepted, "first_try_share": 0.5}

    lines = chart_lines([row("dear", 400, 3), row("cheap", 100, 9), row("none", None, 0)])
    assert [line.split()[0] for line in lines[1:]] == ["cheap", "dear"]
    assert lines[2].count("#") == 4 * lines[1].count("#")
    assert chart_lines([row("none", None, 0)]) == ["no accepted jobs"]
