"""The claim reads an index range and nothing else, whatever stands in the table."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from aijobs.store.db import Connection, Database
from aijobs.store.queries import query
from tests.store.make import queued

FILL = """
INSERT INTO ai_jobs (id, tenant_id, idempotency_key, request_hash, kind, queue, priority, status, payload, run_at,
    order_at, finished_at, result, max_attempts, on_unknown, max_unknown_retries)
SELECT gen_random_uuid(), tenant_id, 'fill-' || %(status)s || n, request_hash, kind, queue, 0, %(status)s, payload,
    now() + %(delay)s * interval '1 second', CASE WHEN %(status)s = 'queued' AND %(delay)s = 0 THEN now() END,
    CASE WHEN %(status)s = 'succeeded' THEN now() END, NULL, 3, 'retry', 1
FROM ai_jobs, generate_series(1, %(count)s) n WHERE idempotency_key = 'seed'
"""


def scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in scans(child))]


def test_the_claim_reads_only_what_it_takes(db: Database, tenant: UUID, connection: Connection) -> None:
    queued(db, tenant, idempotency_key="seed")
    for status, delay, count in (("queued", 0, 3000), ("queued", 3600, 3001), ("succeeded", 0, 5000)):
        fill = FILL.replace("'fill-'", f"'fill-{delay}-'")
        connection.execute(fill, {"status": status, "delay": delay, "count": count})
    connection.execute("VACUUM ANALYZE ai_jobs")
    parameters = {
        "worker_id": "w",
        "lease_seconds": 60.0,
        "queues": None,
        "kinds": ["noop"],
        "slots": 8,
        "providers": ["sim"],
        "key_fingerprints": ["none"],
        "only_provider": None,
    }
    with connection.transaction(force_rollback=True):
        row = connection.execute(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {query('claims/claim').text}".encode(), parameters
        ).fetchone()
    assert row is not None
    plan = row["QUERY PLAN"]
    plan = json.loads(plan) if isinstance(plan, str) else plan
    reads = [node for node in scans(plan[0]["Plan"]) if node.get("Relation Name") == "ai_jobs"]
    assert reads
    for node in reads:
        assert node["Node Type"] in ("Index Scan", "Index Only Scan", "ModifyTable"), node["Node Type"]
        if "Actual Rows" in node and node["Node Type"] != "ModifyTable":
            assert node["Actual Rows"] * node["Actual Loops"] <= 16, node
            assert node.get("Rows Removed by Filter", 0) == 0, node
