"""Probes of ShareFetch and ShareAcknowledge (KIP-932): sessions and their epochs, which records are
acquired, acknowledgements of all types, and all refusals.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from tests.conformance.probes.configs import GROUP, SET, alter
from tests.conformance.probes.data import fill
from tests.conformance.probes.story import Peer, Step, Story, case
from tests.conformance.probes.topics import UNKNOWN_ID, create
from tests.plain_messages import Ask

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
FINAL, RECORD_LIMIT = -1, 1
Range = tuple[int, int, list[int]]


def _parts(topic: uuid.UUID | None, partition: int, *acknowledged: Range) -> list[dict[str, Any]]:
    if topic is None:
        return []
    names = ("first_offset", "last_offset", "acknowledge_types")
    rows = [dict(zip(names, row, strict=True)) for row in acknowledged]
    part = {"partition_index": partition, "acknowledgement_batches": rows}
    return [{"topic_id": topic, "partitions": [part]}]


def fetch(
    group: str | None, member: str | None, epoch: int, topic: uuid.UUID | None,
    *acknowledged: Range, partition: int = 0, **fields: Any,
) -> Any:  # fmt: skip
    """A fetch of a partition, or of the session's partitions, for up to four records."""
    wanted = {"max_wait_ms": 50, "min_bytes": 1, "max_records": 4, "batch_size": 4}
    said = {"group_id": group, "member_id": member, "share_session_epoch": epoch}
    topics = _parts(topic, partition, *acknowledged)
    return Ask.ShareFetch(**said, **({"max_bytes": 1 << 20} | wanted | fields), topics=topics)


def last(group: str, member: str, topic: uuid.UUID | None, *acknowledged: Range) -> Any:
    """The request that ends a session."""
    nothing = dict.fromkeys(("max_wait_ms", "min_bytes", "max_records", "batch_size"), 0)
    return fetch(group, member, FINAL, topic, *acknowledged, max_bytes=0, **nothing)


def acknowledge(
    group: str | None, member: str | None, epoch: int, topic: uuid.UUID, *acknowledged: Range,
    partition: int = 0, renew: bool = False,
) -> Any:  # fmt: skip
    """An acknowledgement of ranges of one partition."""
    said = {"group_id": group, "member_id": member, "share_session_epoch": epoch}
    topics = _parts(topic, partition, *acknowledged)
    return Ask.ShareAcknowledge(**said, is_renew_ack=renew, topics=topics)


def ready(name: str, *members: str) -> Story:
    """A topic with ten records in five batches, and a group that begins at its start. Requests that
    only prepare are not compared.
    """
    yield Step(create(name, 2), compare=False)
    for request in fill(name):
        yield Step(request, version=9, compare=False)
    earliest = alter(GROUP, name, ("share.auto.offset.reset", SET, "earliest"))
    yield Step(earliest, compare=False)
    for member in members:
        joins = Ask.ShareGroupHeartbeat(
            group_id=name, member_id=member, member_epoch=0, subscribed_topic_names=[name]
        )
        yield Step(joins, until=lambda answer: answer.assignment is not None, compare=False)


def acquires(count: int) -> Callable[[Any], bool]:
    """Whether an answer has this number of records."""

    def check(answer: Any) -> bool:
        return count == sum(
            row.last_offset - row.first_offset + 1
            for topic in answer.responses
            for part in topic.partitions
            for row in part.acquired_records
        )

    return check


def _member(number: int) -> str:
    return f"member-{number:029d}"


@case("ShareFetch sessions", 78)
def _sessions(peer: Peer, version: int) -> Story:
    name, member, other = f"probe-share-sessions-{version}", _member(1), _member(2)
    yield from ready(name, member, other)
    topic = peer.topic_id(name)
    yield fetch(name, member, 1, topic)  # there is no session
    yield fetch(name, member, FINAL, topic)
    yield Step(fetch(name, member, 0, topic), until=acquires(4))
    yield fetch(name, member, 1, None)
    yield fetch(name, member, 1, None)  # its epoch is not current
    yield fetch(name, member, 7, None)
    yield fetch(name, member, 2, None, max_records=100, batch_size=100)
    yield fetch(name, member, 3, None)  # all records are acquired
    yield Step(fetch(name, other, 0, topic), compare=False)
    yield fetch(name, other, 1, topic)
    yield last(name, member, None)
    yield last(name, member, None)
    yield fetch(name, other, 2, None, max_records=100, batch_size=100, max_wait_ms=5000)
    forgotten = [{"topic_id": topic, "partitions": [0]}]
    yield fetch(name, other, 3, topic, partition=1, forgotten_topics_data=forgotten)
    yield fetch(name, other, 4, None)
    yield last(name, other, topic, (0, 9, [ACCEPT]))
    yield Step(fetch(name, member, 0, topic), compare=False)
    yield fetch(name, member, 1, None)  # all are accepted


@case("ShareFetch records and refusals", 78)
def _fetch(peer: Peer, version: int) -> Story:
    name, member = f"probe-share-fetch-{version}", _member(1)
    yield from ready(name, member)
    topic = peer.topic_id(name)
    yield fetch(None, member, 0, topic)
    yield fetch(name, None, 0, topic)
    yield fetch(name, "", 0, topic)
    yield fetch(name, "x" * 37, 0, topic)
    yield fetch(name, member, 0, topic, (0, 0, [ACCEPT]))  # nothing is acquired yet
    yield Step(fetch(name, member, 0, topic), until=acquires(4))
    # With records to acquire, Kafka's answer would depend on how fast the release is stored.
    yield fetch(name, member, 1, topic, (0, 1, [ACCEPT]), (2, 3, [RELEASE]), max_records=0)
    yield fetch(name, member, 2, None)
    yield fetch(name, member, 3, topic, (2, 3, [ACCEPT, REJECT]))
    yield fetch(name, member, 4, topic, (0, 0, [ACCEPT]))  # below the start offset
    yield fetch(name, member, 5, topic, (9, 9, [ACCEPT]), max_records=0)
    yield fetch(name, member, 6, UNKNOWN_ID)
    yield fetch(name, member, 7, topic, partition=9)
    yield fetch(name, member, 8, topic, partition=-1)
    gone = [{"topic_id": UNKNOWN_ID, "partitions": [0]}, {"topic_id": topic, "partitions": [9, -1]}]
    yield fetch(name, member, 9, None, forgotten_topics_data=gone)
    for epoch, fields in enumerate(
        [
            {"max_records": 1, "batch_size": 1},
            {"max_bytes": 1},
            {"batch_size": 0},
            {"min_bytes": 0},
        ],
        10,
    ):
        yield fetch(name, member, epoch, None, **fields)
    yield last(name, member, None)


@case("ShareFetch modes and renewals", 78, 2)
def _fetch_modes(peer: Peer, version: int) -> Story:
    """Features of version 2: records counted one by one, and locks that can be renewed."""
    name, member = f"probe-share-modes-{version}", _member(1)
    yield from ready(name, member)
    topic = peer.topic_id(name)
    few = {"max_records": 3, "batch_size": 3, "share_acquire_mode": RECORD_LIMIT}
    yield fetch(name, member, 0, topic, share_acquire_mode=5)
    yield Step(fetch(name, member, 0, topic, **few), until=acquires(3))
    yield fetch(name, member, 1, None, **few)
    nothing = dict.fromkeys(("max_wait_ms", "min_bytes", "max_bytes", "max_records"), 0)
    renew = {**nothing, "batch_size": 0, "is_renew_ack": True}
    yield fetch(name, member, 2, topic, (0, 2, [RENEW]), **renew)
    yield fetch(name, member, 3, topic, (0, 2, [RENEW]), is_renew_ack=True)
    yield fetch(name, member, 3, topic, (0, 2, [RENEW]))
    yield acknowledge(name, member, 4, topic, (0, 2, [RENEW, ACCEPT, RENEW]), renew=True)
    yield acknowledge(name, member, 5, topic, (1, 1, [RENEW]), renew=True)
    yield last(name, member, topic, (0, 0, [ACCEPT]))


@case("ShareAcknowledge", 79)
def _acknowledge(peer: Peer, version: int) -> Story:
    name, member, other = f"probe-share-acks-{version}", _member(1), _member(2)
    yield from ready(name, member, other)
    topic = peer.topic_id(name)
    yield acknowledge(name, member, 1, topic, (0, 0, [ACCEPT]))  # there is no session
    yield Step(fetch(name, member, 0, topic), compare=False, until=acquires(4))
    yield Step(fetch(name, other, 0, topic), compare=False, until=acquires(4))
    yield acknowledge(None, member, 1, topic, (0, 0, [ACCEPT]))
    yield acknowledge(name, "", 1, topic, (0, 0, [ACCEPT]))
    yield acknowledge(name, member, 0, topic, (0, 0, [ACCEPT]))
    yield acknowledge(name, member, 5, topic, (0, 0, [ACCEPT]))
    wrong: list[list[Range]] = [
        [],
        [(0, 0, [])],
        [(0, 0, [9])],
        [(0, 0, [-1])],
        [(0, 0, [RENEW])],
        [(0, 3, [ACCEPT, ACCEPT])],
        [(3, 0, [ACCEPT])],
        [(-5, 0, [ACCEPT])],
        [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])],
        [(2, 2, [ACCEPT]), (0, 0, [ACCEPT])],
        [(0, 4, [ACCEPT])],
        [(4, 4, [ACCEPT])],
        [(0, 99, [ACCEPT])],
        [(50, 60, [ACCEPT])],
    ]
    for epoch, ranges in enumerate(wrong, 1):
        yield acknowledge(name, member, epoch, topic, *ranges)
    epoch = len(wrong) + 1
    yield acknowledge(name, member, epoch, UNKNOWN_ID, (0, 0, [ACCEPT]))
    yield acknowledge(name, member, epoch + 1, topic, (0, 0, [ACCEPT]), partition=9)
    yield acknowledge(name, member, epoch + 2, topic, (0, 0, [ACCEPT]), partition=1)
    yield acknowledge(name, member, epoch + 3, topic, (0, 3, [ACCEPT, 0, RELEASE, REJECT]))
    yield acknowledge(name, member, epoch + 4, topic, (0, 0, [ACCEPT]))  # repeated
    yield fetch(name, member, epoch + 5, None)
    yield acknowledge(name, member, FINAL, topic, (2, 2, [ACCEPT]))
    yield acknowledge(name, member, FINAL, topic, (2, 2, [ACCEPT]))
    yield acknowledge(name, other, FINAL, topic)
    yield Step(fetch(name, member, 0, topic), until=acquires(4))  # records of the other member
