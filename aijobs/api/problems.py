"""Every error that a client can get, as RFC 9457 problem details."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from aijobs.api.correlation import request_id
from aijobs.errors import (
    AijobsError,
    Contention,
    InsufficientBudget,
    NoKnownPrice,
    StoreUnavailable,
    UnstorableValue,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProblemType:
    """What all occurrences of a problem have in common. `retryable`: the same request may succeed later."""

    status: int
    title: str
    retryable: bool = False


PROBLEMS = {
    "bad_request": ProblemType(400, "The request cannot be understood"),
    "invalid_query": ProblemType(400, "The query string is not valid here"),
    "malformed_json": ProblemType(400, "The body is not acceptable JSON"),
    "idempotency_key_missing": ProblemType(400, "Creating a job needs an Idempotency-Key"),
    "idempotency_key_invalid": ProblemType(400, "The Idempotency-Key is malformed"),
    "unauthenticated": ProblemType(401, "A valid API key is needed"),
    "insufficient_budget": ProblemType(402, "The budget does not cover this job's reservation"),
    "forbidden": ProblemType(403, "This caller may not do that"),
    "not_found": ProblemType(404, "There is nothing here"),
    "method_not_allowed": ProblemType(405, "This method is not supported here"),
    "request_timeout": ProblemType(408, "The body did not arrive in time", retryable=True),
    "idempotency_key_reused": ProblemType(409, "The Idempotency-Key belongs to another request"),
    "wrong_status": ProblemType(409, "The job's status does not allow this"),
    "no_stored_result": ProblemType(409, "No stored answer can be the job's result"),
    "payload_too_large": ProblemType(413, "The body is too large"),
    "unsupported_media_type": ProblemType(415, "The body must be uncompressed application/json"),
    "validation_error": ProblemType(422, "The request is not valid"),
    "internal_error": ProblemType(500, "Something went wrong here", retryable=True),
    "not_configured": ProblemType(501, "This is not set up here"),
    "unavailable": ProblemType(503, "The service is not available now", retryable=True),
}
_CODE_OF_STATUS = {problem.status: code for code, problem in PROBLEMS.items() if problem.status not in (400, 409)}

# How soon a client should come back: a lock is gone in a moment, a database takes longer to return.
CONTENTION_RETRY_SECONDS = 1
OUTAGE_RETRY_SECONDS = 5


class Problem(AijobsError):
    """Raised to answer the current request with a problem.

    `code` is a key of PROBLEMS, `detail` a sentence for the client's developer, `errors` what is wrong where.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers or {})


def not_found() -> Problem:
    """The answer for an unknown address, an unknown id, a malformed id and another tenant's id: all look the same."""
    return Problem("not_found", "There is no such resource, or it is not yours.")


def render(problem: Problem) -> Response:
    kind = PROBLEMS[problem.code]
    body: dict[str, Any] = {
        "type": f"urn:aijobs:problem:{problem.code}",
        "title": kind.title,
        "status": kind.status,
        "detail": problem.detail,
        "instance": f"urn:aijobs:request:{request_id()}",
        "code": problem.code,
        "request_id": request_id(),
        "retryable": kind.retryable,
    }
    if problem.errors:
        body["errors"] = list(problem.errors)
    headers = {"Cache-Control": "no-store"} | problem.headers
    return Response(json.dumps(body), kind.status, headers, content_type="application/problem+json")


def install(app: Flask) -> None:
    """Answer every error of the application with a problem."""
    app.register_error_handler(Problem, render)
    app.register_error_handler(HTTPException, _http_exception)
    app.register_error_handler(Contention, _contention)
    app.register_error_handler(StoreUnavailable, _store_unavailable)
    app.register_error_handler(UnstorableValue, _unstorable)
    app.register_error_handler(InsufficientBudget, _insufficient_budget)
    app.register_error_handler(NoKnownPrice, _no_known_price)
    app.register_error_handler(Exception, _internal)


def _http_exception(error: HTTPException) -> Response:
    """What Flask itself refuses: an unknown address, a wrong method, an unreadable request."""
    code = _CODE_OF_STATUS.get(error.code or 500, "bad_request" if (error.code or 500) < 500 else "internal_error")
    if code == "not_found":
        return render(not_found())
    headers = {}
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(sorted(error.valid_methods or ()))
    return render(Problem(code, error.description or PROBLEMS[code].title, headers=headers))


def _contention(error: Contention) -> Response:
    detail = "Another request holds what this one needs; the same request may be sent again."
    return render(Problem("unavailable", detail, headers={"Retry-After": str(CONTENTION_RETRY_SECONDS)}))


def _store_unavailable(error: StoreUnavailable) -> Response:
    log.warning("the database is not available: %s", error, extra={"request_id": request_id()})
    detail = "The database cannot be reached; the same request, with the same key, may be sent again."
    return render(Problem("unavailable", detail, headers={"Retry-After": str(OUTAGE_RETRY_SECONDS)}))


def _insufficient_budget(error: InsufficientBudget) -> Response:
    detail = (
        "What is granted and neither reserved nor charged does not cover it. GET /api/ai/budget says how much that is."
    )
    return render(Problem("insufficient_budget", detail))


def _no_known_price(error: NoKnownPrice) -> Response:
    fault = {"pointer": "#/kind", "detail": "Its price is not known, so that nothing can be reserved for it."}
    return render(Problem("validation_error", "A tenant with a budget needs a known price.", errors=[fault]))


def _unstorable(error: UnstorableValue) -> Response:
    return render(Problem("validation_error", "The request holds a value that cannot be stored."))


def _internal(error: Exception) -> Response:
    """The last resort, so that a defect is one answer and one log line, and not a broken connection.

    The line names the places in the code and the types of the errors. Their messages may quote a payload, as
    PostgreSQL's do with a failing row, so that they are left out.
    """
    types, cause = [], error  # type: tuple[list[str], BaseException | None]
    while cause is not None:
        types.append(type(cause).__name__)
        cause = cause.__cause__
    places = "".join(traceback.format_tb(error.__traceback__))
    extra = {"request_id": request_id(), "route": request.endpoint}
    log.error("internal error: %s\n%s", " from ".join(types), places, extra=extra)
    return render(Problem("internal_error", "The error has been logged under this request_id."))
