"""What happens around every request: its id, who is admitted, its metric."""

from __future__ import annotations

from flask import Flask, Response, g, request

from aijobs import metrics
from aijobs.api.correlation import request_id
from aijobs.api.events import caller_of_token
from aijobs.api.service import service
from aijobs.clock import elapsed

# Metric names are made of these; a stranger's invented methods would make names without end.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def install(app: Flask) -> None:
    app.before_request(_begin)
    app.after_request(_end)


def _begin() -> None:
    g.begun_at = elapsed()
    authenticator = service().authenticator
    authenticator.admit(request.environ)
    # Also for addresses that do not exist: without a key the API tells nothing, not even what is there.
    if request.path == "/api" or request.path.startswith("/api/"):
        g.caller = caller_of_token() or authenticator.caller(request.environ)


def _end(response: Response) -> Response:
    response.headers["X-Request-Id"] = request_id()
    method = request.method if request.method in _METHODS else "other"
    milliseconds = (elapsed() - g.begun_at) * 1000
    metrics.api_request(request.endpoint or "unknown", method, response.status_code, milliseconds)
    return response
