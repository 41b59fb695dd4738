"""`aijobs work`."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from types import FrameType

import click

import aijobs
from aijobs import kinds, logs
from aijobs.config import Settings
from aijobs.errors import ConfigError

log = logging.getLogger("aijobs.work")


@click.command()
@click.option("--processes", type=click.IntRange(1, 1000), help="Worker processes (AIJOBS_PROCESSES).")
@click.option("--threads", type=click.IntRange(1, 1000), help="Job slots in each process (AIJOBS_THREADS).")
@click.option(
    "--isolated",
    type=click.IntRange(0, 1000),
    help="Processes with one slot each, for kinds with isolate = true. Default: 1 if there is such a kind.",
)
@click.option("--queue", "queues", multiple=True, help="Serve only this queue; may be repeated. Default: all queues.")
def work(processes: int | None, threads: int | None, isolated: int | None, queues: tuple[str, ...]) -> None:
    """Run worker processes in the foreground.

    SIGTERM and Ctrl-C drain: running attempts may finish until the drain deadline. A second one hurries. Exit status: 0
    drained, 1 not all processes drained, 2 configuration, 3 a worker could not start, 4 schema not migrated.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    settings = Settings.from_env(processes=processes, threads=threads)
    logs.configure(settings.log_format)
    for warning in settings.warnings:
        log.warning("%s", warning)
    settings.require_database_url()
    _check_configuration(settings)
    sys.exit(supervise(settings, list(queues) or None, isolated))


def _leave(number: int, frame: FrameType | None) -> None:
    """End in order when told to before anything was started; the supervisor has handlers of its own."""
    sys.exit(0)


def supervise(settings: Settings, queues: list[str] | None = None, isolated: int | None = None) -> int:
    """Run the supervisor until it is stopped; its exit status."""
    isolating = sorted(kind.name for kind in settings.kinds.values() if kind.isolate)
    isolated = bool(isolating) if isolated is None else isolated
    if isolating and not isolated:
        log.warning("nobody here runs the isolated kinds: %s", ", ".join(isolating))
    _check_that_workers_is_ours()
    from workers import reaper, worker
    from workers.supervisor import Supervisor

    log.info(
        "%d processes with %d slots each serve %s",
        settings.processes,
        settings.threads,
        ", ".join(queues or ["all queues"]),
    )
    return Supervisor(
        processes=settings.processes,
        isolated=isolated,
        drain_seconds=settings.drain_seconds,
        hang_seconds=settings.lease_seconds,
        run_child=lambda child: worker.run(settings, child, queues=queues),
        release_dead=lambda worker_id: reaper.release_dead(settings, worker_id),
    ).run()


def _check_configuration(settings: Settings) -> None:
    if not settings.kinds:
        raise ConfigError(
            ["no kinds are configured: name a file with [providers.NAME] and [kinds.NAME] in AIJOBS_CONFIG."]
        )
    kinds.load(settings)


def _check_that_workers_is_ours() -> None:
    """`workers` is a common name: another package of that name must not be run in ours' place."""
    import workers

    expected = Path(aijobs.__file__).parent.parent / "workers"
    found = Path(workers.__file__ or "").parent
    if found.resolve() != expected.resolve():
        raise ConfigError([f"another package named 'workers' comes first: {found}; ours is {expected}."])
