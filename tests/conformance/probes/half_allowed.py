"""Requests about two resources at once, where a user may have a right to only one: mine-a and
others-b, their groups, transactions and configs. Also requests that list resources.

`make` creates the resources once. Refused requests do not change them.
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
from tests.record_requests import add_request

MINE, OTHERS, ABSENT = "mine-a", "others-b", "others-absent"
TOPICS = (MINE, OTHERS, ABSENT)
MY_GROUP, OTHERS_GROUP, MY_MEMBERS = "mine-g", "others-g", "mine-members"
MY_ID, OTHERS_ID = "mine-t", "others-t"
NEW_GROUP, NEW_ID = "mine-half", "others-new"
ALL_GROUPS = [MY_GROUP, OTHERS_GROUP, MY_MEMBERS]


class Question(NamedTuple):
    """One request, or a function that builds it for a broker, at a version (None: the highest)."""

    name: str
    request: Message | Callable[[Peer], Message]
    version: int | None = None

    def ask(self, peer: Peer) -> Message:
        return self.request(peer) if callable(self.request) else self.request


def is_ours(label: str) -> bool:
    """Whether a row of an answer is about a resource that `make` created, not about those that
    other requests create at the same time.
    """
    return label not in (NEW_GROUP, NEW_ID) and not label.startswith(("pm-", "probe", "__"))


def make(peer: Peer) -> None:
    """Topics, groups with offsets and with a member, and open transactions."""
    for topic in (MINE, OTHERS):
        message = create(topic, 2)
        settle(peer, message, peer.ask(message, peer.version_for(19)))
    for group in (MY_GROUP, OTHERS_GROUP):
        _succeed(peer, _commit(group, MINE, OTHERS), 8)
    _succeed(peer, join(MY_MEMBERS, "member", MINE, OTHERS), peer.version_for(68))
    for transactional_id in (MY_ID, OTHERS_ID):
        names = {"transactional_id": transactional_id, "transaction_timeout_ms": 600_000}
        found = peer.ask(Ask.InitProducerId(**names), 4)
        peer.ask(add_request(transactional_id, found, {MINE: [0], OTHERS: [0]}), 3)


def _succeed(peer: Peer, message: Message, version: int) -> None:
    answer: Any = peer.ask(message, version)
    assert not getattr(answer, "error_code", 0), answer


def _rows(*names: str, key: str = "partitions", **row: Any) -> list[dict[str, Any]]:
    """A row of partition 0 for each topic; without fields, only the partition number."""
    return [{"name": name, key: [{"partition_index": 0, **row} if row else 0]} for name in names]


def _commit(group: str, *topics: str) -> Message:
    return Ask.OffsetCommit(group_id=group, topics=_rows(*topics, committed_offset=3))


def _add(transactional_id: str, *topics: str) -> Message:
    return Ask.AddPartitionsToTxn(
        v3_and_below_transactional_id=transactional_id, v3_and_below_topics=_rows(*topics)
    )


def _fetch_offsets(*topics: str) -> Message:
    asked = _rows(*topics, key="partition_indexes") or None
    groups = [{"group_id": group, "topics": asked} for group in (MY_GROUP, OTHERS_GROUP)]
    return Ask.OffsetFetch(groups=groups)


def _configs(kind: int, *names: str) -> Message:
    keys = ["retention.ms", "log.retention.ms", "consumer.heartbeat.interval.ms", "kafka"]
    rows = [{"resource_type": kind, "resource_name": name} for name in names]
    return Ask.DescribeConfigs(resources=[row | {"configuration_keys": keys} for row in rows])


def _alter(*resources: tuple[int, str]) -> Message:
    """Reads only; nothing is set."""
    rows = [{"resource_type": kind, "resource_name": name} for kind, name in resources]
    return Ask.AlterConfigs(resources=rows, validate_only=True)


def _create_topics() -> Message:
    """Reads only."""
    names = ("mine-new", "others-new", OTHERS)
    rows = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    return Ask.CreateTopics(topics=rows, timeout_ms=10_000, validate_only=True)


def _metadata(*names: str) -> Message:
    topics = [{"name": name} for name in names] if names else None
    return Ask.Metadata(
        topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True
    )


def _metadata_by_ids(peer: Peer) -> Message:
    ids = (peer.topic_id(MINE), peer.topic_id(OTHERS), UNKNOWN_ID)
    return Ask.Metadata(topics=[{"name": None, "topic_id": each} for each in ids])


_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP = 2, 4, 8, 16, 32
_NAMED = [{"name": name} for name in TOPICS]
QUESTIONS = tuple(Question(*row) for row in (
    ("Metadata", _metadata(*TOPICS)),
    ("Metadata of all", _metadata()),
    ("Metadata by ids", _metadata_by_ids),
    ("DescribeTopicPartitions", Ask.DescribeTopicPartitions(topics=_NAMED)),
    ("DescribeTopicPartitions of all", Ask.DescribeTopicPartitions(topics=[])),
    ("ListOffsets", Ask.ListOffsets(replica_id=-1, topics=_rows(*TOPICS, timestamp=-1))),
    ("DeleteRecords", Ask.DeleteRecords(topics=_rows(*TOPICS, offset=0), timeout_ms=10_000)),
    ("OffsetCommit", _commit(MY_GROUP, *TOPICS), 9),
    ("OffsetFetch", _fetch_offsets(*TOPICS), 9),
    ("OffsetFetch of all topics", _fetch_offsets(), 9),
    ("OffsetFetch of one group", Ask.OffsetFetch(group_id=OTHERS_GROUP, topics=None), 5),
    ("OffsetDelete", Ask.OffsetDelete(group_id=MY_GROUP, topics=[
        {"name": name, "partitions": [{"partition_index": 1}]} for name in TOPICS])),
    ("DescribeGroups", Ask.DescribeGroups(groups=ALL_GROUPS)),
    ("ListGroups", Ask.ListGroups()),
    ("DeleteGroups", Ask.DeleteGroups(groups_names=["others-absent"])),
    ("ConsumerGroupDescribe", Ask.ConsumerGroupDescribe(
        group_ids=[MY_MEMBERS, OTHERS_GROUP], include_authorized_operations=True)),
    ("StreamsGroupDescribe", Ask.StreamsGroupDescribe(group_ids=ALL_GROUPS)),
    # A right to one topic does not make up for a missing right to the other.
    ("ConsumerGroupHeartbeat", join(NEW_GROUP, "member", MINE, OTHERS)),
    ("FindCoordinator of transactions",
     Ask.FindCoordinator(key_type=1, coordinator_keys=[MY_ID, OTHERS_ID])),
    ("FindCoordinator of groups",
     Ask.FindCoordinator(key_type=0, coordinator_keys=[MY_GROUP, OTHERS_GROUP])),
    ("InitProducerId, transactional",
     Ask.InitProducerId(transactional_id=NEW_ID, transaction_timeout_ms=1000), 4),
    ("AddPartitionsToTxn", _add(MY_ID, *TOPICS), 3),
    ("AddPartitionsToTxn, both there", _add(MY_ID, MINE, OTHERS), 3),
    ("DescribeTransactions",
     Ask.DescribeTransactions(transactional_ids=[MY_ID, OTHERS_ID, "others-absent"])),
    ("ListTransactions", Ask.ListTransactions()),
    ("DescribeProducers",
     Ask.DescribeProducers(topics=_rows(*TOPICS, key="partition_indexes"))),
    ("CreateTopics", _create_topics()),
    ("DeleteTopics by id",
     Ask.DeleteTopics(topics=[{"name": None, "topic_id": UNKNOWN_ID}], timeout_ms=20_000)),
    ("DescribeConfigs of topics", _configs(_TOPIC, *TOPICS)),
    ("DescribeConfigs of groups", _configs(_GROUP, MY_GROUP, OTHERS_GROUP)),
    ("DescribeConfigs of a broker", _configs(_BROKER, "1", "")),
    ("DescribeConfigs of loggers", _configs(_LOGGER, "1")),
    ("DescribeConfigs of metrics", _configs(_METRICS, "none")),
    ("AlterConfigs",
     _alter((_TOPIC, MINE), (_TOPIC, OTHERS), (_BROKER, ""), (_GROUP, OTHERS_GROUP))),
    ("ListConfigResources", Ask.ListConfigResources(resource_types=[2])),
))  # fmt: skip
"""What every user is asked about what is half its own."""
