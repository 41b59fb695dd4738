"""The kill campaign, small enough for every run; `make chaos` is the long one."""

from __future__ import annotations

from tests.chaos.kill_campaign import campaign, judge
from tests.workers.conftest import fleet  # noqa: F401 - the fixture audits the fleet afterwards
from tests.workers.fleet import Fleet


def test_no_job_is_lost_and_none_is_accepted_twice(fleet: Fleet) -> None:  # noqa: F811
    result = campaign(fleet, jobs=80, longest_ms=800, kill_seconds=0.5, seed=20261201, give_up_seconds=60)
    assert result["kills"] > 3, "hardly anything was killed, so that this test has shown nothing"
    assert judge(result) == []
