"""What `SimulatorProcess` starts. People use `aijobs simulator`."""

from __future__ import annotations

import json
import sys

from aijobs.simulator.options import Options
from aijobs.simulator.service import run

if __name__ == "__main__":
    run(Options(**json.loads(sys.argv[1])), announce=lambda url: print(url, flush=True), ends_with_stdin=True)
