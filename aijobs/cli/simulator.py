"""`aijobs simulator`: a provider that is none, for tests and demonstrations."""

from __future__ import annotations

import json
import os
from urllib.parse import urlsplit

import click

from aijobs.simulator.options import Options
from aijobs.simulator.service import run


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="0 takes any free port.")
@click.option("--tokens", type=click.IntRange(0, 100_000), help="Deltas of an answer.  [default: words of the echo]")
@click.option("--delta-ms", default=0.0, show_default=True, type=click.FloatRange(min=0), help="Wait before a delta.")
@click.option("--first-byte-ms", default=0.0, show_default=True, type=click.FloatRange(min=0), help="Wait to answer.")
@click.option(
    "--fault-rate", default=0.0, show_default=True, type=click.FloatRange(0, 1), help="Share of random faults."
)
@click.option("--seed", default=0, show_default=True, help="Decides which requests get which random faults.")
@click.option("--json", "as_json", is_flag=True, help="Announce the address as a JSON line.")
def simulator(
    host: str,
    port: int,
    tokens: int | None,
    delta_ms: float,
    first_byte_ms: float,
    fault_rate: float,
    seed: int,
    as_json: bool,
) -> None:
    """Run a simulated OpenAI-compatible provider, with faults on demand.

    A test and demo tool: no model runs here and it is never a provider. It prints one line when it listens, and
    SIGTERM or Ctrl-C ends it. A prompt scripts its own answer:

    \b
        [[sim: tokens=40 delta_ms=50]]
        [[sim: status=503 retry_after=2 times=1]]

    All directives are in aijobs/simulator/README.md.
    """
    options = Options(
        host=host,
        port=port,
        tokens=tokens,
        delta_ms=delta_ms,
        first_byte_ms=first_byte_ms,
        fault_rate=fault_rate,
        seed=seed,
    )
    try:
        run(options, announce=lambda url: click.echo(_announcement(url, as_json)))
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host} port {port}: {error}") from None


def _announcement(url: str, as_json: bool) -> str:
    if as_json:
        return json.dumps({"event": "listening", "url": url, "port": urlsplit(url).port, "pid": os.getpid()})
    return f"simulator listening on {url}"
