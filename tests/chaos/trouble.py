"""What is done to the workers while a campaign's jobs run: one strike after the other, until all jobs have ended."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping

from aijobs.embedded import EmbeddedPostgres
from tests.workers.fleet import Fleet, children

# A lease that a test can outwait, in the proportions of the defaults.
LEASE_SECONDS = 6
FAST = {
    "AIJOBS_PROCESSES": 3,
    "AIJOBS_THREADS": 12,
    "AIJOBS_LEASE_SECONDS": LEASE_SECONDS,
    "AIJOBS_HEARTBEAT_SECONDS": 1,
    "AIJOBS_ATTEMPT_SECONDS": 20,
}


class Kills:
    """A worker process is killed with -9 every second or so."""

    every_seconds = 1.0

    def __init__(
        self, fleet: Fleet, supervisor: subprocess.Popen[bytes], server: EmbeddedPostgres, dice: random.Random
    ) -> None:
        self.fleet = fleet
        self.supervisor = supervisor
        self.server = server
        self.dice = dice
        self.done: Counter[str] = Counter()

    def strike(self) -> None:
        time.sleep(self.every_seconds * self.dice.uniform(0.5, 1.5))
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> int | None:
        """Send a signal to some worker process; its pid."""
        victims = children(self.supervisor.pid)
        if victims:
            pid = self.dice.choice(victims)
            with contextlib.suppress(ProcessLookupError):  # a release in progress, which has ended
                os.kill(pid, number)
                self.done[number.name] += 1
                return pid
        return None

    def end(self) -> None:
        pass

    def told(self) -> str:
        return ", ".join(f"{times} x {what}" for what, times in self.done.items()) or "nothing was done"


class Stops(Kills):
    """A second supervisor stands still with all its workers, at times beyond their leases, and goes on.

    So does a worker of the first, for less, and now and then one is killed as well.
    """

    def __init__(
        self, fleet: Fleet, supervisor: subprocess.Popen[bytes], server: EmbeddedPostgres, dice: random.Random
    ) -> None:
        super().__init__(fleet, supervisor, server, dice)
        self.other = fleet.start(AIJOBS_REAP_SECONDS=0.5, **FAST)

    def strike(self) -> None:
        time.sleep(self.dice.uniform(0.3, 1.0))
        os.killpg(self.other.pid, signal.SIGSTOP)
        self.done["SIGSTOP of a supervisor and its workers"] += 1
        pid = self.signal(signal.SIGSTOP)
        if self.dice.random() < 0.3:
            self.signal(signal.SIGKILL)
        time.sleep(self.dice.uniform(0.2, 2.5))  # up to three seconds a supervisor lets a worker stand still
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        time.sleep(self.dice.choice((0.0, LEASE_SECONDS + 1.5)))
        os.killpg(self.other.pid, signal.SIGCONT)

    def end(self) -> None:
        self.fleet.stop(self.other, seconds=60)


class Outages(Kills):
    """The database is stopped, at once or in order, and started; now and then a worker is killed meanwhile."""

    def strike(self) -> None:
        time.sleep(self.dice.uniform(1.0, 4.0))
        how = self.dice.choice(("immediate", "fast"))
        self.server.stop_server(how)
        self.done[f"database stopped ({how})"] += 1
        try:
            time.sleep(self.dice.uniform(0.1, 3.0))
            if self.dice.random() < 0.5:
                self.signal(signal.SIGKILL)
                time.sleep(0.2)
        finally:
            self.server.start_server()


class Faults(Kills):
    """The provider fails in every way it can, and a worker is killed every few seconds."""

    every_seconds = 3.0


# How long the longest call is: long enough to be struck, short enough to have a fair chance of outliving its worker.
LONGEST_MS = {"kill": 1500, "stop": 4000, "database": 4000, "faults": 1500}
SCENARIOS: Mapping[str, type[Kills]] = {"kill": Kills, "stop": Stops, "database": Outages, "faults": Faults}
