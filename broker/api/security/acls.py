"""DescribeAcls 1-3, CreateAcls 1-3 and DeleteAcls 1-3 (KIP-140, KIP-290).

Any broker of a cluster changes ACLs, and the others follow. A broker without an authorizer answers
SECURITY_DISABLED. As in Kafka, a filter or ACL whose resource type, pattern type, operation or
permission is 0 ("unknown") is malformed, and closes the connection. Other invalid numbers get
INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from kstore.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from kstore.broker.api import RequestContext
from kstore.broker.api.requests.turns import HasTurns, in_turns
from kstore.broker.api.security.access import HasAuthorizer, allowed_cluster
from kstore.broker.coordination.store import BadPathError, StoreError
from kstore.broker.runtime.security.acl_store import TooManyAclsError
from kstore.broker.state.security.hosts import host_refusal
from kstore.broker.state.work import Work, each, each_work
from kstore.config.authorizer_configs import is_principal
from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.security.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.security.acl_store import AclStore

__all__ = ["AclParts", "handle_create_acls", "handle_delete_acls", "handle_describe_acls"]

UNKNOWN = 0
NO_ACLS = "This broker has no authorizer (authorizer.class.name is not set), so it has no ACLs."
MEANINGLESS = "A resource type, pattern type, operation or permission is unknown"
UNCERTAIN = "The coordination store failed, so the request may or may not have taken effect"


class AclParts(HasAuthorizer, HasTurns, Protocol):
    """The parts of a broker that these handlers use."""

    @property
    def acls(self) -> AclStore | None:
        """The stored ACLs. None without an authorizer."""


async def handle_describe_acls(
    broker: AclParts, request: DescribeAclsRequest, ctx: RequestContext
) -> DescribeAclsResponse:
    """Return the ACLs that match a filter, by resource."""
    wanted = _filter(request)
    if broker.acls is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_ACLS)
    if not allowed_cluster(broker, ctx, AclOperation.DESCRIBE):
        return DescribeAclsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message=_not_allowed(ctx, AclOperation.DESCRIBE),
        )
    found: dict[tuple[int, str, int], DescribeAclsResource] = {}

    def put(acl: Acl) -> None:
        key = (acl.resource_type, acl.resource_name, acl.pattern_type)
        if key not in found:
            found[key] = DescribeAclsResource(
                resource_type=key[0], resource_name=key[1], pattern_type=key[2]
            )
        row = AclDescription(
            principal=acl.principal, host=acl.host, operation=acl.operation,
            permission_type=acl.permission,
        )  # fmt: skip
        found[key].acls.append(row)

    await in_turns(broker, ctx, each(put, await broker.acls.matching(wanted)))
    return DescribeAclsResponse(error_message=None, resources=list(found.values()))


async def handle_create_acls(
    broker: AclParts, request: CreateAclsRequest, ctx: RequestContext
) -> CreateAclsResponse:
    """Add ACLs. Each gets its own error. It is no error if an ACL exists already."""
    problems: dict[Acl, StoreError] = {}

    def result(acl: Acl, refusal: str | None) -> AclCreationResult:
        if refusal is not None:
            return _created(ErrorCode.INVALID_REQUEST, refusal)
        return _created(*_error(problems[acl])) if acl in problems else _created(0, None)

    acls = await in_turns(broker, ctx, each(_acl, request.creations))
    reason = _reason(broker, ctx)
    if reason is not None:
        results = await in_turns(broker, ctx, each(lambda _: _created(*reason), acls))
        return CreateAclsResponse(results=results)
    assert broker.acls is not None
    refusals = await in_turns(broker, ctx, each(_refusal, acls))
    rows = list(zip(acls, refusals, strict=True))
    problems = await broker.acls.create(acl for acl, refusal in rows if refusal is None)
    results = await in_turns(broker, ctx, each(lambda row: result(*row), rows))
    return CreateAclsResponse(results=results)


async def handle_delete_acls(
    broker: AclParts, request: DeleteAclsRequest, ctx: RequestContext
) -> DeleteAclsResponse:
    """Delete the ACLs that match the filters, and return them."""
    filters = await in_turns(broker, ctx, each(_filter, request.filters))
    reason = _reason(broker, ctx)
    deleted: Iterator[list[Acl]] = iter(())
    if reason is None:
        assert broker.acls is not None
        meant = await in_turns(broker, ctx, each(_meaningful, filters))
        try:
            deleted = iter(await broker.acls.delete([wanted for wanted in meant if wanted]))
        except StoreError as problem:
            reason = _error(problem)
        except TooManyAclsError as problem:
            reason = (ErrorCode.POLICY_VIOLATION, f"Nothing was deleted: {problem}")
    matches: dict[Acl, DeleteAclsMatchingAcl] = {}

    def match(acl: Acl) -> DeleteAclsMatchingAcl:
        if acl not in matches:
            matches[acl] = _match(acl)
        return matches[acl]

    def result(wanted: AclFilter) -> Work[DeleteAclsFilterResult]:
        if reason is not None:
            return _deleted(*reason)
        if _meaningful(wanted) is None:
            return _deleted(ErrorCode.INVALID_REQUEST, MEANINGLESS)
        rows = yield from each(match, next(deleted))
        return DeleteAclsFilterResult(error_message=None, matching_acls=rows)

    results = await in_turns(broker, ctx, each_work(result, filters))
    return DeleteAclsResponse(filter_results=results)


def _reason(broker: AclParts, ctx: RequestContext) -> tuple[int, str] | None:
    """Why the client cannot change ACLs. None if it can."""
    if broker.acls is None:
        return ErrorCode.SECURITY_DISABLED, NO_ACLS
    if not allowed_cluster(broker, ctx, AclOperation.ALTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _not_allowed(ctx, AclOperation.ALTER)
    return None


def _created(code: int, words: str | None) -> AclCreationResult:
    return AclCreationResult(error_code=code, error_message=words)


def _deleted(code: int, words: str) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=code, error_message=words)


def _meaningful(wanted: AclFilter) -> AclFilter | None:
    return None if _is_meaningless(wanted) else wanted


def _is_meaningless(wanted: AclFilter) -> bool:
    return UNKNOWN in (
        wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission
    )  # fmt: skip


def _filter(row: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    _check_known(
        row.resource_type_filter, row.pattern_type_filter, row.operation, row.permission_type
    )
    return AclFilter(
        AclResourceType(row.resource_type_filter),
        row.resource_name_filter,
        row.principal_filter,
        AclOperation(row.operation),
        AclPermission(row.permission_type),
        row.host_filter,
        AclPatternType(row.pattern_type_filter),
    )


def _acl(row: AclCreation) -> Acl:
    _check_known(row.resource_type, row.resource_pattern_type, row.operation, row.permission_type)
    return Acl(
        AclResourceType(row.resource_type),
        row.resource_name,
        row.principal,
        AclOperation(row.operation),
        AclPermission(row.permission_type),
        row.host,
        AclPatternType(row.resource_pattern_type),
    )


def _match(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _refusal(acl: Acl) -> str | None:
    """Why an ACL is invalid. None if it is valid."""
    if acl.resource_type == AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The name of the CLUSTER resource is {CLUSTER_NAME}, not {acl.resource_name!r}"
    if not acl.resource_name:
        return "A rule needs a resource name; '*' means all"
    if not acl.host:
        return "A rule needs a host; '*' means all"
    if (problem := host_refusal(acl.host)) is not None:
        return problem
    if acl.resource_type == AclResourceType.ANY:
        return "A rule is for one type of resource; ANY is for filters"
    if acl.pattern_type not in (AclPatternType.LITERAL, AclPatternType.PREFIXED):
        return "A rule's pattern type is LITERAL or PREFIXED; ANY and MATCH are for filters"
    if UNKNOWN in (acl.resource_type, acl.operation, acl.permission):
        return MEANINGLESS
    if acl.operation == AclOperation.ANY:
        return "A rule is for one operation, or for ALL; ANY is for filters"
    if acl.permission == AclPermission.ANY:
        return "A rule allows or denies; ANY is for filters"
    if not is_principal(acl.principal):
        return f"{acl.principal!r} is not a principal: write a type and a name, such as User:alice"
    return None


def _error(problem: StoreError) -> tuple[int, str]:
    if isinstance(problem, BadPathError):
        return ErrorCode.INVALID_REQUEST, f"The resource name can't be stored: {problem}"
    return ErrorCode.REQUEST_TIMED_OUT, f"{UNCERTAIN}: {problem}"


def _not_allowed(ctx: RequestContext, operation: AclOperation) -> str:
    return f"{ctx.principal} needs {operation.name} on the cluster for that"


def _check_known(resource: int, pattern: int, operation: int, permission: int) -> None:
    given = (resource, pattern, operation, permission)
    if UNKNOWN in given:
        raise ProtocolError(
            "its ACL request has an unknown resource type, pattern type, operation or permission: "
            f"{given}"
        )
