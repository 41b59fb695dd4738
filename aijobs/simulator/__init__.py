"""A test and demo tool that speaks like an OpenAI-compatible provider. No model runs here: it is never a provider.

`Simulator` runs it on a thread of this process, `SimulatorProcess` as a child process. What a request may ask it to do
wrong is in `directives.py` and, for people, in the README beside this file.
"""

from __future__ import annotations

from aijobs.simulator.background import Simulator
from aijobs.simulator.child import SimulatorProcess
from aijobs.simulator.options import Options

__all__ = ["Options", "Simulator", "SimulatorProcess"]
