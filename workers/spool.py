"""Paid answers on disk, for when the database is away and the process may die before it is back.

Each process has a folder of its own below the spool's, with a lock that ends with the process. What a dead process left
is delivered by any other that works on the same data folder: the supervisor's release, or the next worker to look. A
delivery may be repeated, so a file is removed only when its commit is known.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from aijobs.domain.failures import Usage
from aijobs.errors import UnstorableValue
from aijobs.store.calls import CallEnding
from aijobs.store.claims import Result
from aijobs.store.db import Connection
from workers.reports import WRITES

log = logging.getLogger(__name__)

# Many hours of answers; beyond it the disk is worth more, and no new work is begun.
MOST_BYTES = 256 * 1024 * 1024
_LOCK = "lock"
_KINDS: dict[str, type[CallEnding] | type[Result]] = {"ended": CallEnding, "accepted": Result}


def folder_of(data_dir: Path) -> Path:
    return data_dir / "spool"


class Spool:
    """What one process keeps. `usable` is false after a failure, until `retry` is called: then no work is to begin."""

    def __init__(self, folder: Path, worker_id: str) -> None:
        self._folder = folder
        self._own = folder / worker_id
        self._lock: int | None = None
        self._kept = 0
        self.usable = True

    def open(self) -> None:
        """Make the folder and lock it. Raises OSError when that cannot be."""
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._own / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # whoever has it takes the empty folder for a dead process's, for a moment
            (self._own / _LOCK).stat()  # and may have removed it
        except OSError:
            os.close(lock)
            raise
        self._lock = lock

    def keep(self, kind: str, value: Any) -> Path | None:
        """Keep a report that is worth money through the death of the process; None if there is nothing to keep in it.

        A failure is logged with what can be known without the answer, and makes the spool unusable.
        """
        if kind not in _KINDS or (isinstance(value, CallEnding) and value.result is None):
            return None
        try:
            return self._write(json.dumps({"kind": kind, "value": _plain(value)}, default=str).encode())
        except OSError as error:
            self.usable = False
            usage = dataclasses.asdict(value.usage) if isinstance(value, CallEnding) and value.usage else None
            log.error(
                "a paid answer waits for the database and cannot be kept on disk, claiming stops: %s",
                error,
                extra={"job_id": str(value.job_id), "step": getattr(value, "step", None), "usage": usage},
            )
            return None

    def retry(self) -> None:
        """The database is back: whatever was wrong with the disk, work may begin again."""
        self.usable = True

    def close(self) -> None:
        """Leave. The folder goes, unless there is something in it that was not delivered."""
        if self._lock is not None:
            _remove_if_empty(self._own)
            os.close(self._lock)
            self._lock = None

    def _write(self, content: bytes) -> Path:
        if self._lock is None:
            self.open()
        if len(content) + sum(path.stat().st_size for path in self._folder.glob("*/*.json")) > MOST_BYTES:
            raise OSError(f"the spool holds {MOST_BYTES} bytes already")
        self._kept += 1
        path = self._own / f"{self._kept:08d}.json"
        unfinished = path.with_suffix(".unfinished")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        _sync_folder(self._own)
        return path


def drop(path: Path) -> None:
    """Its commit is known: the file has served. One that stays is delivered again, which changes nothing."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.error("%s cannot be removed: %s", path, error)


def deliver(folder: Path, connection: Connection) -> list[str]:
    """Write what dead processes have left; the queues of the jobs that were brought back in line by it.

    Raises StoreUnavailable and the like, and OSError where the folder is not ours; what was not delivered stays.
    """
    woken: list[str] = []
    for left in sorted(folder.glob("*")) if folder.is_dir() else []:
        with _orphaned(left) as is_orphan:
            if is_orphan:
                for path in sorted(left.glob("*.json")):
                    woken += _deliver_one(path, connection)
                _remove_if_empty(left)
    return woken


def _deliver_one(path: Path, connection: Connection) -> list[str]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        kind, value = document["kind"], _value(document["kind"], document["value"])
        (reply,) = WRITES[kind](connection, [value])
    except (OSError, ValueError, KeyError, TypeError, UnstorableValue) as error:
        # Nobody can deliver it, and it must not keep anybody from work.
        log.error("%s cannot be delivered and is left aside: %s", path, type(error).__name__)
        path.rename(path.with_suffix(".undelivered"))
        return []
    log.warning("a paid answer that a dead process had kept was delivered", extra={"job_id": str(value.job_id)})
    drop(path)
    queue = getattr(reply, "woken", None)
    return [] if queue is None else [queue]


@contextlib.contextmanager
def _orphaned(folder: Path) -> Iterator[bool]:
    """Whether the folder's process is dead; it stays ours while the `with` lasts."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # being made or removed just now
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def _remove_if_empty(folder: Path) -> None:
    if all(path.name == _LOCK or path.suffix == ".unfinished" for path in folder.glob("*")):
        for path in folder.glob("*"):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody has just put something in it
            folder.rmdir()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain(value: CallEnding | Result) -> dict[str, Any]:
    return dataclasses.asdict(value)


def _value(kind: str, plain: dict[str, Any]) -> CallEnding | Result:
    plain |= {"job_id": UUID(plain["job_id"]), "run_token": UUID(plain["run_token"])}
    if kind == "ended":
        usage = plain["usage"]
        return CallEnding(**plain | {"usage": None if usage is None else Usage(**usage)})
    return Result(**plain | {"used": tuple((attempt, step) for attempt, step in plain["used"])})
