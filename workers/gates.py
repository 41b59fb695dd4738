"""What a process knows of the gates of its providers: its keys, and who has refused something."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping

from aijobs.domain.failures import ErrorClass, Failure
from aijobs.store.gates import Refusal
from workers.writer import Writer

log = logging.getLogger(__name__)


class Gates:
    """One per process. `keys` has the fingerprint of our key by provider; a gate belongs to both."""

    def __init__(self, keys: Mapping[str, str], writer: Writer) -> None:
        self.keys = keys
        # As of the last claim: only for these is a success worth a word to the database.
        self.troubled: frozenset[str] = frozenset()
        self._writer = writer

    def refused(self, provider: str, failure: Failure) -> None:
        """A provider has refused a call: tell all workers."""
        account = failure.error_class is ErrorClass.GATE
        refusal = Refusal(provider, self.keys[provider], account, failure.code)
        if self._writer.refused(refusal):
            log.error(
                "the gate of provider %s is shut (%s): its jobs wait, one tries now and then; see `aijobs gates`",
                provider,
                failure.code,
            )

    def taken(self, provider: str) -> None:
        """A provider has done a call: whatever was against it is over."""
        if provider in self.troubled and self._writer.taken(provider, self.keys[provider]):
            log.info("provider %s takes work again", provider)


def fingerprint(api_key: str | None) -> str:
    """Tells keys apart without telling what they are."""
    return "none" if api_key is None else hashlib.sha256(api_key.encode()).hexdigest()[:16]
