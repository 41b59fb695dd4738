"""The two books: what a tenant is charged, and what the calls cost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from aijobs.domain.claims import Claim
from aijobs.domain.failures import Usage
from aijobs.domain.jobs import Job, Terms
from aijobs.domain.money import Price
from aijobs.domain.policy import Fail, Hold, Retry
from aijobs.domain.price_tables import ListedPrice
from aijobs.errors import InsufficientBudget, NoKnownPrice
from aijobs.store import audit, calls, claims, jobs, ledger, operators, prices, reaping, tenants, upkeep
from aijobs.store.calls import CallEnding, Intent
from aijobs.store.claims import Ending, Result
from aijobs.store.db import Connection, Database
from aijobs.store.ledger import Balance, NoBudget
from aijobs.store.operators import WrongStatus
from tests.store.make import ERROR, FINGERPRINT, claim_some, insert_answer, new_job

FIXED = Terms(tariff="fixed", price_micros=20, reserve_micros=50)
METERED = Terms(tariff="metered", margin_percent=50, reserve_micros=1000)


@pytest.fixture
def budgeted(db: Database) -> UUID:
    tenant_id = tenants.create_tenant(db, "budgeted")
    ledger.grant(db, tenant_id, 150)
    return tenant_id


def create(db: Database, tenant_id: UUID, terms: Terms = FIXED, **given: Any) -> Job:
    return jobs.create(db, new_job(tenant_id, terms=terms, **given)).job


def claimed(db: Database, connection: Connection, tenant_id: UUID, terms: Terms = FIXED, **given: Any) -> Claim:
    create(db, tenant_id, terms, **given)
    (claim,) = claim_some(connection)
    return claim


def balance(db: Database, tenant_id: UUID) -> Balance:
    found = ledger.balance(db, tenant_id)
    assert found is not None
    return found


def entries(connection: Connection, job_id: UUID) -> list[tuple[int, str, int]]:
    rows = connection.execute(
        "SELECT stay, entry, amount_micros FROM ai_ledger WHERE job_id = %s"
        " ORDER BY stay, created_at, entry <> 'reserve'",
        [job_id],
    ).fetchall()
    return [(row["stay"], row["entry"], row["amount_micros"]) for row in rows]


def assert_all_holds(connection: Connection) -> None:
    assert [(name, rows) for name, rows in audit.broken(connection) if rows] == []


def paid_call(connection: Connection, claim: Claim, micros: int, step: str = "s") -> None:
    calls.mark_sent(connection, [Intent(claim.job_id, claim.run_token, step, "sim", "m", FINGERPRINT)])
    ending = CallEnding(
        job_id=claim.job_id,
        run_token=claim.run_token,
        step=step,
        outcome="succeeded",
        cost_basis="reported",
        cost_micros=micros,
        usage=Usage(1, 1),
        result={"text": "x"},
    )
    calls.finish(connection, [ending])


def test_an_accepted_result_is_charged_and_the_rest_released(
    db: Database, connection: Connection, budgeted: UUID
) -> None:
    claim = claimed(db, connection, budgeted)
    assert balance(db, budgeted) == Balance(True, 150, 50, 0)
    claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])
    assert balance(db, budgeted) == Balance(True, 150, 0, 20)
    assert entries(connection, claim.job_id) == [(1, "reserve", 50), (1, "charge", 20), (1, "release", 30)]
    job = jobs.get(db, budgeted, claim.job_id)
    assert job is not None and (job.reserved_micros, job.charged_micros) == (50, 20)
    assert_all_holds(connection)


Act = Callable[[Database, Connection, Claim], object]
ENDS_WITHOUT_A_CHARGE: dict[str, Act] = {
    "failed": lambda db, c, claim: claims.settle(c, claim.job_id, claim.run_token, Ending("failed", Fail("x"), ERROR)),
    "cancelled while running": lambda db, c, claim: (
        jobs.request_cancel(db, claim.tenant_id, claim.job_id),
        claims.accept(c, [Result(claim.job_id, claim.run_token, "{}")]),
    ),
    "cancelled while waiting": lambda db, c, claim: (
        claims.settle(c, claim.job_id, claim.run_token, Ending("failed", Retry(60.0, counted=True), ERROR)),
        jobs.request_cancel(db, claim.tenant_id, claim.job_id),
    ),
    "expired": lambda db, c, claim: (
        claims.settle(c, claim.job_id, claim.run_token, Ending("failed", Retry(60.0, counted=True), ERROR)),
        c.execute("UPDATE ai_jobs SET expires_at = now() - interval '1 second'"),
        upkeep.expire(c),
    ),
    "its worker died": lambda db, c, claim: reaping.release_dead(
        c, worker_id="w1", end=lambda dead: Ending("unknown", Fail("outcome_unknown"), ERROR)
    ),
    "resolved as failed": lambda db, c, claim: (
        claims.settle(c, claim.job_id, claim.run_token, Ending("unknown", Hold("x"), ERROR)),
        operators.resolve(db, claim.tenant_id, claim.job_id, "fail"),
    ),
    "resolved as cancelled": lambda db, c, claim: (
        claims.settle(c, claim.job_id, claim.run_token, Ending("unknown", Hold("x"), ERROR)),
        operators.resolve(db, claim.tenant_id, claim.job_id, "cancel"),
    ),
}


@pytest.mark.parametrize("how", list(ENDS_WITHOUT_A_CHARGE))
def test_whatever_else_ends_it_releases_all(db: Database, connection: Connection, budgeted: UUID, how: str) -> None:
    claim = claimed(db, connection, budgeted)
    ENDS_WITHOUT_A_CHARGE[how](db, connection, claim)
    assert entries(connection, claim.job_id) == [(1, "reserve", 50), (1, "release", 50)]
    assert balance(db, budgeted) == Balance(True, 150, 0, 0)
    assert_all_holds(connection)


def test_what_goes_on_keeps_its_reservation(db: Database, connection: Connection, budgeted: UUID) -> None:
    claim = claimed(db, connection, budgeted)
    claims.settle(connection, claim.job_id, claim.run_token, Ending("failed", Retry(0.0, counted=True), ERROR))
    (again,) = claim_some(connection)
    claims.settle(connection, again.job_id, again.run_token, Ending("unknown", Hold("x"), ERROR))
    operators.resolve(db, budgeted, claim.job_id, "retry")
    assert entries(connection, claim.job_id) == [(1, "reserve", 50)]
    assert balance(db, budgeted) == Balance(True, 150, 50, 0)
    assert_all_holds(connection)


def test_a_result_that_a_person_accepts_is_charged(db: Database, connection: Connection, budgeted: UUID) -> None:
    claim = claimed(db, connection, budgeted)
    claims.settle(connection, claim.job_id, claim.run_token, Ending("unknown", Hold("x"), ERROR))
    insert_answer(connection, claim.job_id, offered=True, cost_micros=3)
    job = operators.resolve(db, budgeted, claim.job_id, "accept", lambda kind, stored: "{}")
    assert job is not None and job.charged_micros == 20
    assert balance(db, budgeted) == Balance(True, 150, 0, 20)
    assert_all_holds(connection)


def test_an_operators_retry_reserves_anew_and_only_if_it_fits(
    db: Database, connection: Connection, budgeted: UUID
) -> None:
    claim = claimed(db, connection, budgeted)
    claims.settle(connection, claim.job_id, claim.run_token, Ending("failed", Fail("x"), ERROR))
    others = [create(db, budgeted) for _ in range(3)]
    with pytest.raises(InsufficientBudget):
        operators.retry(db, budgeted, claim.job_id)
    jobs.request_cancel(db, budgeted, others[0].id)
    operators.retry(db, budgeted, claim.job_id)
    assert entries(connection, claim.job_id) == [(1, "reserve", 50), (1, "release", 50), (2, "reserve", 50)]
    assert balance(db, budgeted) == Balance(True, 150, 150, 0)
    with pytest.raises(WrongStatus):
        operators.retry(db, budgeted, claim.job_id)
    assert_all_holds(connection)


def test_fifty_at_once_into_a_budget_for_three_are_exactly_three(
    db: Database, connection: Connection, budgeted: UUID
) -> None:
    made: list[str] = []
    together = threading.Barrier(50)

    def post() -> None:
        together.wait()
        try:
            create(db, budgeted)
            made.append("made")
        except InsufficientBudget:
            made.append("refused")

    threads = [threading.Thread(target=post) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (made.count("made"), made.count("refused")) == (3, 47)
    assert connection.execute("SELECT count(*) AS n FROM ai_jobs").fetchone() == {"n": 3}
    assert balance(db, budgeted) == Balance(True, 150, 150, 0)
    assert_all_holds(connection)


def test_a_replay_costs_nothing_even_when_the_budget_is_used_up(db: Database, budgeted: UUID) -> None:
    first = jobs.create(db, new_job(budgeted, terms=FIXED, idempotency_key="k"))
    create(db, budgeted)
    create(db, budgeted)
    again = jobs.create(db, new_job(budgeted, terms=FIXED, idempotency_key="k"))
    assert again.outcome == "replayed" and again.job.id == first.job.id
    assert balance(db, budgeted) == Balance(True, 150, 150, 0)


def test_a_tenant_without_a_budget_has_no_balance_and_all_its_entries(
    db: Database, connection: Connection, tenant: UUID
) -> None:
    claim = claimed(db, connection, tenant)
    claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])
    assert entries(connection, claim.job_id) == [(1, "reserve", 50), (1, "charge", 20), (1, "release", 30)]
    assert balance(db, tenant) == Balance(False, 0, 0, 0)
    before = connection.execute("SELECT xmin FROM ai_tenants WHERE id = %s", [tenant]).fetchone()
    create(db, tenant)
    assert connection.execute("SELECT xmin FROM ai_tenants WHERE id = %s", [tenant]).fetchone() == before


def test_a_first_budget_counts_what_was_charged_before_it(db: Database, connection: Connection, tenant: UUID) -> None:
    claim = claimed(db, connection, tenant)
    with pytest.raises(NoBudget, match="open jobs"):
        ledger.grant(db, tenant, 100)
    claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])
    assert ledger.grant(db, tenant, 100) == Balance(True, 120, 0, 20)
    assert ledger.balance(db, tenant).available_micros == 100  # type: ignore[union-attr]
    assert_all_holds(connection)


def test_a_correction_needs_a_budget_and_leaves_what_is_spoken_for(
    db: Database, connection: Connection, budgeted: UUID, tenant: UUID
) -> None:
    create(db, budgeted)
    assert ledger.adjust(db, budgeted, -100, "a mistake") == Balance(True, 50, 50, 0)
    with pytest.raises(NoBudget, match="reserved or charged"):
        ledger.adjust(db, budgeted, -1, "too much")
    with pytest.raises(NoBudget, match="no budget"):
        ledger.adjust(db, tenant, 1, "x")
    assert_all_holds(connection)


@pytest.mark.parametrize("terms", [Terms(), Terms(tariff="metered", reserve_micros=None)])
def test_work_without_a_known_price_is_refused_to_a_budget_and_to_nobody_else(
    db: Database, budgeted: UUID, tenant: UUID, terms: Terms
) -> None:
    with pytest.raises(NoKnownPrice):
        create(db, budgeted, terms)
    assert create(db, tenant, terms).reserved_micros == 0
    with pytest.raises(LookupError):
        create(db, UUID(int=1), terms)


def test_a_metered_result_costs_its_accepted_calls_and_the_margin(
    db: Database, connection: Connection, tenant: UUID
) -> None:
    ledger.grant(db, tenant, 10_000)
    first = claimed(db, connection, tenant, METERED)
    paid_call(connection, first, 300)  # an attempt of ours that came to nothing is ours to pay
    claims.settle(connection, first.job_id, first.run_token, Ending("failed", Retry(0.0, counted=True), ERROR))
    (second,) = claim_some(connection)
    paid_call(connection, second, 101)
    claims.accept(connection, [Result(second.job_id, second.run_token, "{}")])
    job = jobs.get(db, tenant, first.job_id)
    assert job is not None and job.charged_micros == 152  # 101 and a half, rounded up
    assert_all_holds(connection)


def test_a_metered_charge_ends_at_the_reservation(db: Database, connection: Connection, tenant: UUID) -> None:
    claim = claimed(db, connection, tenant, METERED)
    paid_call(connection, claim, 5_000)
    claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])
    job = jobs.get(db, tenant, claim.job_id)
    assert job is not None and job.charged_micros == 1000
    assert_all_holds(connection)


@pytest.mark.parametrize(
    ("terms", "delivered", "charged"),
    [
        (Terms(tariff="fixed", price_micros=20, reserve_micros=50), True, 0),
        (Terms(tariff="fixed", price_micros=20, reserve_micros=50, on_cancel="charge_delivered"), True, 20),
        (Terms(tariff="fixed", price_micros=20, reserve_micros=50, on_cancel="charge_delivered"), False, 0),
        (Terms(tariff="metered", margin_percent=10, reserve_micros=500, on_cancel="charge_delivered"), True, 110),
    ],
)
def test_a_cancel_is_charged_only_where_the_kind_says_so_and_something_was_delivered(
    db: Database, connection: Connection, tenant: UUID, terms: Terms, delivered: bool, charged: int
) -> None:
    claim = claimed(db, connection, tenant, terms)
    if delivered:
        paid_call(connection, claim, 100)
    jobs.request_cancel(db, tenant, claim.job_id)
    claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])
    job = jobs.get(db, tenant, claim.job_id)
    assert job is not None and (job.status, job.charged_micros) == ("cancelled", charged)
    assert_all_holds(connection)


def price(model: str = "m", **given: Any) -> ListedPrice:
    return ListedPrice(
        **({"provider": "sim", "model": model, "input_micros": 2_000_000, "output_micros": 8_000_000} | given)
    )


def test_a_reservation_follows_from_the_request_and_the_price_in_force(db: Database, tenant: UUID) -> None:
    ledger.grant(db, tenant, 10_000)
    prices.set_prices(db, [price(request_micros=5, max_output_tokens=100)])
    computed = Terms(tariff="metered", margin_percent=50, reserve_micros=None, input_tokens=10, output_tokens=20)
    assert create(db, tenant, computed).reserved_micros == 278  # (5 + 10 * 2 + 20 * 8) and a half, rounded up
    unbounded = Terms(tariff="metered", reserve_micros=None, input_tokens=10)
    assert create(db, tenant, unbounded).reserved_micros == 825
    with pytest.raises(NoKnownPrice):
        create(db, tenant, computed, model="unknown")


def test_a_call_is_priced_by_what_was_in_force_as_it_was_sent(
    db: Database, connection: Connection, tenant: UUID
) -> None:
    prices.set_prices(
        db,
        [
            price(valid_from="2020-01-01T00:00:00Z", output_micros=1),
            price(valid_from="2021-01-01T00:00:00Z", cached_micros=500_000, max_output_tokens=50),
            price(valid_from="2999-01-01T00:00:00Z", output_micros=9),
            price("old", valid_from="2020-01-01T00:00:00Z", valid_until="2020-02-01T00:00:00Z"),
        ],
    )
    claim = claimed(db, connection, tenant)

    def sent(step: str, model: str | None, most: int | None = None) -> Price | None:
        intent = Intent(
            claim.job_id, claim.run_token, step, "sim", model, FINGERPRINT, input_tokens=10, max_output_tokens=most
        )
        return calls.mark_sent(connection, [intent])[claim.job_id]

    assert sent("a", "m") == Price(input_micros=2_000_000, output_micros=8_000_000, cached_micros=500_000)
    assert sent("b", "m", 7) is not None
    assert sent("c", "old") is None and sent("d", "nobody's") is None and sent("e", None) is None
    rows = connection.execute("SELECT step, cost_ceiling_micros AS most FROM ai_calls ORDER BY step").fetchall()
    assert [row["most"] for row in rows] == [420, 76, None, None, None]
    # What calls were priced by stays, whatever is imported later.
    changed = price(valid_from="2021-01-01T00:00:00Z", output_micros=1)
    assert prices.set_prices(db, [changed, price("new")]) == {("sim", "m")}
    (in_force,) = [row for row in prices.list_prices(db, "sim") if row["model"] == "m" and row["in_force"]]
    assert in_force["output_micros"] == 8_000_000


def test_the_audit_finds_what_is_wrong(db: Database, connection: Connection, budgeted: UUID) -> None:
    claim = claimed(db, connection, budgeted)
    claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])
    assert_all_holds(connection)
    for damage, found in (
        ("UPDATE ai_tenants SET charged_micros = 19 WHERE budgeted", "balances_are_sums"),
        ("UPDATE ai_ledger SET amount_micros = 31 WHERE entry = 'release'", "books_of_ended_jobs_are_closed"),
        ("DELETE FROM ai_events WHERE seq = 2", "events_are_gapless"),
        ("UPDATE ai_attempts SET accepted = false", "one_attempt_is_accepted"),
        ("UPDATE ai_jobs SET charged_micros = 1", "jobs_say_what_was_booked"),
        ("UPDATE ai_attempts SET tenant_id = gen_random_uuid()", "children_have_their_jobs_tenant"),
    ):
        connection.execute(damage.encode())
        assert found in {name for name, rows in audit.broken(connection) if rows}, damage
