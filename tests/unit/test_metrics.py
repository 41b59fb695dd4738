"""Metrics arrive under their names, and whatever StatsD does, nothing waits for it or fails because of it."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aijobs import metrics
from aijobs.domain.failures import Usage
from tests.unit.statsd_sink import StatsdSink

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def sink() -> Iterator[StatsdSink]:
    with StatsdSink() as sink:
        yield sink


@pytest.fixture(autouse=True)
def off_again() -> Iterator[None]:
    yield
    metrics.configure(None)


def send_to(host: str, port: int) -> None:
    metrics.configure((host, port))


def test_counters_and_timers_arrive_under_their_names(sink: StatsdSink) -> None:
    send_to("127.0.0.1", sink.port)
    metrics.job_created()
    metrics.job_created()
    metrics.lease_expired(3)
    metrics.queue_wait(12.5)
    metrics.attempts_per_job(2)
    metrics.api_request("create job", "POST", 201, 3.25)
    metrics.flush()
    sink.wait_for("aijobs.lease_expired_count", 3)
    assert sink.counters == {"aijobs.jobs_created": 2, "aijobs.lease_expired_count": 3}
    assert sink.timers == {
        "aijobs.queue_wait": [12.5],
        "aijobs.attempts_per_job": [2.0],
        "aijobs.api.create_job.POST.2xx": [3.25],
    }


def test_names_from_outside_cannot_change_a_metrics_path(sink: StatsdSink) -> None:
    send_to("127.0.0.1", sink.port)
    metrics.provider_outcome("open:ai|c\nx", "gpt-4.1/mini é", "succeeded")
    metrics.tokens(None, "m", Usage(input_tokens=5, output_tokens=7, cached_tokens=0))
    metrics.flush()
    sink.wait_for("aijobs.tokens.none.m.output", 7)
    assert set(sink.counters) == {
        "aijobs.provider.open_ai_c_x.gpt-4_1_mini__.outcome.succeeded",
        "aijobs.tokens.none.m.input",
        "aijobs.tokens.none.m.output",
    }


def test_the_prefix_is_the_setting(sink: StatsdSink) -> None:
    metrics.configure(("127.0.0.1", sink.port), "shop.ai")
    metrics.job_accepted()
    metrics.flush()
    sink.wait_for("shop.ai.jobs_accepted", 1)


def test_without_statsd_nothing_is_opened() -> None:
    metrics.configure(None)
    before = threading.active_count()
    metrics.job_created()
    metrics.queue_wait(1)
    metrics.flush()
    assert threading.active_count() == before


def test_many_threads_lose_no_measurement_and_datagrams_fit_a_frame(sink: StatsdSink) -> None:
    send_to("127.0.0.1", sink.port)

    def measure() -> None:
        for _ in range(500):
            metrics.job_created()
            metrics.run_duration(1.0)

    threads = [threading.Thread(target=measure) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    metrics.flush(within_seconds=5)
    sink.wait_for("aijobs.jobs_created", 4000)
    assert len(sink.timers["aijobs.run_duration"]) == 4000
    assert max(map(len, sink.datagrams)) <= metrics.MOST_DATAGRAM_BYTES


def test_a_port_where_nobody_listens_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    send_to("127.0.0.1", port)
    for _ in range(3):
        metrics.job_created()
        metrics.flush()
    assert caplog.records == []


def test_a_resolver_that_hangs_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def hang(*arguments: Any, **named: Any) -> Any:
        answer.wait(30)
        raise socket.gaierror("no answer")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    send_to("statsd.invalid", 8125)
    try:
        began = time.perf_counter()
        for _ in range(1000):
            metrics.job_created()
        measured = time.perf_counter() - began
        began = time.perf_counter()
        metrics.flush(within_seconds=0.2)
        flushed = time.perf_counter() - began
    finally:
        answer.set()
    assert measured < 0.1
    assert flushed < 1


def test_a_host_that_does_not_resolve_warns_once_and_is_found_when_it_appears(
    sink: StatsdSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, is_known, asked = socket.getaddrinfo, threading.Event(), []

    def resolve(host: str, *arguments: Any, **named: Any) -> Any:
        asked.append(host)
        if not is_known.is_set():
            raise socket.gaierror(-2, "Name or service not known")
        return real("127.0.0.1", *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(metrics, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(metrics, "GATHER_SECONDS", 0.01)
    caplog.set_level(logging.WARNING)
    send_to("statsd.late.example", sink.port)
    metrics.job_created()
    give_up_at = time.monotonic() + 5
    while len(asked) < 10 and time.monotonic() < give_up_at:
        metrics.flush(0.05)
    assert len(asked) >= 10
    assert [record.message for record in caplog.records if "late.example" in record.message] == [
        "StatsD host 'statsd.late.example' does not resolve, metrics wait: [Errno -2] Name or service not known"
    ]
    is_known.set()
    sink.wait_for("aijobs.jobs_created", 1)


def test_a_daemon_that_moves_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    with StatsdSink() as old, StatsdSink() as new:
        port = {"now": old.port}
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, _, *rest: real(host, port["now"], *rest))
        monkeypatch.setattr(metrics, "RESOLVE_AGAIN_SECONDS", 0.0)
        monkeypatch.setattr(metrics, "RETRY_SECONDS", 0.0)
        send_to("127.0.0.1", 1)
        metrics.job_created()
        metrics.flush()
        old.wait_for("aijobs.jobs_created", 1)
        port["now"] = new.port
        metrics.job_created()
        metrics.flush()
        new.wait_for("aijobs.jobs_created", 1)
        assert old.counters["aijobs.jobs_created"] == 1


def test_what_cannot_be_sent_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch, sink: StatsdSink) -> None:
    monkeypatch.setattr(metrics, "MOST_PENDING", 10)
    monkeypatch.setattr(metrics, "GATHER_SECONDS", 1.0)
    send_to("127.0.0.1", sink.port)
    for _ in range(25):
        metrics.job_created()
    metrics.flush()
    sink.wait_for("aijobs.jobs_created", 10)
    assert sink.counters["aijobs.jobs_created"] == 10


# A parent that measures, then four children that measure until SIGTERM; each says on stdout how much it has counted.
FORKING = """
import os, signal, sys
from aijobs import metrics

metrics.configure(("127.0.0.1", int(sys.argv[1])))
for _ in range(10):
    metrics.job_created()

def child(count):
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    for _ in range(count):
        metrics.job_accepted()
    os.write(1, b"counted\\n")
    while not stop:
        signal.pause()
    metrics.flush()
    os._exit(0)

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        child(25)
    children.append(pid)
sys.stdin.read()
for pid in children:
    os.kill(pid, signal.SIGTERM)
for pid in children:
    os.waitpid(pid, 0)
"""


def test_exactly_what_was_counted_arrives_over_forks_and_sigterm(sink: StatsdSink) -> None:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", FORKING, str(sink.port)],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None and process.stdin is not None
        for _ in range(4):
            assert process.stdout.readline() == "counted\n"
        process.stdin.close()
        assert process.wait(10) == 0
    # The parent's own are sent at its exit, by no call of its own.
    sink.wait_for("aijobs.jobs_created", 10)
    sink.wait_for("aijobs.jobs_accepted", 100)
    assert sink.counters == {"aijobs.jobs_created": 10, "aijobs.jobs_accepted": 100}
