"""From the provider's chunk to the reader of a stream, with as many streams and readers at once as fit by default."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import statistics
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from aijobs.cli.stack import free_port
from aijobs.store import tenants
from aijobs.store.db import Database
from tests.benchmarks import clock_provider
from tests.benchmarks.create import served
from tests.benchmarks.rig import Rig
from workers.emitter import TICK_SECONDS

_CONFIG = """
[providers.clock]
adapter = "openai-chat"
base_url = "http://127.0.0.1:{port}"

[kinds.clock]
uses = "chat"
provider = "clock"
model = "clock"
on_unknown = "fail"
"""


def streams(rig: Rig, *, readers: int = 200) -> dict[str, Any]:
    """The delay of every piece of text, in ticks of the workers' writing. Each piece is the time it was sent at."""
    dsn = rig.fresh_database()
    database = Database(dsn, application_name="bench")
    key = tenants.create_key(database, tenants.create_tenant(database, "bench readers"))
    database.close()
    port = free_port()
    config = Path(rig.config).with_name("clock.toml")
    config.write_text(_CONFIG.format(port=port))
    provider = multiprocessing.get_context("fork").Process(target=clock_provider.serve, args=(port,), daemon=True)
    provider.start()
    delays: list[float] = []
    try:
        with (
            rig.workers(dsn, AIJOBS_PROCESSES=2, AIJOBS_THREADS=readers // 2, AIJOBS_CONFIG=config),
            served(rig, dsn, "wsgi:app", AIJOBS_CONFIG=config, AIJOBS_AUTH="keys", AIJOBS_WEB_PROCESSES=2) as api,
        ):
            threads = [threading.Thread(target=_read, args=(api, key, delays)) for _ in range(readers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        provider.kill()
        provider.join()
    delays.sort()
    return {
        "readers": readers,
        "pieces_missing": readers * clock_provider.CHUNKS - len(delays),
        "p50_ticks": round(statistics.median(delays) / TICK_SECONDS, 2),
        "p99_ticks": round(delays[int(len(delays) * 0.99)] / TICK_SECONDS, 2),
    }


def _read(port: int, key: str, delays: list[float]) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    created = headers | {"Idempotency-Key": uuid.uuid4().hex, "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/api/ai/jobs", json.dumps({"kind": "clock", "payload": {"prompt": "x"}}), created)
    job = json.load(connection.getresponse())
    connection.request("GET", job["links"]["events"], headers=headers)
    answered = connection.getresponse()
    while line := answered.readline():
        if line.startswith(b"data: ") and b"job.output.delta" in line:
            arrived = time.time()
            delays += [arrived - float(sent) for sent in json.loads(line[6:])["text"].split()]
    connection.close()
