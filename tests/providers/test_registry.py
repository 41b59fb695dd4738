"""Every adapter that a configuration may name can be built, and no other."""

from __future__ import annotations

from aijobs.config_file import ADAPTERS
from aijobs.providers import registry


def test_the_configuration_names_the_adapters_there_are() -> None:
    assert set(ADAPTERS) == set(registry._ADAPTERS)
