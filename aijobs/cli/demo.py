"""`aijobs demo`."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from aijobs.cli.job_story import attempt_lines
from aijobs.cli.stack import Stack
from aijobs.config import Settings

LEASE_SECONDS = 180.0
PROMPT = "[[sim: marker=demo text='A durable answer.' first_byte_ms=3000 delta_ms=100]]"


class Story:
    """Claims told one by one, each checked against what is really there."""

    def __init__(self) -> None:
        self.broken = 0

    def tell(self, text: str) -> None:
        click.echo(f"\n{text}")

    def claim(self, text: str, holds: bool) -> None:
        click.echo(f"  {'ok  ' if holds else 'NOT '} {text}")
        self.broken += not holds


@click.command()
def demo() -> None:
    """Tell the story of a killed worker, for real, and check each claim of it.

    Starts a database, a simulated provider, the API and two workers of its own, and leaves nothing behind. Exits with
    status 1 if a claim did not hold.
    """
    story = Story()
    with tempfile.TemporaryDirectory(prefix="aijobs-demo-") as folder:
        Path(folder).chmod(0o711)
        settings = Settings.from_env().replace(database_url=None, config_path=None, data_dir=Path(folder))
        environment = {"AIJOBS_LOG": "json", "AIJOBS_LEASE_SECONDS": str(LEASE_SECONDS)}
        with (
            (Path(folder) / "demo.log").open("w") as log,
            Stack(settings, say=click.echo, log=log, environment=environment) as stack,
        ):
            _tell(story, stack)
    click.echo("\nEvery claim held." if not story.broken else f"\n{story.broken} claims did not hold.")
    sys.exit(1 if story.broken else 0)


def _tell(story: Story, stack: Stack) -> None:
    story.tell("1. A client posts a job, gets 202 and an id, and goes away: its tab is closed, its connection gone.")
    job = stack.post("/api/ai/jobs", {"kind": "chat", "payload": {"prompt": PROMPT}}, Idempotency_Key="demo-1")
    path = f"/api/ai/jobs/{job['job_id']}"
    story.claim(f"job {job['job_id']} is {job['status']}", job["status"] in ("queued", "running"))

    story.tell("2. A worker has sent the request; the provider is working on it. The worker is killed with -9.")
    attempt = _when(lambda: _sent_attempt(stack, path))
    killed_at = time.monotonic()
    os.kill(int(attempt["worker"].split("-")[-2]), signal.SIGKILL)
    story.claim(f"killed {attempt['worker']} in the middle of its call", True)

    story.tell("3. Its supervisor sees it die and gives the job back; another worker takes it up.")
    _when(lambda: stack.get(path)["attempts"] == 2)
    waited = time.monotonic() - killed_at
    story.claim(
        f"the second attempt began after {waited:.2f} s; the lease would have lasted {LEASE_SECONDS:.0f} s", waited < 30
    )

    story.tell("4. The job succeeds all the same.")
    job = _when(lambda: _finished(stack.get(path)))
    story.claim(
        f"status {job['status']}, text {job['result'] and job['result']['text']!r}", job["status"] == "succeeded"
    )

    story.tell("5. Nobody claims to know what nobody can know: the first call was sent, and its outcome is unknown.")
    attempts = stack.get(f"{path}/attempts")["data"]
    for made in attempts:
        for line in attempt_lines(made):
            click.echo(line)
    first, second = attempts
    story.claim("the first attempt is unknown, its cost too (and not 0)", _is_unknown(first))
    story.claim(
        "the second attempt's result is the one that was accepted", second["accepted"] and not first["accepted"]
    )

    story.tell("6. What the provider was paid for, by its own count, is what the calls say.")
    paid = len([call for call in stack.simulator("/simulator/calls?marker=demo") if call["generation"]])
    calls = [call for made in attempts for call in made["calls"]]
    story.claim(f"{paid} generations paid for, {len(calls)} calls recorded as sent", paid == len(calls) == 2)

    story.tell(
        "7. The client comes back with the same key, and gets the same job: nothing runs, nothing is paid again."
    )
    again = stack.post("/api/ai/jobs", {"kind": "chat", "payload": {"prompt": PROMPT}}, Idempotency_Key="demo-1")
    story.claim("the same job, already succeeded", again["job_id"] == job["job_id"] and again["status"] == "succeeded")
    story.claim("still the same number of generations", _paid(stack) == paid)


def _sent_attempt(stack: Stack, path: str) -> Any:
    attempts = stack.get(f"{path}/attempts")["data"]
    paid = _paid(stack)
    return attempts[0] if attempts and attempts[0]["calls"] and paid else None


def _paid(stack: Stack) -> int:
    return len([call for call in stack.simulator("/simulator/calls?marker=demo") if call["generation"]])


def _finished(job: Any) -> Any:
    return job if job["status"] in ("succeeded", "failed", "cancelled", "held") else None


def _is_unknown(attempt: Any) -> bool:
    (call,) = attempt["calls"]
    return attempt["outcome"] == call["outcome"] == call["cost_basis"] == "unknown" and call["cost_micros"] is None


def _when(fact: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What `fact` returns, as soon as it is something."""
    give_up_at = time.monotonic() + seconds
    while not (found := fact()):
        if time.monotonic() > give_up_at:
            raise click.ClickException(f"the story stopped: nothing happened for {seconds:.0f} s")
        time.sleep(0.05)
    return found
