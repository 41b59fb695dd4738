"""From a create's JSON value to a job that can be stored."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from marshmallow import ValidationError

from aijobs.api.problems import Problem
from aijobs.api.schemas import MOST_ERRORS, JobRequest, located
from aijobs.config import KindSettings
from aijobs.domain.idempotency import canonical_json
from aijobs.domain.jobs import NewJob, Terms
from aijobs.domain.money import estimated_tokens
from aijobs.domain.uuid7 import uuid7
from aijobs.domain.webhooks import Network, fault_of
from aijobs.kinds import Kind

_ENVELOPE = JobRequest()


def new_job(
    document: Any,
    kinds: Mapping[str, Kind],
    *,
    tenant_id: UUID,
    idempotency_key: str,
    request_hash: bytes,
    trace_id: str,
    webhooks_allow: Sequence[Network] = (),
) -> NewJob:
    """The job that the document asks for. Raises Problem `validation_error` with everything that is wrong.

    `webhooks_allow` has the private networks that a webhook may go to.
    """
    wanted, payload, errors = _validated(document, kinds, webhooks_allow)
    if errors:
        raise Problem("validation_error", "See errors for what is wrong where.", errors=errors)
    kind = kinds[wanted["kind"]].settings
    return NewJob(
        id=uuid7(time.time_ns() // 1_000_000, os.urandom(10)),
        tenant_id=tenant_id,
        idempotency_key=idempotency_key,
        request_hash=request_hash,
        kind=kind.name,
        provider=kind.provider,
        # Only a chat's payload may name a model; what a handler's payload means, the handler alone knows.
        model=payload.get("model", kind.model) if kind.uses == "chat" else kind.model,
        queue=wanted["queue"],
        priority=wanted["priority"],
        payload_json=canonical_json(document["payload"]),
        metadata_json=canonical_json(wanted["metadata"]),
        user_id=wanted["user_id"],
        trace_id=trace_id,
        webhook_url=wanted["webhook_url"],
        run_at=wanted["run_at"],
        expires_at=wanted["expires_at"],
        max_attempts=wanted["max_attempts"] or kind.default_max_attempts,
        on_unknown=wanted["on_unknown"] or kind.on_unknown or "hold",
        max_unknown_retries=(
            kind.max_unknown_retries if wanted["max_unknown_retries"] is None else wanted["max_unknown_retries"]
        ),
        terms=terms_of(kind, payload),
    )


def terms_of(kind: KindSettings, payload: Any) -> Terms:
    """What a job of this kind, with this payload, is to cost its tenant."""
    tariff = kind.tariff
    reserve = kind.reserve_micros
    if reserve is None and tariff != "metered":
        reserve = kind.price_micros or 0
    most = payload.get("max_tokens") if isinstance(payload, Mapping) else None
    return Terms(
        tariff=tariff,
        price_micros=kind.price_micros,
        margin_percent=kind.margin_percent or 0,
        on_cancel=kind.on_cancel,
        reserve_micros=reserve,
        input_tokens=estimated_tokens(len(json.dumps(payload, default=str))),
        output_tokens=most if type(most) is int else None,
    )


def _validated(
    document: Any, kinds: Mapping[str, Kind], webhooks_allow: Sequence[Network]
) -> tuple[dict[str, Any], Any, list[dict[str, str]]]:
    """The envelope, the payload as its kind reads it, and what is wrong with either."""
    if not isinstance(document, dict):
        return {}, None, [{"pointer": "#", "detail": "Not an object."}]
    messages: dict[str, Any] = {}
    wanted: dict[str, Any] = {}
    try:
        wanted = _ENVELOPE.load(document)
    except ValidationError as error:
        messages |= error.messages_dict
    if wanted.get("webhook_url") is not None:
        fault = fault_of(wanted["webhook_url"], webhooks_allow)
        messages |= {} if fault is None else {"webhook_url": [fault]}
    kind = kinds.get(document["kind"]) if isinstance(document.get("kind"), str) else None
    payload = document.get("payload")
    if kind is not None:
        messages |= _beyond_the_kind(document, kind)
        if kind.schema is not None and isinstance(payload, dict):
            try:
                payload = kind.schema.load(payload)
            except ValidationError as error:
                messages["payload"] = error.messages
    elif "kind" not in messages:
        messages["kind"] = [_unknown_kind(kinds)]
    return wanted, payload, list(itertools.islice(located(messages), MOST_ERRORS))


def _beyond_the_kind(document: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """What a job may not ask for: more attempts or repeats than its kind, or a repeat that its kind does not want."""
    told: dict[str, Any] = {}
    settings = kind.settings
    for name, most in (
        ("max_attempts", settings.maximum_attempts),
        ("max_unknown_retries", settings.max_unknown_retries),
    ):
        given = document.get(name)
        if isinstance(given, int) and given > most:
            told[name] = [f"Must be {most} at most for this kind."]
    if document.get("on_unknown") == "retry" and settings.on_unknown != "retry":
        told["on_unknown"] = ["This kind does not repeat what may have been paid for; hold or fail may be asked for."]
    return told


def _unknown_kind(kinds: Mapping[str, Kind]) -> str:
    if not kinds:
        return "No kinds are configured: the server has no AIJOBS_CONFIG."
    return f"Unknown kind. Configured are: {', '.join(sorted(kinds))}."
