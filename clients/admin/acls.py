"""ACLs: create, describe, delete. The types are in kstore.acls. A broker without an authorizer
responds with SecurityDisabledError.
"""

from __future__ import annotations

from kstore.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    operations_of,
)
from kstore.clients.admin.routing import AdminBase, AnyBroker, Controller, Results, item_error
from kstore.errors import KafkaError
from kstore.items import Items, items_of
from kstore.protocol.security.acls import (
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


class AclsAdmin(AdminBase):
    """Requests about ACLs."""

    async def create_acls(
        self, acls: Items[Acl], *, raise_errors: bool = True
    ) -> Results[Acl, None]:
        """Create ACLs. An ACL that already exists is not an error."""
        acls = items_of("acls", acls, Acl, "Acl")

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
        """The ACLs that match the filter (None: all)."""
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
        self, filters: Items[AclFilter], *, raise_errors: bool = True
    ) -> Results[AclFilter, list[Acl]]:
        """Delete the ACLs that match any of the filters. Returns the deleted ACLs for each
        filter.
        """
        filters = items_of("filters", filters, AclFilter, "AclFilter")

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
