"""What a tenant used, and what it may still spend."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Flask, Response, request

from aijobs.api.auth import allow
from aijobs.api.problems import Problem, not_found
from aijobs.api.render import answer
from aijobs.api.service import service
from aijobs.store import ledger, usage
from aijobs.store.usage import GROUPS, Period

DEFAULT_DAYS = 30
_CURRENCY = "USD"
_PARAMETERS = ("from", "to", "group_by")


def install(app: Flask) -> None:
    app.add_url_rule("/api/ai/usage", "usage", summary, methods=["GET"])
    app.add_url_rule("/api/ai/budget", "budget", budget, methods=["GET"])


def summary() -> Response:
    """Sums over the tenant's jobs created in a period: the last thirty days unless it says otherwise."""
    caller = allow("read")
    unknown = sorted(set(request.args) - set(_PARAMETERS))
    if unknown or any(len(request.args.getlist(name)) > 1 for name in _PARAMETERS):
        raise Problem("invalid_query", f"Known are, once each: {', '.join(_PARAMETERS)}.")
    group_by = request.args.get("group_by")
    if group_by is not None and group_by not in GROUPS:
        raise Problem("invalid_query", f"group_by must be one of: {', '.join(GROUPS)}.")
    now = datetime.now(UTC)
    end = _moment("to") or now + timedelta(seconds=1)
    start = _moment("from") or end - timedelta(days=DEFAULT_DAYS)
    rows = usage.summary(service().db, Period(start, end), group_by=group_by, tenant_id=caller.tenant_id)
    return answer({"currency": _CURRENCY, "from": _text(start), "to": _text(end), "data": rows})


def budget() -> Response:
    """The tenant's balance. Without a budget, what is reserved and charged is not bounded, and is not shown here."""
    caller = allow("read")
    if request.args:
        raise Problem("invalid_query", "This takes no query.")
    balance = ledger.balance(service().db, caller.tenant_id)
    if balance is None:
        raise not_found()
    document: dict[str, Any] = {"currency": _CURRENCY, "budgeted": balance.budgeted}
    if balance.budgeted:
        document |= {
            "granted_micros": balance.granted_micros,
            "reserved_micros": balance.reserved_micros,
            "charged_micros": balance.charged_micros,
            "available_micros": balance.available_micros,
        }
    return answer(document)


def _moment(name: str) -> datetime | None:
    text = request.args.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))  # a plus sign in a query is read as a space
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Problem("invalid_query", f"{name} must be a date or an RFC 3339 time.") from None
    if not 2000 <= moment.year <= 9998:
        raise Problem("invalid_query", f"{name} must lie in the years 2000 to 9998.")
    return moment


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
