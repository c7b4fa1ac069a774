"""ACLs: create, describe, delete, and the words that they are made of.

A broker without an authorizer answers SecurityDisabledError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kstore.clients.admin.routing import AdminBase, AnyBroker, Controller, Results, item_error
from kstore.errors import KafkaError
from kstore.protocol.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

__all__ = [
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermission",
    "AclResourceType",
    "AclsAdmin",
    "operations_of",
]


class AclResourceType(IntEnum):
    """What an ACL is about, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(IntEnum):
    """How a resource's name is meant. ANY and MATCH are for filters only (KIP-290)."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What may be done. On the cluster of a kstore broker, 13 is REPLICATOR_WRITE (KIP-391)."""

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
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def _missing_(cls, value: object) -> AclOperation:
        return cls.UNKNOWN


class AclPermission(IntEnum):
    """Whether it is allowed. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class Acl:
    """One rule: a principal ("User:name") on a host ("*": all) may or may not do something."""

    resource_type: AclResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    pattern_type: AclPatternType = AclPatternType.LITERAL

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.principal} on {self.host}: {self.operation.name} "
            f"{self.resource_type.name} {self.resource_name!r} ({self.pattern_type.name})"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which ACLs are meant; None and ANY match all.

    The pattern type MATCH finds all rules that apply to resource_name, literal, prefixed and "*".
    """

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY


class AclsAdmin(AdminBase):
    """Requests about ACLs."""

    async def create_acls(
        self, acls: Iterable[Acl], *, raise_errors: bool = True
    ) -> Results[Acl, None]:
        """Create ACLs; one that exists is no error."""

        async def ask(node_id: int, wanted: list[Acl]) -> dict[Acl, KafkaError | None]:
            request = CreateAclsRequest(creations=[_creation(acl) for acl in wanted])
            answer = await self._ask(node_id, request, CreateAclsResponse)
            return {
                acl: item_error(f"ACL {acl}", row.error_code, row.error_message)
                for acl, row in zip(wanted, answer.results, strict=False)
            }

        route = Controller(self._cluster)
        return await self._each(acls, route, ask, raise_errors=raise_errors)

    async def describe_acls(self, acl_filter: AclFilter | None = None) -> list[Acl]:
        """The ACLs that match (None: all)."""
        wanted = acl_filter or AclFilter()

        async def ask(node_id: int) -> list[Acl] | KafkaError:
            request = DescribeAclsRequest(
                resource_type_filter=wanted.resource_type,
                resource_name_filter=wanted.resource_name,
                pattern_type_filter=wanted.pattern_type,
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=wanted.operation,
                permission_type=wanted.permission,
            )
            answer = await self._ask(node_id, request, DescribeAclsResponse)
            found = [
                _acl(
                    row.resource_type, row.resource_name, acl.principal, acl.operation,
                    acl.permission_type, acl.host, row.pattern_type,
                )
                for row in answer.resources for acl in row.acls
            ]  # fmt: skip
            return item_error("ACLs", answer.error_code, answer.error_message) or found

        return await self._one(AnyBroker(self._cluster), ask)

    async def delete_acls(
        self, filters: Sequence[AclFilter], *, raise_errors: bool = True
    ) -> Results[AclFilter, list[Acl]]:
        """Delete the ACLs that match any of the filters; those deleted, by filter."""

        async def ask(
            node_id: int, wanted: list[AclFilter]
        ) -> dict[AclFilter, list[Acl] | KafkaError]:
            request = DeleteAclsRequest(filters=[_deletion(each) for each in wanted])
            answer = await self._ask(node_id, request, DeleteAclsResponse)
            found: dict[AclFilter, list[Acl] | KafkaError] = {}
            for each, row in zip(wanted, answer.filter_results, strict=False):
                error = item_error("ACLs", row.error_code, row.error_message)
                gone: list[Acl] = []
                for match in row.matching_acls:
                    acl = _acl(
                        match.resource_type, match.resource_name, match.principal, match.operation,
                        match.permission_type, match.host, match.pattern_type,
                    )  # fmt: skip
                    gone.append(acl)
                    error = error or item_error(f"ACL {acl}", match.error_code, match.error_message)
                found[each] = error or gone
            return found

        route = Controller(self._cluster)
        return await self._each(filters, route, ask, raise_errors=raise_errors)


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """The operations of a bit field of an answer; None where it has none (KIP-430)."""
    if bits == -(2**31):
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _deletion(wanted: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def _acl(
    resource_type: int, name: str, principal: str, operation: int, permission: int, host: str,
    pattern_type: int,
) -> Acl:  # fmt: skip
    return Acl(
        AclResourceType(resource_type),
        name,
        principal,
        AclOperation(operation),
        AclPermission(permission),
        host,
        AclPatternType(pattern_type),
    )
