"""Telling providers to stop what they still do for jobs that were cancelled when no worker held them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Mapping

from aijobs.errors import AijobsError
from aijobs.store.calls import Stray
from workers.call import cancel
from workers.step import Provider
from workers.writer import Writer

log = logging.getLogger(__name__)


class Strays(threading.Thread):
    """Stops one call after the other: nobody waits for it, and its job has ended already."""

    def __init__(self, providers: Mapping[str, Provider], writer: Writer) -> None:
        super().__init__(name="strays", daemon=True)
        self._providers = providers
        self._writer = writer
        self._waiting: queue.SimpleQueue[Stray | None] = queue.SimpleQueue()

    @property
    def providers(self) -> list[str]:
        """Those whose calls can be stopped at all."""
        return [name for name, provider in self._providers.items() if provider.adapter.ask_by == "operation"]

    def put(self, stray: Stray) -> None:
        self._waiting.put(stray)

    def stop(self) -> None:
        self._waiting.put(None)

    def run(self) -> None:
        while (stray := self._waiting.get()) is not None:
            said = cancel(self._providers[stray.provider].adapter, stray.operation_id)
            log.info(
                "a cancelled job's call was stopped at the provider: %s", said, extra={"job_id": str(stray.job_id)}
            )
            try:
                self._writer.note_cancel(stray, said)
            except AijobsError as error:
                log.warning("it is not recorded that a call was stopped: %s", error)
