"""The error answers that providers give, as data: the shape is theirs, the sentences say that they are simulated."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any


@dataclass(frozen=True)
class ErrorAnswer:
    """One row: the status it comes with, and `type` and `code` as clients look at them."""

    status: int
    type: str
    code: str | None
    message: str

    def body(self) -> dict[str, Any]:
        return {"error": {"message": f"Simulated: {self.message}", "type": self.type, "param": None, "code": self.code}}


_INVALID = "invalid_request_error"

ERRORS: dict[str, ErrorAnswer] = {
    "invalid_request": ErrorAnswer(400, _INVALID, None, "the request is not valid."),
    "context_length_exceeded": ErrorAnswer(400, _INVALID, "context_length_exceeded", "the prompt is too long."),
    "content_policy_violation": ErrorAnswer(400, _INVALID, "content_policy_violation", "the prompt is not allowed."),
    "invalid_api_key": ErrorAnswer(401, _INVALID, "invalid_api_key", "the API key is wrong."),
    "billing_not_active": ErrorAnswer(402, "billing_error", "billing_not_active", "the account cannot be billed."),
    "permission_denied": ErrorAnswer(403, "permission_error", "permission_denied", "the key may not do this."),
    "model_not_found": ErrorAnswer(404, _INVALID, "model_not_found", "there is no such model."),
    "request_timeout": ErrorAnswer(408, "timeout_error", "request_timeout", "the request took too long."),
    "conflict": ErrorAnswer(409, "conflict_error", "conflict", "another request holds the lock."),
    "request_too_large": ErrorAnswer(413, _INVALID, "request_too_large", "the body is too large."),
    "unprocessable": ErrorAnswer(422, _INVALID, "unprocessable", "the request cannot be processed."),
    "rate_limit_exceeded": ErrorAnswer(429, "rate_limit_error", "rate_limit_exceeded", "too many requests a minute."),
    "slow_down": ErrorAnswer(429, "rate_limit_error", "slow_down", "the rate grew too fast."),
    "insufficient_quota": ErrorAnswer(429, "insufficient_quota", "insufficient_quota", "the quota is used up."),
    "credit_balance_exhausted": ErrorAnswer(
        429, "insufficient_quota", "credit_balance_exhausted", "the credit is used up."
    ),
    "server_error": ErrorAnswer(500, "server_error", None, "the server had an error."),
    "server_is_overloaded": ErrorAnswer(
        503, "service_unavailable_error", "server_is_overloaded", "the server is overloaded."
    ),
    "overloaded_error": ErrorAnswer(529, "overloaded_error", None, "overloaded."),
}

# What each status says when the script names no error. The first row of a status is its usual one.
_BY_STATUS: dict[int, ErrorAnswer] = {}
for _row in ERRORS.values():
    _BY_STATUS.setdefault(_row.status, _row)

# Gateways answer these, not the API behind them, and gateways speak HTML.
_GATEWAY = frozenset({502, 504, *range(520, 525)})

# By these a provider says that it did not do the work. Any other error may hide work that was done and is billed.
_REFUSED = (frozenset(range(300, 500)) - {408, 499}) | {501, 503, 521, 522, 523, 529}


def by_status(status: int, name: str | None = None) -> ErrorAnswer:
    """The row of that name, or the usual one of that status."""
    if name is not None:
        return ERRORS[name]
    kind = "server_error" if status >= 500 else _INVALID
    return _BY_STATUS.get(status) or ErrorAnswer(status, kind, None, f"status {status}.")


def is_html(status: int) -> bool:
    return status in _GATEWAY


def html(status: int) -> bytes:
    title = f"{status} {reason(status)}"
    return (
        f"<html><head><title>{title}</title></head><body><h1>{title}</h1><hr>simulated gateway</body></html>".encode()
    )


def may_have_worked(status: int) -> bool:
    """Whether an answer of that status leaves open that the work was done, and so counts as paid."""
    return status not in _REFUSED


def reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Overloaded" if status == 529 else "Unknown"
