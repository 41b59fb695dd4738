"""`aijobs dev`."""

from __future__ import annotations

import signal

import click

from aijobs.cli.stack import Stack
from aijobs.config import Settings


@click.command()
@click.option("--port", default=8000, show_default=True, help="Where the API listens, on 127.0.0.1.")
def dev(port: int) -> None:
    """Run everything on this machine in the foreground: database, provider simulator, API and workers.

    Needs nothing else: the database is a private PostgreSQL in AIJOBS_DATA_DIR (or the one that AIJOBS_DATABASE_URL
    names), and answers come from a simulator unless AIJOBS_CONFIG names providers of your own. Requests need no API key
    and are taken from this machine only. Ctrl-C stops all of it.
    """
    settings = Settings.from_env()
    asked_to_stop: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: asked_to_stop.append(number))
    with Stack(settings, port=port, say=click.echo, environment={"AIJOBS_DEMO_PAGE": "on"}) as stack:
        click.echo(f"demo page   {stack.url}/demo")
        click.echo("\nTry it:\n")
        click.echo(example(stack.url))
        click.echo("\nCtrl-C stops everything.")
        stack.wait_until_ended(lambda: bool(asked_to_stop))
        click.echo("stopping")
    click.echo("stopped")


def example(url: str) -> str:
    """A command that works as pasted."""
    return (
        f"curl -s {url}/api/ai/jobs -H 'Idempotency-Key: hello-1' -H 'Content-Type: application/json' \\\n"
        """  -d '{"kind": "chat", "payload": {"prompt": "Hello, durable world"}}'"""
    )
