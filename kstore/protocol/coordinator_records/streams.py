"""Keys and values of the streams groups' records in __consumer_offsets (KIP-1071). framing.py has
their format; broker.state applies them to a group.
"""

from __future__ import annotations

from kstore.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    UInt16,
    field,
)

__all__ = [
    "CopartitionGroup",
    "Endpoint",
    "KeyValue",
    "LastAssignmentConfig",
    "StreamsGroupCurrentMemberAssignmentKey",
    "StreamsGroupCurrentMemberAssignmentValue",
    "StreamsGroupCurrentMemberAssignmentValueTaskIds",
    "StreamsGroupMemberMetadataKey",
    "StreamsGroupMemberMetadataValue",
    "StreamsGroupMetadataKey",
    "StreamsGroupMetadataValue",
    "StreamsGroupTargetAssignmentMemberKey",
    "StreamsGroupTargetAssignmentMemberValue",
    "StreamsGroupTargetAssignmentMemberValueTaskIds",
    "StreamsGroupTargetAssignmentMetadataKey",
    "StreamsGroupTargetAssignmentMetadataValue",
    "StreamsGroupTopologyKey",
    "StreamsGroupTopologyValue",
    "Subtopology",
    "TopicConfig",
    "TopicInfo",
]


class StreamsGroupMetadataKey(Message, record_type=17, versions="0"):
    """The key of a streams group's epoch."""

    group_id: String = field("0", default="")


class LastAssignmentConfig(Struct):
    """One entry of `last_assignment_configs` in StreamsGroupMetadataValue."""

    key: String = field("0+", default="")
    value: String = field("0+", default="")


class StreamsGroupMetadataValue(Message, record_type=17, versions="0", flexible="0+"):
    """A streams group's epoch, and the inputs of its assignment."""

    epoch: Int32 = field("0+", default=0)
    metadata_hash: Int64 = field("0+", default=0)
    validated_topology_epoch: Int32 = field("0+", default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(
        "0+", default=None, nullable="0+", tag=1
    )


class StreamsGroupMemberMetadataKey(Message, record_type=19, versions="0"):
    """The key of a member's own data."""

    group_id: String = field("0", default="")
    member_id: String = field("0", default="")


class Endpoint(Struct):
    """The field `user_endpoint` of StreamsGroupMemberMetadataValue."""

    host: String = field("0+", default="")
    port: UInt16 = field("0+", default=0)


class KeyValue(Struct):
    """One entry of `client_tags` in StreamsGroupMemberMetadataValue."""

    key: String = field("0+", default="")
    value: String = field("0+", default="")


class StreamsGroupMemberMetadataValue(Message, record_type=19, versions="0", flexible="0+"):
    """A member's own data; a record without a value removes the member."""

    instance_id: String | None = field("0+", default="", nullable="0+")
    rack_id: String | None = field("0+", default="", nullable="0+")
    client_id: String = field("0+", default="")
    client_host: String = field("0+", default="")
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    topology_epoch: Int32 = field("0+", default=0)
    process_id: String = field("0+", default="")
    user_endpoint: Endpoint | None = field("0+", default=None, nullable="0+")
    client_tags: list[KeyValue] = field("0+", default=[])


class StreamsGroupTargetAssignmentMetadataKey(Message, record_type=20, versions="0"):
    """The key of a streams group's assignment epoch."""

    group_id: String = field("0", default="")


class StreamsGroupTargetAssignmentMetadataValue(
    Message, record_type=20, versions="0", flexible="0+"
):
    """The group epoch for which the target assignment was computed, and the time."""

    assignment_epoch: Int32 = field("0+", default=0)
    assignment_timestamp: Int64 = field("0+", default=0, tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Message, record_type=21, versions="0"):
    """The key of a member's target assignment."""

    group_id: String = field("0", default="")
    member_id: String = field("0", default="")


class StreamsGroupTargetAssignmentMemberValueTaskIds(Struct):
    """One entry of `active_tasks` in StreamsGroupTargetAssignmentMemberValue."""

    subtopology_id: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])


class StreamsGroupTargetAssignmentMemberValue(Message, record_type=21, versions="0", flexible="0+"):
    """A member's target tasks."""

    active_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = field("0+", default=[])
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = field("0+", default=[])
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = field("0+", default=[])


class StreamsGroupCurrentMemberAssignmentKey(Message, record_type=22, versions="0"):
    """The key of a member's current assignment."""

    group_id: String = field("0", default="")
    member_id: String = field("0", default="")


class StreamsGroupCurrentMemberAssignmentValueTaskIds(Struct):
    """One entry of `active_tasks` in StreamsGroupCurrentMemberAssignmentValue."""

    subtopology_id: String = field("0+", default="")
    partitions: list[Int32] = field("0+", default=[])
    # KAFKA-19779: as many as `partitions`; only for active tasks.
    assignment_epochs: list[Int32] | None = field("0+", default=None, nullable="0+", tag=0)


class StreamsGroupCurrentMemberAssignmentValue(
    Message, record_type=22, versions="0", flexible="0+"
):
    """A member's epoch and state, its tasks, and those that it must still give up."""

    member_epoch: Int32 = field("0+", default=0)
    previous_member_epoch: Int32 = field("0+", default=0)
    state: Int8 = field("0+", default=0)
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field("0+", default=[])
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field("0+", default=[])
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field("0+", default=[])
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        "0+", default=[]
    )
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        "0+", default=[]
    )
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        "0+", default=[]
    )


class StreamsGroupTopologyKey(Message, record_type=23, versions="0"):
    """The key of a streams group's topology."""

    group_id: String = field("0", default="")


class TopicConfig(Struct):
    """One entry of `topic_configs` in TopicInfo."""

    key: String = field("0+", default="")
    value: String = field("0+", default="")


class TopicInfo(Struct):
    """One entry of `state_changelog_topics` in Subtopology."""

    name: String = field("0+", default="")
    partitions: Int32 = field("0+", default=0)
    replication_factor: Int16 = field("0+", default=0)
    topic_configs: list[TopicConfig] = field("0+", default=[])


class CopartitionGroup(Struct):
    """One entry of `copartition_groups` in Subtopology: indexes into its lists of topics."""

    source_topics: list[Int16] = field("0+", default=[])
    source_topic_regex: list[Int16] = field("0+", default=[])
    repartition_source_topics: list[Int16] = field("0+", default=[])


class Subtopology(Struct):
    """One entry of `subtopologies` in StreamsGroupTopologyValue."""

    subtopology_id: String = field("0+", default="")
    source_topics: list[String] = field("0+", default=[])
    source_topic_regex: list[String] = field("0+", default=[])
    state_changelog_topics: list[TopicInfo] = field("0+", default=[])
    repartition_sink_topics: list[String] = field("0+", default=[])
    repartition_source_topics: list[TopicInfo] = field("0+", default=[])
    copartition_groups: list[CopartitionGroup] = field("0+", default=[])


class StreamsGroupTopologyValue(Message, record_type=23, versions="0", flexible="0+"):
    """The topics that the application reads, writes and stores, from its first member."""

    epoch: Int32 = field("0+", default=0)
    subtopologies: list[Subtopology] = field("0+", default=[])
