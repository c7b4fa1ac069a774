"""Probes of Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords and InitProducerId."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from kstore.protocol.schema import Message
from tests.conformance.probes.batches import TIMESTAMP_MS, Flaws, batch
from tests.conformance.probes.story import Peer, Story, case
from tests.conformance.probes.topics import UNKNOWN_ID, create
from tests.plain_messages import Ask
from tests.record_requests import fetch_part, fetch_request, list_request, produce_request


def produce(
    topic: str | uuid.UUID, records: bytes | None, *, partition: int = 0, acks: int = -1
) -> Message:
    """A request with the records of one partition, by topic name or (from version 13) by id."""
    return produce_request(topic, records, first=partition, acks=acks, timeout_ms=10_000)


def _named(peer: Peer, version: int, topic: str, by_id_from: int) -> str | uuid.UUID:
    return peer.topic_id(topic) if version >= by_id_from else topic


# Errors and unusual values in a batch: Kafka's answer to each is the specification.
_FLAWED: list[Flaws] = [
    Flaws(crc_xor=1), Flaws(magic=1), Flaws(magic=3), Flaws(count_plus=1), Flaws(count_plus=-1),
    Flaws(last_delta_plus=1), Flaws(first_delta=1), Flaws(base_offset=77), Flaws(cut_bytes=3),
    Flaws(length_plus=3), Flaws(length_plus=-3),
    Flaws(attributes=0x20),  # a control batch
    Flaws(attributes=0x10),  # transactional, without a producer id
    Flaws(attributes=0x08),  # its timestamps are declared as append times
    Flaws(attributes=0x07), Flaws(attributes=0x05),  # codec 7 does not exist
    Flaws(timestamp_ms=-1), Flaws(timestamp_ms=TIMESTAMP_MS * 100),
    Flaws(producer_id=12, producer_epoch=0),  # no sequence
    Flaws(key=None),
]  # fmt: skip


@case("Produce", 0)
def _produce(peer: Peer, version: int) -> Story:
    name = f"probe-produce-{version}"
    yield create(name, 2)
    topic = _named(peer, version, name, 13)
    good = batch([b"a", b"b", None])
    for more in ({}, {"acks": 1}, {"acks": 5}, {"partition": 9}, {"partition": -1}):
        yield produce(topic, good, **more)
    yield produce(UNKNOWN_ID if version >= 13 else "probe-absent", good)
    if version < 13:
        yield produce("bad name", good)
    for flaws in _FLAWED:
        yield produce(topic, batch([b"x", b"y"], flaws))
    yield produce(topic, good + good)
    yield produce(topic, b"")
    yield produce(topic, b"\x00" * 30)
    yield produce(topic, batch([]))
    yield produce(topic, batch([b"z" * 1_100_000]))
    request = produce(topic, good)
    request.topic_data[0].partition_data *= 2
    yield request
    yield Ask.Produce(acks=-1, timeout_ms=1000)
    yield produce(topic, good)


@case("Produce to a compacted topic", 0)
def _produce_compacted(peer: Peer, version: int) -> Story:
    name = f"probe-compacted-{version}"
    yield create(name, cleanup_policy="compact")
    topic = _named(peer, version, name, 13)
    yield produce(topic, batch([b"a"]))
    yield produce(topic, batch([b"a", b"b"], Flaws(key=None)))


@case("Produce with append time", 0)
def _produce_append_time(peer: Peer, version: int) -> Story:
    name = f"probe-append-time-{version}"
    yield create(name, message_timestamp_type="LogAppendTime")
    yield produce(_named(peer, version, name, 13), batch([b"a", b"b"]))


@case("Produce, idempotent", 0)
def _produce_idempotent(peer: Peer, version: int) -> Story:
    name = f"probe-idempotent-{version}"
    yield create(name)
    topic = _named(peer, version, name, 13)
    started: Any = yield Ask.InitProducerId(transactional_id=None, transaction_timeout_ms=1000)
    producer_id = started.producer_id if started is not None else 1

    def sent(sequence: int, epoch: int = 0, count: int = 2) -> Message:
        flaws = Flaws(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return produce(topic, batch([b"v"] * count, flaws))

    yield sent(5)  # an unknown producer may start at any sequence
    yield sent(7)
    yield sent(7)  # repeated
    yield sent(5)
    yield sent(12)  # a gap
    for sequence in (9, 11, 13, 15, 17):
        yield sent(sequence)
    yield sent(5)  # no longer among the last five batches
    yield sent(19, epoch=2)  # a new epoch starts at 0
    yield sent(0, epoch=2)
    yield sent(2, epoch=1)  # fenced
    yield sent(2, epoch=2, count=1)
    yield sent(2, epoch=2, count=2)


def fill(topic: str | uuid.UUID) -> Iterator[Message]:
    for first in range(0, 10, 2):
        flaws = Flaws(timestamp_ms=TIMESTAMP_MS + first * 100)
        yield produce(topic, batch([b"value-%d" % first, b"value-%d" % (first + 1)], flaws))


def _fetch_request(
    topic: str | uuid.UUID, offset: int, *, partition: int = 0, epoch: int = -1,
    max_bytes: int = 1 << 20, last_epoch: int = -1, session: tuple[int, int] = (0, -1),
) -> Message:  # fmt: skip
    epochs = {"current_leader_epoch": epoch, "last_fetched_epoch": last_epoch}
    part = fetch_part(offset, partition, max_bytes, **epochs)
    known = {"session_id": session[0], "session_epoch": session[1]}
    return fetch_request(topic, part, max_wait_ms=50, max_bytes=1 << 22, **known)


def _filled(peer: Peer, name: str, partitions: int = 2) -> Story:
    """A topic with records in its first partition."""
    yield create(name, partitions)
    for request in fill(name):
        request.topic_data[0].topic_id = peer.topic_id(name)
        yield request


@case("Fetch", 1)
def _fetch(peer: Peer, version: int) -> Story:
    name = f"probe-fetch-{version}"
    yield from _filled(peer, name)
    topic = _named(peer, version, name, 13)
    for offset in (0, 1, 2, 5, 9, 10, 11, 1 << 40, -1, -5):
        yield _fetch_request(topic, offset)
    for max_bytes in (0, 1, 90, 150, 200, 400, -1):
        yield _fetch_request(topic, 1, max_bytes=max_bytes)
    yield _fetch_request(UNKNOWN_ID if version >= 13 else "probe-absent", 0)
    yield _fetch_request(topic, 0, partition=1)
    yield _fetch_request(topic, 0, partition=9)
    if version >= 9:
        for epoch in (0, 1, 7):
            yield _fetch_request(topic, 0, epoch=epoch)
    if version >= 12:
        for last_epoch in (0, 1):
            yield _fetch_request(topic, 4, last_epoch=last_epoch, epoch=0)
    committed = _fetch_request(topic, 0)
    committed.isolation_level = 1
    yield committed
    several = _fetch_request(topic, 0)
    several.topics[0].partitions += [fetch_part(0, 1), fetch_part(0, 9)]
    yield several
    several.max_bytes = 100
    yield several


@case("Fetch session", 1, 7)
def _fetch_session(peer: Peer, version: int) -> Story:
    name = f"probe-session-{version}"
    yield from _filled(peer, name)
    topic = _named(peer, version, name, 13)
    yield _fetch_request(topic, 0, session=(0, 5))
    yield _fetch_request(topic, 0, session=(424242, 3))
    opened: Any = yield _fetch_request(topic, 8, session=(0, 0))
    session = opened.session_id if opened is not None else 0
    empty = Ask.Fetch(max_wait_ms=50, min_bytes=1, session_id=session, session_epoch=1)
    yield empty  # offset 8 again: now there is data
    moved = _fetch_request(topic, 10, session=(session, 2))
    yield moved
    empty.session_epoch = 3
    yield empty  # nothing new: the answer has no partition
    empty.session_epoch = 9
    yield empty
    added = _fetch_request(topic, 0, partition=1, session=(session, 4))
    yield added
    named = "topic_id" if isinstance(topic, uuid.UUID) else "topic"
    forgotten = [{named: topic, "partitions": [0]}]
    yield Ask.Fetch(
        max_wait_ms=50, min_bytes=1, session_id=session, session_epoch=5,
        forgotten_topics_data=forgotten,
    )  # fmt: skip
    yield _fetch_request(topic, 0, session=(session, -1))  # closes the session
    empty.session_epoch = 6
    yield empty


@case("ListOffsets", 2)
def _list_offsets(peer: Peer, version: int) -> Story:
    name = f"probe-offsets-{version}"
    yield from _filled(peer, name)

    def ask(timestamp: int, topic: str = name, partition: int = 0, epoch: int = -1) -> Message:
        return list_request(topic, timestamp, partition, {"current_leader_epoch": epoch})

    for timestamp in range(-8, 2):
        yield ask(timestamp)
    for delta in (-1, 0, 1, 2, 199, 200, 201, 800, 801, 802, 5000):
        yield ask(TIMESTAMP_MS + delta)
    yield ask(-1, "probe-absent")
    yield ask(-1, partition=9)
    yield ask(-1, partition=1)
    yield ask(-3, partition=1)
    yield ask(TIMESTAMP_MS, partition=1)
    if version >= 4:
        for epoch in (0, 1):
            yield ask(-1, epoch=epoch)
    if version >= 2:
        committed = ask(-1)
        committed.isolation_level = 1
        yield committed
    twice = ask(-1)
    twice.topics[0].partitions *= 2
    yield twice


@case("OffsetForLeaderEpoch", 23)
def _leader_epochs(peer: Peer, version: int) -> Story:
    name = f"probe-epochs-{version}"
    yield from _filled(peer, name)
    for topic, partition, leader_epoch, current in (
        (name, 0, 0, -1), (name, 0, 0, 0), (name, 0, 1, -1), (name, 0, -1, -1), (name, 0, 5, 1),
        (name, 1, 0, -1), (name, 9, 0, -1), ("probe-absent", 0, 0, -1),
    ):  # fmt: skip
        row = {"leader_epoch": leader_epoch, "current_leader_epoch": current}
        row["partition"] = partition
        yield Ask.OffsetForLeaderEpoch(topics=[{"topic": topic, "partitions": [row]}])


@case("DeleteRecords", 21)
def _delete_records(peer: Peer, version: int) -> Story:
    name = f"probe-delete-records-{version}"
    yield from _filled(peer, name, 1)

    def ask(offset: int, topic: str = name, partition: int = 0) -> Message:
        row = {"partition_index": partition, "offset": offset}
        named = {"name": topic, "partitions": [row]}
        return Ask.DeleteRecords(topics=[named], timeout_ms=5000)

    for offset in (3, 1, 11, -2, -1):
        yield ask(offset)
    yield ask(0, "probe-absent")
    yield ask(0, partition=9)
    topic = _named(peer, peer.version_for(1), name, 13)
    yield _fetch_request(topic, 3)
    yield _fetch_request(topic, 10)


@case("InitProducerId", 22)
def _init_producer_id(peer: Peer, version: int) -> Story:
    for name, timeout_ms in ((None, 1000), (None, -1), ("", 1000)):
        yield Ask.InitProducerId(transactional_id=name, transaction_timeout_ms=timeout_ms)
    if version >= 3:
        for producer_id, epoch in ((5, -1), (-1, 5), (1 << 50, 3)):
            who = {"producer_id": producer_id, "producer_epoch": epoch}
            yield Ask.InitProducerId(transactional_id=None, transaction_timeout_ms=1000, **who)
