"""OffsetForLeaderEpoch, versions 2 to 4 (KIP-101, KIP-279, KIP-320): where a leader epoch ended in
this log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.api import RequestContext
from kstore.broker.api.list_offsets import check_leader
from kstore.errors import ErrorCode
from kstore.protocol.list_offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["handle_offset_for_leader_epoch"]


def handle_offset_for_leader_epoch(
    broker: Broker, request: OffsetForLeaderEpochRequest, ctx: RequestContext
) -> OffsetForLeaderEpochResponse:
    """The largest epoch not above the asked one, and its end offset (exclusive); -1 and -1 where
    none is known.
    """
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end(broker, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end(broker: Broker, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = broker.table.partition(topic.encode(), asked.partition)
    code = check_leader(partition, asked.current_leader_epoch)
    answer = EpochEndOffset(partition=asked.partition, error_code=code)
    if partition is not None and code == ErrorCode.NONE:
        found = partition.end_offset_for_epoch(asked.leader_epoch)
        answer.leader_epoch, answer.end_offset = found
    return answer
