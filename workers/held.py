"""What a worker process holds right now: its claims, how sure it is of their leases, and how to stop each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from aijobs.clock import elapsed
from aijobs.domain.claims import Claim
from aijobs.errors import ProviderError


class HeldClaim:
    """One claim in the hands of this process, shared by its slot and the heartbeat.

    `abort` may come from any thread at any time; the first reason stays. `confirmed_at` is when the last extension (or
    the claim itself) was *sent*, by the local clock: the database cannot have let the lease end before that plus the
    lease.
    """

    def __init__(self, claim: Claim, *, claimed_at: float, lease_seconds: float, attempt_seconds: float) -> None:
        expires_in = float("inf") if claim.expires_in_seconds is None else claim.expires_in_seconds
        self.claim = claim
        self.deadline_at = claimed_at + min(attempt_seconds, expires_in)
        self._expires_at = claimed_at + expires_in
        self._lease_seconds = lease_seconds
        self._confirmed_at = claimed_at
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._stop: Callable[[str], None] | None = None
        self.settling = False
        # The last call whose outcome is not known: a handler may swallow that, and must not have it repeated by that.
        self.unknown: ProviderError | None = None
        self._aborted_at: float | None = None
        self._thread_id: int | None = None  # of the handler, while it runs
        self._inside = False  # while the handler is in a method of ours
        self._given_up = False

    @property
    def stop_at(self) -> float:
        """When the handler has to be over: at its deadline, or when it was aborted before."""
        return self.deadline_at if self._aborted_at is None else min(self._aborted_at, self.deadline_at)

    @contextmanager
    def handled(self) -> Iterator[None]:
        """The calling thread runs the handler."""
        self._thread_id = threading.get_ident()
        try:
            yield
        finally:
            with self._lock:
                self._thread_id = None

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The handler is in a method of ours, which must not be interrupted, and ends by itself."""
        with self._lock:
            self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def interrupt(self, raise_in: Callable[[int], None]) -> None:
        """Raise something in the handler's thread, if it is in code of its own."""
        with self._lock:
            if self._thread_id is not None and not self._inside:
                raise_in(self._thread_id)

    def begin_to_settle(self, *, unless_inside: bool = False) -> bool:
        """Whether the caller is the one to settle the attempt: its slot, or whoever gives its handler up. Once."""
        with self._lock:
            if self._given_up or (unless_inside and (self._inside or self._thread_id is None)):
                return False
            self._given_up = unless_inside
            self.settling = True
            return True

    @property
    def reason(self) -> str | None:
        """Why the attempt is to stop, or None: cancelled, drain, lease_lost or expired."""
        if self._reason is None and elapsed() >= self._expires_at:
            return "expired"
        return self._reason

    def confirm(self, sent_at: float) -> None:
        self._confirmed_at = max(self._confirmed_at, sent_at)

    @property
    def safe_until(self) -> float:
        """Local time up to which no other worker can own the job. A tenth of the lease is kept as a margin."""
        return self._confirmed_at + 0.9 * self._lease_seconds

    def abort(self, reason: str) -> None:
        """Stop the attempt: what it is doing now, and whatever it would do next."""
        with self._lock:
            if self._reason is None:
                self._reason = reason
                self._aborted_at = elapsed()
            stop = self._stop
        if stop is not None:
            stop(self._reason)

    def while_stoppable_by(self, stop: Callable[[str], None] | None) -> None:
        """Say how the work in hand can be stopped; None when there is none. Stops it now if that was asked before."""
        with self._lock:
            self._stop = stop
            reason = self._reason
        if stop is not None and reason is not None:
            stop(reason)

    def lease_is_safe(self) -> bool:
        return elapsed() < self.safe_until


class Holdings:
    """All claims of the process, by job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: dict[UUID, HeldClaim] = {}

    def add(self, held: HeldClaim) -> None:
        with self._lock:
            self._claims[held.claim.job_id] = held

    def remove(self, held: HeldClaim) -> None:
        """Forget the claim, unless the job has meanwhile been claimed anew by this same process."""
        with self._lock:
            if self._claims.get(held.claim.job_id) is held:
                del self._claims[held.claim.job_id]

    def all(self) -> list[HeldClaim]:
        with self._lock:
            return list(self._claims.values())

    def __len__(self) -> int:
        return len(self._claims)
