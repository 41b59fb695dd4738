"""What attempts report, by kind: how a batch of one kind is written, and what each report is answered.

Every one of them may be repeated after a broken connection: the statements recognise their own earlier success.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aijobs.domain.money import Price
from aijobs.store import attempts, calls, claims, gates
from aijobs.store.db import Connection

Write = Callable[[Connection, Sequence[Any]], list[Any]]


def _found(connection: Connection, values: Sequence[Any]) -> list[Any]:
    return [calls.find_earlier(connection, *value) for value in values]


@dataclass(frozen=True, slots=True)
class Leave:
    """Whether a request may leave, and at which price."""

    granted: bool
    price: Price | None


def _sent(connection: Connection, intents: Sequence[calls.Intent]) -> list[Any]:
    may_leave = calls.mark_sent(connection, intents)
    return [Leave(intent.job_id in may_leave, may_leave.get(intent.job_id)) for intent in intents]


def _named(connection: Connection, values: Sequence[Any]) -> list[Any]:
    return [calls.note_operation(connection, *value) for value in values]


def _ended(connection: Connection, endings: Sequence[calls.CallEnding]) -> list[Any]:
    finished = calls.finish(connection, endings)
    return [finished[ending.job_id, ending.step] for ending in endings]


def _learnt(connection: Connection, endings: Sequence[calls.CallEnding]) -> list[Any]:
    return [calls.finish_late(connection, ending, offered=True) for ending in endings]


def _asked(connection: Connection, values: Sequence[Any]) -> list[Any]:
    for value in values:
        calls.note_asked(connection, *value)
    return [None] * len(values)


def _forsaken(connection: Connection, values: Sequence[Any]) -> list[Any]:
    for value in values:
        calls.forsake(connection, *value)
    return [None] * len(values)


def _stopped(connection: Connection, values: Sequence[Any]) -> list[Any]:
    for value in values:
        calls.note_cancel(connection, *value)
    return [None] * len(values)


def _rejected(connection: Connection, values: Sequence[Any]) -> list[Any]:
    for value in values:
        calls.reject(connection, *value)
    return [None] * len(values)


def _refused(connection: Connection, refusals: Sequence[gates.Refusal]) -> list[Any]:
    return [gates.refuse(connection, refusal) for refusal in refusals]


def _taken(connection: Connection, values: Sequence[tuple[str, str]]) -> list[Any]:
    return [gates.taken(connection, provider=provider, key_fingerprint=key) for provider, key in values]


def _emitted(connection: Connection, said: Sequence[attempts.Said]) -> list[Any]:
    # A job has one piece in a statement: what it says twice in a batch is put together.
    joined: dict[tuple[UUID, UUID], str] = {}
    for one in said:
        joined[one.job_id, one.run_token] = joined.get((one.job_id, one.run_token), "") + one.text
    ours = attempts.emit(connection, [attempts.Said(*whose, text) for whose, text in joined.items()])
    return [one.job_id in ours for one in said]


def _progressed(connection: Connection, said: Sequence[attempts.Said]) -> list[Any]:
    ours = attempts.progress(connection, said)
    return [one.job_id in ours for one in said]


def _accepted(connection: Connection, results: Sequence[claims.Result]) -> list[Any]:
    accepted = claims.accept(connection, results)
    return [accepted[result.job_id] for result in results]


def _settled(connection: Connection, values: Sequence[Any]) -> list[Any]:
    return [claims.settle(connection, *value) for value in values]


# The reports after which a job looks different, or has another event than output.
SEEN = frozenset({"progressed", "accepted", "settled"})


def job_of(kind: str, value: Any) -> UUID:
    """The job that a report with events is about."""
    job_id: UUID = value[0] if kind == "settled" else value.job_id
    return job_id


# In the order in which a batch of several kinds is written: what leads to a call first, what ends an attempt last.
WRITES: Mapping[str, Write] = {
    "found": _found,
    "sent": _sent,
    "named": _named,
    "ended": _ended,
    "learnt": _learnt,
    "asked": _asked,
    "forsaken": _forsaken,
    "stopped": _stopped,
    "rejected": _rejected,
    "refused": _refused,
    "taken": _taken,
    "emitted": _emitted,
    "progressed": _progressed,
    "accepted": _accepted,
    "settled": _settled,
}
