"""The built-in kind `http`: the payload is the body of one POST to the provider's own URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aijobs.kinds import Attempt


def run(attempt: Attempt) -> Any:
    """Send the payload. The result is what the provider's `result_path` finds in the answer."""
    return attempt.call("http", attempt.payload).value
