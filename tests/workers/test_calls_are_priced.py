"""What each call cost, by what its provider reported, by what was seen of it, or honestly unknown."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from aijobs.domain.jobs import JobStatus, Terms
from aijobs.domain.price_tables import ListedPrice
from aijobs.store import ledger, prices
from tests.workers.fleet import Fleet, audit


@pytest.fixture
def priced(fleet: Fleet) -> Fleet:
    price = ListedPrice(
        provider="sim", model="simulated", input_micros=1_000_000, output_micros=1_000_000, max_output_tokens=100
    )
    prices.set_prices(fleet.db, [price])
    fleet.start(AIJOBS_PROCESSES=1)
    return fleet


def first_call(fleet: Fleet, job_id: UUID) -> dict[str, Any]:
    call: dict[str, Any] = fleet.attempts(job_id)[0]["calls"][0]
    return call


@pytest.mark.parametrize(
    ("script", "status", "basis"),
    [
        ("text='a b c'", "succeeded", "reported"),
        ("text='a b c' usage=twice", "succeeded", "reported"),
        ("text='a b c' usage=off", "succeeded", "estimated"),
        ("text='a b c' cut_after=2", "failed", "estimated"),
        ("close=headers", "failed", "unknown"),
        ("status=400", "failed", "none"),
    ],
)
def test_a_calls_cost_says_how_it_is_known(priced: Fleet, script: str, status: str, basis: str) -> None:
    job_id = priced.submit(f"[[sim: {script}]]", on_unknown="fail", max_attempts=1)
    assert priced.wait(job_id).status == status
    call = first_call(priced, job_id)
    assert call["cost_basis"] == basis
    match basis:
        case "reported":
            assert call["cost_micros"] == call["usage"]["input_tokens"] + 3
        case "estimated":
            assert call["cost_micros"] > 0 and call["cost_micros"] < call["cost_ceiling_micros"]
        case "unknown":
            assert call["cost_micros"] is None and call["cost_ceiling_micros"] > 100
        case "none":
            assert call["cost_micros"] == 0
    audit(priced)


def test_a_model_without_a_price_has_an_unknown_cost_and_never_none(fleet: Fleet) -> None:
    fleet.start(AIJOBS_PROCESSES=1)
    job_id = fleet.submit("hello")
    assert fleet.wait(job_id).status is JobStatus.SUCCEEDED
    call = first_call(fleet, job_id)
    assert (call["cost_basis"], call["cost_micros"], call["cost_ceiling_micros"]) == ("unknown", None, None)
    assert call["usage"]["output_tokens"] > 0
    assert "what sim simulated costs is not known" in fleet.logs.read_text()


def test_a_metered_job_is_charged_what_its_accepted_calls_cost(priced: Fleet) -> None:
    ledger.grant(priced.db, priced.tenant, 10_000)
    terms = Terms(tariff="metered", margin_percent=100, reserve_micros=1000)
    script = "[[sim: marker=m text='a b c' status=409 times=1]]"
    job = priced.wait(priced.submit(script, terms=terms))
    call = priced.attempts(job.id)[-1]["calls"][0]
    assert job.charged_micros == 2 * call["cost_micros"]
    balance = ledger.balance(priced.db, priced.tenant)
    assert balance is not None and (balance.reserved_micros, balance.charged_micros) == (0, job.charged_micros)
    audit(priced)
