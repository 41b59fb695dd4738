"""Hints are sent after the commit they speak of, coalesced, and known not to arrive where they cannot."""

from __future__ import annotations

import time

from aijobs.store.db import Connection, connect, take_notifications
from aijobs.store.notify import Notifier, listen_for_jobs


def hints(connection: Connection, seconds: float = 0.5) -> list[str]:
    heard: list[str] = []
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        heard += [payload for _, payload in take_notifications(connection)]
        time.sleep(0.005)
    return heard


def test_a_hint_names_the_queue_and_a_burst_is_few_hints(connection: Connection, database_url: str) -> None:
    assert listen_for_jobs(connection)
    notifier = Notifier(database_url, application_name="test")
    notifier.notify("first")
    assert "first" in hints(connection)
    for _ in range(1000):
        notifier.notify("burst")
    heard = hints(connection)
    assert 1 <= len(heard) < 50
    notifier.close()


def test_hints_that_were_waiting_at_the_close_are_sent(connection: Connection, database_url: str) -> None:
    listen_for_jobs(connection)
    notifier = Notifier(database_url, application_name="test")
    notifier.notify("last")
    notifier.close()
    assert hints(connection) == ["last"]


def test_a_listener_that_is_not_one_is_told(database_url: str) -> None:
    """As behind a transaction pooler, where the next statement is another session's."""

    class Pooled(Connection):
        def execute(self, *arguments, **options):  # type: ignore[no-untyped-def]
            super().execute("UNLISTEN *")
            return super().execute(*arguments, **options)

    with connect(database_url, application_name="test") as connection:
        connection.__class__ = Pooled
        assert not listen_for_jobs(connection)


def test_a_notifier_without_a_database_neither_raises_nor_blocks(database_url: str) -> None:
    notifier = Notifier("host=/nowhere port=1 dbname=x", application_name="test")
    started = time.monotonic()
    for _ in range(1000):
        notifier.notify("default")
    assert time.monotonic() - started < 0.5
    notifier.close()
