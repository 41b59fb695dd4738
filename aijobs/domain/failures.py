"""What went wrong with a provider call, said as what will be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ErrorClass(StrEnum):
    """The four things that can follow an error. Stored on attempts and shown in a job's `error.class`."""

    PERMANENT = "permanent"  # a repeat cannot help: the job fails at once
    TRANSIENT = "transient"  # the provider did nothing: back off and repeat
    UNKNOWN = "unknown"  # the provider may have done, and billed, the work: the unknown policy decides
    GATE = "gate"  # no job can run on this provider key until a person acts


@dataclass(frozen=True, slots=True)
class Failure:
    """One classified error.

    `code` is a stable slug for programs; `message` a short sentence without prompts, results or secrets.
    `refused` says that the provider answered that it did not take the work (429, 503, 529, a shut gate), so that the
    attempt is not counted against `max_attempts`. `retry_after_seconds` is the provider's own wish, already bounded.
    `askable`: the provider can still be asked what became of the call, so that no policy need speak yet.
    `deduplicated`: it does the same request only once, so that a repeat costs nothing.
    """

    error_class: ErrorClass
    code: str
    message: str
    refused: bool = False
    retry_after_seconds: float | None = None
    askable: bool = False
    deduplicated: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as a provider reported them; None means it said nothing, which is not zero.

    `input_tokens` includes `cached_tokens` and `cache_write_tokens`, `output_tokens` includes `reasoning_tokens`.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None
