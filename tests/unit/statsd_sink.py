"""A StatsD server that only listens: what arrived, by name."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter, defaultdict
from types import TracebackType


class StatsdSink:
    """Sums counters and collects timers until it is closed. Use as a context manager."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * 1024 * 1024)
        self._socket.bind(("127.0.0.1", port))
        self._socket.settimeout(0.05)
        self.port: int = self._socket.getsockname()[1]
        self.counters: Counter[str] = Counter()
        self.timers: dict[str, list[float]] = defaultdict(list)
        self.datagrams: list[bytes] = []
        self._closing = False
        self._thread = threading.Thread(target=self._receive, name="statsd-sink")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def wait_for(self, name: str, total: int, within_seconds: float = 5.0) -> None:
        """Return when the counter has reached the total; AssertionError at the deadline."""
        give_up_at = time.monotonic() + within_seconds
        while self.counters[name] < total:
            if time.monotonic() > give_up_at:
                raise AssertionError(f"{name} is {self.counters[name]}, not {total}, after {within_seconds} s")
            time.sleep(0.005)

    def __enter__(self) -> StatsdSink:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._thread.join()
        self._socket.close()

    def _receive(self) -> None:
        while True:
            try:
                datagram = self._socket.recv(65536)
            except TimeoutError:
                if self._closing:
                    return
                continue
            self.datagrams.append(datagram)
            for line in datagram.decode("ascii").split("\n"):
                name, _, value = line.partition(":")
                number, kind = value.split("|")
                if kind == "c":
                    self.counters[name] += int(number)
                else:
                    self.timers[name].append(float(number))
