"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments."""

from __future__ import annotations

from kstore.protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListPartitionReassignmentsTopics",
    "OngoingPartitionReassignment",
    "OngoingTopicReassignment",
    "PartitionResult",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
    "ReplicaElectionResult",
    "TopicPartitions",
]


class TopicPartitions(Struct):
    """One entry of `topic_partitions` in ElectLeadersRequest."""

    topic: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])
    # For exact copies, kstore only: the same leaders continue in epochs of at least these numbers.
    least_leader_epochs: list[Int32] = field("2+", default=[], tag=39103, ignorable=True)


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    """Elects preferred leaders or, from version 1 on, unclean ones (KIP-460)."""

    election_type: Int8 = field("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = field("0+", default=[], nullable="0+")
    timeout_ms: Int32 = field("0+", default=60000)


class PartitionResult(Struct):
    """One entry of `partition_result` in ReplicaElectionResult."""

    partition_id: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")


class ReplicaElectionResult(Struct):
    """One entry of `replica_election_results` in ElectLeadersResponse."""

    topic: String = field("0+", default="")
    partition_result: list[PartitionResult] = field("0+", default=[])


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    """The answer to ElectLeadersRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field("0+", default=[])


class ReassignablePartition(Struct):
    """One entry of `partitions` in ReassignableTopic."""

    partition_index: Int32 = field("0+", default=0)
    replicas: list[Int32] | None = field("0+", default=None, nullable="0+")


class ReassignableTopic(Struct):
    """One entry of `topics` in AlterPartitionReassignmentsRequest."""

    name: String = field("0+", default="")
    partitions: list[ReassignablePartition] = field("0+", default=[])


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    """Begins or cancels (null replicas) reassignments (KIP-455)."""

    timeout_ms: Int32 = field("0+", default=60000)
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: list[ReassignableTopic] = field("0+", default=[])


class ReassignablePartitionResponse(Struct):
    """One entry of `partitions` in ReassignableTopicResponse."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")


class ReassignableTopicResponse(Struct):
    """One entry of `responses` in AlterPartitionReassignmentsResponse."""

    name: String = field("0+", default="")
    partitions: list[ReassignablePartitionResponse] = field("0+", default=[])


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    """The answer to AlterPartitionReassignmentsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    allow_replication_factor_change: Bool = field("1+", default=True, ignorable=True)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    responses: list[ReassignableTopicResponse] = field("0+", default=[])


class ListPartitionReassignmentsTopics(Struct):
    """One entry of `topics` in ListPartitionReassignmentsRequest."""

    name: String = field("0+", default="")
    partition_indexes: list[Int32] = field("0+", default=[])


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    """Asks for reassignments in progress; null topics mean all."""

    timeout_ms: Int32 = field("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field("0+", default=None, nullable="0+")


class OngoingPartitionReassignment(Struct):
    """One entry of `partitions` in OngoingTopicReassignment."""

    partition_index: Int32 = field("0+", default=0)
    replicas: list[Int32] = field("0+", default=[])
    adding_replicas: list[Int32] = field("0+", default=[])
    removing_replicas: list[Int32] = field("0+", default=[])


class OngoingTopicReassignment(Struct):
    """One entry of `topics` in ListPartitionReassignmentsResponse."""

    name: String = field("0+", default="")
    partitions: list[OngoingPartitionReassignment] = field("0+", default=[])


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    """The answer to ListPartitionReassignmentsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    topics: list[OngoingTopicReassignment] = field("0+", default=[])
