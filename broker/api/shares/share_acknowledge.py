"""ShareAcknowledge 1-2 (KIP-932, KIP-1222): acknowledges records that a member has acquired, or
renews their locks. The response is sent when the result is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from kstore.broker.api.shares.leader_parts import (
    acknowledge_message,
    check_acknowledgements,
    check_member,
    endpoint_of,
    leader_of,
    place_error,
)
from kstore.broker.state.shares.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, TopicIdPartition
from kstore.errors import ErrorCode
from kstore.protocol.shares.acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeResponseLeaderIdAndEpoch,
    ShareAcknowledgeResponseNodeEndpoint,
    ShareAcknowledgeResponsePartitionData,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.api.shares.leader_parts import ShareLeaderParts
    from kstore.broker.runtime.shares.share_partition import AcknowledgedRange

__all__ = ["handle_share_acknowledge"]


async def handle_share_acknowledge(
    broker: ShareLeaderParts, request: ShareAcknowledgeRequest, ctx: RequestContext
) -> ShareAcknowledgeResponse:
    """Answer with all partitions that have acknowledgements."""
    code = check_member(request.group_id, request.member_id)
    epoch = request.share_session_epoch
    if code == ErrorCode.NONE and epoch == INITIAL_EPOCH:
        code = ErrorCode.INVALID_SHARE_SESSION_EPOCH  # only ShareFetch begins a session
    if code != ErrorCode.NONE:
        return ShareAcknowledgeResponse(error_code=code)
    assert request.group_id is not None
    assert request.member_id is not None
    manager = broker.share_partitions()
    session = manager.begin(request.group_id, request.member_id, epoch, ctx.connection)
    if isinstance(session, int):
        return ShareAcknowledgeResponse(error_code=session)
    limits = manager.limits(session.group_id)
    ranges, codes = _ranges(broker, request, ctx, limits.renews and request.is_renew_ack)
    codes |= await manager.acknowledge(session, ranges)
    if epoch == FINAL_EPOCH:
        manager.end_session(session.group_id, session.member_id)
    response = _answer(broker, ctx, codes)
    response.acquisition_lock_timeout_ms = limits.lock_ms
    return response


def _ranges(
    broker: ShareLeaderParts, request: ShareAcknowledgeRequest, ctx: RequestContext, renews: bool
) -> tuple[dict[TopicIdPartition, Sequence[AcknowledgedRange]], dict[TopicIdPartition, int]]:
    """The acknowledged ranges, and the error codes of invalid ones."""
    found: dict[TopicIdPartition, Sequence[AcknowledgedRange]] = {}
    errors: dict[TopicIdPartition, int] = {}
    rights: dict[UUID, bool] = {}
    for topic in request.topics:
        for row in topic.partitions:
            if not row.acknowledgement_batches:
                continue
            place = TopicIdPartition(topic.topic_id, row.partition_index)
            code = place_error(broker, ctx, place, rights)
            ranges = check_acknowledgements(row.acknowledgement_batches, renews=renews)
            if code != ErrorCode.NONE:
                errors[place] = code
            elif isinstance(ranges, int):
                errors[place] = ranges
            else:
                found[place] = ranges
    return found, errors


def _answer(
    broker: ShareLeaderParts, ctx: RequestContext, codes: Mapping[TopicIdPartition, int]
) -> ShareAcknowledgeResponse:
    response = ShareAcknowledgeResponse()
    topics: dict[UUID, ShareAcknowledgeTopicResponse] = {}
    leaders: set[int] = set()
    for place, code in codes.items():
        topic = topics.get(place.topic_id)
        if topic is None:
            topic = topics[place.topic_id] = ShareAcknowledgeTopicResponse(topic_id=place.topic_id)
        row = ShareAcknowledgeResponsePartitionData(
            partition_index=place.partition,
            error_code=code,
            error_message=acknowledge_message(code),
        )
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader, leader_epoch = leader_of(broker, place)
            row.current_leader = ShareAcknowledgeResponseLeaderIdAndEpoch(
                leader_id=leader, leader_epoch=leader_epoch
            )
            leaders.add(leader)
        topic.partitions.append(row)
    response.responses = list(topics.values())
    for node_id in sorted(leaders):
        known = endpoint_of(broker, ctx, node_id)
        if known is not None:
            end, rack = known
            response.node_endpoints.append(
                ShareAcknowledgeResponseNodeEndpoint(
                    node_id=node_id, host=end.host, port=end.port, rack=rack
                )
            )
    return response
