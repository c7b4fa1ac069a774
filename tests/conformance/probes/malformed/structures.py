"""Probes of the structure of requests: several topics, topics and partitions that are named twice,
batches with several errors, and topics that no client may write to. Random parts come from seeds,
so that each run sends the same requests, and Kafka's responses can be recorded.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Iterator
from typing import Any

from kstore.broker.state.shares.persisted import SharePartitionKey
from kstore.protocol.schema import ZERO_UUID, Message
from tests.conformance.probes.batches import TIMESTAMP_MS, Flaws, batch
from tests.conformance.probes.data import produce
from tests.conformance.probes.story import Peer, Step, Story, case
from tests.conformance.probes.topics import UNKNOWN_ID, create
from tests.plain_messages import Ask
from tests.record_requests import fetch_part

Name = str | uuid.UUID
# Each changes one thing. Requests that only kstore refuses (docs/differences) are left out, because
# the logs would differ after them.
FLAWS: list[dict[str, int | bytes | None]] = [
    {"crc_xor": 1}, {"magic": 1}, {"magic": 3}, {"count_plus": 1}, {"count_plus": -1},
    {"last_delta_plus": 1}, {"base_offset": 5}, {"cut_bytes": 2}, {"length_plus": 4},
    {"attributes": 0x20}, {"attributes": 0x10}, {"attributes": 0x80},
    {"producer_id": 7, "producer_epoch": 0},
    {"producer_id": 7, "producer_epoch": 0, "base_sequence": -4},
    {"key": None}, {"timestamp_ms": TIMESTAMP_MS * 10},
]  # fmt: skip


def _fetch(*topics: tuple[Name, list[tuple[int, int]]]) -> Message:
    named = []
    for name, places in topics:
        rows = [fetch_part(offset, index) for index, offset in places]
        key = "topic_id" if isinstance(name, uuid.UUID) else "topic"
        named.append({key: name, "partitions": rows})
    return Ask.Fetch(max_wait_ms=50, min_bytes=1, max_bytes=1 << 22, topics=named)


@case("Structures of Produce", 0, 3, 12)  # later versions have no topic names
def _produce_several(peer: Peer, version: int) -> Story:
    """Topics and partitions from a seed, with repetitions; then everything that was appended."""
    own = [f"probe-several-{kind}-{version}" for kind in "ab"]
    for name in own:
        yield create(name, 2)
    names = [*own, "probe-absent"]
    draw = random.Random(version)
    for number in range(12):
        topics = []
        for _ in range(draw.randint(1, 3)):
            rows = []
            for _ in range(draw.randint(0, 3)):
                index = draw.choice([0, 1, 2])
                data = batch([b"%d-%d" % (number, draw.randint(0, 99))])
                rows.append({"index": index, "records": data})
            topics.append({"name": draw.choice(names), "partition_data": rows})
        request = Ask.Produce(acks=-1, timeout_ms=10_000, topic_data=topics)
        yield Step(request, compare=any(topic["partition_data"] for topic in topics))
    fetch = peer.version_for(1, 12)
    for name in own:
        for index in (0, 1):
            yield Step(_fetch((name, [(index, 0)])), version=fetch)


def _flawed(draw: random.Random) -> Iterator[bytes]:
    while True:
        chosen: dict[str, int | bytes | None] = {}
        for flaw in draw.sample(FLAWS, draw.choice([1, 2, 2, 3])):
            chosen |= flaw
        data = batch([b"x", b"y"], Flaws(**chosen))  # type: ignore[arg-type]
        if draw.random() < 0.2:
            data += batch([b"z"])
        elif draw.random() < 0.1:
            data += struct.pack(">qi", 0, 3)  # not a batch of any format
        yield data


@case("Structures of flawed batches", 0, 3)
def _produce_flawed(peer: Peer, version: int) -> Story:
    """Batches with several errors, to several types of topics: which error is returned, and which
    records it names.
    """
    own = [f"probe-flawed-{kind}-{version}" for kind in "abc"]
    yield create(own[0])
    yield create(own[1], cleanup_policy="compact", message_timestamp_after_max_ms="1000")
    yield create(own[2], max_message_bytes="80")
    names: list[Name] = list(own)
    if version >= 13:
        names = [peer.topic_id(name) for name in own]
    batches = _flawed(random.Random(version))
    for number in range(45):
        yield produce(names[number % 3], next(batches))


def _is_found(answer: Any) -> bool:
    return bool(answer.coordinators[0].error_code == 0)


@case("Structures of Produce to internal topics", 0, 3)
def _produce_internal(peer: Peer, version: int) -> Story:
    good = batch([b"v"])
    own = f"probe-internal-{version}"
    yield Step(create(own), compare=False)
    key = SharePartitionKey("probe-internal", peer.topic_id(own), 0)
    finds = Ask.FindCoordinator(key_type=2, coordinator_keys=[str(key)])
    # This creates __share_group_state.
    yield Step(finds, version=6, until=_is_found, compare=False)
    for topic in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
        name: Name = peer.topic_id(topic) if version >= 13 else topic
        yield produce(name, good)
        yield produce(name, good, partition=99)
        yield produce(name, good, acks=7)
        yield produce(name, b"")
        yield produce(name, batch([b"v"], Flaws(crc_xor=1)))


@case("Structures of a duplicate with append time", 0, 3)
def _append_time_again(peer: Peer, version: int) -> Story:
    name = f"probe-append-again-{version}"
    yield create(name, message_timestamp_type="LogAppendTime")
    topic: Name = peer.topic_id(name) if version >= 13 else name
    flaws = Flaws(producer_id=4711, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        yield produce(topic, batch([b"a", b"b"], flaws))


@case("Structures of Fetch", 1, 4)
def _fetch_several(peer: Peer, version: int) -> Story:
    own = [f"probe-fetches-{kind}-{version}" for kind in "ab"]
    for name in own:
        yield create(name, 2)
        for index in (0, 1):
            yield Step(produce(name, batch([b"v"] * 3), partition=index), version=12)
            yield Step(produce(name, batch([b"w"]), partition=index), version=12)
    names: list[Name] = list(own)
    if version >= 13:
        names = [peer.topic_id(name) for name in own]
    draw = random.Random(version)
    for _ in range(12):
        topics = []
        for _ in range(draw.randint(1, 3)):
            name = draw.choice(names)
            places = [(draw.choice([0, 1]), draw.choice([0, 3, 4, 9])) for _ in range(3)]
            topics.append((name, places))
        asked = _fetch(*topics)
        asked.isolation_level = draw.choice([0, 1])
        yield asked


@case("Structures of CreateTopics and DeleteTopics", 20)
def _create_delete(peer: Peer, version: int) -> Story:
    def made(*names: str) -> Message:
        rows = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
        return Ask.CreateTopics(topics=rows, timeout_ms=5000)

    def deleted(*states: tuple[str | None, uuid.UUID]) -> Message:
        rows = [{"name": name, "topic_id": topic_id} for name, topic_id in states]
        names = [name or "" for name, _ in states]
        return Ask.DeleteTopics(topics=rows, topic_names=names, timeout_ms=5000)

    own = [f"probe-twice-{kind}-{version}" for kind in "abc"]
    yield made("__cluster_metadata")
    yield made(*own, own[0])
    yield made(own[0])
    one, two, none = own[0], own[1], ZERO_UUID
    yield deleted((one, none), (one, none))
    yield deleted((two, none), (f"{two}-absent", none), (f"{two}-absent", none))
    if version < 6:
        return
    one_id = peer.topic_id(one)
    yield deleted((one, none), (None, one_id))
    yield deleted((None, one_id), (None, one_id))
    yield deleted((one, one_id))
    yield deleted((None, UNKNOWN_ID), (None, UNKNOWN_ID))
    yield deleted((None, none), (None, none))
    yield deleted((None, UNKNOWN_ID), (None, one_id))
