"""The HTTP API as a WSGI application."""

from __future__ import annotations

from flask import Flask

from aijobs.api import demo, events, health, hooks, jobs, operators, problems, usage
from aijobs.api.service import Service, service_of
from aijobs.config import Settings

__all__ = ["Service", "create_app", "service_of"]


def create_app(settings: Settings) -> Flask:
    """The application. It connects to nothing and starts no thread until a request needs it.

    Raises ConfigError when no database is configured. `service_of(app).close()` ends what it has opened.
    """
    app = Flask("aijobs", static_folder=None)
    # OPTIONS would be answered without a look at the key; and two slashes for one would be answered with a redirect.
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.merge_slashes = False
    Service.of(settings).install(app)
    hooks.install(app)
    problems.install(app)
    jobs.install(app)
    events.install(app)
    operators.install(app)
    usage.install(app)
    health.install(app)
    if settings.demo_page == "on":
        demo.install(app)
    return app
