"""Authorization by the rules of Kafka's StandardAuthorizer: literal, prefixed and "*" names, deny
before allow, super users, operations that imply others.

Other files store the ACLs and set them here. A decision is cached until an ACL changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from kstore.acls import (
    ANY_HOST,
    ANY_NAME,
    ANY_PRINCIPAL,
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from kstore.broker.state.bounded_cache import text_bytes
from kstore.broker.state.security.hosts import Host, covers, host_of, one_host

__all__ = ["NO_RULES", "Authorizer", "Pattern", "Rights", "Rules"]

EVERYTHING = (1 << 16) - 1
"""The bit field of all operations. Bit n is operation n, as in responses (KIP-430)."""
ALSO_ALLOWED = {
    AclOperation.READ: 1 << AclOperation.DESCRIBE,
    AclOperation.WRITE: 1 << AclOperation.DESCRIBE,
    AclOperation.DELETE: 1 << AclOperation.DESCRIBE,
    AclOperation.ALTER: 1 << AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS: 1 << AclOperation.DESCRIBE_CONFIGS,
}
"""The operations that an allowed operation implies. A denied operation implies none."""
MAX_REMEMBERED_BYTES = 16 << 20
"""The limit in bytes of cached decisions with their names, which come from clients: about 60,000
decisions.
"""
MAX_REMEMBERED_CHARS = 256
"""The longest cached name. Topic names have at most 249 characters. Longer names are evaluated each
time.
"""
DECISION_BYTES, RIGHTS_BYTES = 224, 1024
"""The size of a cached decision without its texts."""
ANY_RESOURCE = "hardcode"
"""The name that Kafka checks first for "any resource of this type". A principal without
restrictions, such as a super user, is allowed this.
"""
KEPT = (AclPatternType.LITERAL, AclPatternType.PREFIXED)
RESOURCES = frozenset(
    {
        AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER,
        AclResourceType.TRANSACTIONAL_ID, AclResourceType.DELEGATION_TOKEN, AclResourceType.USER,
    }
)  # fmt: skip


class Entry(NamedTuple):
    """The ACL of one principal for one pattern of names."""

    host: Host
    operation: int
    denies: bool
    bits: int
    """The bit field of its operations."""

    @classmethod
    def of(cls, acl: Acl) -> Entry:
        """Convert an ACL."""
        operation, denies = acl.operation, acl.permission == AclPermission.DENY
        bits = EVERYTHING if operation == AclOperation.ALL else 1 << operation
        if not denies:
            bits |= ALSO_ALLOWED.get(operation, 0)
        return cls(host_of(acl.host), int(operation), denies, bits)


Entries: TypeAlias = dict[str, list[Entry]]
"""Principal to its entries, for one pattern of names."""


class Rules(NamedTuple):
    """The ACLs of one pattern, prepared for decisions. Any thread may create it."""

    acls: frozenset[Acl]
    entries: Entries
    of_hosts: int
    """How many are for particular hosts."""

    @classmethod
    def of(cls, acls: Iterable[Acl]) -> Rules:
        """Prepare ACLs for decisions."""
        kept = frozenset(acls)
        entries: Entries = {}
        for acl in kept:
            entries.setdefault(acl.principal, []).append(Entry.of(acl))
        return cls(kept, entries, sum(acl.host != ANY_HOST for acl in kept))


Pattern: TypeAlias = tuple[AclResourceType, AclPatternType, str]
"""The resources of an ACL: their type, and a name or a prefix of names."""
NO_RULES = Rules.of(())


class Names:
    """The ACLs of one resource type, by name."""

    def __init__(self) -> None:
        self.literal: dict[str, Entries] = {}
        self.prefixed: dict[str, Entries] = {}
        self.lengths: list[int] = []
        """The distinct lengths of prefixes."""
        self._of_length: Counter[int] = Counter()

    def put(self, pattern_type: AclPatternType, name: str, entries: Entries) -> None:
        """Replace the entries of one pattern."""
        patterns = self.literal if pattern_type == AclPatternType.LITERAL else self.prefixed
        there = name in patterns
        if entries:
            patterns[name] = entries
        else:
            patterns.pop(name, None)
        if patterns is self.prefixed and there != bool(entries):
            self._count(len(name), -1 if there else 1)

    def _count(self, length: int, more: int) -> None:
        """Change the number of prefixes of this length."""
        self._of_length[length] += more
        if self._of_length[length] == 0:
            del self._of_length[length]
        if more > 0 or length not in self._of_length:
            self.lengths = sorted(self._of_length)

    def applying(self, name: str) -> Iterator[Entries]:
        """The entries of every pattern that matches the name."""
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
    """The rights of one principal from one address, by the current ACLs. It caches decisions. Get a
    new object for each request.
    """

    __slots__ = (
        "_authorizer", "_by_type", "_masks", "_outdated", "cluster", "host", "principal", "topics",
    )  # fmt: skip

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self._masks: dict[tuple[int, str], int] = {}
        self._by_type: dict[tuple[int, int], bool] = {}
        self._outdated = False
        self.principal = principal
        self.host = host
        self.topics: dict[bytes, int] = {}
        """The data plane's cache: topic name to its `mask`."""
        self.cluster = self.mask(AclResourceType.CLUSTER, CLUSTER_NAME)

    def mask(self, resource_type: int, name: str) -> int:
        """The operations that are allowed on the resource, as a bit field."""
        found = self._masks.get((resource_type, name))
        if found is None:
            found = self._authorizer.decide(self.principal, self.host, resource_type, name)
            if self._may_remember(name):
                self._masks[resource_type, name] = found
        return found

    def topic(self, name: bytes) -> int:
        """The operations that are allowed on a topic. Also stored in `topics`."""
        text = name.decode("utf-8", "replace")
        found = self.mask(AclResourceType.TOPIC, text)
        if self._may_remember(text):
            self.topics[name] = found
        return found

    def any_of(self, resource_type: int, operation: int) -> bool:
        """As `Authorizer.authorize_by_type`."""
        key = (resource_type, operation)
        found = self._by_type.get(key)
        if found is None:
            found = self._by_type[key] = self._authorizer.decide_by_type(
                self, operation, resource_type
            )
        return found

    def forget(self) -> None:
        """Free the memory. Users of this object get a new one soon."""
        self._outdated = True
        for kept in (self._masks, self._by_type, self.topics):
            kept.clear()

    def _may_remember(self, name: str) -> bool:
        if len(name) > MAX_REMEMBERED_CHARS:
            return False
        self._authorizer.note_remembered(DECISION_BYTES + text_bytes(name))
        return not self._outdated


OnDenied: TypeAlias = Callable[[str, str, int, int, str, int], None]
"""Called with principal, host, operation, type and name of the resource, and the request's
API key.
"""


class Authorizer:
    """The ACLs, and decisions by them."""

    def __init__(
        self, super_users: Iterable[str] = (), *, allow_if_no_acl_found: bool = False
    ) -> None:
        """``super_users`` are principals ("User:admin") that may do everything."""
        self.super_users = frozenset(super_users)
        self.allow_if_no_acl_found = allow_if_no_acl_found
        self._rules: dict[Pattern, Rules] = {}
        self._names: dict[int, Names] = {kind: Names() for kind in RESOURCES}
        self._of_hosts = 0
        """How many ACLs are for particular hosts. If none is, all hosts of a principal have the
        same rights.
        """
        self.known: dict[tuple[str, str], Rights] = {}
        """Rights by principal and host. A new object after each change of ACLs."""
        self.remembered_bytes = 0
        """The size of all cached decisions."""
        self.on_denied: OnDenied = _ignore_denial
        """Callers call this when they deny an operation. `authorize` does not, because not every
        check is an attempt to do the operation.
        """

    # ---- the rules ----

    def put(self, pattern: Pattern, new: Rules) -> bool:
        """Replace the ACLs of one pattern. Returns whether that changed anything."""
        old = self._rules.get(pattern, NO_RULES)
        if new.acls == old.acls:
            return False
        if new.acls:
            self._rules[pattern] = new
        else:
            del self._rules[pattern]
        resource_type, pattern_type, name = pattern
        self._names[resource_type].put(pattern_type, name, new.entries)
        self._of_hosts += new.of_hosts - old.of_hosts
        self._forget()
        return True

    def patterns(self) -> list[Pattern]:
        """The patterns that have ACLs."""
        return list(self._rules)

    def acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """The ACLs that match a filter, or all."""
        wanted = wanted or AclFilter()
        found = (acl for acls in self.candidates(wanted) for acl in acls)
        return [acl for acl in found if wanted.matches(acl)]

    def candidates(self, wanted: AclFilter) -> list[frozenset[Acl]]:
        """The ACLs of all patterns that may match a filter, grouped by pattern."""
        kind, pattern_type, name = wanted.resource_type, wanted.pattern_type, wanted.resource_name
        if kind in RESOURCES and pattern_type in KEPT and name is not None:
            rules = self._rules.get((kind, pattern_type, name))
            return [] if rules is None else [rules.acls]
        return [rules.acls for rules in self._rules.values()]

    # ---- decisions ----

    def rights(self, principal: str, host: str) -> Rights:
        """The rights of the principal from this address."""
        key = (principal, host if self._of_hosts else ANY_HOST)
        found = self.known.get(key)
        if found is None:
            self.note_remembered(RIGHTS_BYTES + text_bytes(principal) + text_bytes(host))
            found = Rights(self, *key)
            self.known[key] = found
        return found

    def authorize(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        """Whether the principal, from this address, may do the operation on the resource."""
        return bool(self.rights(principal, host).mask(resource_type, name) >> operation & 1)

    def authorize_by_type(
        self, principal: str, host: str, operation: int, resource_type: int
    ) -> bool:
        """Whether the principal may do the operation on at least one possible resource of the type:
        an ACL allows it for names, and no other ACL denies all of these (KIP-679).
        """
        return self.rights(principal, host).any_of(resource_type, operation)

    def decide(self, principal: str, host: str, resource_type: int, name: str) -> int:
        """Evaluate the ACLs. Returns the bit field of the allowed operations."""
        if principal in self.super_users:
            return EVERYTHING
        host = one_host(host)
        denied = allowed = 0
        any_rule = False
        for entries in self._names[resource_type].applying(name):
            any_rule = True
            for who in (principal, ANY_PRINCIPAL):
                for entry in entries.get(who, ()):
                    if not covers(entry.host, host):
                        continue
                    if entry.denies:
                        denied |= entry.bits
                    else:
                        allowed |= entry.bits
        if any_rule:
            return allowed & ~denied
        return EVERYTHING if self.allow_if_no_acl_found else 0

    def decide_by_type(self, rights: Rights, operation: int, resource_type: int) -> bool:
        """Evaluate the ACLs for `authorize_by_type`."""
        if rights.mask(resource_type, ANY_RESOURCE) >> operation & 1:
            return True
        host = one_host(rights.host)
        names = self._names[resource_type]

        def patterns(of: dict[str, Entries], *, denies: bool) -> set[str]:
            """The patterns with an ACL for exactly this operation, not for one that implies it."""
            return {
                pattern
                for pattern, entries in of.items()
                for who in (rights.principal, ANY_PRINCIPAL)
                for entry in entries.get(who, ())
                if entry.denies is denies
                and covers(entry.host, host)
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

    def denying(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> Acl | None:
        """An ACL that denies the operation. None if there is none, so that it is only not
        allowed.
        """
        host = one_host(host)
        kind, literal = AclResourceType(resource_type), AclPatternType.LITERAL
        patterns: list[Pattern] = [(kind, literal, name), (kind, literal, ANY_NAME)]
        patterns += [
            (kind, AclPatternType.PREFIXED, name[:length]) for length in self._names[kind].lengths
        ]
        for pattern in patterns:
            for acl in self._rules.get(pattern, NO_RULES).acls:
                if (
                    acl.permission == AclPermission.DENY
                    and acl.principal in (principal, ANY_PRINCIPAL)
                    and covers(host_of(acl.host), host)
                    and acl.operation in (AclOperation.ALL, operation)
                ):
                    return acl
        return None

    def note_remembered(self, size: int) -> None:
        """Note the size of a new cache entry. If the total is too large, the cache is cleared."""
        self.remembered_bytes += size
        if self.remembered_bytes > MAX_REMEMBERED_BYTES:
            self._forget()

    def _forget(self) -> None:
        for rights in self.known.values():
            rights.forget()  # connections and cached responses use them until their next check
        self.known = {}
        self.remembered_bytes = 0


def _ignore_denial(
    principal: str, host: str, operation: int, resource_type: int, name: str, api_key: int
) -> None:
    """The default, which does not log denials."""
