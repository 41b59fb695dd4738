"""A whole site for each test, audited when the test has passed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.streams.site import Site, site_on
from tests.workers.fleet import Fleet, audit, fleet_on


@pytest.fixture
def fleet(database_url: str, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_on(database_url, tmp_path) as made:
        yield made
        audit(made)


@pytest.fixture
def make_site(fleet: Fleet, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    with contextlib.ExitStack() as sites:
        yield lambda *arguments, **environment: sites.enter_context(site_on(fleet, tmp_path, *arguments, **environment))


@pytest.fixture
def site(fleet: Fleet, make_site: Callable[..., Site]) -> Site:
    """With workers, and a single web process, so that all requests meet."""
    fleet.start()
    return make_site(AIJOBS_WEB_PROCESSES="1")
