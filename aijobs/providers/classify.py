"""From what a provider answered, or did not, to what will be done about it. Data first, exceptions never.

The exception classes of `requests` do not tell "never sent" from "sent", so the phase decides: before the last byte of
the request has left, nothing can have been done; after it, only an answer that says so proves that nothing was done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from aijobs.domain.failures import ErrorClass, Failure
from aijobs.providers.exchange import Exchange
from aijobs.providers.quoting import quotable
from aijobs.providers.transport import TransportFailure
from aijobs.retry_after import retry_after_seconds

_P, _T, _U, _G = ErrorClass.PERMANENT, ErrorClass.TRANSIENT, ErrorClass.UNKNOWN, ErrorClass.GATE


@dataclass(frozen=True, slots=True)
class _Meaning:
    error_class: ErrorClass
    code: str
    words: str
    refused: bool = False


_KEY_REJECTED = _Meaning(_G, "provider_key_rejected", "The provider rejects our key.", refused=True)
_NO_MONEY = _Meaning(_G, "provider_account_stopped", "The provider's account is out of money.", refused=True)
_QUOTA = _Meaning(_G, "provider_quota_used_up", "The provider's account is at its quota or spend limit.", refused=True)
_RATE = _Meaning(_T, "rate_limited", "The provider's rate limit is reached.", refused=True)
_OVERLOADED = _Meaning(_T, "provider_overloaded", "The provider is overloaded.", refused=True)
_UNREACHABLE = _Meaning(_T, "provider_unreachable", "The gateway could not reach the provider.")
_REFUSED = _Meaning(_P, "provider_refused_request", "The provider refuses this request.")
_TOO_LONG = _Meaning(_P, "context_length_exceeded", "The request is longer than the model's context.")
_FILTERED = _Meaning(_P, "content_filtered", "The provider's filter refuses this content.")
_PROXY_DENIED = _Meaning(_P, "proxy_denied", "The proxy demands credentials.")
_NOT_READ = _Meaning(_T, "request_not_read", "The provider says that it did not get the whole request.")
_FAILED = _Meaning(_U, "provider_error", "The provider failed; whether it did the work is not known.")

# The statuses whose meaning differs from their hundred's. `refused`: the provider says that it did not take the work.
_BY_STATUS: dict[int, _Meaning] = {
    401: _KEY_REJECTED,
    402: _NO_MONEY,
    407: _PROXY_DENIED,
    408: _Meaning(_U, "provider_timeout", "The provider gave up waiting; whether it had the request is not known."),
    409: _Meaning(_T, "provider_conflict", "The provider reports a conflict with another request."),
    425: _Meaning(_T, "provider_too_early", "The provider was not ready for the request."),
    429: _RATE,
    499: _Meaning(_U, "provider_closed", "A gateway closed the request; the work may have been done."),
    503: _OVERLOADED,
    521: _UNREACHABLE,
    522: _UNREACHABLE,
    523: _UNREACHABLE,
    529: _OVERLOADED,
}
_BY_HUNDRED: dict[int, _Meaning] = {
    1: _Meaning(_U, "unexpected_reply", "The provider answered with an interim status."),
    2: _Meaning(_U, "unexpected_reply", "The provider's answer is not of the expected form."),
    3: _Meaning(_P, "provider_redirect", "The provider redirects; redirects are never followed. Correct its base_url."),
    4: _REFUSED,
    5: _FAILED,
}
# What a body's `code` or `type` says. Money and keys stop every job, overload stops none.
_BY_NAME: dict[str, _Meaning] = {
    "insufficient_quota": _QUOTA,
    "credit_balance_exhausted": _QUOTA,
    "organization_spend_limit_exceeded": _QUOTA,
    "project_spend_limit_exceeded": _QUOTA,
    "organization_usage_limit_exceeded": _QUOTA,
    "billing_hard_limit_reached": _QUOTA,
    "billing_error": _NO_MONEY,
    "organization_on_hold": _NO_MONEY,
    "enforced_spend_limit_reached": _QUOTA,
    "contract_spend_limit_reached": _QUOTA,
    "invalid_api_key": _KEY_REJECTED,
    "authentication_error": _KEY_REJECTED,
    "rate_limit_exceeded": _RATE,
    "rate_limit_error": _RATE,
    "slow_down": _RATE,
    "ramp_limit_exceeded": _RATE,
    "server_is_overloaded": _OVERLOADED,
    "overloaded_error": _OVERLOADED,
    "service_unavailable_error": _OVERLOADED,
    "unavailable_error": _Meaning(_T, "provider_overloaded", "The provider is loading its model.", refused=True),
    "request_body_timeout": _NOT_READ,
    "invalid_request_error": _REFUSED,
    "invalid_prompt": _REFUSED,
    "context_length_exceeded": _TOO_LONG,
    "content_filter": _FILTERED,
    "content_policy_violation": _FILTERED,
}
# The statuses under which a name may speak of the account: a gateway's 502 that quotes an error proves nothing.
_ACCOUNT_STATUSES = frozenset({400, 401, 402, 403, 429})

# Before the request has left, by phase: nothing was done, so it is safe to repeat.
_UNSENT = {
    "new": _Meaning(_T, "connect_failed", "The provider could not be reached."),
    "resolving": _Meaning(_T, "name_not_resolved", "The provider's host name could not be resolved."),
    "connecting": _Meaning(_T, "connect_failed", "The provider could not be reached."),
    "connected": _Meaning(_T, "connect_failed", "The connection to the provider broke before the request was sent."),
    "sending": _Meaning(_T, "send_failed", "The connection broke before the whole request was sent."),
}
_CERTIFICATE = _Meaning(_P, "provider_certificate", "The provider's certificate does not verify, or it speaks no TLS.")
_LOST = {
    "sent": _Meaning(_U, "reply_lost", "The request was sent and no reply came."),
    "headers": _Meaning(_U, "reply_cut", "The reply broke off before its end."),
}


def of_response(
    status: int, headers: Mapping[str, str], body: Any, now: datetime, *, private: Iterable[str] = ()
) -> Failure:
    """The failure that a complete answer with an error status means.

    `body` is parsed JSON, or None. What the provider says is passed on when the request itself is at fault, unless it
    repeats one of the `private` texts.
    """
    meaning = _by_status(status)
    named = _named(body)
    # A name makes the status more exact and does not overrule it: OpenAI calls a bad key an invalid request as well.
    if named is not None and (
        named.error_class is meaning.error_class or _is_about_account(named, status) or named is _NOT_READ
    ):
        meaning = named
    words = f"HTTP {status}. {meaning.words}"
    if meaning.error_class is _P and (said := quotable(_sentence(body), private)):
        words = f"{words} It says: {said}"
    return _failure(meaning, words, retry_after_seconds(headers, now))


def of_error_in_reply(body: Any, *, had_output: bool, private: Iterable[str] = ()) -> Failure:
    """The failure that an error inside a reply of status 200 means: after output, work was done and may be billed.

    Before it, a name or a status in the error says what happened. Even then the request was taken, so that the attempt
    counts, unless the account is at fault.
    """
    meaning = _named(body) or _by_code(body)
    if had_output or meaning is None or meaning.error_class is _U:
        return Failure(_U, "stream_error", "The provider reported an error inside its reply.")
    meaning = replace(meaning, refused=meaning.error_class is _G)
    words = f"Inside the reply: {meaning.words}"
    if meaning.error_class is _P and (said := quotable(_sentence(body), private)):
        words = f"{words} It says: {said}"
    return _failure(meaning, words, None)


def of_transport(failure: TransportFailure, exchange: Exchange) -> Failure:
    """The failure that a broken exchange means, by its phase."""
    if exchange.sent_possible:
        if exchange.reason is not None:
            return Failure(_U, f"aborted_{exchange.reason}", "The call was ended after it had been sent.")
        meaning = _LOST[exchange.phase]
    elif failure.trust:
        meaning = _CERTIFICATE
    elif failure.proxy_denied:
        meaning = _PROXY_DENIED
    else:
        meaning = _UNSENT[exchange.phase]
    return _failure(meaning, f"{meaning.words} ({type(failure.cause).__name__})", None)


def _is_about_account(named: _Meaning, status: int) -> bool:
    return named.error_class is _G and status in _ACCOUNT_STATUSES


def _by_status(status: int) -> _Meaning:
    return _BY_STATUS.get(status) or _BY_HUNDRED.get(status // 100, _FAILED)


def _named(body: Any) -> _Meaning | None:
    """What the names in an error body mean. A code is more exact than a type, a gate more urgent than both.

    Anthropic's code stands in the details.
    """
    error = _error(body)
    details = error.get("details")
    named = details.get("error_code") if isinstance(details, dict) else None
    names = (named, error.get("code"), error.get("type"))
    meanings = [_BY_NAME[name] for name in names if isinstance(name, str) and name in _BY_NAME]
    gates = [meaning for meaning in meanings if meaning.error_class is _G]
    return next(iter(gates or meanings), None)


def _by_code(body: Any) -> _Meaning | None:
    """What the status means that compatible servers write into `code`, as a number or as a text."""
    code = _error(body).get("code")
    if isinstance(code, str) and code.isascii() and code.isdecimal() and len(code) == 3:
        code = int(code)
    return _by_status(code) if type(code) is int and 400 <= code <= 599 else None


def _error(body: Any) -> Mapping[str, Any]:
    """The error object of a body; `error` may be an object, a text or missing."""
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


def _sentence(body: Any) -> Any:
    """What the provider says in words."""
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    return error.get("message") if isinstance(error, dict) else error or body.get("message")


def _failure(meaning: _Meaning, words: str, retry_after: float | None) -> Failure:
    return Failure(meaning.error_class, meaning.code, words, refused=meaning.refused, retry_after_seconds=retry_after)
