"""Creates over HTTP, against a bare Flask view that does one INSERT over the same kind of pool."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from aijobs.gunicorn_file import gunicorn_file
from aijobs.store import ledger, tenants
from aijobs.store.db import Database
from tests.benchmarks.figures import Figures
from tests.benchmarks.rig import ROOT, Rig, wait_for

CLIENTS = 16
BUDGET_CLIENTS = 64


def create(rig: Rig, *, seconds: float) -> Figures:
    """Both under the same gunicorn configuration, one after the other, in alternation."""
    dsn = rig.fresh_database()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE bare (id uuid PRIMARY KEY, payload jsonb NOT NULL)")
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(2):
        with served(rig, dsn, "wsgi:app") as port:
            ours.append(_rate(port, "/api/ai/jobs", seconds / 2))
        with served(rig, dsn, "tests.benchmarks.bare:app") as port:
            bare.append(_rate(port, "/bare", seconds / 2))
    rate, base = sum(ours) / 2, sum(bare) / 2
    return {"creates_per_second": round(rate), "bare_per_second": round(base), "of_bare": round(rate / base, 3)}


def budget(rig: Rig, *, seconds: float) -> Figures:
    """64 clients of one tenant with a budget, whose balance is one row, against those of one without."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    databases = {budgeted: rig.fresh_database() for budgeted in rates}
    with contextlib.closing(Database(databases[True], application_name="bench")) as db:
        ledger.grant(db, tenants.create_tenant(db, tenants.OPEN_TENANT), 10**15)
    for _ in range(2):
        for budgeted, dsn in databases.items():
            with served(rig, dsn, "wsgi:app") as port:
                rates[budgeted].append(_rate(port, "/api/ai/jobs", seconds / 2, BUDGET_CLIENTS))
    free, bound = (sum(rates[budgeted]) / 2 for budgeted in (False, True))
    return {"budgeted_per_second": round(bound), "free_per_second": round(free), "of_free": round(bound / free, 3)}


@contextmanager
def served(rig: Rig, dsn: str, app: str, **settings: object) -> Iterator[int]:
    """An application under gunicorn; its port."""
    from aijobs.cli.stack import free_port

    port = free_port()
    environment = rig.environment(dsn, **{"AIJOBS_AUTH": "open", "AIJOBS_BIND": f"127.0.0.1:{port}"} | settings)
    process = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "-c", str(gunicorn_file()), app],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: _answers(port), "gunicorn")
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _answers(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        connection.request("GET", "/health/live")
        connection.getresponse().read()
        return True
    except OSError:
        return False


def _rate(port: int, path: str, seconds: float, clients: int = CLIENTS) -> float:
    """Successful POSTs a second of clients that keep their connections."""
    _burst(port, path, lambda: 0.5, clients)
    return _burst(port, path, lambda: seconds, clients) / seconds


def _burst(port: int, path: str, seconds: Callable[[], float], clients: int) -> int:
    end_at = time.perf_counter() + seconds()
    done = [0] * clients
    threads = [threading.Thread(target=_client, args=(port, path, end_at, done, number)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done)


def _client(port: int, path: str, end_at: float, done: list[int], number: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    body = json.dumps({"kind": "noop", "payload": {"prompt": "x" * 200}})
    while time.perf_counter() < end_at:
        headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
        connection.request("POST", path, body, headers)
        reply = connection.getresponse()
        reply.read()
        if reply.status not in (201, 202):
            raise RuntimeError(f"{path} answered {reply.status}")
        done[number] += 1
