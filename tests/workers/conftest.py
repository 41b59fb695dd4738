"""A fleet for each test, audited when the test has passed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.fleet import Fleet, audit, fleet_on


@pytest.fixture
def fleet(database_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Workers on a fresh database. A test that needs a policy of its own parametrizes this fixture."""
    policy = getattr(request, "param", "")
    with fleet_on(database_url, tmp_path, policy) as made:
        yield made
        audit(made)
