"""What all requests of a process share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flask import Flask, current_app

from aijobs import kinds
from aijobs.api.auth import Authenticator, KeyAuthenticator, OpenAuthenticator
from aijobs.api.fanout import Fanout
from aijobs.api.readiness import Readiness
from aijobs.api.seats import Seats
from aijobs.config import Settings
from aijobs.kinds import Kind
from aijobs.store.db import Database
from aijobs.store.notify import Notifier

_NAME = "aijobs api"
_EXTENSION = "aijobs"
# A request that gets no connection within this time is told to come back; more would only fill the threads.
POOL_WAIT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Service:
    """The settings and everything that outlives a request. Connections and threads appear at their first use."""

    settings: Settings
    kinds: Mapping[str, Kind]
    db: Database
    notifier: Notifier
    authenticator: Authenticator
    readiness: Readiness
    fanout: Fanout
    seats: Seats

    @classmethod
    def of(cls, settings: Settings) -> Service:
        """Raises ConfigError when no database is configured."""
        dsn = settings.require_database_url()
        db = Database(dsn, application_name=_NAME, max_size=settings.pool_size, wait_seconds=POOL_WAIT_SECONDS)
        return cls(
            settings=settings,
            kinds=kinds.import_what_there_is(kinds.load(settings)),
            db=db,
            notifier=Notifier(dsn, application_name=_NAME),
            authenticator=OpenAuthenticator(db) if settings.auth == "open" else KeyAuthenticator(db),
            readiness=Readiness(dsn, application_name=_NAME),
            fanout=Fanout(settings.listen_url or dsn, application_name=_NAME),
            seats=Seats(settings.web_threads),
        )

    def install(self, app: Flask) -> None:
        app.extensions[_EXTENSION] = self

    def close(self) -> None:
        """Send the hints that wait, end the streams, and close this process's connections."""
        self.fanout.close()
        self.notifier.close()
        self.db.close()


def service() -> Service:
    """The service of the application that handles the current request."""
    return service_of(current_app)


def service_of(app: Flask) -> Service:
    """The service of an application that `create_app` made."""
    found: Service = app.extensions[_EXTENSION]
    return found
