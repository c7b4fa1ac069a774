"""Requests between the controller and brokers, and between brokers: LeaderAndIsr, StopReplica,
UpdateMetadata, ControlledShutdown, AlterPartition and BrokerHeartbeat.

The first four are from Kafka's ZooKeeper era, in their last form; Kafka 4 has only the last two.
Kafka's zkVersion is `state_version` here (the version of the partition's state znode;
AlterPartition has Kafka's name, `partition_epoch`). A tagged `partition_epoch` is KIP-232's: it
distinguishes a topic's partition from its predecessor of the same name. Clients send none of these.
"""

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
    Uuid,
    field,
)

__all__ = [
    "AlterPartitionRequest",
    "AlterPartitionResponse",
    "AlteredPartition",
    "AlteredTopic",
    "BrokerHeartbeatRequest",
    "BrokerHeartbeatResponse",
    "BrokerState",
    "ControlledShutdownRequest",
    "ControlledShutdownResponse",
    "IsrPartition",
    "IsrTopic",
    "LeaderAndIsrPartition",
    "LeaderAndIsrPartitionError",
    "LeaderAndIsrRequest",
    "LeaderAndIsrResponse",
    "LeaderAndIsrTopic",
    "LeaderAndIsrTopicError",
    "LiveLeader",
    "RemainingPartition",
    "StopReplicaPartition",
    "StopReplicaPartitionError",
    "StopReplicaRequest",
    "StopReplicaResponse",
    "StopReplicaTopic",
    "UpdateMetadataBroker",
    "UpdateMetadataEndpoint",
    "UpdateMetadataPartition",
    "UpdateMetadataRequest",
    "UpdateMetadataResponse",
    "UpdateMetadataTopic",
]

INCREMENTAL = 1
FULL = 2
"""Values of `type`: whether partitions that the request does not name stay unchanged, or do not
exist.
"""


# ---- LeaderAndIsr ----


class LeaderAndIsrPartition(Struct):
    """One entry of `partition_states` in LeaderAndIsrTopic."""

    partition_index: Int32 = field("0+", default=0)
    controller_epoch: Int32 = field("0+", default=0)
    leader: Int32 = field("0+", default=-1)
    leader_epoch: Int32 = field("0+", default=0)
    isr: list[Int32] = field("0+", default=[])
    state_version: Int32 = field("0+", default=0)
    replicas: list[Int32] = field("0+", default=[])
    adding_replicas: list[Int32] = field("3+", default=[])
    removing_replicas: list[Int32] = field("3+", default=[])
    is_new: Bool = field("1+", default=False)
    leader_recovery_state: Int8 = field("6+", default=0)
    partition_epoch: Int32 = field("4+", default=-1, tag=23200, ignorable=True)


class LeaderAndIsrTopic(Struct):
    """One entry of `topic_states` in LeaderAndIsrRequest."""

    topic_name: String = field("2+", default="")
    topic_id: Uuid = field("5+", default=ZERO_UUID)
    partition_states: list[LeaderAndIsrPartition] = field("2+", default=[])
    partition_count: Int32 = field("4+", default=-1, tag=25300, ignorable=True)
    retired_from: Int32 = field("4+", default=-1, tag=25303, ignorable=True)


class LiveLeader(Struct):
    """One entry of `live_leaders` in LeaderAndIsrRequest."""

    broker_id: Int32 = field("0+", default=0)
    host_name: String = field("0+", default="")
    port: Int32 = field("0+", default=0)


class LeaderAndIsrRequest(Message, api_key=4, versions="7", flexible="4+"):
    """Makes a broker the leader or a follower of partitions; a full request names all of its
    partitions. The requests of one controller have ascending numbers.
    """

    controller_id: Int32 = field("0+", default=0)
    is_kraft_controller: Bool = field("7+", default=False)
    controller_epoch: Int32 = field("0+", default=0)
    broker_epoch: Int64 = field("2+", default=-1)
    type: Int8 = field("5+", default=0)
    topic_states: list[LeaderAndIsrTopic] = field("2+", default=[])
    live_leaders: list[LiveLeader] = field("0+", default=[])
    request_number: Int64 = field("4+", default=-1, tag=10102, ignorable=True)


class LeaderAndIsrPartitionError(Struct):
    """One entry of `partition_errors` in LeaderAndIsrTopicError; with where the log ends, if the
    role has no leader or is of an epoch below the log's.
    """

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    latest_epoch: Int32 = field("4+", default=-1, tag=10100, ignorable=True)
    log_end_offset: Int64 = field("4+", default=-1, tag=10101, ignorable=True)


class LeaderAndIsrTopicError(Struct):
    """One entry of `topics` in LeaderAndIsrResponse."""

    topic_id: Uuid = field("5+", default=ZERO_UUID)
    partition_errors: list[LeaderAndIsrPartitionError] = field("5+", default=[])


class LeaderAndIsrResponse(Message, api_key=4, versions="7", flexible="4+"):
    """The answer to LeaderAndIsrRequest, an error per partition."""

    error_code: Int16 = field("0+", default=0)
    topics: list[LeaderAndIsrTopicError] = field("5+", default=[])


# ---- StopReplica ----


class StopReplicaPartition(Struct):
    """One entry of `partition_states` in StopReplicaTopic; leader epoch -2: a deleted topic."""

    partition_index: Int32 = field("3+", default=0)
    leader_epoch: Int32 = field("3+", default=-1)
    delete_partition: Bool = field("3+", default=False)


class StopReplicaTopic(Struct):
    """One entry of `topic_states` in StopReplicaRequest."""

    topic_name: String = field("3+", default="")
    partition_states: list[StopReplicaPartition] = field("3+", default=[])
    topic_id: Uuid = field("3+", default=ZERO_UUID, tag=23203, ignorable=True)


class StopReplicaRequest(Message, api_key=5, versions="4", flexible="2+"):
    """Stops replicas on a broker, and deletes their logs if the request says so."""

    controller_id: Int32 = field("0+", default=0)
    is_kraft_controller: Bool = field("4+", default=False)
    controller_epoch: Int32 = field("0+", default=0)
    broker_epoch: Int64 = field("1+", default=-1)
    topic_states: list[StopReplicaTopic] = field("3+", default=[])


class StopReplicaPartitionError(Struct):
    """One entry of `partition_errors` in StopReplicaResponse."""

    topic_name: String = field("0+", default="")
    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)


class StopReplicaResponse(Message, api_key=5, versions="4", flexible="2+"):
    """The answer to StopReplicaRequest."""

    error_code: Int16 = field("0+", default=0)
    partition_errors: list[StopReplicaPartitionError] = field("0+", default=[])


# ---- UpdateMetadata ----


class UpdateMetadataPartition(Struct):
    """One entry of `partition_states` in UpdateMetadataTopic; leader -2: the topic is deleted."""

    partition_index: Int32 = field("0+", default=0)
    controller_epoch: Int32 = field("0+", default=0)
    leader: Int32 = field("0+", default=-1)
    leader_epoch: Int32 = field("0+", default=0)
    isr: list[Int32] = field("0+", default=[])
    state_version: Int32 = field("0+", default=0)
    replicas: list[Int32] = field("0+", default=[])
    offline_replicas: list[Int32] = field("4+", default=[])
    partition_epoch: Int32 = field("6+", default=-1, tag=23200, ignorable=True)
    eligible_leader_replicas: list[Int32] = field("6+", default=[], tag=96600, ignorable=True)
    last_known_elr: list[Int32] = field("6+", default=[], tag=96601, ignorable=True)


class UpdateMetadataTopic(Struct):
    """One entry of `topic_states` in UpdateMetadataRequest."""

    topic_name: String = field("5+", default="")
    topic_id: Uuid = field("7+", default=ZERO_UUID)
    partition_states: list[UpdateMetadataPartition] = field("5+", default=[])
    # A contraction: the first partition that retires; the last leader epoch in which it accepted
    # records, and its partition epoch; and the number of partitions.
    retired_from: Int32 = field("6+", default=-1, tag=25303, ignorable=True)
    retired_epoch: Int32 = field("6+", default=-1, tag=25304, ignorable=True)
    retired_partition_epoch: Int32 = field("6+", default=-1, tag=25305, ignorable=True)
    retirement_holds: Bool = field("6+", default=False, tag=25306, ignorable=True)
    partition_total: Int32 = field("6+", default=-1, tag=25307, ignorable=True)


class UpdateMetadataEndpoint(Struct):
    """One entry of `endpoints` in UpdateMetadataBroker."""

    port: Int32 = field("1+", default=0)
    host: String = field("1+", default="")
    listener: String = field("3+", default="")
    security_protocol: Int16 = field("1+", default=0)


class UpdateMetadataBroker(Struct):
    """One entry of `live_brokers` in UpdateMetadataRequest."""

    id: Int32 = field("0+", default=0)
    endpoints: list[UpdateMetadataEndpoint] = field("1+", default=[])
    rack: String | None = field("2+", default=None, nullable="0+")
    epoch: Int64 = field("6+", default=-1, tag=23202, ignorable=True)


class UpdateMetadataRequest(Message, api_key=6, versions="8", flexible="6+"):
    """Sends a broker all live brokers, and partitions that have changed (or, with type FULL,
    all).
    """

    controller_id: Int32 = field("0+", default=0)
    is_kraft_controller: Bool = field("8+", default=False)
    type: Int8 = field("8+", default=0)
    controller_epoch: Int32 = field("0+", default=0)
    broker_epoch: Int64 = field("5+", default=-1)
    topic_states: list[UpdateMetadataTopic] = field("5+", default=[])
    live_brokers: list[UpdateMetadataBroker] = field("0+", default=[])
    max_partition_epoch: Int32 = field("6+", default=-1, tag=23201, ignorable=True)


class UpdateMetadataResponse(Message, api_key=6, versions="8", flexible="6+"):
    """The answer to UpdateMetadataRequest."""

    error_code: Int16 = field("0+", default=0)


# ---- ControlledShutdown ----


class ControlledShutdownRequest(Message, api_key=7, versions="3", flexible="3+"):
    """A broker that is about to stop asks the controller to move its leaderships."""

    broker_id: Int32 = field("0+", default=0)
    broker_epoch: Int64 = field("2+", default=-1)


class RemainingPartition(Struct):
    """One entry of `remaining_partitions` in ControlledShutdownResponse."""

    topic_name: String = field("0+", default="")
    partition_index: Int32 = field("0+", default=0)


class ControlledShutdownResponse(Message, api_key=7, versions="3", flexible="3+"):
    """The response: the partitions that the broker still leads."""

    error_code: Int16 = field("0+", default=0)
    remaining_partitions: list[RemainingPartition] = field("0+", default=[])


# ---- AlterPartition ----


class BrokerState(Struct):
    """One entry of `new_isr_with_epochs` in IsrPartition."""

    broker_id: Int32 = field("3+", default=0)
    broker_epoch: Int64 = field("3+", default=-1)


class IsrPartition(Struct):
    """One entry of `partitions` in IsrTopic; `partition_epoch` is the state znode's version."""

    partition_index: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=0)
    new_isr: list[Int32] = field("0-2", default=[])
    new_isr_with_epochs: list[BrokerState] = field("3+", default=[])
    leader_recovery_state: Int8 = field("1+", default=0)
    partition_epoch: Int32 = field("0+", default=0)


class IsrTopic(Struct):
    """One entry of `topics` in AlterPartitionRequest."""

    topic_id: Uuid = field("2+", default=ZERO_UUID, ignorable=True)
    partitions: list[IsrPartition] = field("0+", default=[])


class AlterPartitionRequest(Message, api_key=56, versions="2-3", flexible="0+"):
    """A leader proposes the in-sync replicas of its partitions (KIP-497)."""

    broker_id: Int32 = field("0+", default=0)
    broker_epoch: Int64 = field("0+", default=-1)
    topics: list[IsrTopic] = field("0+", default=[])


class AlteredPartition(Struct):
    """One entry of `partitions` in AlteredTopic; `partition_epoch` as in IsrPartition."""

    partition_index: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    leader_id: Int32 = field("0+", default=0)
    leader_epoch: Int32 = field("0+", default=0)
    isr: list[Int32] = field("0+", default=[])
    leader_recovery_state: Int8 = field("1+", default=0, ignorable=True)
    partition_epoch: Int32 = field("0+", default=0)


class AlteredTopic(Struct):
    """One entry of `topics` in AlterPartitionResponse."""

    topic_id: Uuid = field("2+", default=ZERO_UUID, ignorable=True)
    partitions: list[AlteredPartition] = field("0+", default=[])


class AlterPartitionResponse(Message, api_key=56, versions="2-3", flexible="0+"):
    """The current state."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    topics: list[AlteredTopic] = field("0+", default=[])


# ---- BrokerHeartbeat ----


class BrokerHeartbeatRequest(Message, api_key=63, versions="0-2", flexible="0+"):
    """A broker that can't reach the coordination store asks whether another one can.

    In Kafka this request is sent to the controller, which uses the other fields.
    """

    broker_id: Int32 = field("0+", default=0)
    broker_epoch: Int64 = field("0+", default=-1)
    current_metadata_offset: Int64 = field("0+", default=0)
    want_fence: Bool = field("0+", default=False)
    want_shut_down: Bool = field("0+", default=False)
    offline_log_dirs: list[Uuid] = field("1+", default=[], tag=0)
    cordoned_log_dirs: list[Uuid] | None = field("2+", default=None, nullable="2+", tag=1)


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-2", flexible="0+"):
    """NONE: it can. BROKER_NOT_AVAILABLE: it can't either, and has elected no leader for a
    while.
    """

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    is_caught_up: Bool = field("0+", default=False)
    is_fenced: Bool = field("0+", default=True)
    should_shut_down: Bool = field("0+", default=False)
