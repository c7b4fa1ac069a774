"""ShareFetch 1-2 (KIP-932, KIP-1206, KIP-1222): acknowledges records that a member has acquired
before, and acquires records for it.

Acknowledgements are applied first, so they never apply to records that this request acquires.
Records are acquired once the acknowledgements are stored. So the member can get records that the
request releases, and no lock begins while the response waits. (Kafka does both at the same time, so
locks expire while it writes state slowly.)
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
from kstore.broker.runtime.shares.share_partition_manager import Fetched, FetchLimits
from kstore.broker.state.shares.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareSession,
    TopicIdPartition,
)
from kstore.errors import ErrorCode
from kstore.protocol.shares.fetch import (
    AcquiredRecords,
    FetchPartition,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchRequestAcknowledgementBatch,
    ShareFetchResponse,
    ShareFetchResponseLeaderIdAndEpoch,
    ShareFetchResponseNodeEndpoint,
    ShareFetchResponsePartitionData,
)

if TYPE_CHECKING:
    from kstore._fast.network.connection import Connection
    from kstore.broker.api import RequestContext
    from kstore.broker.api.shares.leader_parts import ShareLeaderParts
    from kstore.broker.runtime.shares.share_partition import AcknowledgedRange

__all__ = ["handle_share_fetch"]

BATCH_OPTIMIZED = 0
RECORD_LIMIT = 1
Batches = list[ShareFetchRequestAcknowledgementBatch]


async def handle_share_fetch(
    broker: ShareLeaderParts, request: ShareFetchRequest, ctx: RequestContext
) -> ShareFetchResponse:
    """Answer with the partitions that have records, errors or acknowledgements."""
    code = _check(request)
    if code != ErrorCode.NONE:
        return ShareFetchResponse(error_code=code)
    assert request.group_id is not None
    assert request.member_id is not None
    manager = broker.share_partitions()
    epoch = request.share_session_epoch
    session = manager.begin(request.group_id, request.member_id, epoch, ctx.connection)
    if isinstance(session, int):
        return ShareFetchResponse(error_code=session)
    requested = {
        TopicIdPartition(topic.topic_id, row.partition_index): row
        for topic in request.topics
        for row in topic.partitions
    }
    limits = manager.limits(session.group_id)
    rights: dict[UUID, bool] = {}
    ranges, codes = _ranges(broker, ctx, requested, limits.renews and request.is_renew_ack, rights)
    keeping = manager.acknowledge(session, ranges)
    if epoch != FINAL_EPOCH:
        session.update(requested, _forgotten(request))
    codes |= await keeping
    fetched: Mapping[TopicIdPartition, Fetched] = {}
    if epoch == FINAL_EPOCH:
        manager.end_session(session.group_id, session.member_id)
    elif not request.is_renew_ack:
        fetched = await _fetch(broker, request, ctx, session, rights)
    response = _answer(broker, ctx, fetched, codes)
    response.acquisition_lock_timeout_ms = limits.lock_ms
    if broker.throttles is not None and ctx.connection is not None:
        size = _size(response, ctx.api_version)
        response.throttle_time_ms = broker.throttles.charge_late(ctx.connection, size)
    return response


def _size(response: ShareFetchResponse, version: int) -> int:
    """The approximate size of the response in bytes. Its records are not copied."""
    rows = [row for topic in response.responses for row in topic.partitions]
    records = [row.records for row in rows]
    for row in rows:
        row.records = b""
    size = len(response.encode(version))
    for row, data in zip(rows, records, strict=True):
        row.records = data
        size += 0 if data is None else len(data)
    return size


def _most_bytes(broker: ShareLeaderParts, ctx: RequestContext) -> int:
    """The limit of one response in bytes: fetch.max.bytes, or less if a quota allows less in a
    window.
    """
    most: int = broker.config["fetch.max.bytes"]
    if broker.throttles is None or ctx.connection is None:
        return most
    return min(most, broker.throttles.fetch_bytes(ctx.connection))


def _check(request: ShareFetchRequest) -> int:
    """The error of the whole request."""
    code = check_member(request.group_id, request.member_id)
    if request.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
        code = ErrorCode.INVALID_REQUEST
    amounts = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    if request.is_renew_ack and any(amounts):
        code = ErrorCode.INVALID_REQUEST  # a request that renews locks fetches nothing
    if request.share_session_epoch == INITIAL_EPOCH and any(
        row.acknowledgement_batches for topic in request.topics for row in topic.partitions
    ):
        code = ErrorCode.INVALID_REQUEST  # a new session has acquired nothing
    return code


def _forgotten(request: ShareFetchRequest) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


def _ranges(
    broker: ShareLeaderParts,
    ctx: RequestContext,
    requested: Mapping[TopicIdPartition, FetchPartition],
    renews: bool,
    rights: dict[UUID, bool],
) -> tuple[dict[TopicIdPartition, Sequence[AcknowledgedRange]], dict[TopicIdPartition, int]]:
    """The acknowledged ranges, and the error codes of invalid ones."""
    found: dict[TopicIdPartition, Sequence[AcknowledgedRange]] = {}
    errors: dict[TopicIdPartition, int] = {}
    for place, row in requested.items():
        if not row.acknowledgement_batches:
            continue
        code = place_error(broker, ctx, place, rights)
        ranges = check_acknowledgements(row.acknowledgement_batches, renews=renews)
        if code != ErrorCode.NONE:
            errors[place] = code
        elif isinstance(ranges, int):
            errors[place] = ranges
        else:
            found[place] = ranges
    return found, errors


async def _fetch(
    broker: ShareLeaderParts,
    request: ShareFetchRequest,
    ctx: RequestContext,
    session: ShareSession[Connection | None],
    rights: dict[UUID, bool],
) -> dict[TopicIdPartition, Fetched]:
    errors: dict[TopicIdPartition, Fetched] = {}
    places: list[TopicIdPartition] = []
    for place in session.in_turn():
        code = place_error(broker, ctx, place, rights)
        if code == ErrorCode.NONE:
            places.append(place)
        else:
            errors[place] = Fetched(code)
    max_bytes = min(request.max_bytes, _most_bytes(broker, ctx))
    limits = FetchLimits(
        0 if errors else request.max_wait_ms,
        min(request.min_bytes, max_bytes),
        max_bytes,
        request.max_records,
        request.batch_size,
        request.share_acquire_mode == RECORD_LIMIT,
    )
    return errors | await broker.share_partitions().fetch(session, places, limits)


def _answer(
    broker: ShareLeaderParts,
    ctx: RequestContext,
    fetched: Mapping[TopicIdPartition, Fetched],
    codes: Mapping[TopicIdPartition, int],
) -> ShareFetchResponse:
    response = ShareFetchResponse()
    topics: dict[UUID, ShareFetchableTopicResponse] = {}
    leaders: set[int] = set()
    for place in dict.fromkeys([*fetched, *codes]):
        topic = topics.get(place.topic_id)
        if topic is None:
            topic = topics[place.topic_id] = ShareFetchableTopicResponse(topic_id=place.topic_id)
        row = _row(place, fetched.get(place), codes.get(place, ErrorCode.NONE))
        if ErrorCode.NOT_LEADER_OR_FOLLOWER in (row.error_code, row.acknowledge_error_code):
            leader, leader_epoch = leader_of(broker, place)
            row.current_leader = ShareFetchResponseLeaderIdAndEpoch(
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
                ShareFetchResponseNodeEndpoint(
                    node_id=node_id, host=end.host, port=end.port, rack=rack
                )
            )
    return response


def _row(
    place: TopicIdPartition, fetched: Fetched | None, acknowledge_code: int
) -> ShareFetchResponsePartitionData:
    row = ShareFetchResponsePartitionData(
        partition_index=place.partition,
        acknowledge_error_code=acknowledge_code,
        acknowledge_error_message=acknowledge_message(acknowledge_code),
        records=b"",
    )
    if fetched is not None:
        row.error_code = fetched.error_code
        if fetched.acquired is not None:
            row.records = fetched.acquired.records
            row.acquired_records = [
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in fetched.acquired.rows
            ]
    return row
