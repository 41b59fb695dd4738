"""Tenants and their API keys. A key is shown once; what is stored cannot be turned back into it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from aijobs.store.db import Database, fetch_all, fetch_one

SCOPES = ("submit", "read", "operate")
DEFAULT_SCOPES = ("submit", "read")
OPEN_TENANT = "open"
LONGEST_NAME = 200
_MARK = "aij_"
_PREFIX_CHARACTERS = 12
# Compared against when the prefix is unknown, so that both cases do the same work.
_NO_DIGEST = bytes(32)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """Who a request speaks for, and what it may do."""

    id: UUID
    tenant_id: UUID
    scopes: frozenset[str]


def create_tenant(db: Database, name: str, *, reuse: bool = False) -> UUID:
    """A new tenant's id; with `reuse` that of an existing one of the same name. ValueError if the name cannot be had.

    Source: sql/tenants/create_tenant.sql.
    """
    if not 1 <= len(name) <= LONGEST_NAME:
        raise ValueError(f"a tenant's name has 1 to {LONGEST_NAME} characters")
    with db.connection() as connection:
        row = fetch_one(connection, "tenants/create_tenant", {"id": uuid4(), "name": name, "reuse": reuse})
    if row is None:
        raise ValueError(f"there is a tenant named {name!r} already")
    return UUID(str(row["id"]))


def list_tenants(db: Database) -> list[dict[str, Any]]:
    """All tenants. Source: sql/tenants/list_tenants.sql."""
    with db.connection() as connection:
        return fetch_all(connection, "tenants/list_tenants", {})


def create_key(db: Database, tenant_id: UUID, *, scopes: Sequence[str] = DEFAULT_SCOPES, name: str = "") -> str:
    """A new API key, to be shown once. Raises LookupError for an unknown tenant.

    256 random bits need no slow hash: there is nothing to guess. Source: sql/tenants/create_key.sql.
    """
    prefix = base64.b32encode(secrets.token_bytes(8)).decode().lower()[:_PREFIX_CHARACTERS]
    key = f"{_MARK}{prefix}_{secrets.token_urlsafe(32)}"
    parameters = {
        "id": uuid4(),
        "tenant_id": tenant_id,
        "prefix": prefix,
        "digest": _digest(key),
        "scopes": list(scopes),
        "name": name,
    }
    with db.connection() as connection:
        if fetch_one(connection, "tenants/create_key", parameters) is None:
            raise LookupError(f"no tenant {tenant_id}")
    return key


def authenticate(db: Database, key: str) -> ApiKey | None:
    """Who the key speaks for; None for an unknown, malformed or revoked one. Source: sql/tenants/find_key.sql."""
    prefix = prefix_of(key)
    row = None
    if prefix is not None:
        with db.connection() as connection:
            row = fetch_one(connection, "tenants/find_key", {"prefix": prefix})
    stored = _NO_DIGEST if row is None else bytes(row["digest"])
    matches = hmac.compare_digest(stored, _digest(key))
    if row is None or not matches:
        return None
    return ApiKey(row["id"], row["tenant_id"], frozenset(row["scopes"]))


def list_keys(db: Database, tenant_id: UUID) -> list[dict[str, Any]]:
    """A tenant's keys by their prefixes. Source: sql/tenants/list_keys.sql."""
    with db.connection() as connection:
        return fetch_all(connection, "tenants/list_keys", {"tenant_id": tenant_id})


def revoke_key(db: Database, prefix: str) -> bool:
    """Revoke the key with this prefix (or the whole key); False if there is none.

    Source: sql/tenants/revoke_key.sql.
    """
    with db.connection() as connection:
        return fetch_one(connection, "tenants/revoke_key", {"prefix": prefix_of(prefix) or prefix}) is not None


def prefix_of(key: str) -> str | None:
    """The part of a key that finds its row, which is no secret; None if the text is not of a key's form."""
    mark, prefix, rest = key[: len(_MARK)], key[len(_MARK) : len(_MARK) + _PREFIX_CHARACTERS], key[16:17]
    well_formed = mark == _MARK and len(prefix) == _PREFIX_CHARACTERS and prefix.isascii() and prefix.isalnum()
    return prefix if well_formed and rest == "_" else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def new_webhook_secret() -> str:
    """A secret that signs a tenant's webhooks, in the form of Standard Webhooks. Its receivers need it as it is."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
