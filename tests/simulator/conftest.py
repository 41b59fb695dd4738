from __future__ import annotations

from collections.abc import Iterator

import pytest

from aijobs.simulator import Simulator


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator
