"""The messages that docs/protocol-bytes.md shows in bytes."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kstore._fast.record.builder import build_batch
from kstore.protocol.controller import reassignments
from kstore.protocol.groups import classic, consumer_groups, offsets
from kstore.protocol.logs import (
    copy_batches,
    delete_records,
    fetch,
    leader_epoch_for_partition,
    list_offsets,
    produce,
)
from kstore.protocol.metadata import api_versions, metadata, topics
from kstore.protocol.schema import Message
from kstore.protocol.shares import offsets as share_offsets
from kstore.protocol.transactions import producer_ids, transactions
from kstore.record.control import ControlType, EndTransactionMarker, control_batch

__all__ = ["EXAMPLES", "Example"]

TOPIC_ID = UUID("6f2c1d3e-4b5a-4978-8f6e-5d4c3b2a1908")
TIME_MS = 1_700_000_000_000
GIVEN = build_batch([b"a", b"b"], timestamp=TIME_MS, base_offset=40)


class Example(NamedTuple):
    """A message and what it shows."""

    api_key: int
    version: int
    message: Message
    words: str


NEED = [classic.NeedPositionTopic(topic="t", partitions=[0, 1])]
POSITION = [
    classic.PositionTopic(
        topic="t",
        partitions=[classic.PositionPartition(partition=2, position=40, partition_epoch=17)],
    )
]


def _produce_answer(**fields: object) -> produce.ProduceResponse:
    part = produce.PartitionProduceResponse(**fields)  # type: ignore[arg-type]
    topic = produce.TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[part])
    return produce.ProduceResponse(responses=[topic])


def _fenced() -> produce.ProduceResponse:
    answer = _produce_answer(
        error_code=74, base_offset=-1,
        current_leader=produce.LeaderIdAndEpoch(leader_id=2, leader_epoch=5),
    )  # fmt: skip
    answer.node_endpoints = [produce.NodeEndpoint(node_id=2, host="b2", port=9092)]
    return answer


def _produce_request() -> produce.ProduceRequest:
    part = produce.PartitionProduceData(records=GIVEN, current_leader_epoch=3)
    topic = produce.TopicProduceData(topic_id=TOPIC_ID, partition_data=[part], partition_count=6)
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic], use_offset=True)


def _exact_request() -> produce.ProduceRequest:
    marker = EndTransactionMarker(ControlType.COMMIT, 3)
    records = control_batch(
        marker, producer_id=4000, producer_epoch=0, timestamp=TIME_MS, base_offset=40,
        leader_epoch=2,
    )  # fmt: skip
    part = produce.PartitionProduceData(records=records, current_leader_epoch=3)
    topic = produce.TopicProduceData(topic_id=TOPIC_ID, partition_data=[part], partition_count=6)
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic], exact=True)


def _raised_epoch() -> reassignments.ElectLeadersRequest:
    topic = reassignments.TopicPartitions(topic="t", partitions=[0], least_leader_epochs=[3])
    return reassignments.ElectLeadersRequest(topic_partitions=[topic])


def _skipped_ids() -> producer_ids.InitProducerIdRequest:
    return producer_ids.InitProducerIdRequest(transactional_id=None, least_producer_id=1 << 40)


def _produce_by_name() -> produce.ProduceRequest:
    records = build_batch([b"a", b"b"], timestamp=TIME_MS)
    part = produce.PartitionProduceData(records=records, partition_epoch=17, current_leader_epoch=5)
    topic = produce.TopicProduceData(name="t", partition_data=[part])
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def _metadata_answer(**fields: int) -> metadata.MetadataResponse:
    part = metadata.MetadataResponsePartition(
        leader_id=2, leader_epoch=5, replica_nodes=[2], isr_nodes=[2], partition_epoch=17
    )
    topic = metadata.MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=[part])
    for name, value in fields.items():
        setattr(topic, name, value)
    return metadata.MetadataResponse(
        brokers=[metadata.MetadataResponseBroker(node_id=2, host="b2", port=9092)],
        cluster_id="c", controller_id=2, topics=[topic], max_partition_epoch=21,
    )  # fmt: skip


def _fetch_answer() -> fetch.FetchResponse:
    part = fetch.PartitionData(
        high_watermark=42, last_stable_offset=42, log_start_offset=0, aborted_transactions=None,
        records=GIVEN, partition_epoch=17,
    )  # fmt: skip
    topic = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[part])
    return fetch.FetchResponse(responses=[topic])


def _list_offsets_request() -> list_offsets.ListOffsetsRequest:
    part = list_offsets.ListOffsetsPartition(
        current_leader_epoch=5, timestamp=-1, partition_epoch=17
    )
    topic = list_offsets.ListOffsetsTopic(name="t", partitions=[part])
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])


def _leader_epoch_request(**fields: bool) -> list_offsets.OffsetForLeaderEpochRequest:
    part = list_offsets.OffsetForLeaderPartition(
        current_leader_epoch=5, leader_epoch=4, partition_epoch=17, **fields
    )
    topic = list_offsets.OffsetForLeaderTopic(topic="t", partitions=[part])
    return list_offsets.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


def _delete_records() -> delete_records.DeleteRecordsRequest:
    part = delete_records.DeleteRecordsPartition(offset=40, partition_epoch=17)
    topic = delete_records.DeleteRecordsTopic(name="t", partitions=[part])
    return delete_records.DeleteRecordsRequest(timeout_ms=30_000, topics=[topic])


def _alter_share_offsets() -> share_offsets.AlterShareGroupOffsetsRequest:
    part = share_offsets.AlterShareGroupOffsetsRequestPartition(start_offset=40, partition_epoch=17)
    topic = share_offsets.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[part])
    return share_offsets.AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])


def _list_offsets_answer() -> list_offsets.ListOffsetsResponse:
    part = list_offsets.ListOffsetsPartitionResponse(offset=42, leader_epoch=5, partition_epoch=17)
    topic = list_offsets.ListOffsetsTopicResponse(name="t", partitions=[part])
    return list_offsets.ListOffsetsResponse(topics=[topic])


def _offset_commit() -> offsets.OffsetCommitRequest:
    part = offsets.OffsetCommitRequestPartition(
        committed_offset=42, committed_leader_epoch=5, partition_epoch=17
    )
    topic = offsets.OffsetCommitRequestTopic(topic_id=TOPIC_ID, partitions=[part])
    return offsets.OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, topics=[topic]
    )


def _txn_offset_commit() -> transactions.TxnOffsetCommitRequest:
    part = transactions.TxnOffsetCommitRequestPartition(
        committed_offset=42, committed_leader_epoch=5, partition_epoch=17
    )
    topic = transactions.TxnOffsetCommitRequestTopic(name="t", partitions=[part])
    return transactions.TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", producer_id=4000, producer_epoch=0, topics=[topic]
    )


def _offset_fetch_request() -> offsets.OffsetFetchRequest:
    topic = offsets.OffsetFetchRequestTopics(
        name="t", partition_indexes=[0, 1], partition_epochs=[17, -1]
    )
    group = offsets.OffsetFetchRequestGroup(group_id="g", topics=[topic])
    return offsets.OffsetFetchRequest(groups=[group])


def _offset_fetch_answer() -> offsets.OffsetFetchResponse:
    part = offsets.OffsetFetchResponsePartitions(
        committed_offset=42, committed_leader_epoch=5, partition_epoch=17
    )
    topic = offsets.OffsetFetchResponseTopics(topic_id=TOPIC_ID, partitions=[part])
    return offsets.OffsetFetchResponse(
        groups=[offsets.OffsetFetchResponseGroup(group_id="g", topics=[topic])]
    )


def _prior_epochs() -> leader_epoch_for_partition.LeaderEpochForPartitionResponse:
    own = leader_epoch_for_partition
    priors = [own.PriorLeaderEpoch(partition_index=prior, leader_epoch=4) for prior in (0, 1)]
    result = own.LeaderEpochForPartitionResult(
        partition_index=2, prior_leader_epochs=priors, partition_epoch=18
    )
    topic = own.LeaderEpochForPartitionTopicResult(name="t", partitions=[result])
    return own.LeaderEpochForPartitionResponse(topics=[topic])


def _copy_request() -> copy_batches.CopyBatchesRequest:
    own = copy_batches
    source = own.CopyBatchesSource(topic="staged", partition=1, key=b"k", offsets=[7, 9])
    row = own.CopyBatchesPartition(
        current_leader_epoch=4, base_offset=40, producer_id=4711, producer_epoch=0,
        base_sequence=0, sources=[source],
    )  # fmt: skip
    topic = own.CopyBatchesTopic(name="t", topic_id=TOPIC_ID, partitions=[row])
    return own.CopyBatchesRequest(timeout_ms=30_000, topics=[topic])


def _copy_answer() -> copy_batches.CopyBatchesResponse:
    own = copy_batches
    result = own.CopyBatchesPartitionResult(error_code=77, copied=1, log_end_offset=45)
    topic = own.CopyBatchesTopicResult(name="t", partitions=[result])
    return own.CopyBatchesResponse(topics=[topic])


EXAMPLES = (
    Example(
        18, 4,
        api_versions.ApiVersionsRequest(
            client_software_name="t", client_software_version="1", extension_fields=True
        ),
        "The client asks for the fields in responses.",
    ),
    Example(
        18, 4,
        api_versions.ApiVersionsResponse(
            api_keys=[api_versions.ApiVersion(api_key=0, min_version=0, max_version=13)],
            supported_features=[
                api_versions.SupportedFeatureKey(name=name, min_version=1, max_version=1)
                for name in ("kstore.kip359", "kstore.kip391")
            ],
        ),
        "The broker supports two of the features. A real response has more APIs and features.",
    ),
    Example(
        0, 13, _produce_request(),
        "A request with `UseOffset`, `PartitionCount` and `CurrentLeaderEpoch`. The records are "
        "one batch of two records. Its first eight bytes are the base offset, 40.",
    ),
    Example(
        0, 13, _exact_request(),
        "A request with `Exact`. The batch is a transaction marker of leader epoch 2 at offset 40. "
        "The leader must have epoch 3.",
    ),
    Example(
        0, 13, _produce_answer(base_offset=40, log_start_offset=0, log_end_offset=42),
        "The batch was appended at offset 40. The log end offset is now 42.",
    ),
    Example(
        0, 13,
        _produce_answer(error_code=77, base_offset=-1, log_start_offset=0, log_end_offset=42),
        "The error INVALID_PRODUCE_OFFSET. The log end offset is 42.",
    ),
    Example(
        0, 13, _fenced(),
        "The error FENCED_LEADER_EPOCH, with the leader and its address (Kafka's tags 0, KIP-951).",
    ),
    Example(
        0, 12, _produce_by_name(),
        "Version 12 has topic names. The partition epoch says which topic of that name is meant.",
    ),
    Example(3, 13, _metadata_answer(), "One topic with one partition."),
    Example(
        3, 13, _metadata_answer(partition_count=1),
        "The topic shrinks to one partition. Producers use only that partition.",
    ),
    Example(
        37, 3,
        topics.CreatePartitionsRequest(
            topics=[
                topics.CreatePartitionsTopic(name="t", count=2, assignments=None, may_shrink=True)
            ],
            timeout_ms=30_000,
        ),
        "The client asks for two partitions of topic t. If it has more, it shrinks.",
    ),
    Example(1, 18, _fetch_answer(), "The response has the batch of the first Produce example."),
    Example(
        2, 11, _list_offsets_request(),
        "The client asks for the end of the partition (timestamp -1).",
    ),
    Example(2, 11, _list_offsets_answer(), "The partition ends at offset 42."),
    Example(23, 4, _leader_epoch_request(), "The client asks where leader epoch 4 ended."),
    Example(
        23, 4, _leader_epoch_request(visible_only=True),
        "The same, but only records that `read_committed` consumers get count.",
    ),
    Example(21, 2, _delete_records(), "The client asks to delete the records before offset 40."),
    Example(8, 10, _offset_commit(), "A commit by a client that is not a member of the group."),
    Example(28, 5, _txn_offset_commit(), "A commit in a transaction."),
    Example(
        91, 0, _alter_share_offsets(),
        "The client sets the start offset of a share group without members to 40.",
    ),
    Example(
        9, 9, _offset_fetch_request(),
        "Version 9 has topic names. t-0 has a partition epoch, t-1 has none.",
    ),
    Example(9, 10, _offset_fetch_answer(), "The group has committed offset 42."),
    Example(
        12, 4,
        classic.HeartbeatRequest(
            group_id="g", generation_id=1, member_id="m", need_position=NEED, position=POSITION
        ),
        "A member asks for the positions in t-0 and t-1, and sends its own in t-2.",
    ),
    Example(
        12, 4, classic.HeartbeatResponse(need_position=NEED, position=POSITION),
        "The coordinator asks for the positions in t-0 and t-1. The position in t-2 is 40.",
    ),
    Example(
        68, 1,
        consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=1, need_position=NEED, position=POSITION
        ),
        "The same request of a member with the consumer protocol (KIP-848).",
    ),
    Example(
        68, 1,
        consumer_groups.ConsumerGroupHeartbeatResponse(
            member_id="m", member_epoch=1, heartbeat_interval_ms=5000, need_position=NEED,
            position=POSITION,
        ),
        "The response to it.",
    ),
    Example(
        43, 2, _raised_epoch(),
        "The leader of t-0 raises its leader epoch to 3 if it is smaller.",
    ),
    Example(22, 5, _skipped_ids(), "The broker assigns no producer id below 2^40 any more."),
    Example(
        25300, 0,
        leader_epoch_for_partition.LeaderEpochForPartitionRequest(
            topics=[
                leader_epoch_for_partition.LeaderEpochForPartitionTopic(name="t", partitions=[2])
            ]
        ),
        "The client asks which partitions existed before t-2.",
    ),
    Example(
        25300, 0, _prior_epochs(),
        "t-0 and t-1 existed before. Both had leader epoch 4 until then.",
    ),
    Example(
        25301, 0, _copy_request(),
        "The leader of t-0 appends the batches in records 7 and 9 of staged-1, from offset 40 on.",
    ),
    Example(
        25301, 0, _copy_answer(),
        "The first batch was appended. Another producer wrote before the second.",
    ),
)  # fmt: skip
