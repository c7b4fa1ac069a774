"""LeaderEpochForPartition (KIP-253), kstore's own API 25300: the leader epochs of the prior
partitions when a partition was added to their topic.
"""

from __future__ import annotations

from kstore.protocol.schema import Int16, Int32, Message, String, Struct, field

__all__ = [
    "LeaderEpochForPartitionRequest",
    "LeaderEpochForPartitionResponse",
    "LeaderEpochForPartitionResult",
    "LeaderEpochForPartitionTopic",
    "LeaderEpochForPartitionTopicResult",
    "PriorLeaderEpoch",
]


class LeaderEpochForPartitionTopic(Struct):
    """One entry of `topics` in LeaderEpochForPartitionRequest."""

    name: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class LeaderEpochForPartitionRequest(Message, api_key=25300, versions="0", flexible="0+"):
    """Asks for the prior partitions of partitions, and their leader epochs."""

    topics: list[LeaderEpochForPartitionTopic] = field("0+", default=[])


class PriorLeaderEpoch(Struct):
    """A prior partition, and its last leader epoch with the old partition count."""

    partition_index: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=-1)


class LeaderEpochForPartitionResult(Struct):
    """One entry of `partitions` in LeaderEpochForPartitionTopicResult; a partition without prior
    ones is as old as its topic.
    """

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    prior_leader_epochs: list[PriorLeaderEpoch] = field("0+", default=[])
    partition_epoch: Int32 = field("0+", default=-1, tag=23200, ignorable=True)


class LeaderEpochForPartitionTopicResult(Struct):
    """One entry of `topics` in LeaderEpochForPartitionResponse."""

    name: String = field("0+", default="")
    partitions: list[LeaderEpochForPartitionResult] = field("0+", default=[])


class LeaderEpochForPartitionResponse(Message, api_key=25300, versions="0", flexible="0+"):
    """The answer to LeaderEpochForPartitionRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    topics: list[LeaderEpochForPartitionTopicResult] = field("0+", default=[])
