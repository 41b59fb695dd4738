"""Probes. No key is needed and nothing about tenants is told."""

from __future__ import annotations

import logging

from flask import Flask, Response

from aijobs.api.correlation import request_id
from aijobs.api.problems import OUTAGE_RETRY_SECONDS, Problem
from aijobs.api.render import answer
from aijobs.api.service import service

log = logging.getLogger(__name__)


def install(app: Flask) -> None:
    app.add_url_rule("/health/live", "health_live", live)
    app.add_url_rule("/health/ready", "health_ready", ready)


def live() -> Response:
    """The process answers. The database is not asked: restarting us would not mend it."""
    return answer({"status": "pass"})


def ready() -> Response:
    """The database answers and its schema is at the level that this code needs."""
    obstacle = service().readiness.obstacle()
    if obstacle is not None:
        # The sentence may name hosts: it goes to the log, not to whoever asks.
        log.warning("not ready: %s", obstacle, extra={"request_id": request_id()})
        retry = {"Retry-After": str(OUTAGE_RETRY_SECONDS)}
        raise Problem("unavailable", "The database is away or its schema is not migrated.", headers=retry)
    return answer({"status": "pass", "checks": {"database": "pass", "schema": "pass"}})
