"""The simulator on a thread of this process: the one to use in a test."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any

from aijobs.simulator.options import Options
from aijobs.simulator.records import Records
from aijobs.simulator.service import Service, url_of


class Simulator:
    """A simulated provider for as long as the `with` lasts; takes the fields of `Options` by name.

    A process that forks while this runs should use `SimulatorProcess`: the child would inherit the sockets.
    """

    def __init__(self, **options: Any) -> None:
        self.options = Options(**options)
        self.port = 0
        self._records = Records()
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="simulator", daemon=True)

    @property
    def url(self) -> str:
        """The base URL to configure a provider with, /v1 included."""
        return url_of(self.options.host, self.port)

    def stats(self) -> dict[str, Any]:
        """What GET /simulator/stats answers. May be asked after the end as well."""
        return self._records.stats()

    def calls(self, marker: str | None = None) -> list[dict[str, Any]]:
        """What GET /simulator/calls answers: the records, oldest first, of one marker or all. Also after the end."""
        return self._records.calls(marker)

    def paid(self, marker: str | None = None) -> int:
        """How many generations somebody would have to pay for, as far as the records reach back."""
        return sum(call["generation"] for call in self.calls(marker))

    def reset(self) -> None:
        """Forget every record and count, as POST /simulator/reset does."""
        self._records.reset()

    def start(self) -> None:
        """Return when it listens. Raises OSError if it cannot."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Break off what is being answered, and return when the port is free."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Simulator:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        service = Service(self.options, self._records)
        try:
            self.port = await service.listen()
        except OSError as error:
            self._failure = error
            return
        finally:
            self._ready.set()
        await self._stop.wait()
        await service.close()
