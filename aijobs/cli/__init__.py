"""The `aijobs` command: one file per command or group of commands, imported when it is used."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from aijobs import __version__
from aijobs.errors import AijobsError, ConfigError, SchemaMismatch

# name -> what it does; the module of the same name holds a click command of the same name.
COMMANDS = {
    "dev": "Run everything on this machine: database, provider simulator, API and workers.",
    "demo": "Tell the story of a killed worker, for real, and check each claim of it.",
    "migrate": "Bring the database's schema to this release's level.",
    "work": "Run worker processes in the foreground; SIGTERM drains them.",
    "jobs": "Submit jobs; look at them; cancel, resolve and retry them.",
    "gates": "See which providers take no work, and open their gates by hand.",
    "webhooks": "See what receivers were told, tell them again, replace the secrets that sign it.",
    "tenants": "Create and list tenants, and give them money to spend.",
    "prices": "Import and list what providers ask.",
    "usage": "What jobs of a period asked for, cost and were charged.",
    "stats": "What the fleet has in hand, and what the last hours came to.",
    "audit": "Check every promise about the tables; exit 1 with the rows that break one.",
    "keys": "Create, list and revoke API keys.",
    "simulator": "Run the provider simulator: a tool for tests and demos, not a provider.",
}


class _Commands(click.Group):
    """Imports a command's module only when the command is used, so that `--help` is fast."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"aijobs.cli.{name}"), name)
        command.short_help = COMMANDS[name]
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aijobs")
def commands() -> None:
    """Durable AI jobs on PostgreSQL.

    Settings come from the environment (AIJOBS_DATABASE_URL and others, see the README); flags go over them.
    """


def main() -> Any:
    """Run the command line. Exit status: 0 done, 1 failed, 2 wrong use or configuration, 3 boot, 4 schema."""
    try:
        return commands.main(prog_name="aijobs", standalone_mode=True)
    except ConfigError as error:
        for problem in error.problems:
            print(f"aijobs: {problem}", file=sys.stderr)
        sys.exit(2)
    except SchemaMismatch as error:
        print(f"aijobs: {error}", file=sys.stderr)
        sys.exit(4)
    except AijobsError as error:
        print(f"aijobs: {error}", file=sys.stderr)
        sys.exit(1)
