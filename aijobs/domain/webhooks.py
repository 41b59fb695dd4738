"""Webhooks: which addresses may be called, and when a delivery that was not taken is tried again."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

Network = IPv4Network | IPv6Network

MOST_URL_CHARACTERS = 2000
# Between the tries, about a day in all: the schedule that Standard Webhooks recommends.
PAUSES_SECONDS = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0)
# Addresses that are not other hosts' on the internet, though the standard library takes them for global: translated
# ones lead to whatever IPv4 address is in them.
_NOT_OURS_TO_CALL: tuple[Network, ...] = (
    IPv4Network("100.64.0.0/10"),
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv4Network("198.18.0.0/15"),
    IPv4Network("240.0.0.0/4"),
    IPv6Network("2001::/23"),
    IPv6Network("2002::/16"),
    IPv6Network("3fff::/20"),
)
# All of IPv6 that is the internet's: outside it lie more forms of IPv4 addresses than anybody has listed.
_PUBLIC_6 = IPv6Network("2000::/3")
# Networks without IPv4 reach it by these, and each stands for the IPv4 address in it.
_NAT64 = IPv6Network("64:ff9b::/96")


def may_be_called(address: str, allowed: Sequence[Network] = ()) -> bool:
    """Whether a webhook may go to an IP address: a public one, or one of the networks that the operator allows."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed in _NAT64:
        parsed = IPv4Address(int(parsed) & 0xFFFFFFFF)
    elif isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if any(_in(parsed, network) for network in allowed):
        return True
    if not parsed.is_global or parsed.is_multicast or (isinstance(parsed, IPv6Address) and parsed not in _PUBLIC_6):
        return False
    return not any(_in(parsed, network) for network in _NOT_OURS_TO_CALL)


def fault_of(url: str, allowed: Sequence[Network] = ()) -> str | None:
    """What is wrong with an address that is to be called; None if nothing that can be seen without resolving it."""
    if len(url) > MOST_URL_CHARACTERS or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return f"Must be an ASCII URL of {MOST_URL_CHARACTERS} characters at most."
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "Not a URL."
    if parts.scheme not in ("https", "http") or not host or port == 0:
        return "Must be an https URL."
    if parts.username is not None or parts.password is not None or "#" in url:
        return "May have neither credentials nor a fragment."
    literal = _literal(host)
    if literal is not None and not may_be_called(literal, allowed):
        return "Must be an address on the internet."
    if parts.scheme == "http" and (literal is None or not any(_in(ip_address(literal), each) for each in allowed)):
        return "Must be an https URL."
    return None


def pause_after(tries: int, jitter: float, wished_seconds: float | None = None) -> float | None:
    """Seconds until the next try after so many; None when it is given up. `jitter` is a random number in [0, 1)."""
    if tries > len(PAUSES_SECONDS):
        return None
    pause = PAUSES_SECONDS[tries - 1] * (0.9 + 0.2 * jitter)
    return pause if wished_seconds is None else max(pause, wished_seconds)


def _literal(host: str) -> str | None:
    """The IP address that a host is written as, in any spelling that a resolver would take; None for a name.

    The name of this host is one of those spellings.
    """
    if host.rstrip(".") == "localhost" or host.rstrip(".").endswith(".localhost"):
        return "127.0.0.1"
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    words = host.rstrip(".").split(".")
    if not all(words) or not all(word[0].isdigit() for word in words):
        return None
    # 127.1, 0x7f000001 or 017700000001: no name ends in a number, and some resolvers read these as addresses.
    return "0.0.0.0"


def _in(address: IPv4Address | IPv6Address, network: Network) -> bool:
    return address.version == network.version and address in network
