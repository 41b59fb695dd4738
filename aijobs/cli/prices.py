"""`aijobs prices`."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

import click

from aijobs.cli.database import database
from aijobs.cli.output import print_rows
from aijobs.domain.price_tables import ListedPrice, PriceTableError, from_litellm, from_own
from aijobs.store import prices as store

_COLUMNS = (
    "provider",
    "model",
    "in_force",
    "valid_from",
    "input_micros",
    "cached_micros",
    "cache_write_micros",
    "output_micros",
    "reasoning_micros",
    "request_micros",
)


@click.group()
def prices() -> None:
    """What providers ask: a call is priced by what was in force when it was sent.

    Amounts are micro-units (millionths of the currency) per million tokens. A model without a price has calls of
    unknown cost, never of none.
    """


@prices.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--provider", help="Our provider's name, for a table of litellm's.")
@click.option("--source", help="The litellm_provider to take. Default: the name given as --provider.")
@click.option("--dry-run", is_flag=True, help="Say what would be imported.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def import_(file: Path, provider: str | None, source: str | None, dry_run: bool, as_json: bool) -> None:
    """Import prices from FILE: litellm's model_prices_and_context_window.json, or our own TOML.

    \b
    [[prices]]
    provider = "openai"
    model = "gpt-4o-mini"
    input = "0.15"        # dollars per million tokens; also cached, cache_write, reasoning
    output = "0.60"
    per_request = "0"     # optional, as are max_output_tokens, valid_from, valid_until
    """
    try:
        found = _read(file, provider, source)
    except (PriceTableError, ValueError) as error:
        raise click.ClickException(f"{file}: {error}") from None
    if not found:
        raise click.ClickException(f"{file} has no prices of {source or provider!r}")
    used: set[tuple[str, str]] = set()
    if not dry_run:
        with database() as db:
            used = store.set_prices(db, found)
    if as_json:
        click.echo(json.dumps({"imported": len(found) - len(used), "left": sorted(map(list, used))}))
        return
    if dry_run:
        print_rows([asdict(price) for price in found], [name for name in _COLUMNS if name != "in_force"], as_json=False)
    click.echo(f"{len(found) - len(used)} prices {'would be ' if dry_run else ''}imported")
    for name, model in sorted(used):
        click.echo(f"left: {name} {model}: calls were priced by it; give the new one a valid_from", err=True)


@prices.command("list")
@click.option("--provider")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(provider: str | None, as_json: bool) -> None:
    """List prices, those in force marked."""
    with database() as db:
        print_rows(store.list_prices(db, provider), _COLUMNS, as_json=as_json)


def _read(file: Path, provider: str | None, source: str | None) -> list[ListedPrice]:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".toml":
        return list(from_own(tomllib.loads(text, parse_float=str)))
    if provider is None:
        raise PriceTableError("a table of litellm's needs --provider, our provider's name")
    document = json.loads(text, parse_float=Decimal)
    if not isinstance(document, dict):
        raise PriceTableError("it is no JSON object")
    return list(from_litellm(document, source=source or provider, provider=provider))
