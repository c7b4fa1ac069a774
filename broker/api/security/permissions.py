"""The rights that each API requires: the table of operations and resources, and the check that
wraps handlers if the broker has an authorizer.

A whole request, or single rows of it, are refused here, before the handler runs. If a right only
changes which rows are returned (ListGroups), or depends on what a handler finds, it is also in the
table, but the handler checks it (access.py). The data plane checks Produce, Fetch and Metadata.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from kstore.acls import CLUSTER_NAME, AclOperation, AclResourceType
from kstore.broker.api import API_TABLE
from kstore.broker.api.requests.error_responses import (
    failed,
    keep_rows,
    put_in,
    row_fields,
    rows_of,
    subject,
)
from kstore.broker.api.security.access import HasAuthorizer, allowed, note_denied
from kstore.errors import ErrorCode

if TYPE_CHECKING:
    from kstore.broker.api import Handler, RequestContext
    from kstore.broker.state.metadata.image import MetadataImage
    from kstore.broker.state.security.authorizer import Rights

__all__ = [
    "ANYBODY", "DENIED", "PERMISSIONS", "GuardParts", "Level", "Right",
    "guarded", "no_right",
]  # fmt: skip

READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DELETE, ALTER, DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE
REPLICATOR_WRITE = AclOperation.REPLICATOR_WRITE
CREATE_TOKENS, DESCRIBE_TOKENS = AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
TRANSACTIONAL_ID = AclResourceType.TRANSACTIONAL_ID
DELEGATION_TOKEN, USER = AclResourceType.DELEGATION_TOKEN, AclResourceType.USER

DENIED: dict[AclResourceType, int] = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error for a missing right, by the type of the resource."""
KIND_OF = {code: kind.name.lower().replace("_", " ") for kind, code in DENIED.items()}
"""The word for the resource in such an error."""
CONFIGS_OF: dict[int, AclResourceType] = {2: TOPIC, 32: GROUP}
"""Config resource type to the resource type whose rights it requires. All others require rights on
the cluster.
"""


class GuardParts(HasAuthorizer, Protocol):
    """The parts of a broker that the check uses."""

    @property
    def image(self) -> MetadataImage:
        """The topics, since rights are checked by topic name."""


class Level(Enum):
    """What happens to a request without the right."""

    WHOLE = "all of it is refused"
    EACH = "each row (topic, group, config resource) without it is refused, the others are answered"
    HANDLER = "the handler asks: it depends on what is found, or decides what is shown"


class Right(NamedTuple):
    """An operation on a resource that an API requires."""

    operation: AclOperation
    resource: AclResourceType
    level: Level = Level.WHOLE
    field: str = ""
    """WHOLE: the request's field with the name of the resource. If it is null, no right is
    required. "" for the cluster.
    """
    first: int = 0
    last: int = 32767
    """The versions of the request that require it."""
    instead: tuple[Right, ...] = ()
    """Any of these rights is enough instead."""


def _cluster(operation: AclOperation, *instead: Right, first: int = 0) -> tuple[Right, ...]:
    return (Right(operation, CLUSTER, first=first, instead=instead),)


def _each(operation: AclOperation, resource: AclResourceType, *instead: Right) -> Right:
    return Right(operation, resource, Level.EACH, instead=instead)


def _shown(operation: AclOperation, resource: AclResourceType, *instead: Right) -> Right:
    return Right(operation, resource, Level.HANDLER, instead=instead)


_MEMBER = Right(READ, GROUP, field="group_id")
_TRANSACTION = Right(WRITE, TRANSACTIONAL_ID, field="transactional_id")

PERMISSIONS: dict[int, tuple[Right, ...]] = {
    0: (
        _shown(WRITE, TOPIC), Right(WRITE, TRANSACTIONAL_ID, Level.HANDLER, "transactional_id"),
        _shown(REPLICATOR_WRITE, CLUSTER),
    ),
    1: (_shown(READ, TOPIC, Right(CLUSTER_ACTION, CLUSTER)),),
    2: (_each(DESCRIBE, TOPIC),),
    3: (_shown(DESCRIBE, TOPIC), _shown(CREATE, CLUSTER, Right(CREATE, TOPIC))),
    4: _cluster(CLUSTER_ACTION),
    5: _cluster(CLUSTER_ACTION),
    6: _cluster(CLUSTER_ACTION),
    7: _cluster(CLUSTER_ACTION),
    8: (_MEMBER, _each(READ, TOPIC)),
    9: (_shown(DESCRIBE, GROUP), _shown(DESCRIBE, TOPIC)),
    10: (
        _shown(DESCRIBE, GROUP), _shown(DESCRIBE, TRANSACTIONAL_ID),
        _shown(CLUSTER_ACTION, CLUSTER),
    ),
    11: (_MEMBER,),
    12: (_MEMBER,),
    13: (_MEMBER,),
    14: (_MEMBER,),
    15: (_each(DESCRIBE, GROUP),),
    16: (_shown(DESCRIBE, CLUSTER, Right(DESCRIBE, GROUP)),),
    19: (_each(CREATE, TOPIC, Right(CREATE, CLUSTER)), _shown(DESCRIBE_CONFIGS, TOPIC)),
    20: (_shown(DELETE, TOPIC), _shown(DESCRIBE, TOPIC)),
    21: (_each(DELETE, TOPIC),),
    22: (
        _TRANSACTION,
        _shown(IDEMPOTENT_WRITE, CLUSTER, Right(WRITE, TOPIC)),
    ),
    23: (_each(DESCRIBE, TOPIC, Right(CLUSTER_ACTION, CLUSTER)),),
    24: (
        Right(WRITE, TRANSACTIONAL_ID, field="v3_and_below_transactional_id", last=3),
        _shown(WRITE, TOPIC),
        *_cluster(CLUSTER_ACTION, first=4),
    ),
    25: (_TRANSACTION, _MEMBER),
    26: (_TRANSACTION,),
    27: _cluster(CLUSTER_ACTION, Right(ALTER, CLUSTER)),
    28: (_TRANSACTION, _MEMBER, _each(READ, TOPIC)),
    29: _cluster(DESCRIBE),
    30: _cluster(ALTER),
    31: _cluster(ALTER),
    32: (_each(DESCRIBE_CONFIGS, TOPIC),),
    33: (_each(ALTER_CONFIGS, TOPIC),),
    34: _cluster(ALTER),
    35: _cluster(DESCRIBE),
    37: (_each(ALTER, TOPIC),),
    38: (_shown(CREATE_TOKENS, USER),),
    41: (_shown(DESCRIBE, DELEGATION_TOKEN, Right(DESCRIBE_TOKENS, USER)),),
    42: (_each(DELETE, GROUP),),
    43: _cluster(ALTER),
    44: (_each(ALTER_CONFIGS, TOPIC),),
    45: _cluster(ALTER),
    46: _cluster(DESCRIBE),
    47: (Right(DELETE, GROUP, field="group_id"), _each(READ, TOPIC)),
    48: _cluster(DESCRIBE_CONFIGS),
    49: _cluster(ALTER_CONFIGS),
    50: _cluster(DESCRIBE),
    51: _cluster(ALTER),
    55: _cluster(DESCRIBE),
    56: _cluster(CLUSTER_ACTION),
    57: _cluster(ALTER),
    58: _cluster(CLUSTER_ACTION),
    60: (_shown(DESCRIBE, CLUSTER),),
    61: (_each(READ, TOPIC),),
    63: _cluster(CLUSTER_ACTION),
    64: _cluster(ALTER),
    65: (_each(DESCRIBE, TRANSACTIONAL_ID), _shown(DESCRIBE, TOPIC)),
    66: (_shown(DESCRIBE, TRANSACTIONAL_ID),),
    68: (_MEMBER, _shown(DESCRIBE, TOPIC)),
    69: (_each(DESCRIBE, GROUP), _shown(DESCRIBE, TOPIC)),
    74: _cluster(DESCRIBE_CONFIGS),
    75: (_shown(DESCRIBE, TOPIC),),
    76: (_MEMBER, _shown(DESCRIBE, TOPIC)),
    77: (_each(DESCRIBE, GROUP), _shown(DESCRIBE, TOPIC)),
    78: (_MEMBER, _shown(READ, TOPIC)),
    79: (_MEMBER, _shown(READ, TOPIC)),
    80: _cluster(ALTER),
    81: _cluster(ALTER),
    83: _cluster(CLUSTER_ACTION),
    84: _cluster(CLUSTER_ACTION),
    85: _cluster(CLUSTER_ACTION),
    86: _cluster(CLUSTER_ACTION),
    87: _cluster(CLUSTER_ACTION),
    88: (_MEMBER, _shown(DESCRIBE, TOPIC), _shown(CREATE, TOPIC, Right(CREATE, CLUSTER))),
    89: (_each(DESCRIBE, GROUP), _shown(DESCRIBE, TOPIC)),
    90: (_each(DESCRIBE, GROUP), _shown(DESCRIBE, TOPIC)),
    91: (_MEMBER, _shown(READ, TOPIC)),
    92: (Right(DELETE, GROUP, field="group_id"), _shown(READ, TOPIC)),
    25300: (_each(DESCRIBE, TOPIC),),
    25301: (*_cluster(REPLICATOR_WRITE), _each(WRITE, TOPIC), _shown(READ, TOPIC)),
    25302: _cluster(CLUSTER_ACTION),
}  # fmt: skip
"""API key to the rights that it requires, in the order of the checks. All of them are required. In
DescribeConfigs and similar APIs, TOPIC stands for the resource of the request's row.
"""
ANYBODY: dict[int, str] = {
    17: "SaslHandshake: there is no user yet",
    18: "ApiVersions: clients send it before they authenticate",
    36: "SaslAuthenticate: there is no user yet",
    39: "RenewDelegationToken: the token's owner and its renewers may",
    40: "ExpireDelegationToken: the token's owner and its renewers may",
    71: "GetTelemetrySubscriptions: which metrics a client sends",
    72: "PushTelemetry: a client's own metrics",
}
"""The APIs that require no right."""
REQUESTED_ANYWAY = frozenset({47})
"""OffsetDelete: the handler runs even if all topics are refused, since it can return an error of
the group.
"""


def guarded(api_key: int, handler: Handler) -> Handler:
    """Wrap a handler with the rights that the table has for its API."""
    rights = PERMISSIONS.get(api_key, ())
    if all(right.level is Level.HANDLER for right in rights):
        return handler
    checks: dict[int, Callable[[Rights, Any], bool]] = {}

    if API_TABLE[api_key].waits_for_members:
        handler = _with_a_second_look(handler, rights)

    def check(broker: GuardParts, request: Any, ctx: RequestContext) -> Any:
        authorizer = broker.authorizer
        if authorizer is None:
            return handler(broker, request, ctx)
        version = ctx.api_version
        is_free = checks.get(version)
        if is_free is None:
            is_free = checks[version] = _quick_check(api_key, version, rights)
        if is_free(authorizer.rights(ctx.principal, ctx.client_host), request):
            return handler(broker, request, ctx)
        return _judge(broker, request, ctx, rights, handler)

    return check


def _with_a_second_look(handler: Handler, rights: Sequence[Right]) -> Handler:
    """Wrap a handler so that the right is checked again when the response is complete. If it has
    been revoked meanwhile, the request is refused.
    """

    def handle(broker: GuardParts, request: Any, ctx: RequestContext) -> Any:
        response = handler(broker, request, ctx)
        if isinstance(response, Awaitable):
            return look_again(broker, request, ctx, response)
        return response

    async def look_again(
        broker: GuardParts, request: Any, ctx: RequestContext, answer: Awaitable[Any]
    ) -> Any:
        response = await answer
        return _judge(broker, request, ctx, rights, lambda *_: response)

    return handle


def _quick_check(
    api_key: int, version: int, rights: Sequence[Right]
) -> Callable[[Rights, Any], bool]:
    """Whether a request is certainly allowed. Otherwise `_judge` checks it. This runs for each
    request.
    """
    known = [right for right in rights if right.first <= version <= right.last]
    # Plain numbers, since an enum's hash is computed in Python.
    whole = [
        (int(right.resource), 1 << right.operation, right.field)
        for right in known
        if right.level is Level.WHOLE
    ]
    each = next((right for right in known if right.level is Level.EACH), None)
    kind, bit = 0, 0
    fields: tuple[str, ...] = ()
    if each is not None:
        kind, bit = int(each.resource), 1 << each.operation
        fields = row_fields(api_key, version)

    def is_free(found: Rights, request: Any) -> bool:
        for resource, needed, field in whole:
            if not field:
                if not found.cluster & needed:
                    return False
                continue
            name = getattr(request, field)
            if name is not None and not found.mask(resource, name) & needed:
                return False
        for field in fields:
            for row in getattr(request, field) or ():
                name = row if type(row) is str else getattr(row, "name", None)
                if not name or not found.mask(kind, name) & bit:
                    return False
        return True

    return is_free


def _judge(
    broker: GuardParts, request: Any, ctx: RequestContext, rights: Sequence[Right], handler: Handler
) -> Any:
    """The handler's response, with the whole request or some of its rows refused if rights are
    missing.
    """
    for right in rights:
        if right.first <= ctx.api_version <= right.last:
            if right.level is Level.EACH:
                return _row_by_row(broker, request, ctx, right, handler)
            if right.level is Level.WHOLE:
                name = getattr(request, right.field) if right.field else ""
                if not _has(broker, ctx, right, name):
                    code = DENIED[right.resource]
                    return failed(request, ctx.api_version, code, no_right(ctx, code))
    return handler(broker, request, ctx)


def _has(broker: GuardParts, ctx: RequestContext, right: Right, name: str | None) -> bool:
    """Whether the client has the right on the resource, or one of its alternatives."""
    if name is None:
        return True
    for each in (right, *right.instead):
        if allowed(broker, ctx, each.operation, each.resource, _named(each, name), quiet=True):
            return True
    note_denied(broker, ctx, right.operation, right.resource, _named(right, name))
    return False


def _named(right: Right, name: str) -> str:
    """The name of the right's resource. For the cluster it is always the same."""
    return CLUSTER_NAME if right.resource == CLUSTER else name


def no_right(ctx: RequestContext, code: int) -> str:
    """The message for a refused client. It does not reveal whether the resource exists."""
    kind = KIND_OF[code]
    return (
        f"{ctx.principal} is not authorized for this {kind}: an administrator can allow it with "
        "an ACL."
    )


def _row_by_row(
    broker: GuardParts, request: Any, ctx: RequestContext, right: Right, handler: Handler
) -> Any:
    """The handler's response to the allowed rows, joined with the refusals of the others."""
    rows = rows_of(request, ctx.api_version)
    codes = dict(_refusals(broker, rows, ctx, right))
    if not codes:
        return handler(broker, request, ctx)
    failures = []
    for code in sorted(set(codes.values())):
        numbers = {number for number, found in codes.items() if found == code}
        refused = keep_rows(request, ctx.api_version, numbers)
        reason = no_right(ctx, code)
        failures.append(failed(refused, ctx.api_version, code, reason, partitions_only=True))
    left = set(range(len(rows))) - codes.keys()
    if left or request.API_KEY in REQUESTED_ANYWAY:
        answer = handler(broker, keep_rows(request, ctx.api_version, left), ctx)
    else:
        answer = failures.pop()
    if isinstance(answer, Awaitable):
        return _joined_later(answer, failures, ctx.api_version)
    return _joined(answer, failures, ctx.api_version)


def _refusals(
    broker: GuardParts, rows: list[Any], ctx: RequestContext, right: Right
) -> Iterator[tuple[int, int]]:
    """Indexes of the refused rows, with their errors."""

    def name_of(topic_id: UUID) -> str:
        topic = broker.image.topic_by_id(topic_id)
        return "" if topic is None else topic.name

    of_kind: dict[AclResourceType, Right] = {right.resource: right}
    for number, row in enumerate(rows):
        kind = right.resource
        if hasattr(row, "resource_type"):
            kind = CONFIGS_OF.get(row.resource_type, CLUSTER)
            name = row.resource_name
        elif kind == GROUP and hasattr(row, "group_id"):
            name = row.group_id
        else:
            name = subject(row, name_of)
        if not name and kind == TOPIC:
            continue  # an unknown id: the handler reports it
        if kind not in of_kind:
            of_kind[kind] = right._replace(resource=kind)
        if not _has(broker, ctx, of_kind[kind], name):
            yield number, DENIED[kind]


def _joined(answer: Any, failures: list[Any], version: int) -> Any:
    for failure in failures:
        answer = put_in(failure, answer, version)
    return answer


async def _joined_later(answer: Awaitable[Any], failures: list[Any], version: int) -> Any:
    return _joined(await answer, failures, version)
