"""Debian's nginx before the API, with the server block that we ship and everything else at nginx's defaults."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from aijobs.cli.stack import free_port
from tests.workers.fleet import wait_for

# What belongs to the machine and not to the site: places that this user may write to.
MAIN = """\
daemon off;
worker_processes 1;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""


@contextmanager
def proxied(nginx: str, folder: Path, upstream_port: int, changes: Mapping[str, str]) -> Iterator[int]:
    """Run nginx while the block runs, and give its port. `changes` to our server block are made as a user would."""
    port = free_port()
    changes = {"127.0.0.1:8000": f"127.0.0.1:{upstream_port}", "listen 80;": f"listen 127.0.0.1:{port};", **changes}
    site = (resources.files("aijobs") / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    for old, new in changes.items():
        assert site.count(old) == 1, old
        site = site.replace(old, new)
    (folder / "site.conf").write_text(site)
    (folder / "main.conf").write_text(MAIN.format(folder=folder, user="user root;" if os.geteuid() == 0 else ""))
    command = [nginx, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "main.conf")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: process.poll() is not None or listens(port), "nginx")
        assert process.poll() is None, (folder / "error.log").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(20)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
