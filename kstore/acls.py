"""ACLs: resource types, operations and other enumerations with Kafka's numbers, a rule, and a
filter of rules.

The broker stores and applies ACLs; clients manage them. Nothing here decides access.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kstore.types import KafkaNumber

__all__ = [
    "ANY_HOST",
    "ANY_NAME",
    "ANY_PRINCIPAL",
    "CLUSTER_NAME",
    "SUPPORTED_OPERATIONS",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermission",
    "AclResourceType",
    "mask_of",
    "operation_name",
    "operations_of",
]

ANY_NAME = "*"
"""The literal name that matches every resource of its type."""
ANY_HOST = "*"
ANY_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The name of the only Cluster resource."""


class AclResourceType(KafkaNumber):
    """The type of resource that an ACL applies to, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(KafkaNumber):
    """How the name of a resource is matched. ANY and MATCH are for filters only (KIP-290)."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(KafkaNumber):
    """What a rule allows or denies. 13 is CREATE_TOKENS on a User. On the Cluster of a kstore
    broker it is REPLICATOR_WRITE: to append records with given offsets (KIP-391).
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    REPLICATOR_WRITE = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(KafkaNumber):
    """Whether the rule allows or denies. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class Acl:
    """A rule: a principal ("User:name") on a host ("*" for all) is allowed or denied an
    operation.
    """

    resource_type: AclResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = ANY_HOST
    pattern_type: AclPatternType = AclPatternType.LITERAL

    def __str__(self) -> str:
        operation = operation_name(self.operation, self.resource_type)
        return (
            f"{self.permission.name} {self.principal} on {self.host}: {operation} "
            f"{self.resource_type.name} {self.resource_name!r} ({self.pattern_type.name})"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects ACLs; None and ANY match all.

    The pattern type MATCH selects all rules that apply to resource_name: literal, prefixed and "*".
    """

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY

    def matches(self, acl: Acl) -> bool:
        """Whether the filter selects this rule."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (
            AclPatternType.ANY, AclPatternType.MATCH, acl.pattern_type
        ):  # fmt: skip
            return False
        name = self.resource_name
        if name is None or name == acl.resource_name:
            return True
        if self.pattern_type != AclPatternType.MATCH:
            return False
        if acl.pattern_type == AclPatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == ANY_NAME


def _table() -> Mapping[AclResourceType, frozenset[AclOperation]]:
    op, kind = AclOperation, AclResourceType
    return MappingProxyType(
        {
            kind.TOPIC: frozenset({
                op.READ, op.WRITE, op.CREATE, op.DELETE, op.ALTER, op.DESCRIBE,
                op.DESCRIBE_CONFIGS, op.ALTER_CONFIGS,
            }),
            kind.GROUP: frozenset({
                op.READ, op.DELETE, op.DESCRIBE, op.DESCRIBE_CONFIGS, op.ALTER_CONFIGS,
            }),
            kind.CLUSTER: frozenset({
                op.CREATE, op.ALTER, op.DESCRIBE, op.CLUSTER_ACTION, op.DESCRIBE_CONFIGS,
                op.ALTER_CONFIGS, op.IDEMPOTENT_WRITE,
            }),
            kind.TRANSACTIONAL_ID: frozenset({op.WRITE, op.DESCRIBE, op.TWO_PHASE_COMMIT}),
            kind.DELEGATION_TOKEN: frozenset({op.DESCRIBE}),
            kind.USER: frozenset({op.CREATE_TOKENS, op.DESCRIBE_TOKENS}),
        }
    )  # fmt: skip


SUPPORTED_OPERATIONS = _table()
"""The operations that a response reports as permitted or not (KIP-430), by resource type."""


def mask_of(operations: Iterable[AclOperation]) -> int:
    """The operations as the bit field of a response (KIP-430)."""
    return sum(1 << operation for operation in operations)


def operation_name(operation: AclOperation, resource_type: AclResourceType) -> str:
    """The operation's name for this type of resource."""
    if operation == AclOperation.REPLICATOR_WRITE and resource_type == AclResourceType.CLUSTER:
        return "REPLICATOR_WRITE"
    return operation.name


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """The operations of a response's bit field; None if the response has none (KIP-430)."""
    if bits == -(2**31):
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)
