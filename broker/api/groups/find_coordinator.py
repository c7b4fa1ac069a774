"""FindCoordinator 0-6: which broker is the coordinator of a group, a transactional id or a
share-partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.api.security.access import allowed, allowed_cluster
from kstore.broker.api.security.permissions import DENIED, no_right
from kstore.broker.state.shares.persisted import SharePartitionKey
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.groups.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.api.groups.parts import CoordinatorParts

__all__ = ["handle_find_coordinator"]

FIRST_VERSION_WITH_MANY_KEYS = 4
GROUP = 0
TRANSACTION = 1
SHARE = 2
FIRST_VERSION_WITH_SHARES = 6
INIT_PRODUCER_ID = 22
WRITE_SHARE_GROUP_STATE = 85
NO_NODE = -1
RESOURCES = {GROUP: AclResourceType.GROUP, TRANSACTION: AclResourceType.TRANSACTIONAL_ID}


async def handle_find_coordinator(
    broker: CoordinatorParts, request: FindCoordinatorRequest, ctx: RequestContext
) -> FindCoordinatorResponse:
    """Return the coordinators of the keys. The first request about a group creates
    __consumer_offsets, about a transactional id __transaction_state, about a share-partition
    __share_group_state.
    """
    many = ctx.api_version >= FIRST_VERSION_WITH_MANY_KEYS
    keys = request.coordinator_keys if many else [request.key]
    found = [await _find(broker, request.key_type, key, ctx) for key in keys]
    if many:
        return FindCoordinatorResponse(coordinators=found)
    return FindCoordinatorResponse(
        error_code=found[0].error_code,
        error_message=found[0].error_message,
        node_id=found[0].node_id,
        host=found[0].host,
        port=found[0].port,
    )


async def _find(
    broker: CoordinatorParts, key_type: int, key: str, ctx: RequestContext
) -> Coordinator:
    if key_type == SHARE:
        return await _find_share(broker, key, ctx)
    if key_type not in (GROUP, TRANSACTION):
        return _nowhere(
            key, ErrorCode.INVALID_REQUEST, f"no coordinator for keys of type {key_type}"
        )
    kind = RESOURCES[key_type]
    if not allowed(broker, ctx, AclOperation.DESCRIBE, kind, key):
        return _nowhere(key, DENIED[kind], no_right(ctx, DENIED[kind]))
    try:
        if key_type == TRANSACTION:
            await broker.loaded(INIT_PRODUCER_ID)
            node_id = await broker.transactions().leader_of(key)
        else:
            node_id = await broker.groups().leader_of(key)
    except KafkaError as error:
        return _nowhere(key, error.code, str(error))
    return _at(broker, node_id, key, ctx)


async def _find_share(broker: CoordinatorParts, key: str, ctx: RequestContext) -> Coordinator:
    """Find the coordinator of a share-partition. Only brokers send this request."""
    if not allowed_cluster(broker, ctx, AclOperation.CLUSTER_ACTION):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _nowhere(key, code, no_right(ctx, code))
    try:
        place = SharePartitionKey.parse(key)
    except ValueError as problem:
        return _nowhere(key, ErrorCode.INVALID_REQUEST, str(problem))
    if ctx.api_version < FIRST_VERSION_WITH_SHARES:
        return _nowhere(key, ErrorCode.INVALID_REQUEST, "ask for share-partitions in version 6")
    try:
        await broker.loaded(WRITE_SHARE_GROUP_STATE)
        node_id = await broker.share_coordinator().leader_of(str(place))
    except KafkaError as error:
        return _nowhere(key, error.code, str(error))
    return _at(broker, node_id, key, ctx)


def _at(broker: CoordinatorParts, node_id: int, key: str, ctx: RequestContext) -> Coordinator:
    node = broker.image.brokers.get(node_id)
    endpoint = None if node is None else node.endpoint(ctx.listener)
    if endpoint is None:
        return _nowhere(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no listener {ctx.listener}")
    return Coordinator(
        key=key, node_id=node_id, host=endpoint.host, port=endpoint.port, error_message=""
    )


def _nowhere(key: str, error_code: int, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE, host="", port=-1, error_code=error_code, error_message=message
    )
