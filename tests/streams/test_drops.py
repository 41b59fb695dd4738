"""Clients that lose their connection again and again, while the API's processes are replaced: nobody misses a word."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from uuid import UUID

from tests.streams.site import Site, in_threads, read_through, text_of
from tests.workers.fleet import Fleet

JOBS = 100
DROPS = 1000


def test_a_thousand_drops_cost_no_client_a_word(make_site: Callable[..., Site], fleet: Fleet) -> None:
    fleet.start(AIJOBS_THREADS=60)
    site = make_site(AIJOBS_WEB_PROCESSES="2")
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    drops = {"early": 0, "late": 0}
    counting = threading.Lock()
    over = threading.Event()

    def drop(place: dict[str, int]) -> bool:
        """Whether the client loses its connection after this event. Mostly in mid-text."""
        place["seen"] += 1
        if place["left"] == 0 or dice.random() > 0.5:
            return False
        place["left"] -= 1
        with counting:
            drops["early" if place["seen"] <= 2 else "late"] += 1
        return True

    def follow(number: int) -> None:
        job_id = site.submit(f"tokens={dice.randrange(25, 40)} delta_ms=150 marker=m{number}")
        texts: list[str] = []

        def client() -> None:
            place = {"seen": 0, "left": DROPS // JOBS // 2 + 1}
            texts.append(text_of(read_through(site, job_id, drop=lambda: drop(place), seconds=90)))

        in_threads([client, client])
        assert texts == [result_of(site.fleet, job_id)] * 2, f"seed {seed}, {job_id}"

    def replace_processes() -> None:
        while not over.wait(3.0):
            for worker in site.api.workers()[:1]:
                os.kill(worker, signal.SIGTERM if dice.random() < 0.7 else signal.SIGKILL)

    replacing = threading.Thread(target=replace_processes)
    replacing.start()
    try:
        in_threads([lambda number=number: follow(number) for number in range(JOBS)])  # type: ignore[misc]
    finally:
        over.set()
        replacing.join()
    assert drops["early"] + drops["late"] >= DROPS and drops["late"] >= DROPS // 2, drops


def result_of(fleet: Fleet, job_id: UUID) -> str:
    give_up_at = time.monotonic() + 30
    while (job := fleet.job(job_id)).result is None and time.monotonic() < give_up_at:
        time.sleep(0.05)
    assert job.result is not None
    return str(job.result["text"])
