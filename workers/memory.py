"""A bound on the memory of an isolated handler: it gets a MemoryError, and not the whole machine."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def memory_bounded(mebibytes: int | None) -> Iterator[None]:
    """Let the process grow by so much while the `with` lasts. It bounds the whole process, so it must run one job only.

    What the platform cannot bound is not bounded: this reads Linux's /proc.
    """
    status = Path("/proc/self/statm")
    if mebibytes is None or not status.exists():
        yield
        return
    size = int(status.read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = size + mebibytes * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
