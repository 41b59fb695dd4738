"""Tenants have names of their own; API keys are shown once, stored as digests, and end when they are revoked."""

from __future__ import annotations

import re
import uuid
from uuid import UUID

import pytest

from aijobs.store import tenants
from aijobs.store.db import Connection, Database


def test_a_tenant_is_found_under_its_name_once(db: Database) -> None:
    first = tenants.create_tenant(db, "shop")
    with pytest.raises(ValueError, match="there is a tenant named 'shop' already"):
        tenants.create_tenant(db, "shop")
    assert tenants.create_tenant(db, "shop", reuse=True) == first
    assert [(row["id"], row["name"]) for row in tenants.list_tenants(db)] == [(first, "shop")]


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_a_tenants_name_is_neither_empty_nor_endless(db: Database, name: str) -> None:
    with pytest.raises(ValueError, match="1 to 200 characters"):
        tenants.create_tenant(db, name)


def test_a_key_speaks_for_its_tenant_with_its_scopes(db: Database, tenant: UUID) -> None:
    key = tenants.create_key(db, tenant, scopes=["read", "operate"])
    assert re.fullmatch(r"aij_[a-z2-7]{12}_[A-Za-z0-9_-]{43}", key)
    found = tenants.authenticate(db, key)
    assert found is not None
    assert found.tenant_id == tenant
    assert found.scopes == {"read", "operate"}


def test_a_key_may_submit_and_read_unless_it_is_told_otherwise(db: Database, api_key: str) -> None:
    found = tenants.authenticate(db, api_key)
    assert found is not None
    assert found.scopes == {"submit", "read"}


def test_what_is_stored_does_not_hold_the_key(db: Database, tenant: UUID, connection: Connection) -> None:
    key = tenants.create_key(db, tenant)
    secret = key[len("aij_aaaaaaaaaaaa_") :]
    row = connection.execute("SELECT ai_api_keys::text AS everything FROM ai_api_keys").fetchone()
    assert row is not None
    assert secret not in row["everything"]
    assert secret.encode().hex() not in row["everything"]


def test_two_keys_of_a_tenant_are_told_apart(db: Database, tenant: UUID) -> None:
    tenants.create_key(db, tenant, name="web")
    tenants.create_key(db, tenant, name="batch")
    listed = tenants.list_keys(db, tenant)
    assert [row["name"] for row in listed] == ["web", "batch"]
    assert len({row["prefix"] for row in listed}) == 2
    assert set(listed[0]) == {"prefix", "name", "scopes", "created_at", "revoked_at"}


def test_a_tenants_keys_are_not_listed_for_another(db: Database, api_key: str, other_tenant: UUID) -> None:
    assert tenants.list_keys(db, other_tenant) == []


def test_a_revoked_key_speaks_for_nobody(db: Database, tenant: UUID) -> None:
    key, other = tenants.create_key(db, tenant), tenants.create_key(db, tenant)
    prefix = tenants.prefix_of(key)
    assert prefix is not None
    assert tenants.revoke_key(db, prefix)
    assert not tenants.revoke_key(db, prefix), "it was revoked before"
    assert tenants.authenticate(db, key) is None
    assert tenants.authenticate(db, other) is not None
    assert tenants.revoke_key(db, other), "the whole key serves as well"


def test_the_right_prefix_with_another_secret_is_refused(db: Database, api_key: str) -> None:
    assert tenants.authenticate(db, api_key[:-1] + ("A" if api_key[-1] != "A" else "B")) is None
    assert tenants.authenticate(db, api_key[:17]) is None
    assert tenants.authenticate(db, api_key + "x") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "aij_",
        "aij_aaaaaaaaaaaa",
        "aij_aaaaaaaaaaaa_",
        "aij_aaaaaaaaaaaa_" + "x" * 100_000,
        "Bearer aij_aaaaaaaaaaaa_x",
        "aij_\x00aaaaaaaaaaa_x",
        "aij_\ud800aaaaaaaaaaa_x",
        "aij_١٢٣٤٥٦٧٨٩٠١٢_x",
        "aij_aaaaaaaaaaaa_\ud800",
        "aij_' OR 1=1 --_x",
    ],
)
def test_what_is_no_key_is_refused_without_an_error(db: Database, text: str) -> None:
    assert tenants.authenticate(db, text) is None


def test_no_key_is_made_for_a_tenant_that_does_not_exist(db: Database) -> None:
    with pytest.raises(LookupError):
        tenants.create_key(db, uuid.uuid4())
