"""Requests about two things at once, of which a user may have a right to one: mine-a and others-b,
their groups, transactions and configs. And those whose answers list what is there.

What is there is made once (`make`); nothing that is asked changes it for who is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kstore.protocol.groups.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from kstore.protocol.groups.find_coordinator import FindCoordinatorRequest
from kstore.protocol.groups.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kstore.protocol.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kstore.protocol.groups.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kstore.protocol.groups.streams_groups import StreamsGroupDescribeRequest
from kstore.protocol.logs.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kstore.protocol.logs.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kstore.protocol.metadata.config_resources import (
    AlterConfigsRequest,
    AlterConfigsResource,
    ListConfigResourcesRequest,
)
from kstore.protocol.metadata.configs import DescribeConfigsRequest, DescribeConfigsResource
from kstore.protocol.metadata.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from kstore.protocol.metadata.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kstore.protocol.schema import Message
from kstore.protocol.transactions.admin import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kstore.protocol.transactions.admin import (
    TopicRequest as ProducersOf,
)
from kstore.protocol.transactions.producer_ids import InitProducerIdRequest
from kstore.protocol.transactions.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tests.conformance.probes.consumer_groups import join
from tests.conformance.probes.peer import Peer
from tests.conformance.probes.story import settle
from tests.conformance.probes.topics import UNKNOWN_ID, create

__all__ = ["QUESTIONS", "Question", "is_ours", "make"]

MINE, OTHERS, ABSENT = "mine-a", "others-b", "others-absent"
TOPICS = (MINE, OTHERS, ABSENT)
MY_GROUP, OTHERS_GROUP, MY_MEMBERS = "mine-g", "others-g", "mine-members"
MY_ID, OTHERS_ID = "mine-t", "others-t"
NEW_GROUP, NEW_ID = "mine-half", "others-new"
ALL_GROUPS = [MY_GROUP, OTHERS_GROUP, MY_MEMBERS]


class Question(NamedTuple):
    """One request, at a version (None: the highest)."""

    name: str
    ask: Callable[[Peer], Message]
    version: int | None = None


def is_ours(label: str) -> bool:
    """Whether a row of an answer is about what `make` made, not about what other requests make
    beside this one.
    """
    return label not in (NEW_GROUP, NEW_ID) and not label.startswith(("pm-", "probe", "__"))


def make(peer: Peer) -> None:
    """Topics, groups with offsets and with a member, transactions that are open."""
    for topic in (MINE, OTHERS):
        message = create(topic, 2)
        settle(peer, message, peer.ask(message, peer.version_for(19)))
    for group in (MY_GROUP, OTHERS_GROUP):
        _succeed(peer, _commit(group, MINE, OTHERS), 8)
    _succeed(peer, join(MY_MEMBERS, "member", MINE, OTHERS), peer.version_for(68))
    for transactional_id in (MY_ID, OTHERS_ID):
        begin = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=600_000
        )
        found: Any = peer.ask(begin, 4)
        add = _add(transactional_id, MINE, OTHERS)
        add.v3_and_below_producer_id = found.producer_id
        add.v3_and_below_producer_epoch = found.producer_epoch
        peer.ask(add, 3)


def _succeed(peer: Peer, message: Message, version: int) -> None:
    answer: Any = peer.ask(message, version)
    assert not getattr(answer, "error_code", 0), answer


def _commit(group: str, *topics: str) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row]) for topic in topics],
    )


def _add(transactional_id: str, *topics: str) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics
        ],
    )


def _fetch_offsets(*topics: str) -> OffsetFetchRequest:
    asked = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0]) for topic in topics]
    groups = [
        OffsetFetchRequestGroup(group_id=group, topics=asked or None)
        for group in (MY_GROUP, OTHERS_GROUP)
    ]
    return OffsetFetchRequest(groups=groups)


def _configs(kind: int, *names: str) -> DescribeConfigsRequest:
    keys = ["retention.ms", "log.retention.ms", "consumer.heartbeat.interval.ms", "kafka"]
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for name in names
        ]
    )


def _alter(*resources: tuple[int, str]) -> AlterConfigsRequest:
    """Nothing is set, and only looked at."""
    rows = [
        AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
        for kind, name in resources
    ]
    return AlterConfigsRequest(resources=rows, validate_only=True)


def _by_id(peer: Peer) -> DeleteTopicsRequest:
    ids = [UNKNOWN_ID]
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=None, topic_id=each) for each in ids], timeout_ms=20_000
    )


def _list_offsets(peer: Peer) -> ListOffsetsRequest:
    row = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[row]) for name in TOPICS]
    )


def _delete_records(peer: Peer) -> DeleteRecordsRequest:
    row = DeleteRecordsPartition(partition_index=0, offset=0)
    rows = [DeleteRecordsTopic(name=name, partitions=[row]) for name in TOPICS]
    return DeleteRecordsRequest(topics=rows, timeout_ms=10_000)


def _delete_offsets(peer: Peer) -> OffsetDeleteRequest:
    row = OffsetDeleteRequestPartition(partition_index=1)
    rows = [OffsetDeleteRequestTopic(name=name, partitions=[row]) for name in TOPICS]
    return OffsetDeleteRequest(group_id=MY_GROUP, topics=rows)


def _create_topics(peer: Peer) -> CreateTopicsRequest:
    """Looked at only."""
    names = ("mine-new", "others-new", OTHERS)
    rows = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=rows, timeout_ms=10_000, validate_only=True)


def _heartbeat(peer: Peer) -> ConsumerGroupHeartbeatRequest:
    """One topic that may be described does not make up for another."""
    return join(NEW_GROUP, "member", MINE, OTHERS)


def _metadata(*names: str) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    return MetadataRequest(
        topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True
    )


_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP = 2, 4, 8, 16, 32
QUESTIONS: tuple[Question, ...] = (
    Question("Metadata", lambda peer: _metadata(*TOPICS)),
    Question("Metadata of all", lambda peer: _metadata()),
    Question(
        "Metadata by ids",
        lambda peer: MetadataRequest(
            topics=[
                MetadataRequestTopic(name=None, topic_id=each)
                for each in (peer.topic_id(MINE), peer.topic_id(OTHERS), UNKNOWN_ID)
            ]
        ),
    ),
    Question(
        "DescribeTopicPartitions",
        lambda peer: DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in TOPICS]
        ),
    ),
    Question(
        "DescribeTopicPartitions of all", lambda peer: DescribeTopicPartitionsRequest(topics=[])
    ),
    Question("ListOffsets", _list_offsets),
    Question("DeleteRecords", _delete_records),
    Question("OffsetCommit", lambda peer: _commit(MY_GROUP, *TOPICS), 9),
    Question("OffsetFetch", lambda peer: _fetch_offsets(*TOPICS), 9),
    Question("OffsetFetch of all topics", lambda peer: _fetch_offsets(), 9),
    Question(
        "OffsetFetch of one group",
        lambda peer: OffsetFetchRequest(group_id=OTHERS_GROUP, topics=None),
        5,
    ),
    Question("OffsetDelete", _delete_offsets),
    Question("DescribeGroups", lambda peer: DescribeGroupsRequest(groups=ALL_GROUPS)),
    Question("ListGroups", lambda peer: ListGroupsRequest()),
    Question("DeleteGroups", lambda peer: DeleteGroupsRequest(groups_names=["others-absent"])),
    Question(
        "ConsumerGroupDescribe",
        lambda peer: ConsumerGroupDescribeRequest(
            group_ids=[MY_MEMBERS, OTHERS_GROUP], include_authorized_operations=True
        ),
    ),
    Question(
        "StreamsGroupDescribe", lambda peer: StreamsGroupDescribeRequest(group_ids=ALL_GROUPS)
    ),
    Question("ConsumerGroupHeartbeat", _heartbeat),
    Question(
        "FindCoordinator of transactions",
        lambda peer: FindCoordinatorRequest(key_type=1, coordinator_keys=[MY_ID, OTHERS_ID]),
    ),
    Question(
        "FindCoordinator of groups",
        lambda peer: FindCoordinatorRequest(key_type=0, coordinator_keys=[MY_GROUP, OTHERS_GROUP]),
    ),
    Question(
        "InitProducerId, transactional",
        lambda peer: InitProducerIdRequest(transactional_id=NEW_ID, transaction_timeout_ms=1000),
        4,
    ),
    Question("AddPartitionsToTxn", lambda peer: _add(MY_ID, *TOPICS), 3),
    Question("AddPartitionsToTxn, both there", lambda peer: _add(MY_ID, MINE, OTHERS), 3),
    Question(
        "DescribeTransactions",
        lambda peer: DescribeTransactionsRequest(
            transactional_ids=[MY_ID, OTHERS_ID, "others-absent"]
        ),
    ),
    Question("ListTransactions", lambda peer: ListTransactionsRequest()),
    Question(
        "DescribeProducers",
        lambda peer: DescribeProducersRequest(
            topics=[ProducersOf(name=name, partition_indexes=[0]) for name in TOPICS]
        ),
    ),
    Question("CreateTopics", _create_topics),
    Question("DeleteTopics by id", _by_id),
    Question("DescribeConfigs of topics", lambda peer: _configs(_TOPIC, *TOPICS)),
    Question("DescribeConfigs of groups", lambda peer: _configs(_GROUP, MY_GROUP, OTHERS_GROUP)),
    Question("DescribeConfigs of a broker", lambda peer: _configs(_BROKER, "1", "")),
    Question("DescribeConfigs of loggers", lambda peer: _configs(_LOGGER, "1")),
    Question("DescribeConfigs of metrics", lambda peer: _configs(_METRICS, "none")),
    Question(
        "AlterConfigs",
        lambda peer: _alter(
            (_TOPIC, MINE), (_TOPIC, OTHERS), (_BROKER, ""), (_GROUP, OTHERS_GROUP)
        ),
    ),
    Question("ListConfigResources", lambda peer: ListConfigResourcesRequest(resource_types=[2])),
)
"""What every user is asked about what is half its own."""
