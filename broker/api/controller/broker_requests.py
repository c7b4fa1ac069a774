"""LeaderAndIsr 7, StopReplica 4, UpdateMetadata 8, ControlledShutdown 3, AlterPartition 2-3,
Envelope 0 and BrokerHeartbeat 0-2: requests from the controller to brokers, from brokers to the
controller, and between brokers.

They are served only in a cluster, and are not advertised. runtime/replication/replica_manager.py
executes the first three, runtime/membership/outage.py answers BrokerHeartbeat, and the controller
handles the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstore.broker.api import API_TABLE, RequestContext, resolve_handler
from kstore.broker.api.controller.between_brokers import REFUSED, may_name
from kstore.broker.api.controller.forwarding import carried_out
from kstore.broker.api.requests.large_requests import LargeRequests, max_elements
from kstore.broker.api.security.permissions import guarded
from kstore.broker.coordination.store import StoreError
from kstore.errors import ErrorCode, KafkaError, ProtocolError
from kstore.protocol.controller.broker_requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    RemainingPartition,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kstore.protocol.controller.envelope import EnvelopeRequest, EnvelopeResponse
from kstore.protocol.registry import decode_request, encode_response

if TYPE_CHECKING:
    from kstore.broker.api.controller.parts import EnvelopeParts, HasMembership, ReplicaParts

__all__ = [
    "handle_alter_partition",
    "handle_broker_heartbeat",
    "handle_controlled_shutdown",
    "handle_envelope",
    "handle_leader_and_isr",
    "handle_stop_replica",
    "handle_update_metadata",
]


async def handle_leader_and_isr(
    broker: ReplicaParts, request: LeaderAndIsrRequest, ctx: RequestContext
) -> LeaderAndIsrResponse:
    """Lead and follow partitions as the controller requests."""
    try:
        return await broker.replica_manager.leader_and_isr(request)
    except StoreError as problem:
        return LeaderAndIsrResponse(error_code=_not_yet(broker, problem))


async def handle_stop_replica(
    broker: ReplicaParts, request: StopReplicaRequest, ctx: RequestContext
) -> StopReplicaResponse:
    """Stop replicas as the controller requests."""
    return await broker.replica_manager.stop_replica(request)


async def handle_update_metadata(
    broker: ReplicaParts, request: UpdateMetadataRequest, ctx: RequestContext
) -> UpdateMetadataResponse:
    """Apply the controller's metadata."""
    try:
        return await broker.replica_manager.update_metadata(request)
    except StoreError as problem:
        return UpdateMetadataResponse(error_code=_not_yet(broker, problem))


def _not_yet(broker: ReplicaParts, problem: StoreError) -> int:
    """The error if this broker is not ready. The controller sends the request again; executing it
    twice has the same effect as once.
    """
    broker.node.report(f"what the controller says can't be done yet: {problem}")
    return ErrorCode.REQUEST_TIMED_OUT


def _controller(broker: HasMembership) -> Any:
    """The controller if this broker is the controller, else None."""
    return broker.membership.controller


async def handle_controlled_shutdown(
    broker: HasMembership, request: ControlledShutdownRequest, ctx: RequestContext
) -> ControlledShutdownResponse:
    """Move leadership away from a stopping broker. The response lists the partitions that it still
    leads.
    """
    controller = _controller(broker)
    if controller is None:
        return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        left = await controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    except KafkaError as problem:
        return ControlledShutdownResponse(error_code=problem.code)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=place.topic, partition_index=place.partition)
            for place in left
        ]
    )


async def handle_alter_partition(
    broker: HasMembership, request: AlterPartitionRequest, ctx: RequestContext
) -> AlterPartitionResponse:
    """Change the in-sync replicas of a partition at its leader's request (KIP-497)."""
    controller = _controller(broker)
    if controller is None:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        response: AlterPartitionResponse = await controller.alter_partition(request)
    except KafkaError as problem:
        return AlterPartitionResponse(error_code=problem.code)
    return response


def handle_broker_heartbeat(
    broker: HasMembership, request: BrokerHeartbeatRequest, ctx: RequestContext
) -> BrokerHeartbeatResponse:
    """Report whether this broker reaches the coordination store, to a broker that does not."""
    if not broker.membership.sees_the_store():
        return BrokerHeartbeatResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
    return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)


def _limit(broker: EnvelopeParts, api_key: int) -> int:
    """The limit of elements in a forwarded request. 0 for an API that is not served."""
    return max_elements(broker.node.config, api_key) if api_key in API_TABLE else 0


async def handle_envelope(
    broker: EnvelopeParts, request: EnvelopeRequest, ctx: RequestContext
) -> EnvelopeResponse:
    """Answer a client's request that another broker forwards, as if the client had sent it to this
    broker. between_brokers.py has checked the sender.
    """
    if _controller(broker) is None:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        header, message = decode_request(request.request_data, lambda key: _limit(broker, key))
    except ProtocolError as problem:
        words = f"a request that {ctx.client_id} forwarded can't be decoded"
        broker.node.report(f"{words}: {problem}", "a forwarded request can't be decoded")
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    key, version = header.request_api_key, header.request_api_version
    row = API_TABLE.get(key)
    if row is None or not (row.controller_only or row.shared_configs):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    principal = (request.request_principal or b"").decode("utf-8", "replace") or ctx.principal
    if not may_name(broker, ctx, principal):
        broker.node.report(f"{ctx.principal} may not forward a request of {principal}", REFUSED)
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    requested = RequestContext(
        key,
        version,
        header.correlation_id,
        header.client_id,
        request.client_host_address.decode("utf-8", "replace"),
        ctx.connection_id,
        ctx.listener,
        principal,
    )
    try:
        await broker.loaded(key)
        handler = guarded(key, resolve_handler(row))
        wide = LargeRequests(broker)
        response = await wide.answer(carried_out(handler), message, requested)
    except KafkaError as problem:
        return EnvelopeResponse(error_code=problem.code)
    frame = encode_response(response, version, header.correlation_id)
    return EnvelopeResponse(response_data=frame[4:])
