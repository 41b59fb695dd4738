"""What holds for every request that does not say otherwise itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where the simulator listens and how it answers by default. Raises ValueError for a value out of range."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes any free port."""
    tokens: int | None = None
    """Deltas of an answer; None echoes the prompt in as many as it has words."""
    delta_ms: float = 0.0
    first_byte_ms: float = 0.0
    fault_rate: float = 0.0
    """The share of requests without a fault of their own that are given a random one, 0 to 1."""
    seed: int = 0
    """The same seed and the same order of requests give the same faults."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must be 0 to 65535, not {self.port}")
        if self.tokens is not None and self.tokens < 0:
            raise ValueError(f"tokens must not be negative, not {self.tokens}")
        if self.delta_ms < 0 or self.first_byte_ms < 0:
            raise ValueError("delta_ms and first_byte_ms must not be negative")
        if not 0 <= self.fault_rate <= 1:
            raise ValueError(f"fault_rate must be 0 to 1, not {self.fault_rate}")
