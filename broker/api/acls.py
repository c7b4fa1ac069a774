"""DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3 (KIP-140, KIP-290), as a broker without
an authorizer answers them: SECURITY_DISABLED.

A filter or binding with an unknown resource, pattern, operation or permission is no request at all,
as in Kafka: it ends the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.api import RequestContext
from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["handle_create_acls", "handle_delete_acls", "handle_describe_acls"]

UNKNOWN = 0
NO_ACLS = "This broker checks no rights (it has no authorizer), so it keeps no ACLs."


def handle_describe_acls(
    broker: Broker, request: DescribeAclsRequest, ctx: RequestContext
) -> DescribeAclsResponse:
    """No authorizer, no ACLs."""
    _check_known(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    )
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message=NO_ACLS,
    )


def handle_create_acls(
    broker: Broker, request: CreateAclsRequest, ctx: RequestContext
) -> CreateAclsResponse:
    """SECURITY_DISABLED for each."""
    for row in request.creations:
        _check_creation(row)
    code, words = ErrorCode.SECURITY_DISABLED, NO_ACLS
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=words) for _ in request.creations]
    )


def handle_delete_acls(
    broker: Broker, request: DeleteAclsRequest, ctx: RequestContext
) -> DeleteAclsResponse:
    """SECURITY_DISABLED for each filter."""
    for row in request.filters:
        _check_filter(row)
    code, words = ErrorCode.SECURITY_DISABLED, NO_ACLS
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=words) for _ in request.filters
        ]
    )


def _check_creation(row: AclCreation) -> None:
    _check_known(row.resource_type, row.resource_pattern_type, row.operation, row.permission_type)


def _check_filter(row: DeleteAclsFilter) -> None:
    _check_known(
        row.resource_type_filter, row.pattern_type_filter, row.operation, row.permission_type
    )


def _check_known(resource: int, pattern: int, operation: int, permission: int) -> None:
    given = (resource, pattern, operation, permission)
    if UNKNOWN in given:
        raise ProtocolError(
            "its ACL request has an unknown resource type, pattern type, operation or permission: "
            f"{given}"
        )
