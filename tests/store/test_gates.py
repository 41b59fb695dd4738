"""A provider that refuses our key, or everything, is left alone by all workers, and tried now and then with one job."""

from __future__ import annotations

from uuid import UUID

import pytest

from aijobs.store import claims, gates
from aijobs.store.db import Connection, Database
from aijobs.store.gates import OVERLOAD_REFUSALS, Refusal
from tests.store.make import queued

ACCOUNT = Refusal("sim", "key1", account=True, code="provider_key_rejected")
OVERLOAD = Refusal("sim", "key1", account=False, code="provider_overloaded")
GIVEN = {"worker_id": "w1", "lease_seconds": 60.0, "queues": None, "kinds": ["noop"]}


def claim(connection: Connection, key: str = "key1", slots: int = 8) -> claims.ClaimRound:
    return claims.claim(connection, **GIVEN, slots=slots, keys={"sim": key})  # type: ignore[arg-type]


def probe(connection: Connection) -> list[UUID]:
    found = claims.claim_probe(connection, provider="sim", keys={"sim": "key1"}, **GIVEN)
    return [one.job_id for one in found]


def make_due(connection: Connection) -> None:
    connection.execute("UPDATE ai_gates SET probe_at = now() - interval '1 second'")


def test_a_refused_key_shuts_the_gate_at_once_and_its_jobs_stay_in_line(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    queued(db, tenant)
    other = queued(db, tenant, provider="other")
    none = queued(db, tenant, provider=None)
    assert gates.refuse(connection, ACCOUNT) is True
    assert gates.refuse(connection, ACCOUNT) is False
    found = claim(connection)
    assert {one.job_id for one in found.claims} == {other.id, none.id}
    assert found.troubled == {"sim"} and found.probe_due is None


def test_another_key_of_the_same_provider_has_a_gate_of_its_own(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    queued(db, tenant)
    gates.refuse(connection, ACCOUNT)
    assert len(claim(connection, key="key2").claims) == 1


def test_one_job_at_a_time_tries_a_shut_gate_ever_less_often(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    jobs_made = {queued(db, tenant).id for _ in range(3)}
    gates.refuse(connection, ACCOUNT)
    assert probe(connection) == []
    seconds = []
    for _ in range(6):
        make_due(connection)
        assert claim(connection).probe_due == "sim"
        (tried,) = probe(connection)
        assert tried in jobs_made
        assert probe(connection) == []  # until the next is due
        row = connection.execute(
            "SELECT round(extract(epoch FROM probe_at - now()))::integer AS seconds FROM ai_gates"
        ).fetchone()
        assert row is not None
        seconds.append(row["seconds"])
        connection.execute(
            "UPDATE ai_jobs SET status = 'queued', run_token = NULL, worker_id = NULL,"
            " lease_until = NULL, order_at = run_at WHERE status = 'running'"
        )
    assert seconds == pytest.approx([120, 240, 480, 900, 900, 900], abs=2)


def test_a_probe_that_finds_no_job_is_not_used_up(connection: Connection) -> None:
    gates.refuse(connection, ACCOUNT)
    make_due(connection)
    assert probe(connection) == []
    assert claim(connection).probe_due == "sim"


def test_work_done_opens_the_gate(db: Database, tenant: UUID, connection: Connection) -> None:
    queued(db, tenant)
    gates.refuse(connection, ACCOUNT)
    assert gates.taken(connection, provider="sim", key_fingerprint="key1") is True
    assert gates.taken(connection, provider="sim", key_fingerprint="key1") is False
    found = claim(connection)
    assert len(found.claims) == 1 and found.troubled == frozenset()
    gates.refuse(connection, ACCOUNT)
    row = connection.execute(
        "SELECT extract(epoch FROM probe_at - now())::float8 AS s, refusals FROM ai_gates"
    ).fetchone()
    assert row is not None and 58 < row["s"] <= 60, "a new shutting starts from the beginning"


def test_a_busy_moment_is_no_overload_but_many_refusals_in_a_row_are(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    for _ in range(OVERLOAD_REFUSALS - 1):
        assert gates.refuse(connection, OVERLOAD) is False
    assert claim(connection).troubled == {"sim"}
    gates.taken(connection, provider="sim", key_fingerprint="key1")
    for _ in range(OVERLOAD_REFUSALS - 1):
        assert gates.refuse(connection, OVERLOAD) is False
    queued(db, tenant)
    assert gates.refuse(connection, OVERLOAD) is True
    assert claim(connection).claims == []
    row = connection.execute("SELECT extract(epoch FROM probe_at - now())::float8 AS s FROM ai_gates").fetchone()
    assert row is not None and row["s"] <= gates.OVERLOAD_SECONDS


def test_a_stopped_account_is_not_taken_for_an_overload(connection: Connection) -> None:
    gates.refuse(connection, ACCOUNT)
    gates.refuse(connection, OVERLOAD)
    row = connection.execute("SELECT reason, state, probe_seconds FROM ai_gates").fetchone()
    assert row == {"reason": "account", "state": "shut", "probe_seconds": gates.ACCOUNT_SECONDS}


def test_a_person_sees_the_gates_and_opens_them(db: Database, tenant: UUID, connection: Connection) -> None:
    queued(db, tenant)
    gates.refuse(connection, ACCOUNT)
    (row,) = gates.list_all(db)
    assert (row["provider"], row["state"], row["code"], row["jobs_waiting"]) == ("sim", "shut", ACCOUNT.code, 1)
    assert gates.open_by_hand(db, "sim") == 1
    assert gates.open_by_hand(db, "sim") == 0
    (row,) = gates.list_all(db)
    assert (row["state"], row["jobs_waiting"]) == ("open", None)
