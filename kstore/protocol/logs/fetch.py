"""Fetch: record batches from partitions, with incremental sessions (KIP-227) from version 7 on and
topic ids from version 13 on (KIP-516).
"""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    Uuid,
    field,
)

__all__ = [
    "AbortedTransaction",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "ForgottenTopic",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionData",
    "ReplicaState",
    "SnapshotId",
]


class ReplicaState(Struct):
    """The field `replica_state` of FetchRequest."""

    replica_id: Int32 = field("15+", default=-1)
    replica_epoch: Int64 = field("15+", default=-1)


class FetchPartition(Struct):
    """One entry of `partitions` in FetchTopic."""

    partition: Int32 = field("0+", default=0)
    current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
    fetch_offset: Int64 = field("0+", default=0)
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32 = field("0+", default=0)
    replica_directory_id: Uuid = field("17+", default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark: Int64 = field("18+", default=0x7FFFFFFFFFFFFFFF, tag=1, ignorable=True)


class FetchTopic(Struct):
    """One entry of `topics` in FetchRequest."""

    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = field("0+", default=[])


class ForgottenTopic(Struct):
    """One entry of `forgotten_topics_data` in FetchRequest."""

    topic: String = field("7-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[Int32] = field("7+", default=[])


class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
    """Reads from partitions, waiting up to max_wait_ms for min_bytes; followers use it too."""

    cluster_id: String | None = field("12+", default=None, nullable="12+", tag=0, ignorable=True)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState = field("15+", default_factory=ReplicaState, tag=1)
    max_wait_ms: Int32 = field("0+", default=0)
    min_bytes: Int32 = field("0+", default=0)
    max_bytes: Int32 = field("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: Int8 = field("4+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field("0+", default=[])
    forgotten_topics_data: list[ForgottenTopic] = field("7+", default=[])
    rack_id: String = field("11+", default="", ignorable=True)


class EpochEndOffset(Struct):
    """The field `diverging_epoch` of PartitionData."""

    epoch: Int32 = field("12+", default=-1)
    end_offset: Int64 = field("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    """The field `current_leader` of PartitionData."""

    leader_id: Int32 = field("12+", default=-1)
    leader_epoch: Int32 = field("12+", default=-1)


class SnapshotId(Struct):
    """The field `snapshot_id` of PartitionData."""

    end_offset: Int64 = field("0+", default=-1)
    epoch: Int32 = field("0+", default=-1)


class AbortedTransaction(Struct):
    """One entry of `aborted_transactions` in PartitionData."""

    producer_id: Int64 = field("4+", default=0)
    first_offset: Int64 = field("4+", default=0)


class PartitionData(Struct):
    """One entry of `partitions` in FetchableTopicResponse."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    high_watermark: Int64 = field("0+", default=0)
    last_stable_offset: Int64 = field("4+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field("12+", default_factory=EpochEndOffset, tag=0)
    current_leader: LeaderIdAndEpoch = field("12+", default_factory=LeaderIdAndEpoch, tag=1)
    snapshot_id: SnapshotId = field("12+", default_factory=SnapshotId, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(
        "4+", default=[], nullable="4+", ignorable=True
    )
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: Records | None = field("0+", default=None, nullable="0+")
    # KIP-232, kstore only.
    partition_epoch: Int32 = field("12+", default=-1, tag=23200, ignorable=True)


class FetchableTopicResponse(Struct):
    """One entry of `responses` in FetchResponse."""

    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = field("0+", default=[])


class NodeEndpoint(Struct):
    """One entry of `node_endpoints` in FetchResponse."""

    node_id: Int32 = field("16+", default=0)
    host: String = field("16+", default="")
    port: Int32 = field("16+", default=0)
    rack: String | None = field("16+", default=None, nullable="16+")


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    """The answer to FetchRequest."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)
    responses: list[FetchableTopicResponse] = field("0+", default=[])
    node_endpoints: list[NodeEndpoint] = field("16+", default=[], tag=0)
