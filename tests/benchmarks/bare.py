"""The least that a create could be: a Flask view, one INSERT, one commit."""

from __future__ import annotations

import json
import os
import uuid

from flask import Flask, request
from psycopg_pool import ConnectionPool

app = Flask(__name__)
_pools: dict[int, ConnectionPool] = {}


@app.post("/bare")
def bare() -> tuple[dict[str, str], int]:
    made = uuid.uuid4()
    with _pool().connection() as connection:
        connection.execute("INSERT INTO bare (id, payload) VALUES (%s, %s)", [made, json.dumps(request.get_json())])
    return {"id": str(made)}, 201


@app.get("/health/live")
def live() -> dict[str, str]:
    return {}


def _pool() -> ConnectionPool:
    if os.getpid() not in _pools:
        dsn = os.environ["AIJOBS_DATABASE_URL"]
        _pools[os.getpid()] = ConnectionPool(dsn, kwargs={"autocommit": True}, min_size=0, max_size=8, open=True)
    return _pools[os.getpid()]
