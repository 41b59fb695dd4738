"""Tokens with which a browser may follow one job: its EventSource sends no header, and an address may be logged.

Signed and not stored: nothing has to be looked up or forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from itsdangerous import BadData, URLSafeTimedSerializer

# Long enough for a slow answer and a few reconnections; a page asks for another when it is over.
VALID_SECONDS = 15 * 60
_SALT = "aijobs stream"


def sign(secret_keys: Sequence[str], tenant_id: UUID, job_id: UUID) -> str:
    """A token for this job's events. The first key signs."""
    return _serializer(secret_keys).dumps([tenant_id.hex, job_id.hex])


def tenant_of(secret_keys: Sequence[str], token: str, job_id: UUID) -> UUID | None:
    """Whose job it is; None for a token that is not ours, not valid any more, or another job's."""
    try:
        tenant, job = _serializer(secret_keys).loads(token, max_age=VALID_SECONDS)
        return UUID(tenant) if UUID(job) == job_id else None
    except (BadData, ValueError, TypeError, AttributeError):
        return None


def _serializer(secret_keys: Sequence[str]) -> URLSafeTimedSerializer:
    # The library signs with the last key of a list and verifies with all.
    return URLSafeTimedSerializer(list(reversed(secret_keys)), salt=_SALT)
