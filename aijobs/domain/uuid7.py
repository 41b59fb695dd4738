"""Ids that sort by the time they were made (RFC 9562, version 7)."""

from __future__ import annotations

from uuid import UUID


def uuid7(milliseconds: int, random: bytes) -> UUID:
    """The id for a Unix time in milliseconds and ten random bytes.

    Two of the same millisecond sort in any order. Raises ValueError for a time outside of 48 bits.
    """
    if not 0 <= milliseconds < 1 << 48 or len(random) != 10:
        raise ValueError("expected a time of 48 bits and ten random bytes")
    octets = bytearray(milliseconds.to_bytes(6, "big") + random)
    octets[6] = octets[6] & 0x0F | 0x70
    octets[8] = octets[8] & 0x3F | 0x80
    return UUID(bytes=bytes(octets))
