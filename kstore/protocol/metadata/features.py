"""UpdateFeatures, UnregisterBroker and DescribeQuorum: the administration of the cluster itself."""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    UInt16,
    Uuid,
    field,
)

__all__ = [
    "DescribeQuorumRequest",
    "DescribeQuorumRequestPartitionData",
    "DescribeQuorumRequestTopicData",
    "DescribeQuorumResponse",
    "DescribeQuorumResponsePartitionData",
    "DescribeQuorumResponseTopicData",
    "FeatureUpdateKey",
    "Listener",
    "Node",
    "ReplicaState",
    "UnregisterBrokerRequest",
    "UnregisterBrokerResponse",
    "UpdatableFeatureResult",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
]


class FeatureUpdateKey(Struct):
    """One entry of `feature_updates` in UpdateFeaturesRequest."""

    feature: String = field("0+", default="")
    max_version_level: Int16 = field("0+", default=0)
    allow_downgrade: Bool = field("0", default=False)
    upgrade_type: Int8 = field("1+", default=1)


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    """Raises or lowers the finalized versions of features (KIP-584)."""

    timeout_ms: Int32 = field("0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = field("0+", default=[])
    validate_only: Bool = field("1+", default=False)


class UpdatableFeatureResult(Struct):
    """One entry of `results` in UpdateFeaturesResponse."""

    feature: String = field("0+", default="")
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    """The answer to UpdateFeaturesRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    results: list[UpdatableFeatureResult] = field("0-1", default=[], ignorable=True)


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    """Removes a broker permanently."""

    broker_id: Int32 = field("0+", default=0)


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    """The answer to UnregisterBrokerRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")


class DescribeQuorumRequestPartitionData(Struct):
    """One entry of `partitions` in DescribeQuorumRequestTopicData."""

    partition_index: Int32 = field("0+", default=0)


class DescribeQuorumRequestTopicData(Struct):
    """One entry of `topics` in DescribeQuorumRequest."""

    topic_name: String = field("0+", default="")
    partitions: list[DescribeQuorumRequestPartitionData] = field("0+", default=[])


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    """Asks for the state of a metadata quorum; brokers with another store have none."""

    topics: list[DescribeQuorumRequestTopicData] = field("0+", default=[])


class ReplicaState(Struct):
    """One entry of `current_voters` in DescribeQuorumResponsePartitionData."""

    replica_id: Int32 = field("0+", default=0)
    replica_directory_id: Uuid = field("2+", default=ZERO_UUID)
    log_end_offset: Int64 = field("0+", default=0)
    last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)


class DescribeQuorumResponsePartitionData(Struct):
    """One entry of `partitions` in DescribeQuorumResponseTopicData."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("2+", default="", nullable="2+", ignorable=True)
    leader_id: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=0)
    high_watermark: Int64 = field("0+", default=0)
    current_voters: list[ReplicaState] = field("0+", default=[])
    observers: list[ReplicaState] = field("0+", default=[])


class DescribeQuorumResponseTopicData(Struct):
    """One entry of `topics` in DescribeQuorumResponse."""

    topic_name: String = field("0+", default="")
    partitions: list[DescribeQuorumResponsePartitionData] = field("0+", default=[])


class Listener(Struct):
    """One entry of `listeners` in Node."""

    name: String = field("2+", default="")
    host: String = field("2+", default="")
    port: UInt16 = field("2+", default=0)


class Node(Struct):
    """One entry of `nodes` in DescribeQuorumResponse."""

    node_id: Int32 = field("2+", default=0)
    listeners: list[Listener] = field("2+", default=[])


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    """The answer to DescribeQuorumRequest."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("2+", default="", nullable="2+", ignorable=True)
    topics: list[DescribeQuorumResponseTopicData] = field("0+", default=[])
    nodes: list[Node] = field("2+", default=[])
