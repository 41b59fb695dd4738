"""`make bench`: every figure in one run, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from tests.benchmarks import create, figures, streams
from tests.benchmarks.rig import Rig, rig

QUICK: dict[str, Callable[[Rig], figures.Figures]] = {
    "create": lambda rig: create.create(rig, seconds=3),
    "budget": lambda rig: create.budget(rig, seconds=3),
    "drain": lambda rig: figures.drain(rig, jobs=5000),
    "queue_wait": lambda rig: figures.queue_wait(rig, jobs=60),
    "memory": figures.memory,
    "idle": lambda rig: figures.idle(rig, seconds=10),
    "crash": lambda rig: figures.crash(rig, rounds=3),
    "streams": lambda rig: streams.streams(rig, readers=50),
}
FULL: dict[str, Callable[[Rig], figures.Figures]] = QUICK | {
    "create": lambda rig: create.create(rig, seconds=8),
    "budget": lambda rig: create.budget(rig, seconds=8),
    "drain": lambda rig: figures.drain(rig, jobs=30_000),
    "queue_wait": lambda rig: figures.queue_wait(rig, jobs=200),
    "idle": lambda rig: figures.idle(rig, seconds=30),
    "crash": lambda rig: figures.crash(rig, rounds=7),
    "streams": streams.streams,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller numbers, for a look")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", action="append", choices=list(FULL), help="only this figure; may be repeated")
    given = parser.parse_args()
    chosen = {name: run for name, run in (QUICK if given.quick else FULL).items() if name in (given.only or FULL)}
    results = {}
    with rig() as ready:
        for name, run in chosen.items():
            print(f"measuring {name}", file=sys.stderr)
            results[name] = run(ready)
            if not given.json:
                for key, value in results[name].items():
                    print(f"{name:<12} {key:<28} {value}", flush=True)
    if given.json:
        print(json.dumps(results, indent=1))


main()
