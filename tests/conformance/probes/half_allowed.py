"""Requests about two things at once, of which a user may have a right to one: mine-a and others-b,
their groups, transactions and configs. And those whose answers list what is there.

What is there is made once (`make`); nothing that is asked changes it for who is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kstore.protocol.schema import Message
from tests.conformance.probes.consumer_groups import join
from tests.conformance.probes.peer import Peer
from tests.conformance.probes.story import settle
from tests.conformance.probes.topics import UNKNOWN_ID, create
from tests.plain_messages import Ask

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
        begin = Ask.InitProducerId(
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


def _commit(group: str, *topics: str) -> Message:
    row = {"partition_index": 0, "committed_offset": 3}
    return Ask.OffsetCommit(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[{"name": topic, "partitions": [row]} for topic in topics],
    )


def _add(transactional_id: str, *topics: str) -> Message:
    return Ask.AddPartitionsToTxn(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_topics=[{"name": topic, "partitions": [0]} for topic in topics],
    )


def _fetch_offsets(*topics: str) -> Message:
    asked = [{"name": topic, "partition_indexes": [0]} for topic in topics]
    groups = [{"group_id": group, "topics": asked or None} for group in (MY_GROUP, OTHERS_GROUP)]
    return Ask.OffsetFetch(groups=groups)


def _configs(kind: int, *names: str) -> Message:
    keys = ["retention.ms", "log.retention.ms", "consumer.heartbeat.interval.ms", "kafka"]
    return Ask.DescribeConfigs(
        resources=[
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            for name in names
        ]
    )


def _alter(*resources: tuple[int, str]) -> Message:
    """Nothing is set, and only looked at."""
    rows = [
        {"resource_type": kind, "resource_name": name, "configs": []} for kind, name in resources
    ]
    return Ask.AlterConfigs(resources=rows, validate_only=True)


def _by_id(peer: Peer) -> Message:
    ids = [UNKNOWN_ID]
    return Ask.DeleteTopics(
        topics=[{"name": None, "topic_id": each} for each in ids], timeout_ms=20_000
    )


def _list_offsets(peer: Peer) -> Message:
    row = {"partition_index": 0, "timestamp": -1}
    return Ask.ListOffsets(
        replica_id=-1, topics=[{"name": name, "partitions": [row]} for name in TOPICS]
    )


def _delete_records(peer: Peer) -> Message:
    row = {"partition_index": 0, "offset": 0}
    rows = [{"name": name, "partitions": [row]} for name in TOPICS]
    return Ask.DeleteRecords(topics=rows, timeout_ms=10_000)


def _delete_offsets(peer: Peer) -> Message:
    row = {"partition_index": 1}
    rows = [{"name": name, "partitions": [row]} for name in TOPICS]
    return Ask.OffsetDelete(group_id=MY_GROUP, topics=rows)


def _create_topics(peer: Peer) -> Message:
    """Looked at only."""
    names = ("mine-new", "others-new", OTHERS)
    rows = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    return Ask.CreateTopics(topics=rows, timeout_ms=10_000, validate_only=True)


def _heartbeat(peer: Peer) -> Message:
    """One topic that may be described does not make up for another."""
    return join(NEW_GROUP, "member", MINE, OTHERS)


def _metadata(*names: str) -> Message:
    topics = [{"name": name} for name in names] if names else None
    return Ask.Metadata(
        topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True
    )


_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP = 2, 4, 8, 16, 32
QUESTIONS: tuple[Question, ...] = (
    Question("Metadata", lambda peer: _metadata(*TOPICS)),
    Question("Metadata of all", lambda peer: _metadata()),
    Question(
        "Metadata by ids",
        lambda peer: Ask.Metadata(
            topics=[
                {"name": None, "topic_id": each}
                for each in (peer.topic_id(MINE), peer.topic_id(OTHERS), UNKNOWN_ID)
            ]
        ),
    ),
    Question(
        "DescribeTopicPartitions",
        lambda peer: Ask.DescribeTopicPartitions(topics=[{"name": name} for name in TOPICS]),
    ),
    Question("DescribeTopicPartitions of all", lambda peer: Ask.DescribeTopicPartitions(topics=[])),
    Question("ListOffsets", _list_offsets),
    Question("DeleteRecords", _delete_records),
    Question("OffsetCommit", lambda peer: _commit(MY_GROUP, *TOPICS), 9),
    Question("OffsetFetch", lambda peer: _fetch_offsets(*TOPICS), 9),
    Question("OffsetFetch of all topics", lambda peer: _fetch_offsets(), 9),
    Question(
        "OffsetFetch of one group",
        lambda peer: Ask.OffsetFetch(group_id=OTHERS_GROUP, topics=None),
        5,
    ),
    Question("OffsetDelete", _delete_offsets),
    Question("DescribeGroups", lambda peer: Ask.DescribeGroups(groups=ALL_GROUPS)),
    Question("ListGroups", lambda peer: Ask.ListGroups()),
    Question("DeleteGroups", lambda peer: Ask.DeleteGroups(groups_names=["others-absent"])),
    Question(
        "ConsumerGroupDescribe",
        lambda peer: Ask.ConsumerGroupDescribe(
            group_ids=[MY_MEMBERS, OTHERS_GROUP], include_authorized_operations=True
        ),
    ),
    Question("StreamsGroupDescribe", lambda peer: Ask.StreamsGroupDescribe(group_ids=ALL_GROUPS)),
    Question("ConsumerGroupHeartbeat", _heartbeat),
    Question(
        "FindCoordinator of transactions",
        lambda peer: Ask.FindCoordinator(key_type=1, coordinator_keys=[MY_ID, OTHERS_ID]),
    ),
    Question(
        "FindCoordinator of groups",
        lambda peer: Ask.FindCoordinator(key_type=0, coordinator_keys=[MY_GROUP, OTHERS_GROUP]),
    ),
    Question(
        "InitProducerId, transactional",
        lambda peer: Ask.InitProducerId(transactional_id=NEW_ID, transaction_timeout_ms=1000),
        4,
    ),
    Question("AddPartitionsToTxn", lambda peer: _add(MY_ID, *TOPICS), 3),
    Question("AddPartitionsToTxn, both there", lambda peer: _add(MY_ID, MINE, OTHERS), 3),
    Question(
        "DescribeTransactions",
        lambda peer: Ask.DescribeTransactions(
            transactional_ids=[MY_ID, OTHERS_ID, "others-absent"]
        ),
    ),
    Question("ListTransactions", lambda peer: Ask.ListTransactions()),
    Question(
        "DescribeProducers",
        lambda peer: Ask.DescribeProducers(
            topics=[{"name": name, "partition_indexes": [0]} for name in TOPICS]
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
    Question("ListConfigResources", lambda peer: Ask.ListConfigResources(resource_types=[2])),
)
"""What every user is asked about what is half its own."""
