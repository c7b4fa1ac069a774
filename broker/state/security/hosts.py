"""The hosts of ACLs: "*", an address, or a network (10.0.0.0/8, fd00::/8). Clients are identified
by their addresses, so an ACL for a host name would never apply, and is refused.

Kafka 4.3.1 compares hosts as text: it accepts an ACL for a network, but the ACL never applies.
KIP-1276 adds networks to a later release of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kstore.acls import ANY_HOST

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    Network: TypeAlias = IPv4Network | IPv6Network

__all__ = ["Host", "covers", "host_of", "host_refusal", "one_host"]

Host: TypeAlias = "str | Network"
"""A parsed host: a network, or a text to compare."""
IPV4_IN_IPV6_BITS = 96


def one_host(text: str) -> str:
    """The normal form of an address, in which ACLs and clients are compared. An IPv6 address can be
    written in many forms, and an IPv4 client of a dual-stack socket has an IPv6 form.
    """
    if ":" not in text:
        return text
    from ipaddress import IPv6Address

    try:
        address = IPv6Address(text)
    except ValueError:
        return text
    return str(address.ipv4_mapped or address)


def host_of(text: str) -> Host:
    """An ACL's host, prepared for `covers`."""
    if "/" in text:
        try:
            return _network(text)
        except ValueError:
            return text  # in an ACL that another program has stored
    return one_host(text)


def covers(rule: Host, host: str) -> bool:
    """Whether an ACL's host includes a client, whose address is in `one_host`'s form."""
    if isinstance(rule, str):
        return rule in (ANY_HOST, host)
    from ipaddress import ip_address

    try:
        return ip_address(host) in rule
    except ValueError:  # a client without an address, as in tests
        return False


def host_refusal(text: str) -> str | None:
    """Why an ACL cannot have this host. None if it can."""
    from ipaddress import ip_address, ip_network

    if text == ANY_HOST:
        return None
    try:
        if "/" in text:
            _network(text)
        else:
            ip_address(text)
    except ValueError as problem:
        if "/" not in text:
            return (
                f"A rule is for an address, a network like 10.0.0.0/8, or '*' for all: {text!r} is "
                "none of these, and would never apply"
            )
        try:
            meant = ip_network(text, strict=False)
        except ValueError:
            return f"{text!r} is not a network ({problem}); write one like 10.0.0.0/8"
        return f"{text!r} is an address within a network: the network is {meant}"
    return None


def _network(text: str) -> Network:
    from ipaddress import IPv4Network, IPv6Network, ip_network

    network = ip_network(text)
    if isinstance(network, IPv6Network) and network.prefixlen >= IPV4_IN_IPV6_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - IPV4_IN_IPV6_BITS))
    return network
