"""The guarantees of a producer's core, compared with a model of a partition's leader: each record
at most once and in order, and exactly once if it is acknowledged, whichever messages are lost.
"""

from __future__ import annotations

import itertools
import time
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from kstore._fast.clients.accumulator import Accumulator
from kstore._fast.clients.producer_batch import Delivery, ProducerBatch
from kstore._fast.clients.send_path import SendPath
from kstore.clients.core.metadata import ClusterView
from kstore.clients.core.producer.partitioner import (
    ordered_partition,
    partition_for_key,
    preferences,
)
from kstore.clients.core.producer.produce import ProduceExtensions, produce_request
from kstore.clients.core.producer.sender import Sender, SendLimits
from kstore.clients.core.producer.state import ProducerState
from kstore.errors import (
    DuplicateSequenceNumberError,
    InvalidPartitionCountError,
    InvalidRecordError,
    KafkaError,
    MessageTooLargeError,
    NetworkError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceNumberError,
    UnknownProducerIdError,
)
from kstore.protocol.registry import encode_request, request_pieces
from kstore.record import decode

LIMITS = SendLimits(0, 120_000, 1_048_576, 5, 2**31 - 1, 100, 1000)
COMMON = ("append", "append", "append", "send", "send", "send", "send", "answer", "answer")
RARE = ("break", "refuse", "forbid", "shrink", "wait")


class Sent(NamedTuple):
    """A batch as a request has it: later changes of the producer's batch do not matter."""

    partition: int
    partition_count: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    data: bytes

    @classmethod
    def of(cls, batch: ProducerBatch) -> Sent:
        return cls(
            batch.partition, batch.partition_count, batch.producer_id, batch.producer_epoch,
            batch.base_sequence, batch.count, batch.bytes(),
        )  # fmt: skip


class Leader:
    """Logs with Kafka's rules for sequence numbers: the next, or one of the last five."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.log: list[tuple[int, int, bytes]] = []
        """(partition, offset, value) in the order of their writing."""
        self.ends: dict[int, int] = {}
        self.state: dict[tuple[int, int], tuple[int, int, list[tuple[int, int, int]]]] = {}

    def has(self, batch: Sent) -> bool:
        epoch, _, last = self.state.get((batch.partition, batch.producer_id), (-1, 0, []))
        known = [(sequence, count) for sequence, count, _ in last]
        return epoch == batch.producer_epoch and (batch.base_sequence, batch.count) in known

    def append(self, batch: Sent) -> int:
        partition = batch.partition
        key = (partition, batch.producer_id)
        epoch, following, last = self.state.get(key, (-1, 0, []))
        for sequence, count, offset in last if epoch == batch.producer_epoch else ():
            if (sequence, count) == (batch.base_sequence, batch.count):
                return offset
        if batch.partition_count != self.count:
            raise InvalidPartitionCountError
        expected = following if epoch == batch.producer_epoch else 0
        if key not in self.state:
            expected = batch.base_sequence  # the producer may be older than what is left of the log
        if batch.base_sequence != expected:
            raise OutOfOrderSequenceNumberError
        offset = self.ends.get(partition, 0)
        for record in decode(batch.data):
            self.log.append((partition, self.ends.get(partition, 0), bytes(record.value or b"")))
            self.ends[partition] = self.ends.get(partition, 0) + 1
        last = [] if epoch != batch.producer_epoch else last
        last = [*last, (batch.base_sequence, batch.count, offset)][-5:]
        self.state[key] = (batch.producer_epoch, expected + batch.count, last)
        return offset


class World(SendPath):
    """A producer's core, one leader, and requests between them."""

    def __init__(self, partitioner: int, count: int, batch_size: int = 300) -> None:
        accumulator = Accumulator(
            batch_size=batch_size,
            memory_bytes=1 << 20,
            max_request_size=1 << 20,
            partitioner=partitioner,
        )
        self.attach(accumulator, plain=True)
        state = ProducerState(idempotent=True)
        state.take(7, 0)
        self.sender = Sender(accumulator, LIMITS, state, lambda: 0.5)
        self.leader = Leader(count)
        self.requests: list[list[tuple[ProducerBatch, Sent]]] = []
        self.sent: list[tuple[bytes, bytes, Delivery]] = []
        self.now_ms = time.monotonic_ns() // 1_000_000 + 60_000
        self.number = 0
        accumulator.set_partitions("t", count)

    def append_some(self, count: int) -> None:
        """Records of a few keys; each value is larger than the one before."""
        if self.accumulator.partition_count("t") == 0:
            return
        for _ in range(count):
            self.number += 1
            key, value = b"k%d" % (self.number % 5), b"%08d" % self.number
            self.sent.append((key, value, self.send("t", value, key)))

    def send_due(self) -> None:
        """One request, if there may be one."""
        due = self.sender.due(self.now_ms, lambda _: 1)
        for partitions in due.by_leader.values():
            if len(self.requests) < 5:
                batches = self.sender.take(partitions, self.now_ms)
                if batches:
                    self.requests.append([(batch, Sent.of(batch)) for batch in batches])

    def send_late(self, count: int) -> None:
        """So many requests, each after a pause for retries, and a record after each."""
        for _ in range(count):
            self.now_ms += 1000
            self.send_due()
            self.append_some(1)

    def answer(self, error: KafkaError | None = None) -> None:
        """The leader handles the oldest request, or refuses its first batch."""
        if not self.requests:
            return
        for batch, sent in self.requests.pop(0):
            refusal, error = error, None
            try:
                if refusal is not None and (refusal.retriable or not self.leader.has(sent)):
                    raise refusal
                offset = self.leader.append(sent)
            except DuplicateSequenceNumberError:
                self.sender.succeeded(batch, -1)
            except KafkaError as problem:
                self.sender.failed(batch, problem, self.now_ms)
                if isinstance(problem, InvalidPartitionCountError):
                    self.begin_regrouping()
            else:
                self.sender.succeeded(batch, offset)
        self.regroup()

    def hang_up(self, written: int) -> None:
        """The connection is lost: some of the requests under way were handled."""
        for n, batches in enumerate(self.requests):
            for _, sent in batches:
                if n < written:
                    try:
                        self.leader.append(sent)
                    except KafkaError:
                        written = n
        lost, self.requests = self.requests, []
        for batch, _ in itertools.chain(*lost):
            self.sender.failed(batch, NetworkError("lost"), self.now_ms)
        self.regroup()

    def begin_regrouping(self) -> None:
        """What the shell does when the count is wrong."""
        self.sender.regrouping.add("t")
        self.accumulator.set_partitions("t", 0)

    def regroup(self) -> None:
        """As soon as nothing is under way."""
        if self.sender.regrouping and not self.sender.is_under_way("t"):
            self.sender.regroup("t", self.leader.count)

    def finish(self) -> None:
        """Until every record is delivered or given up."""
        for _ in range(1000):
            if not self.accumulator.incomplete:
                return
            self.now_ms += 1000
            self.regroup()
            self.send_due()
            self.answer()
        raise AssertionError(f"{self.accumulator.incomplete} hang")


def check(world: World) -> None:
    """At most once, exactly once if acknowledged, and each key in order."""
    written = [value for _, _, value in world.leader.log]
    assert len(written) == len(set(written))
    where = {value: (partition, offset) for partition, offset, value in world.leader.log}
    for _, value, delivery in world.sent:
        assert delivery.done
        if delivery.error is None:
            assert where[value] == (delivery.partition, delivery.offset)
        else:
            assert value not in where
    for wanted in {key for key, _, _ in world.sent}:
        values = [value for key, value, _ in world.sent if key == wanted and value in where]
        assert [value for value in written if value in set(values)] == values
    assert world.accumulator.used_bytes == 0


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(COMMON + RARE), st.integers(0, 5)), max_size=60),
    count=st.integers(1, 3),
)
def test_records_are_written_once_and_in_order_whatever_is_lost(
    steps: list[tuple[str, int]], count: int
) -> None:
    run(World(0, count), steps)


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from((*COMMON, *RARE, "grow")), st.integers(0, 5)), max_size=60
    ),
    partitioner=st.sampled_from([0, 2]),
)
def test_keys_stay_in_order_while_a_topic_grows(
    steps: list[tuple[str, int]], partitioner: int
) -> None:
    run(World(partitioner, 1), steps)


def run(world: World, steps: list[tuple[str, int]]) -> None:
    """Steps in their order, then the rest of what there is to do; and the checks."""
    for step, number in steps:
        match step:
            case "append":
                world.append_some(3 * number)
            case "send":
                world.send_due()
            case "answer":
                world.answer()
            case "break":
                world.hang_up(number)
            case "refuse":
                world.answer(NotLeaderOrFollowerError())
            case "forbid":
                world.answer(InvalidRecordError())
            case "shrink":
                world.answer(MessageTooLargeError())
            case "wait":
                world.now_ms += 100 * number
            case "grow":
                world.leader.count += 1
    world.finish()
    check(world)


def test_what_was_written_before_its_time_was_over_is_not_written_again() -> None:
    world = World(0, 1)
    world.append_some(5)
    world.send_due()
    world.hang_up(1)  # written, but the answer is lost
    (late,) = {delivery.batch_of for _, _, delivery in world.sent}
    world.sender.drop(late, NetworkError("time is over"))
    world.append_some(5)
    world.finish()
    values = [value for _, _, value in world.leader.log]
    assert values == [b"%08d" % n for n in range(1, 11)]
    assert world.sender.state.epoch == 1  # KIP-360: the sequence after the gap is a new epoch's


def values_of(world: World) -> list[bytes]:
    """What the leader's log has, in order."""
    return [value for _, _, value in world.leader.log]


def test_no_batch_overtakes_the_first_one_of_a_producer() -> None:
    world = World(0, 1)
    for _ in range(3):
        world.append_some(5)
        world.send_due()
    world.answer(NotLeaderOrFollowerError())
    world.finish()
    check(world)
    assert values_of(world) == [b"%08d" % n for n in range(1, 16)]


def test_no_batch_overtakes_the_first_one_after_a_broker_forgot_the_producer() -> None:
    world = World(0, 1)
    world.append_some(1)
    world.finish()
    world.leader.state.clear()
    world.append_some(1)
    world.send_due()
    world.answer(UnknownProducerIdError())
    world.send_late(2)
    world.answer(NotLeaderOrFollowerError())
    world.finish()
    check(world)
    assert values_of(world) == [b"%08d" % n for n in range(1, world.number + 1)]


def test_nothing_overtakes_a_batch_that_may_be_in_the_log() -> None:
    world = World(0, 1)
    world.append_some(1)
    world.finish()  # the leader knows the producer
    world.append_some(1)
    world.send_due()
    world.hang_up(1)  # written, but the answer is lost
    world.now_ms += 1000
    for _ in range(4):  # it is sent again, and three more batches, if they may
        world.send_due()
        world.append_some(1)
    world.answer(NotLeaderOrFollowerError())
    for _ in range(3):
        world.answer()
    world.send_late(3)
    world.hang_up(3)
    world.finish()
    check(world)
    assert values_of(world) == [b"%08d" % n for n in range(1, world.number + 1)]


def test_no_batch_gets_the_numbers_of_one_that_was_written_behind_a_gap() -> None:
    world = World(0, 1)
    world.append_some(1)
    world.finish()
    world.leader.state.clear()  # as after producer.id.expiration.ms: it accepts any number
    for _ in range(2):
        world.append_some(1)
        world.send_due()
    world.answer(InvalidRecordError())
    world.answer()
    world.append_some(1)
    world.finish()
    check(world)
    assert values_of(world) == [b"%08d" % n for n in (1, 3, 4)]


def test_a_part_of_a_batch_that_fails_frees_its_numbers_for_the_next_part() -> None:
    world = World(0, 1)
    world.append_some(2)
    world.send_due()
    world.answer(MessageTooLargeError())  # two parts of one record
    world.now_ms += 1000
    world.send_due()
    world.answer(MessageTooLargeError())
    world.append_some(1)
    world.finish()
    check(world)
    assert values_of(world) == [b"%08d" % n for n in (2, 3)]
    assert world.sender.state.epoch == 0


def test_keys_go_where_java_sends_them() -> None:
    # Values of org.apache.kafka.common.utils.Utils.murmur2 for these keys.
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    world = World(0, 7)
    for key, hashed in known.items():
        expected = (hashed & 0x7FFFFFFF) % 7
        assert partition_for_key(key, 7) == expected
        assert world.send("t", b"", key).partition == expected
        assert world.send("t", b"", memoryview(key)).partition == expected


@given(st.binary(min_size=1), st.integers(1, 100))
def test_under_ordered_a_key_stays_or_moves_to_the_new_partition(key: bytes, count: int) -> None:
    before, after = ordered_partition(key, count), ordered_partition(key, count + 1)
    assert after in {before, count}
    world = World(2, count)
    assert world.send("t", b"", key).partition == before


def test_records_without_a_key_prefer_partitions_where_less_waits() -> None:
    assert preferences([0, 1, 2], [3, 3, 3]) is None
    assert preferences([], []) is None
    assert preferences([0, 2], [5, 0, 3]) == [1, 4]
    world = World(0, 3)
    world.accumulator.set_choices("t", [0, 2], [1, 2])
    assert {world.send("t", bytes(150)).partition for _ in range(100)} == {0, 2}
    assert sum(world.accumulator.backlog("t")) > 50


def test_memory_is_counted_until_a_batch_is_done() -> None:
    accumulator = Accumulator(batch_size=16_384, memory_bytes=65_536, max_request_size=1 << 20)
    path = SendPath()
    path.attach(accumulator, plain=True)
    accumulator.set_partitions("t", 1)
    sent = 0
    while path.append("t", bytes(1000), None, None, None, None, None, None) is not None:
        sent += 1
    assert accumulator.obstacle == 2
    assert 50 < sent <= 64
    assert accumulator.used_bytes <= 65_536
    (queue,) = accumulator.queues("t")
    batch = accumulator.take(queue)
    assert batch is not None
    batch.pack(-1, -1, -1, False)
    with memoryview(batch) as held:  # as a transport holds it
        batch.complete(0)
        (first, *_) = decode(bytes(held))
        assert first.value == bytes(1000)
    assert path.append("t", bytes(1000), None, None, None, None, None, None) is not None


def test_a_request_in_pieces_is_the_same_request() -> None:
    world = World(0, 2, batch_size=20_000)
    for n in range(500):
        world.send("t", b"%d" % n * 10, partition=n % 2)
    world.send("t", b"small", partition=0)
    batches = [world.accumulator.take(queue) for queue in world.accumulator.queues("t")]
    packed = [batch for batch in batches if batch is not None]
    for batch in packed:
        batch.pack(1, 2, 3, False)
    view = ClusterView()
    extensions = ProduceExtensions(partition_count=True)
    for version in (3, 9, 13):
        request = produce_request(
            packed, view, extensions, acks=-1, timeout_ms=5, by_id=version >= 13
        )
        pieces = request_pieces(request, version, 7, "client")
        assert len(pieces) == 2 * len(packed) + 1
        assert b"".join(pieces) == encode_request(request, version, 7, "client")
