"""CreateTopics, DeleteTopics and CreatePartitions. configs.py has the configs of topics."""

from __future__ import annotations

from kstore.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    Uuid,
    field,
)

__all__ = [
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeletableTopicResult",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
]


class CreatableReplicaAssignment(Struct):
    """One entry of `assignments` in CreatableTopic."""

    partition_index: Int32 = field("0+", default=0)
    broker_ids: list[Int32] = field("0+", default=[])


class CreatableTopicConfig(Struct):
    """One entry of `configs` in CreatableTopic."""

    name: String = field("0+", default="")
    value: String | None = field("0+", default="", nullable="0+")


class CreatableTopic(Struct):
    """One entry of `topics` in CreateTopicsRequest."""

    name: String = field("0+", default="")
    num_partitions: Int32 = field("0+", default=0)
    replication_factor: Int16 = field("0+", default=0)
    assignments: list[CreatableReplicaAssignment] = field("0+", default=[])
    configs: list[CreatableTopicConfig] = field("0+", default=[])


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    """Creates topics; -1 partitions or replicas means the broker's default (KIP-464)."""

    topics: list[CreatableTopic] = field("0+", default=[])
    timeout_ms: Int32 = field("0+", default=60000)
    validate_only: Bool = field("1+", default=False)


class CreatableTopicConfigs(Struct):
    """One entry of `configs` in CreatableTopicResult."""

    name: String = field("5+", default="")
    value: String | None = field("5+", default="", nullable="5+")
    read_only: Bool = field("5+", default=False)
    config_source: Int8 = field("5+", default=-1, ignorable=True)
    is_sensitive: Bool = field("5+", default=False)


class CreatableTopicResult(Struct):
    """One entry of `topics` in CreateTopicsResponse."""

    name: String = field("0+", default="")
    topic_id: Uuid = field("7+", default=ZERO_UUID, ignorable=True)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("1+", default="", nullable="0+", ignorable=True)
    topic_config_error_code: Int16 = field("5+", default=0, tag=0, ignorable=True)
    num_partitions: Int32 = field("5+", default=-1, ignorable=True)
    replication_factor: Int16 = field("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        "5+", default=[], nullable="5+", ignorable=True
    )


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    """The answer to CreateTopicsRequest."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = field("0+", default=[])


class DeleteTopicState(Struct):
    """One entry of `topics` in DeleteTopicsRequest."""

    name: String | None = field("6+", default=None, nullable="6+")
    topic_id: Uuid = field("6+", default=ZERO_UUID)


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    """Deletes topics, by name or (from version 6 on) by id."""

    topics: list[DeleteTopicState] = field("6+", default=[])
    topic_names: list[String] = field("0-5", default=[], ignorable=True)
    timeout_ms: Int32 = field("0+", default=0)


class DeletableTopicResult(Struct):
    """One entry of `responses` in DeleteTopicsResponse."""

    name: String | None = field("0+", default="", nullable="6+")
    topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("5+", default=None, nullable="5+", ignorable=True)


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    """The answer to DeleteTopicsRequest."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = field("0+", default=[])


class CreatePartitionsAssignment(Struct):
    """One entry of `assignments` in CreatePartitionsTopic."""

    broker_ids: list[Int32] = field("0+", default=[])


class CreatePartitionsTopic(Struct):
    """One entry of `topics` in CreatePartitionsRequest."""

    name: String = field("0+", default="")
    count: Int32 = field("0+", default=0)
    assignments: list[CreatePartitionsAssignment] | None = field("0+", default=[], nullable="0+")
    # KIP-253, kstore only: the count may be smaller than the current one.
    may_shrink: Bool = field("2+", default=False, tag=25303, ignorable=True)


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    """Raises the number of partitions of topics."""

    topics: list[CreatePartitionsTopic] = field("0+", default=[])
    timeout_ms: Int32 = field("0+", default=0)
    validate_only: Bool = field("0+", default=False)


class CreatePartitionsTopicResult(Struct):
    """One entry of `results` in CreatePartitionsResponse."""

    name: String = field("0+", default="")
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default=None, nullable="0+")


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    """The answer to CreatePartitionsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[CreatePartitionsTopicResult] = field("0+", default=[])
