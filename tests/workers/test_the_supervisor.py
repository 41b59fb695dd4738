"""Children that die, stop or hang are replaced; the supervisor ends when told, and its children when it dies."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.fleet import ROOT, children, wait_for

PROCESSES = 3


class Supervised:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, mode: str = "serve", *, ready: bool = True) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.workers.supervised", str(self.folder), mode],
                cwd=ROOT,
                stderr=log,
                stdout=log,
                start_new_session=True,
            )
        if ready:
            wait_for(lambda: len(self.living()) == PROCESSES, "children", dump=self.log)
        return self.process

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def living(self) -> list[int]:
        """The pids of children that have begun and not ended."""
        assert self.process is not None
        begun = {int(line.split()[0]) for line in self.lines("children")}
        return sorted(begun & set(children(self.process.pid)))

    def worker_id(self, pid: int) -> str:
        return next(line.split()[1] for line in self.lines("children") if line.startswith(f"{pid} "))

    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    made = Supervised(tmp_path)
    yield made
    if made.process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(made.process.pid, signal.SIGCONT)
            os.killpg(made.process.pid, signal.SIGKILL)
        made.process.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_child_that_dies_is_released_once_and_replaced(supervised: Supervised, number: signal.Signals) -> None:
    process = supervised.start()
    victim = supervised.living()[1]
    os.kill(victim, number)
    wait_for(lambda: len(supervised.living()) == PROCESSES and victim not in supervised.living(), "a new child", 5)
    wait_for(lambda: supervised.lines("released") != [], "the release")
    process.terminate()
    assert process.wait(10) == 0
    assert supervised.lines("released") == [supervised.worker_id(victim)]
    assert len(supervised.lines("drained")) == PROCESSES


def test_a_stopped_child_is_killed_and_replaced(supervised: Supervised) -> None:
    supervised.start()
    victim = supervised.living()[0]
    os.kill(victim, signal.SIGSTOP)
    waited = wait_for(
        lambda: len(supervised.living()) == PROCESSES and victim not in supervised.living(), "a new child", 8
    )
    assert waited > 1, "a short stop, as a debugger makes, must be forgiven"
    wait_for(lambda: supervised.lines("released") == [supervised.worker_id(victim)], "the release")


def test_a_child_that_goes_on_in_time_is_left_alone(supervised: Supervised) -> None:
    supervised.start()
    before = supervised.living()
    os.kill(before[0], signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(before[0], signal.SIGCONT)
    time.sleep(2.5)  # past the three seconds after which a stopped one is killed
    assert supervised.living() == before


def test_a_child_without_a_pulse_is_killed(supervised: Supervised) -> None:
    supervised.start("silent")
    first = supervised.living()
    wait_for(lambda: not set(first) & set(supervised.living()), "the silent are gone", 10, supervised.log)


def test_a_pause_of_the_supervisor_itself_costs_no_child_its_life(supervised: Supervised) -> None:
    process = supervised.start()
    before = supervised.living()
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(3)  # longer than a child may be silent
    os.killpg(process.pid, signal.SIGCONT)
    time.sleep(1)
    assert supervised.living() == before


def test_children_that_die_young_are_replaced_ever_more_slowly_and_never_given_up(supervised: Supervised) -> None:
    process = supervised.start("young", ready=False)
    wait_for(lambda: len(supervised.lines("children")) >= 12, "some deaths")
    started, deaths = time.monotonic(), len(supervised.lines("children"))
    wait_for(lambda: len(supervised.lines("children")) >= deaths + 3, "more deaths")
    assert time.monotonic() - started > 0.3
    assert process.poll() is None


@pytest.mark.parametrize("code", [2, 3, 4])
def test_a_child_that_cannot_boot_ends_the_supervisor_with_its_status(supervised: Supervised, code: int) -> None:
    process = supervised.start(f"exit{code}", ready=False)
    assert process.wait(10) == code
    assert f"exit status {code}" in supervised.log()


def test_a_child_that_is_told_to_end_is_replaced_and_its_siblings_go_on(supervised: Supervised) -> None:
    supervised.start()
    before = supervised.living()
    os.kill(before[0], signal.SIGTERM)
    wait_for(lambda: len(supervised.living()) == PROCESSES and before[0] not in supervised.living(), "a new child")
    assert set(before[1:]) < set(supervised.living())
    assert supervised.lines("released") == []


def test_a_child_that_does_not_drain_is_killed_at_the_end_and_released(supervised: Supervised) -> None:
    process = supervised.start("deaf")
    process.terminate()
    wait_for(lambda: "stopping" in supervised.log(), "the first signal is heard")
    process.terminate()
    started = time.monotonic()
    assert process.wait(15) == 1
    assert time.monotonic() - started < 10
    assert len(supervised.lines("released")) == PROCESSES


def test_children_notice_at_once_that_their_supervisor_is_gone(supervised: Supervised) -> None:
    process = supervised.start()
    process.kill()
    process.wait()
    wait_for(lambda: len(supervised.lines("orphaned")) == PROCESSES, "the orphans", 3)


def test_each_child_holds_its_own_pipes_and_no_siblings(supervised: Supervised) -> None:
    supervised.start()
    os.kill(supervised.living()[0], signal.SIGKILL)
    wait_for(lambda: len(supervised.lines("children")) == PROCESSES + 1, "a new child")
    # Its parent's life, its pulse, and the two ends of its own wake-up pipe.
    assert {line.split()[2] for line in supervised.lines("children")} == {"4"}


def test_a_signal_at_any_moment_of_the_start_ends_everything_in_order(tmp_path: Path) -> None:
    dice = random.Random(7)
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        supervised = Supervised(folder)
        process = supervised.start(ready=False)
        wait_for(lambda made=supervised: made.lines("started") != [], "the start")  # type: ignore[misc]
        # The supervisor installs its handlers as its first act; before that there is nothing that could be orphaned.
        time.sleep(0.01 + dice.random() * 0.2)
        os.killpg(process.pid, dice.choice([signal.SIGTERM, signal.SIGINT]))
        code = process.wait(10)
        assert code in (0, -signal.SIGTERM), supervised.log()
        assert "Traceback" not in supervised.log()
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
