"""The synchronous client of the HTTP API. Needs requests; nothing of the server is imported."""

from __future__ import annotations

from aijobs.client.client import Client
from aijobs.client.errors import (
    ApiError,
    ClientError,
    Forbidden,
    IdempotencyKeyReused,
    InsufficientBudget,
    JobCancelled,
    JobFailed,
    JobHeld,
    JobNotSucceeded,
    NotFound,
    RateLimited,
    StreamBroken,
    Unauthorized,
    Unavailable,
    ValidationFailed,
    WaitTimeout,
)
from aijobs.client.events import Event, EventStream
from aijobs.client.jobs import Job
from aijobs.client.text import Reset, TextStream

__all__ = [
    "Client",
    "Job",
    "Event",
    "EventStream",
    "TextStream",
    "Reset",
    "ClientError",
    "ApiError",
    "ValidationFailed",
    "IdempotencyKeyReused",
    "InsufficientBudget",
    "RateLimited",
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "Unavailable",
    "StreamBroken",
    "WaitTimeout",
    "JobNotSucceeded",
    "JobFailed",
    "JobCancelled",
    "JobHeld",
]
