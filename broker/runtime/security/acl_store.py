"""Reads and changes the ACLs in the coordination store. The layout is that of Kafka with ZooKeeper:
one node has all ACLs of a pattern, such as /kafka-acl/Topic/orders for a literal name and
/kafka-acl-extended/prefixed/Topic/ord for a prefix.

In a cluster every broker watches both folders, to follow changes by other brokers.
state/security/authorizer.py evaluates the ACLs.
"""

from __future__ import annotations

import json
from asyncio import Lock
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kstore.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    operation_name,
)
from kstore.broker.coordination.store import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    StoreError,
)
from kstore.broker.runtime.metadata.entity_configs import sanitize
from kstore.broker.runtime.slices import Slices
from kstore.broker.state.security.authorizer import NO_RULES, Authorizer, Pattern, Rules
from kstore.broker.state.work import Work, each, in_order
from kstore.config.authorizer_configs import split_principals

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.slices import Turns
    from kstore.config import BrokerConfig

__all__ = ["ACL_FOLDERS", "AclStore", "TooManyAclsError", "open_authorizer"]

LITERAL, PREFIXED = "/kafka-acl", "/kafka-acl-extended/prefixed"
ACL_FOLDERS = (LITERAL, "/kafka-acl-extended")
FOLDERS = {AclPatternType.LITERAL: LITERAL, AclPatternType.PREFIXED: PREFIXED}
RESOURCES = {
    "".join(part.title() for part in kind.name.split("_")): kind
    for kind in AclResourceType
    if kind > AclResourceType.ANY
}
"""The folder of each resource type, such as Topic and TransactionalId."""
OPERATIONS = {
    "".join(part.title() for part in name.split("_")): operation
    for name, operation in AclOperation.__members__.items()
    if operation > AclOperation.ANY
}
"""The name of each operation, such as Read and DescribeConfigs; also kstore's ReplicatorWrite."""


PATTERNS_AT_ONCE = 64
"""How many patterns are changed before other calls to the store may run."""
MAX_DELETED = 1_000_000
"""The limit of ACLs in the response to one DeleteAcls."""


class TooManyAclsError(Exception):
    """The filters match more ACLs than a response may have."""


class UnreadableAclError(StoreError):
    """A node has ACLs that this broker cannot parse."""


class AclStore:
    """The ACLs of the cluster in the store. It passes them to the authorizer."""

    def __init__(
        self,
        node: Node,
        store: Store,
        turns: Turns,
        authorizer: Authorizer,
        changed: Callable[[], None],
        *,
        shared: bool,
    ) -> None:
        """``changed`` is called after each change of ACLs. ``shared``: other brokers change them,
        too.
        """
        self._node = node
        self._store = store
        self._turns = turns
        self._authorizer = authorizer
        self._changed = changed
        self._shared = shared
        self._lock = Lock()
        """Held from a read of the store until the authorizer has the result."""

    # ---- requests ----

    async def create(self, acls: Iterable[Acl]) -> dict[Acl, StoreError]:
        """Add ACLs to the store and the authorizer. Returns those that could not be stored, with
        the error.
        """
        by_pattern = await self._slices().do(_by_pattern(acls))
        problems: dict[Acl, StoreError] = {}

        def add(pattern: Pattern, more: set[Acl]) -> frozenset[Acl] | None:
            try:
                return _change(self._store, pattern, lambda found: found | more)
            except StoreError as problem:
                problems.update(dict.fromkeys(more, problem))
                return None

        await self._carry_out(by_pattern, add)
        return problems

    async def matching(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that match a filter, sorted by their texts."""
        return await self._slices().do(self._find(wanted))

    def _find(self, wanted: AclFilter) -> Work[list[Acl]]:
        rules = (acl for acls in self._authorizer.candidates(wanted) for acl in acls)
        found = yield from each(lambda acl: acl if wanted.matches(acl) else None, rules)
        return (yield from in_order((acl for acl in found if acl is not None), str))

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Delete the ACLs that match each filter from the store and the authorizer, and return
        them. If there are more than fit into a response, deletes none and raises TooManyAclsError.
        """
        if self._shared:  # another broker may have just added some
            await self.reload({"/"})
        slices = self._slices()
        found: dict[AclFilter, list[Acl]] = {}
        gone: list[list[Acl]] = []
        matched = 0
        for wanted in filters:
            matches = found.get(wanted)
            if matches is None:
                matches = found[wanted] = await slices.do(self._find(wanted))
            gone.append(matches)
            matched += len(matches)
            if matched > MAX_DELETED:
                raise TooManyAclsError(
                    f"the filters match more than {MAX_DELETED:,} rules; send fewer of them at a "
                    "time"
                )
            await slices.breathe()

        def remove(pattern: Pattern, less: set[Acl]) -> frozenset[Acl]:
            return _change(self._store, pattern, lambda found: found - less)

        acls = (acl for matches in found.values() for acl in matches)
        await self._carry_out(await slices.do(_by_pattern(acls)), remove)
        return gone

    async def _carry_out(
        self,
        wanted: dict[Pattern, set[Acl]],
        change: Callable[[Pattern, set[Acl]], frozenset[Acl] | None],
    ) -> None:
        """Change the patterns in the store, some at a time, and pass them to the authorizer."""
        for part in _parts(wanted):
            now: dict[Pattern, Rules] = {}

            def run(part: Iterable[Pattern] = part, now: dict[Pattern, Rules] = now) -> None:
                for pattern in part:
                    found = change(pattern, wanted[pattern])
                    if found is not None:
                        now[pattern] = Rules.of(found)

            async with self._lock:
                try:
                    await self._node.run_blocking(run)
                finally:
                    self._take_over(now)

    # ---- changes by others ----

    async def reload(self, paths: Set[str]) -> None:
        """Read these paths again, or everything. A pattern that cannot be parsed stays as it was.
        Raises StoreError.
        """
        try:
            async with self._lock:
                await self._reload(paths)
        except UnreadableAclError as problem:
            self._node.report(str(problem))

    async def _reload(self, paths: Set[str]) -> None:
        patterns = {_pattern(path) for path in paths}
        known = {pattern for pattern in patterns if pattern is not None}
        store = self._store

        def read() -> dict[Pattern, Rules]:
            if None in patterns:
                return _read_all(store)
            return {pattern: Rules.of(_read(store, pattern)[0]) for pattern in known}

        now = await self._node.run_blocking(read)
        if None in patterns:
            now |= {gone: NO_RULES for gone in self._authorizer.patterns() if gone not in now}
        slices = self._slices()
        for part in _parts(now):
            self._take_over({pattern: now[pattern] for pattern in part})
            await slices.breathe()

    def _take_over(self, now: dict[Pattern, Rules]) -> None:
        changed = [
            pattern for pattern, rules in now.items() if self._authorizer.put(pattern, rules)
        ]
        if changed:
            self._changed()

    def _slices(self) -> Slices:
        return Slices(self._turns)


def _parts(patterns: Iterable[Pattern]) -> Iterator[list[Pattern]]:
    """Yield some patterns at a time."""
    left = iter(patterns)
    while part := list(islice(left, PATTERNS_AT_ONCE)):
        yield part


def open_authorizer(config: BrokerConfig, store: Store) -> Authorizer:
    """An authorizer with all ACLs of the store. Blocks."""
    authorizer = Authorizer(
        split_principals(config["super.users"]),
        allow_if_no_acl_found=config["allow.everyone.if.no.acl.found"],
    )
    for pattern, rules in _read_all(store).items():
        authorizer.put(pattern, rules)
    return authorizer


# ---- nodes ----


def _by_pattern(acls: Iterable[Acl]) -> Work[dict[Pattern, set[Acl]]]:
    found: dict[Pattern, set[Acl]] = {}

    def put(acl: Acl) -> None:
        pattern = (acl.resource_type, acl.pattern_type, acl.resource_name)
        found.setdefault(pattern, set()).add(acl)

    yield from each(put, acls)
    return found


def _path(pattern: Pattern) -> str:
    resource_type, pattern_type, name = pattern
    folder = next(word for word, kind in RESOURCES.items() if kind == resource_type)
    return f"{FOLDERS[pattern_type]}/{folder}/{_part(name)}"


def _part(name: str) -> str:
    """A resource's name as part of a path: unchanged if a path allows it."""
    plain = name.isprintable() and name not in {".", ".."} and not {"/", "%"} & set(name)
    return name if plain else sanitize(name)


def _pattern(path: str) -> Pattern | None:
    """The pattern of a node; None for a folder."""
    for pattern_type, folder in FOLDERS.items():
        kind, _, part = path.removeprefix(f"{folder}/").partition("/")
        if path.startswith(f"{folder}/") and part and kind in RESOURCES:
            return RESOURCES[kind], pattern_type, unquote(part)
    return None


def _read(store: Store, pattern: Pattern) -> tuple[frozenset[Acl], int | None]:
    """The ACLs of a pattern, and the version of its node. Empty and None if there is no node."""
    path = _path(pattern)
    try:
        data, version = store.get(path)
    except NoNodeError:
        return frozenset(), None
    return _parse(path, pattern, data), version


def _read_all(store: Store) -> dict[Pattern, Rules]:
    patterns = list(_patterns(store))
    paths = [_path(pattern) for pattern in patterns]
    return {
        pattern: Rules.of(_parse(path, pattern, node[0]))
        for pattern, path, node in zip(patterns, paths, store.read_many(paths), strict=True)
        if node is not None
    }


def _patterns(store: Store) -> Iterator[Pattern]:
    for pattern_type, folder in FOLDERS.items():
        for word, kind in RESOURCES.items():
            try:
                parts = store.children(f"{folder}/{word}")
            except NoNodeError:
                continue
            yield from ((kind, pattern_type, unquote(part)) for part in parts)


def _parse(path: str, pattern: Pattern, data: bytes) -> frozenset[Acl]:
    """The ACLs in a node. One that cannot be parsed is not skipped, since it may be a denial."""
    resource_type, pattern_type, name = pattern
    try:
        return frozenset(
            Acl(
                resource_type, name, str(row["principal"]), OPERATIONS[row["operation"]],
                AclPermission[row["permissionType"].upper()], str(row["host"]), pattern_type,
            )
            for row in (json.loads(data)["acls"] if data else ())
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise UnreadableAclError(
            f"the ACLs at {path} can't be read ({problem!r}): {data[:200]!r}; correct the node,"
            " or delete it and add its rules again"
        ) from None


def _json(acls: Iterable[Acl]) -> bytes:
    rows = [
        {
            "principal": acl.principal,
            "permissionType": acl.permission.name.title(),
            "operation": "".join(
                part.title() for part in operation_name(acl.operation, acl.resource_type).split("_")
            ),
            "host": acl.host,
        }
        for acl in sorted(acls, key=str)
    ]
    return json.dumps({"version": 1, "acls": rows}, separators=(",", ":")).encode()


def _change(
    store: Store, pattern: Pattern, change: Callable[[frozenset[Acl]], frozenset[Acl]]
) -> frozenset[Acl]:
    """Change a pattern's ACLs, also while other brokers change them. Returns the new ACLs."""
    path = _path(pattern)
    while True:
        found, version = _read(store, pattern)
        wanted = change(found)
        if wanted == found:
            return found
        try:
            if version is None:
                store.create(path, _json(wanted), parents=True)
            elif wanted:
                store.set(path, _json(wanted), version)
            else:
                store.delete(path, version)
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue  # another broker was faster: start again with the current contents
        return wanted
