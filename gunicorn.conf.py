"""How gunicorn serves the API. Command-line options go over this file.

SIGHUP rereads the settings. It does not load new code, because the master has loaded it for this file: after an upgrade
restart gunicorn.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aijobs import logs, metrics
from aijobs.api.gunicorn_worker import Worker
from aijobs.config import Settings
from aijobs.errors import ConfigError

# A client that sends nothing, or takes nothing, for this long gives its thread back.
_STALLED_SECONDS = 10


def _stop(*problems: str) -> None:
    for problem in problems:
        print(f"aijobs: {problem}", file=sys.stderr)
    sys.exit(2)


def _settings() -> Settings:
    try:
        read = Settings.from_env()
        read.require_database_url()
    except ConfigError as error:
        _stop(*error.problems)
    return read


_given = _settings()
logs.configure(_given.log_format)
_host, _port = _given.bind

bind = f"[{_host}]:{_port}" if ":" in _host else f"{_host}:{_port}"
worker_class = Worker
workers = _given.web_processes
threads = _given.web_threads
# A worker that does not reach its main loop for this long is killed; no request runs in that loop.
timeout = 30
# At a stop or restart running requests get this long; new ones go to the other workers.
graceful_timeout = 30
# Longer than the idle time of common load balancers, so that they close first and no request meets a closed door.
keepalive = 75
# Workers are never replaced for having served enough: a leak is to be found, not hidden.
max_requests = 0
# The default leaves a socket in the home directory through which workers can be stopped.
control_socket_disable = True
# The heartbeat file must not wait for a busy disk.
if os.access("/dev/shm", os.W_OK) and Path("/dev/shm").is_dir():
    worker_tmp_dir = "/dev/shm"


def on_starting(server: Any) -> None:
    """Have gunicorn's own lines look like ours."""
    formatter = logging.getLogger().handlers[0].formatter
    for handler in server.log.error_log.handlers:
        handler.setFormatter(formatter)


def when_ready(server: Any) -> None:
    """Refuse to serve strangers without keys, wherever the address came from: file, command line or systemd."""
    strangers = [str(listener) for listener in server.LISTENERS if not _is_loopback(listener)]
    if _given.auth == "open" and strangers:
        addresses = ", ".join(strangers)
        _stop(f"AIJOBS_AUTH=open serves this machine only, and {addresses} can be reached from others.")


def pre_fork(server: Any, worker: Any) -> None:
    """Bound how long one receive or send may take. Connections inherit it from the socket that accepts them."""
    limit = struct.pack("ll", _STALLED_SECONDS, 0)
    for listener in server.LISTENERS:
        if listener.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
            # A stream's client that vanished without a word acknowledges nothing: its thread is not held for long.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 2 * _STALLED_SECONDS * 1000)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def pre_request(worker: Any, request: Any) -> None:
    """Give the application a way to have the connection closed: its `Connection: close` header would be dropped."""
    request.body.close_connection = request.force_close


def worker_exit(server: Any, worker: Any) -> None:
    """Send the hints and metrics that wait, and close the database connections of this process."""
    service = getattr(worker.wsgi, "extensions", {}).get("aijobs")
    if service is not None:
        service.close()
    metrics.flush()


def _is_loopback(listener: Any) -> bool:
    address = listener.getsockname()
    return isinstance(address, tuple) and ip_address(address[0]).is_loopback
