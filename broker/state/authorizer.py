"""Who may do what, by Kafka's StandardAuthorizer's rules: literal, prefixed and "*" names, deny
before allow, super users, operations that imply others.

Pure: it is told the rules and asked about them; where they are kept and who asks is elsewhere. A
decision is remembered until a rule changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from weakref import WeakValueDictionary

from kstore.acls import (
    ANY_HOST,
    ANY_NAME,
    ANY_PRINCIPAL,
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)

__all__ = ["Authorizer", "Rights", "one_host", "parse_super_users"]

IMPLIED_BY: dict[int, frozenset[int]] = {
    AclOperation.DESCRIBE: frozenset({
        AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER,
        AclOperation.DESCRIBE, AclOperation.ALL,
    }),
    AclOperation.DESCRIBE_CONFIGS: frozenset({
        AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALL,
    }),
}  # fmt: skip
"""What being allowed one of these operations allows, too. Being denied one denies no other."""
MAX_REMEMBERED = 65536
"""Decisions: names come from clients, so how many there can be is theirs to choose."""
ANY_RESOURCE = "hardcode"
"""The name that Kafka asks about for "any resource of this type" first: whom nothing restricts, a
super user above all, is allowed all of them.
"""
RESOURCES = frozenset(
    {
        AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER,
        AclResourceType.TRANSACTIONAL_ID, AclResourceType.DELEGATION_TOKEN, AclResourceType.USER,
    }
)  # fmt: skip


class Entry(NamedTuple):
    """A rule of one principal for one pattern of names."""

    host: str
    operation: int
    denies: bool

    def covers(self, host: str, operation: int) -> bool:
        """Whether it says anything about the operation from this host."""
        if self.host not in (ANY_HOST, host):
            return False
        if self.operation in (AclOperation.ALL, operation):
            return True
        return not self.denies and self.operation in IMPLIED_BY.get(operation, ())


Entries = dict[str, list[Entry]]
"""Principal to its rules, of one pattern of names."""


class Names:
    """The rules of one type of resource, by name."""

    def __init__(self) -> None:
        self.literal: dict[str, Entries] = {}
        self.prefixed: dict[str, Entries] = {}
        self.lengths: list[int] = []
        """Of the prefixes, each once."""

    def add(self, acl: Acl) -> None:
        """One more rule; `lengths` is not brought up to date."""
        literal = acl.pattern_type == AclPatternType.LITERAL
        patterns = self.literal if literal else self.prefixed
        entries = patterns.setdefault(acl.resource_name, {})
        denies = acl.permission == AclPermission.DENY
        entry = Entry(one_host(acl.host), int(acl.operation), denies)
        entries.setdefault(acl.principal, []).append(entry)

    def applying(self, name: str) -> Iterator[Entries]:
        """The rules of every pattern that the name matches."""
        for found in (self.literal.get(name), self.literal.get(ANY_NAME)):
            if found is not None:
                yield found
        for length in self.lengths:
            if length > len(name):
                return
            found = self.prefixed.get(name[:length])
            if found is not None:
                yield found


class Rights:
    """What one principal on one host may do, as the data plane asks it: by a topic's name in bytes,
    answered from `topics` and forgotten whenever a rule changes.
    """

    __slots__ = ("__weakref__", "_authorizer", "host", "principal", "topics")

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self.principal = principal
        self.host = host
        self.topics: dict[bytes, int] = {}
        """Topic name to a bit field of the operations READ, WRITE and DESCRIBE."""

    def of_topic(self, name: bytes) -> int:
        """The bit field for a topic, remembered."""
        if len(self.topics) >= MAX_REMEMBERED:
            self.topics.clear()
        bits = 0
        text = name.decode("utf-8", "replace")
        for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE):
            if self.may(operation, AclResourceType.TOPIC, text):
                bits |= 1 << operation
        self.topics[name] = bits
        return bits

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether the operation is allowed."""
        return self._authorizer.authorize(self.principal, self.host, operation, resource_type, name)


class Authorizer:
    """The rules, and decisions by them."""

    def __init__(
        self, super_users: Iterable[str] = (), *, allow_if_no_acl_found: bool = False
    ) -> None:
        """``super_users`` are principals ("User:admin") who may do everything."""
        self.super_users = frozenset(super_users)
        self.allow_if_no_acl_found = allow_if_no_acl_found
        self.generation = 0
        """Grows with every change of the rules."""
        self._acls: frozenset[Acl] = frozenset()
        self._names: dict[int, Names] = {kind: Names() for kind in RESOURCES}
        self._decisions: dict[tuple[str, str, int, int, str], bool] = {}
        self._by_type: dict[tuple[str, str, int, int], bool] = {}
        self._rights: WeakValueDictionary[tuple[str, str], Rights] = WeakValueDictionary()

    # ---- the rules ----

    def load(self, acls: Iterable[Acl]) -> bool:
        """Have these rules and no others; whether that changed anything."""
        wanted = frozenset(acls)
        if wanted == self._acls:
            return False
        names: dict[int, Names] = {kind: Names() for kind in RESOURCES}
        for acl in wanted:
            names[acl.resource_type].add(acl)
        for each in names.values():
            each.lengths = sorted({len(prefix) for prefix in each.prefixed})
        self._acls, self._names = wanted, names
        self.generation += 1
        self._decisions.clear()
        self._by_type.clear()
        for rights in list(self._rights.values()):
            rights.topics.clear()
        return True

    def acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """The rules that a filter means, or all."""
        return [acl for acl in self._acls if wanted is None or wanted.matches(acl)]

    # ---- decisions ----

    def authorize(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        """Whether the principal, from this address, may do the operation on the resource."""
        key = (principal, host, operation, resource_type, name)
        found = self._decisions.get(key)
        if found is not None:
            return found
        if len(self._decisions) >= MAX_REMEMBERED:
            self._decisions.clear()
        found = self._decisions[key] = self._decide(*key)
        return found

    def _decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        if principal in self.super_users:
            return True
        host = one_host(host)
        any_rule = allowed = False
        for entries in self._names[resource_type].applying(name):
            any_rule = True
            for who in (principal, ANY_PRINCIPAL):
                for entry in entries.get(who, ()):
                    if not entry.covers(host, operation):
                        continue
                    if entry.denies:
                        return False
                    allowed = True
        return allowed if any_rule else self.allow_if_no_acl_found

    def authorize_by_type(
        self, principal: str, host: str, operation: int, resource_type: int
    ) -> bool:
        """Whether there can be a resource of the type on which the principal may do the operation:
        a rule allows it for names that no other rule denies as a whole (KIP-679).
        """
        key = (principal, host, operation, resource_type)
        found = self._by_type.get(key)
        if found is None:
            if len(self._by_type) >= MAX_REMEMBERED:
                self._by_type.clear()
            found = self._by_type[key] = self._decide_by_type(*key)
        return found

    def _decide_by_type(
        self, principal: str, host: str, operation: int, resource_type: int
    ) -> bool:
        if self.authorize(principal, host, operation, resource_type, ANY_RESOURCE):
            return True
        host = one_host(host)
        names = self._names[resource_type]

        def patterns(of: dict[str, Entries], *, denies: bool) -> set[str]:
            """The patterns with a rule for this very operation; implied ones do not count."""
            return {
                pattern
                for pattern, entries in of.items()
                for who in {principal, ANY_PRINCIPAL}
                for entry in entries.get(who, ())
                if entry.denies is denies
                and entry.host in (ANY_HOST, host)
                and entry.operation in (AclOperation.ALL, operation)
            }

        denied, denied_prefixes = (
            patterns(of, denies=True) for of in (names.literal, names.prefixed)
        )
        if ANY_NAME in denied:
            return False
        allowed = patterns(names.literal, denies=False)
        if ANY_NAME in allowed:
            return True
        allowed -= denied
        allowed |= patterns(names.prefixed, denies=False)
        return any(
            not any(name[:end] in denied_prefixes for end in range(1, len(name) + 1))
            for name in allowed
        )

    def rights(self, principal: str, host: str) -> Rights:
        """The rights of a principal on a host; of all its connections there the same object."""
        found = self._rights.get((principal, host))
        if found is None:
            found = self._rights[principal, host] = Rights(self, principal, host)
        return found


def one_host(text: str) -> str:
    """The one form of an address that rules and clients are compared in: an IPv6 address has many,
    and an IPv4 client of a socket for both has one of those.
    """
    if ":" not in text:
        return text
    from ipaddress import IPv6Address

    try:
        address = IPv6Address(text)
    except ValueError:
        return text
    return str(address.ipv4_mapped or address)


def parse_super_users(text: str) -> frozenset[str]:
    """The principals of ``super.users``: ``User:a;User:CN=b,O=c``; ValueError for what is none."""
    found = frozenset(part.strip() for part in text.split(";") if part.strip())
    for principal in found:
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise ValueError(
                f"{principal!r} is no principal: write super.users like User:alice;User:bob"
            )
    return found
