"""KIP-232, theorem: no answer about another life of a topic is used. Every request that names a
topic by its name says by a partition epoch which topic it means, or is listed here with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from kstore.broker.api import API_TABLE
from kstore.protocol.registry import APIS
from kstore.protocol.schema import Struct, field_type

WHOLE_TOPICS = "about the topic that has the name now: no offset is asked for or told"
WITHOUT = {
    "FetchRequest": "by name up to version 12: the answer has the partition epoch, and is dropped",
    "MetadataRequest": "it is how partition epochs are learned",
    "LeaderEpochForPartitionRequest": "the answer has the partition epoch",
    "CreateTopicsRequest": WHOLE_TOPICS,
    "DeleteTopicsRequest": WHOLE_TOPICS + ", or by id",
    "CreatePartitionsRequest": WHOLE_TOPICS,
    "DescribeTopicPartitionsRequest": WHOLE_TOPICS,
    "AlterReplicaLogDirsRequest": WHOLE_TOPICS,
    "DescribeLogDirsRequest": WHOLE_TOPICS,
    "ElectLeadersRequest": WHOLE_TOPICS,
    "AlterPartitionReassignmentsRequest": WHOLE_TOPICS,
    "ListPartitionReassignmentsRequest": WHOLE_TOPICS,
    "DescribeQuorumRequest": WHOLE_TOPICS,
    "AddPartitionsToTxnRequest": "it writes no record; the batches that follow say what they mean",
    "WriteTxnMarkersRequest": "a marker that ends nothing changes nothing",
    "DescribeProducersRequest": "producer ids are of the cluster, and of no other topic's producer",
    "OffsetDeleteRequest": "its only version has no room for a tag",
    "ShareGroupHeartbeatRequest": WHOLE_TOPICS,
    "StreamsGroupHeartbeatRequest": WHOLE_TOPICS,
    "DescribeShareGroupOffsetsRequest": "the state is found by topic id, which the answer has",
    "DeleteShareGroupOffsetsRequest": WHOLE_TOPICS,
    "CopyBatchesRequest": "by topic id; of the sources, only records with the given key count",
}
"""Requests by name without a partition epoch, and why that is right."""


def fields(cls: type[Struct], above: str = "") -> Iterator[tuple[str, str]]:
    """(what it is in, name) of each field, at every depth."""
    for name in cls.SPECS:
        _, _, struct = field_type(cls, name)
        yield above, name
        if struct is not None:
            yield from fields(struct, name)


def names_topics(cls: type[Struct]) -> bool:
    """Whether a request says by name which topics it is about."""
    return any(
        name in {"topic", "topic_name", "topic_names", "subscribed_topic_names", "source_topics"}
        or (name == "name" and "topic" in above)
        for above, name in fields(cls)
    )


def test_every_request_by_name_says_which_topic_it_means() -> None:
    requests = [APIS[key].request for key, row in API_TABLE.items() if not row.internal]
    by_name = {each.__name__: each for each in requests if names_topics(each)}
    checked = {
        name
        for name, each in by_name.items()
        if any(field in {"partition_epoch", "partition_epochs"} for _, field in fields(each))
    }
    assert checked == {
        "ProduceRequest", "ListOffsetsRequest", "OffsetForLeaderEpochRequest",
        "DeleteRecordsRequest", "OffsetCommitRequest", "OffsetFetchRequest",
        "TxnOffsetCommitRequest", "AlterShareGroupOffsetsRequest", "HeartbeatRequest",
        "ConsumerGroupHeartbeatRequest",
    }  # fmt: skip
    assert by_name.keys() - checked == WITHOUT.keys()
