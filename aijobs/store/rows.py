"""From rows to domain values: the only place that knows both column names and fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aijobs.domain.jobs import Job, JobStatus


def job_from(row: Mapping[str, Any]) -> Job:
    """A job from any statement that returns the columns the API shows."""
    return Job(
        id=row["id"],
        tenant_id=row["tenant_id"],
        status=JobStatus(row["status"]),
        version=row["version"],
        kind=row["kind"],
        queue=row["queue"],
        priority=row["priority"],
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        cancel_requested=row["cancel_requested_at"] is not None,
        result=row["result"],
        error=row["error"],
        progress=row["progress"],
        metadata=row["metadata"],
        user_id=row["user_id"],
        trace_id=row["trace_id"],
        created_at=row["created_at"],
        run_at=row["run_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        reserved_micros=row["reserved_micros"],
        charged_micros=row["charged_micros"],
    )


_ATTEMPT_FIELDS = ("number", "outcome", "error", "started_at", "finished_at", "counted")
_CALL_FIELDS = (
    "step",
    "provider",
    "model",
    "stage",
    "sent_at",
    "first_byte_at",
    "http_status",
    "provider_request_id",
    "provider_cancel",
    "cost_basis",
    "cost_micros",
    "cost_ceiling_micros",
    "provider_operation_id",
    "late",
    "rejected",
    "ask_by",
    "asked_at",
)
_USAGE_FIELDS = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


def attempts_from(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Attempts with their calls, from the joined rows in order."""
    attempts: list[dict[str, Any]] = []
    for row in rows:
        if not attempts or attempts[-1]["number"] != row["number"]:
            attempts.append(
                {name: row[name] for name in _ATTEMPT_FIELDS}
                | {"worker": row["worker_id"], "accepted": row["attempt_accepted"], "calls": []}
            )
        if row["step"] is not None:
            attempts[-1]["calls"].append(_call_from(row))
    return attempts


def _call_from(row: Mapping[str, Any]) -> dict[str, Any]:
    usage = {name: row[name] for name in _USAGE_FIELDS}
    return {name: row[name] for name in _CALL_FIELDS} | {
        "outcome": row["call_outcome"],
        "finished_at": row["call_finished_at"],
        "error": row["call_error"],
        "accepted": row["call_accepted"],
        "usage": usage if any(value is not None for value in usage.values()) else None,
    }
