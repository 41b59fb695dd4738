"""Who is asking, and what they may do."""

from __future__ import annotations

import hashlib
import re
import threading
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Protocol
from uuid import UUID

from flask import g

from aijobs.api.problems import Problem
from aijobs.clock import elapsed
from aijobs.store import tenants
from aijobs.store.db import Database

# A revoked key may work this much longer in a process that has just seen it.
REMEMBER_KEY_SECONDS = 5.0
MOST_REMEMBERED_KEYS = 10_000
_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
_LOCAL_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf the current request is made."""

    tenant_id: UUID
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        return scope in self.scopes


class Authenticator(Protocol):
    def admit(self, environ: dict[str, Any]) -> None:
        """Raise Problem if a request like this must not be answered at all."""

    def caller(self, environ: dict[str, Any]) -> Caller:
        """Who makes the request. Raises Problem `unauthenticated`, and StoreUnavailable."""
        ...


def allow(scope: str) -> Caller:
    """The current caller. Raises Problem `forbidden` unless their key has the scope: submit, read or operate."""
    caller: Caller = g.caller
    if not caller.may(scope):
        challenge = {"WWW-Authenticate": f'Bearer realm="aijobs", error="insufficient_scope", scope="{scope}"'}
        raise Problem("forbidden", f"The API key lacks the scope {scope!r}.", headers=challenge)
    return caller


class KeyAuthenticator:
    """Bearer API keys. A key that was found is remembered for a few seconds, under its digest and not as it is."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._remembered: dict[bytes, tuple[Caller, float]] = {}
        self._changing = threading.Lock()

    def admit(self, environ: dict[str, Any]) -> None:
        return

    def caller(self, environ: dict[str, Any]) -> Caller:
        header = environ.get("HTTP_AUTHORIZATION")
        if header is None:
            raise _unauthenticated("Send an API key: Authorization: Bearer aij_...", 'Bearer realm="aijobs"')
        bearer = _BEARER.fullmatch(header.strip(" \t"))
        caller = None if bearer is None else self._caller_of(bearer[1])
        if caller is None:
            # One answer for a malformed, an unknown and a revoked key.
            raise _unauthenticated("The API key is not valid.", 'Bearer realm="aijobs", error="invalid_token"')
        return caller

    def _caller_of(self, key: str) -> Caller | None:
        digest = hashlib.sha256(key.encode()).digest()
        remembered = self._remembered.get(digest)
        if remembered is not None and elapsed() < remembered[1]:
            return remembered[0]
        asked_at = elapsed()
        found = tenants.authenticate(self._db, key)
        with self._changing:
            self._remembered.pop(digest, None)
            if found is None:
                return None
            if len(self._remembered) >= MOST_REMEMBERED_KEYS:
                del self._remembered[next(iter(self._remembered))]
            caller = Caller(found.tenant_id, found.scopes)
            self._remembered[digest] = (caller, asked_at + REMEMBER_KEY_SECONDS)
        return caller


class OpenAuthenticator:
    """One tenant and no keys, for a developer's own machine: nobody else is admitted.

    A browser page of another origin is kept out by the Host check (a name that resolves to this machine is still not
    `localhost`), a proxy by the headers that it adds, and the network by the peer's address.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._tenant_id: UUID | None = None

    def admit(self, environ: dict[str, Any]) -> None:
        if any(name.startswith(("HTTP_FORWARDED", "HTTP_X_FORWARDED")) for name in environ):
            raise Problem("forbidden", "AIJOBS_AUTH=open answers no request that came through a proxy.")
        if not _LOCAL_HOST.fullmatch(environ.get("HTTP_HOST", "")):
            raise Problem("forbidden", "AIJOBS_AUTH=open answers only requests to localhost, 127.0.0.1 or [::1].")
        if not _is_loopback(environ.get("REMOTE_ADDR", "")):
            raise Problem("forbidden", "AIJOBS_AUTH=open answers only requests from this machine.")

    def caller(self, environ: dict[str, Any]) -> Caller:
        if self._tenant_id is None:
            self._tenant_id = tenants.create_tenant(self._db, tenants.OPEN_TENANT, reuse=True)
        return Caller(self._tenant_id, frozenset(tenants.SCOPES))


def _unauthenticated(detail: str, challenge: str) -> Problem:
    return Problem("unauthenticated", detail, headers={"WWW-Authenticate": challenge})


def _is_loopback(address: str) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback
