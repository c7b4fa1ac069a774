"""The load that runs at the same time as the small records on one broker. Each kind is a context
manager that prepares it, returns a function that runs it and returns its rate, and cleans up.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import brokers, frames
from bench.brokers import Broker, create_topic, delete_topic, exchange_once
from bench.compare.isolation import clients
from bench.compare.isolation.bare_broker import PARTITIONS, bare_broker
from bench.compare.isolation.disk import drop_from_cache
from bench.compare.pair import end_offset, end_offsets
from bench.compare.partitions import PER_TOPIC, create_errors, create_topics
from bench.compare.rebalance import wait_for_coordinator
from bench.compare.rebalance.members import ClassicMember, ConsumerMember, Group, Member
from bench.compare.tls import Certificates
from bench.load import Load
from bench.measure import Settings, touch_memory

__all__ = ["Place", "Sizes", "Work"]

Work = Callable[[], float]
RECORD_BYTES = 1000
RECORDS_PER_BATCH = 900
TOPICS_PER_REQUEST = 50
HEARTBEAT_S = 0.5
REMOVED_AFTER_MS = 1000
"""file.delete.delay.ms of both. By default, Kafka removes files a minute after they
were deleted.
"""
SEGMENTS = 10
CLEANED_SHARE = 1.5 / SEGMENTS
"""What remains of a log with this many segments: the active one, and the last record
of each key.
"""
DEADLINE_S = 300.0
PAUSE_S = 0.01
_numbers = itertools.count()


class Sizes:
    """The sizes of everything."""

    def __init__(self, settings: Settings) -> None:
        pick = settings.pick
        self.seconds: float = pick(10, 3)
        """The duration of a load that does not end by itself."""
        self.warm_seconds: float = 1 if settings.alone else pick(8, 5)
        """Without Kafka, nothing must be compiled."""
        self.read_bytes = pick(2_000_000_000, 200_000_000)
        self.deleted_bytes = pick(5_000_000_000, 500_000_000)
        self.compacted_bytes = pick(1_000_000_000, 300_000_000)
        self.followed_bytes = pick(5_000_000_000, 500_000_000)
        self.partitions = pick(10_000, 1000)
        self.members = pick(1000, 100)
        self.handshakes_per_second = 200
        self.limit_bytes = pick(2_000_000_000, 300_000_000)
        self.room_bytes = pick(20_000_000_000, 4_000_000_000)


class Place(NamedTuple):
    """The place of a neighbour."""

    broker: Broker
    door: Broker
    """The same broker, with the address of its TLS listener."""
    sizes: Sizes
    certificates: Certificates


def _topic(kind: str) -> str:
    return f"{kind}-{next(_numbers)}"


def fill(broker: Broker, topic: str, size_bytes: int, *, keyed: bool = False) -> int:
    """Write this much to partition 0, in large batches on a few connections. Returns its log end
    offset.
    """
    noise = random.Random(3)
    keys = [noise.randbytes(16) for _ in range(RECORDS_PER_BATCH)] if keyed else ()
    batch = frames.record_batch(
        [noise.randbytes(RECORD_BYTES) for _ in range(RECORDS_PER_BATCH)], keys
    )

    def check(answer: bytes) -> None:
        if code := frames.produce_error(answer, topic):
            raise RuntimeError(f"Produce to {topic} was answered with error {code}")

    touch_memory(size_bytes, broker.folder)
    requests = [frames.produce(topic, 0, batch, acks=1)] * 4
    with Load((broker.host, broker.port), requests, check) as load:
        load.run(DEADLINE_S, at_most=size_bytes // len(batch))
    return end_offset(broker, topic)


def _files(broker: Broker, topic: str) -> list[Path]:
    return sorted(broker.log_dir.glob(f"{topic}-*/*.log"))


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {DEADLINE_S:g} s: {what}")
        time.sleep(PAUSE_S)


@contextmanager
def nothing(place: Place) -> Iterator[Work]:
    """The small records without a load."""

    def work() -> float:
        time.sleep(place.sizes.seconds)
        return 0.0

    yield work


def _produced(bootstrap: str, topic: str, sizes: Sizes, count: int) -> tuple[float, float]:
    """The number of records that this many producers sent in their time, and their rate in MB/s."""
    found = clients.run(
        "produce",
        count,
        bootstrap=bootstrap,
        topic=topic,
        record_bytes=RECORD_BYTES,
        seconds=sizes.seconds,
    )
    sent = sum(each["records"] for each in found)
    return sent, sent * RECORD_BYTES / max(each["seconds"] for each in found) / 1e6


def producers_alone(sizes: Sizes, count: int) -> float:
    """The rate of producers whose peer only acknowledges, in MB/s."""
    with bare_broker() as bootstrap:
        return _produced(bootstrap, "bulk", sizes, count)[1]


@contextmanager
def _producers(place: Place, count: int) -> Iterator[Work]:
    topic = _topic("bulk")
    create_topic(place.broker, topic, PARTITIONS)
    touch_memory(place.sizes.limit_bytes, place.broker.folder)

    def work() -> float:
        sent, rate = _produced(place.broker.bootstrap, topic, place.sizes, count)
        stored = end_offset(place.broker, topic, PARTITIONS)
        if stored != sent:
            raise RuntimeError(f"{stored} of {sent:.0f} records were stored, by log end offsets")
        return rate

    yield work
    _remove(place.broker, topic)


def one_producer(place: Place) -> AbstractContextManager[Work]:
    """librdkafka with records of 1 KB, as fast as possible."""
    return _producers(place, 1)


def four_producers(place: Place) -> AbstractContextManager[Work]:
    """The same four times, each in a separate process."""
    return _producers(place, 4)


@contextmanager
def cold_reader(place: Place) -> Iterator[Work]:
    """A consumer that reads a log that is not in the page cache from its start, again and again."""
    topic = _topic("cold")
    create_topic(place.broker, topic, 1)
    end = fill(place.broker, topic, place.sizes.read_bytes)

    def work() -> float:
        size = seconds = 0.0
        until = time.monotonic() + place.sizes.seconds
        while time.monotonic() < until:
            drop_from_cache(*_files(place.broker, topic))
            (found,) = clients.run(
                "read", host=place.broker.host, port=place.broker.port, topic=topic, offsets=end
            )
            size, seconds = size + found["MB"], seconds + found["seconds"]
        return size / seconds

    # Dirty pages are written before the measurement, not during it.
    drop_from_cache(*_files(place.broker, topic))
    yield work
    _remove(place.broker, topic)


def _remove(broker: Broker, topic: str) -> None:
    """Delete a topic and wait until its files are removed."""
    delete_topic(broker, topic)
    _wait(lambda: not _folders(broker, topic), f"the files of {topic} are removed")


def _folders(broker: Broker, topic: str) -> list[Path]:
    """Before Kafka removes a folder, it renames it; the new name begins with the old one."""
    return list(broker.log_dir.glob(f"{topic}*"))


@contextmanager
def deletion(place: Place) -> Iterator[Work]:
    """Deletion of a large topic, until its files are removed."""
    topic = _topic("deleted")
    create_topic(place.broker, topic, 1)
    fill(place.broker, topic, place.sizes.deleted_bytes)

    def work() -> float:
        begin = time.monotonic()
        _remove(place.broker, topic)
        time.sleep(1)  # what comes behind it
        return place.sizes.deleted_bytes / (time.monotonic() - begin) / 1e6

    yield work


@contextmanager
def creation(place: Place) -> Iterator[Work]:
    """Creation of many partitions, in topics of 100, until each reports its log end offset."""
    names = [_topic("many") for _ in range(place.sizes.partitions // PER_TOPIC)]

    def made(name: str) -> bool:
        frame = frames.latest_offsets(name, range(PER_TOPIC))
        found = frames.latest_offsets_answer(exchange_once(place.broker, frame))
        return not any(code for code, _ in found.values())

    def work() -> float:
        begin = time.monotonic()
        for first in range(0, len(names), TOPICS_PER_REQUEST):
            some = names[first : first + TOPICS_PER_REQUEST]
            answer = exchange_once(place.broker, create_topics(some), timeout_s=DEADLINE_S)
            if any(codes := create_errors(answer)):
                raise RuntimeError(f"CreateTopics was answered with errors {sorted(set(codes))}")
        for name in names:
            _wait(lambda name=name: made(name), f"{name} answers")  # type: ignore[misc]
        elapsed = time.monotonic() - begin
        for name in names:
            if end_offsets(place.broker, name, PER_TOPIC) != [0] * PER_TOPIC:
                raise RuntimeError(f"a new partition of {name} has records")
        return place.sizes.partitions / elapsed

    yield work


@contextmanager
def _group(place: Place, kind: type[Member]) -> Iterator[Work]:
    topic, size = _topic("group"), place.sizes.members
    create_topic(place.broker, topic, size)
    wait_for_coordinator(place.broker, topic)
    with Group(place.broker, kind, topic, topic, size, size, HEARTBEAT_S) as group:

        def work() -> float:
            begin = time.monotonic()
            group.form(DEADLINE_S)
            rebalances = 1
            while time.monotonic() - begin < place.sizes.seconds:
                group.lose_one(DEADLINE_S)
                rebalances += 1
            return rebalances / (time.monotonic() - begin)

        yield work
    delete_topic(place.broker, topic)


def classic_group(place: Place) -> AbstractContextManager[Work]:
    """Many members join at once, and leave one by one, with the classic protocol."""
    return _group(place, ClassicMember)


def consumer_group(place: Place) -> AbstractContextManager[Work]:
    """The same with the consumer protocol (KIP-848)."""
    return _group(place, ConsumerMember)


@contextmanager
def compaction(place: Place) -> Iterator[Work]:
    """The cleaner compacts a log that has each key many times, until all but the active segment is
    clean.
    """
    topic, size = _topic("compacted"), place.sizes.compacted_bytes
    configs = {"segment.bytes": str(size // SEGMENTS)}
    create_topic(place.broker, topic, 1, configs)
    fill(place.broker, topic, size, keyed=True)

    def stored() -> int:
        found = 0
        for path in _files(place.broker, topic):
            try:
                found += path.stat().st_size
            except FileNotFoundError:
                continue  # the file has just been replaced
        return found

    def work() -> float:
        begin = time.monotonic()
        brokers.alter_topic(
            place.broker, topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        )
        _wait(lambda: stored() < size * CLEANED_SHARE, f"{topic} is compacted")
        elapsed = time.monotonic() - begin
        time.sleep(1)  # what comes behind it: the old segments are removed
        return size / elapsed / 1e6

    yield work
    _remove(place.broker, topic)


@contextmanager
def handshakes(place: Place) -> Iterator[Work]:
    """New TLS connections at a fixed rate, each with a full handshake."""

    def work() -> float:
        (found,) = clients.run(
            "handshakes",
            host=place.door.host,
            port=place.door.port,
            trust=str(place.certificates.trust),
            per_second=place.sizes.handshakes_per_second,
            seconds=place.sizes.seconds,
        )
        return found["per second"]

    yield work
