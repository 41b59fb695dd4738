"""A worker killed with -9 right after each step of a job: what is seen is what the README's table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers.crash_table import BEGIN, END, NAMES, SORTS, applies, see
from tests.workers.fleet import ROOT, Fleet
from tests.workers.kill_after import STEPS

CASES = [(step, sort) for step in STEPS for sort in SORTS if applies(step, sort)]


@pytest.mark.parametrize(("step", "sort"), CASES)
def test_the_readme_says_what_is_seen(fleet: Fleet, tmp_path: Path, step: str, sort: str) -> None:
    seen = see(fleet, step, sort, tmp_path / "died")
    rows = (ROOT / "README.md").read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].splitlines()
    (row,) = [line.strip("|").split("|") for line in rows if line.startswith(f"| {NAMES[step]} |")]
    _, known, *cells = [cell.strip() for cell in row]
    assert cells[list(SORTS).index(sort)] == seen.told
    if sort == "chat" or step == "name":
        assert known == seen.known


def test_every_step_has_its_row() -> None:
    assert tuple(NAMES) == STEPS
