"""How long a job waits before it is tried again."""

from __future__ import annotations

# A repeat is never immediate: even the luckiest throw of full jitter leaves the other side a moment to recover.
MINIMUM_SECONDS = 0.25


def backoff_seconds(
    *, repeats: int, base_seconds: float, cap_seconds: float, jitter: float, at_least_seconds: float | None = None
) -> float:
    """Full jitter: uniform between nothing and base x 2^repeats, capped.

    `jitter` is a uniform random number in [0, 1). `repeats` is how many repeats there were before, from 0.
    `at_least_seconds` is the other side's own wish (Retry-After): it is kept, and the jitter comes on top, bounded by
    the base, so that many jobs told the same moment do not all return in it.
    """
    if at_least_seconds is not None:
        return at_least_seconds + jitter * min(base_seconds, 2.0)
    # Beyond 2^30 the cap has long been reached; the bound keeps the arithmetic finite.
    ceiling = min(cap_seconds, base_seconds * 2.0 ** min(repeats, 30))
    return max(MINIMUM_SECONDS, jitter * ceiling)
