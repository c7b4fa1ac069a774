"""kstore's own tagged fields on a real socket: KIP-359's epoch, KIP-253's partition count and
KIP-391's given offsets, to the byte. A client that sends none of them receives none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from kstore._fast.record.builder import build_batch
from kstore._fast.record.crc32c import checksum
from kstore.clients import Consumer, Producer
from kstore.errors import ErrorCode, InvalidProduceOffsetError
from kstore.protocol.logs.produce import PartitionProduceResponse
from kstore.protocol.registry import encode_request
from kstore.protocol.schema import Message
from kstore.types import TopicPartition
from tests.broker.harness.wire import Wire
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import only, produce_request

FLEXIBLE = range(9, 14)
NEWEST = 13
TIME = 1_700_000_000_000


class Topic:
    """A topic of two partitions, made for one test, and how it is produced to."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.wire, self.name = wire, name
        self.topic_id = wire.make_topic(name, 2)

    def request(self, records: bytes | None, version: int = NEWEST, **fields: Any) -> Message:
        """A Produce request; epoch, count, use_offset, acks and index as given."""
        how = {"acks": -1} | fields
        row = {"current_leader_epoch": how.pop("epoch", -1)}
        topic = self.topic_id if version >= 13 else self.name
        return produce_request(topic, records, first=how.pop("index", 0), row=row, **how)

    def produce(
        self, records: bytes | None, version: int = NEWEST, **fields: Any
    ) -> PartitionProduceResponse:
        request = self.request(records, version, **fields)
        return only(self.wire.call(request, version))

    def give(self, base_offset: int, values: list[bytes], **fields: Any) -> Any:
        """Produce a batch at a given offset."""
        version = fields.pop("version", NEWEST)
        producer = {name: fields.pop(name) for name in list(fields) if name in PRODUCER}
        batch = build_batch(values, timestamp=TIME, base_offset=base_offset, **producer)
        return self.produce(batch, version, use_offset=True, **fields)


PRODUCER = {"producer_id", "producer_epoch", "base_sequence", "compression"}


@pytest.fixture
def topic(running: KstoreBroker, request: pytest.FixtureRequest) -> Iterator[Topic]:
    wire = Wire(running)
    yield Topic(wire, "".join(c if c.isalnum() else "-" for c in request.node.name))
    wire.sock.close()


def batch(count: int = 2, **fields: Any) -> bytes:
    return build_batch([b"v"] * count, timestamp=TIME, **fields)


def outcome(answer: PartitionProduceResponse) -> tuple[int, int, int]:
    return answer.error_code, answer.base_offset, answer.log_end_offset


# ---- what is advertised ----


def test_the_extensions_that_are_served_are_listed_as_features(topic: Topic) -> None:
    request = Ask.ApiVersions(client_software_name="test", client_software_version="1")
    for version in (3, 4):
        found = {
            feature.name: (feature.min_version, feature.max_version)
            for feature in topic.wire.call(request, version).supported_features
        }
        assert found["kstore.kip232"] == found["kstore.kip253"] == (1, 1)
        assert found["kstore.kip359"] == found["kstore.kip391"] == (1, 1)
        assert found["metadata.version"] == (7, 30)
        assert ("kraft.version" in found) == (version == 4), "a minimum of 0 is for version 4"
    response = topic.wire.call(request, 4)
    finalized = {f.name: f.max_version_level for f in response.finalized_features}
    assert finalized["metadata.version"] == 30
    assert not [name for name in finalized if name.startswith("kstore.")]
    assert response.finalized_features_epoch >= 0


# ---- KIP-359 ----


@pytest.mark.parametrize("version", FLEXIBLE)
def test_the_leaders_own_epoch_or_none_is_accepted(topic: Topic, version: int) -> None:
    assert outcome(topic.produce(batch(), version, epoch=-1)) == (0, 0, -1)
    assert outcome(topic.produce(batch(), version, epoch=0)) == (0, 2, -1)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_a_larger_epoch_is_unknown(topic: Topic, version: int) -> None:
    answer = topic.produce(batch(), version, epoch=1)
    assert outcome(answer) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert outcome(topic.produce(batch(), version)) == (0, 0, -1), "nothing was appended"


# ---- KIP-253 ----


@pytest.mark.parametrize("version", FLEXIBLE)
def test_another_number_of_partitions_is_refused(topic: Topic, version: int) -> None:
    for wrong in (0, 1, 3):
        answer = topic.produce(batch(), version, count=wrong)
        assert outcome(answer) == (ErrorCode.INVALID_PARTITION_COUNT, -1, -1)
    assert outcome(topic.produce(batch(), version, count=2)) == (0, 0, -1)
    assert outcome(topic.produce(batch(), version, count=-1)) == (0, 2, -1)


def test_the_count_comes_before_a_partition_that_does_not_exist(topic: Topic) -> None:
    answer = topic.produce(batch(), count=3, index=2)
    assert answer.error_code == ErrorCode.INVALID_PARTITION_COUNT
    answer = topic.produce(batch(), count=2, index=2)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def configured(topic: Topic, **configs: str) -> None:
    answer = topic.wire.configure(2, topic.name, **configs)
    assert answer.error_code == 0, answer


@pytest.mark.parametrize("version", FLEXIBLE)
def test_a_topic_may_need_a_count_from_every_producer(topic: Topic, version: int) -> None:
    configured(topic, **{"kstore.partition.count.required": "true"})
    assert outcome(topic.produce(batch(), version)) == (ErrorCode.POLICY_VIOLATION, -1, -1)
    answer = topic.produce(batch(), version, count=3)
    assert outcome(answer) == (ErrorCode.INVALID_PARTITION_COUNT, -1, -1)
    assert outcome(topic.produce(batch(), version, count=2)) == (0, 0, -1)
    configured(topic, **{"kstore.partition.count.required": "false"})
    assert outcome(topic.produce(batch(), version)) == (0, 2, -1)


@pytest.mark.parametrize("version", range(3, 9))
def test_a_version_without_tags_cannot_say_the_count(topic: Topic, version: int) -> None:
    configured(topic, **{"kstore.partition.count.required": "true"})
    assert outcome(topic.produce(batch(), version)) == (ErrorCode.POLICY_VIOLATION, -1, -1)


# ---- KIP-391 ----


@pytest.mark.parametrize("version", FLEXIBLE)
def test_given_offsets_are_kept_and_the_log_end_offset_is_told(topic: Topic, version: int) -> None:
    assert outcome(topic.give(5, [b"a", b"b"], version=version)) == (0, 5, 7)
    assert outcome(topic.give(7, [b"c"], version=version)) == (0, 7, 8)
    assert outcome(topic.give(100, [b"d"], version=version)) == (0, 100, 101)
    assert outcome(topic.produce(batch(1), version)) == (0, 101, -1)


def test_the_answer_to_given_offsets_byte_by_byte(topic: Topic) -> None:
    topic.give(5, [b"a", b"b"])
    assert topic.wire.got == (
        struct.pack(">iB", 9, 0)  # correlation id, no tagged fields in the header
        + b"\x02" + topic.topic_id.bytes
        + b"\x02" + struct.pack(">ihqqq", 0, 0, 5, -1, 0) + b"\x01\x00"
        + b"\x01\xbd\xb1\x02\x08" + struct.pack(">q", 7)  # tag 39101, 8 bytes
        + b"\x00" + struct.pack(">i", 0) + b"\x00"
    )  # fmt: skip


def test_the_answer_to_an_ordinary_client_has_no_tagged_field(topic: Topic) -> None:
    topic.produce(batch())
    assert topic.wire.got == (
        struct.pack(">iB", 9, 0) + b"\x02" + topic.topic_id.bytes
        + b"\x02" + struct.pack(">ihqqq", 0, 0, 0, -1, 0) + b"\x01\x00" + b"\x00"
        + b"\x00" + struct.pack(">i", 0) + b"\x00"
    )  # fmt: skip


@pytest.mark.parametrize("version", FLEXIBLE)
def test_an_offset_below_the_log_end_is_refused_with_the_log_end(
    topic: Topic, version: int
) -> None:
    topic.give(5, [b"a", b"b"], version=version)
    for below in (0, 5, 6):
        answer = topic.give(below, [b"x"], version=version)
        assert outcome(answer) == (ErrorCode.INVALID_PRODUCE_OFFSET, -1, 7)
    assert outcome(topic.give(7, [b"c"], version=version)) == (0, 7, 8)


def damaged_deltas() -> bytes:
    """A batch at offset 10 whose records have the offsets 10 and 12."""
    whole = bytearray(build_batch([b"a", b"b"], timestamp=TIME, base_offset=10))
    assert whole[61 + 8 + 3] == 2, "the second record's offset delta, zigzag of 1"
    whole[61 + 8 + 3] = 4
    struct.pack_into(">I", whole, 17, checksum(bytes(whole[21:])))
    return bytes(whole)


def header_gap() -> bytes:
    """A batch of two records whose header says three offsets, as compaction leaves them."""
    whole = bytearray(build_batch([b"a", b"b"], timestamp=TIME, base_offset=10))
    struct.pack_into(">i", whole, 23, 2)
    struct.pack_into(">I", whole, 17, checksum(bytes(whole[21:])))
    return bytes(whole)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(header_gap(), id="gap in the header"),
        pytest.param(damaged_deltas(), id="gap between records"),
        pytest.param(
            build_batch([b"a"], base_offset=10, compression=4)
            + build_batch([b"b"], base_offset=12, compression=4),
            id="two that are compressed",
        ),
        pytest.param(
            build_batch([b"a"], base_offset=10)
            + build_batch([b"b"], base_offset=12, producer_id=5, producer_epoch=0, base_sequence=0),
            id="two with sequence numbers",
        ),
        pytest.param(
            struct.pack(">q", -1) + build_batch([b"a"], timestamp=TIME)[8:], id="no offset"
        ),
    ],
)
def test_mixed_or_gapped_batches_are_corrupt(topic: Topic, records: bytes) -> None:
    topic.give(3, [b"a"])
    answer = topic.produce(records, use_offset=True)
    assert outcome(answer) == (ErrorCode.CORRUPT_MESSAGE, -1, 4)
    assert outcome(topic.give(4, [b"a"])) == (0, 4, 5), "nothing was appended"


def test_several_plain_batches_are_appended_together_or_not_at_all(topic: Topic) -> None:
    topic.give(3, [b"a"])
    two = build_batch([b"a"], base_offset=10) + build_batch([b"b", b"c"], base_offset=12)
    assert outcome(topic.produce(two, use_offset=True)) == (0, 10, 14)
    back = build_batch([b"d"], base_offset=20) + build_batch([b"e"], base_offset=19)
    refused = outcome(topic.produce(back, use_offset=True))
    assert refused == (ErrorCode.INVALID_PRODUCE_OFFSET, -1, 14)


def test_control_batches_and_unknown_partitions_as_without_given_offsets(topic: Topic) -> None:
    control = build_batch([(b"\0\0\0\0", b"")], control=True, base_offset=9)
    assert topic.produce(control, use_offset=True).error_code == ErrorCode.INVALID_RECORD
    answer = topic.give(0, [b"a"], index=7)
    assert outcome(answer) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_an_offset_without_the_flag_is_refused_as_in_kafka(topic: Topic) -> None:
    answer = topic.produce(batch(base_offset=5))
    assert outcome(answer) == (ErrorCode.INVALID_RECORD, -1, -1)


def test_idempotent_sequences_go_on_across_gaps_between_batches(topic: Topic) -> None:
    producer = {"producer_id": 4000, "producer_epoch": 0}
    assert outcome(topic.give(10, [b"a", b"b"], base_sequence=0, **producer)) == (0, 10, 12)
    assert outcome(topic.give(50, [b"c"], base_sequence=2, **producer)) == (0, 50, 51)
    answer = topic.give(60, [b"e"], base_sequence=4, **producer)
    assert outcome(answer) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, 51)
    assert outcome(topic.give(60, [b"d"], base_sequence=3, **producer)) == (0, 60, 61)


def test_a_retried_batch_is_told_where_to_go_on(topic: Topic) -> None:
    topic.give(10, [b"a", b"b"])
    answer = topic.give(10, [b"a", b"b"])
    assert outcome(answer) == (ErrorCode.INVALID_PRODUCE_OFFSET, -1, 12)


def test_an_idempotent_retry_is_the_duplicate_that_it_is(topic: Topic) -> None:
    """Its first answer was lost: it gets the same one again, with the current end of the log."""
    producer = {"producer_id": 4001, "producer_epoch": 3}
    given = [(10, 0), (20, 2), (30, 4), (40, 6), (50, 8)]
    for offset, sequence in given:
        answer = topic.give(offset, [b"a", b"b"], base_sequence=sequence, **producer)
        assert outcome(answer) == (0, offset, offset + 2)
    for offset, sequence in given:  # the last five batches are remembered
        again = topic.give(offset, [b"a", b"b"], base_sequence=sequence, **producer)
        assert outcome(again) == (0, offset, 52)
    moved = topic.give(45, [b"a", b"b"], base_sequence=6, **producer)
    assert outcome(moved) == (0, 40, 52), "where it is stored, not where it is wanted now"
    topic.give(60, [b"a", b"b"], base_sequence=10, **producer)
    forgotten = topic.give(10, [b"a", b"b"], base_sequence=0, **producer)
    assert outcome(forgotten) == (ErrorCode.INVALID_PRODUCE_OFFSET, -1, 62)


@pytest.mark.parametrize(
    "other",
    [{"producer_id": 4003}, {"producer_epoch": 4}, {"base_sequence": 2}, {"base_sequence": 1}],
    ids=str,
)
def test_what_is_no_retry_is_refused_for_its_offset(topic: Topic, other: dict[str, int]) -> None:
    producer = {"producer_id": 4002, "producer_epoch": 3, "base_sequence": 0}
    assert outcome(topic.give(10, [b"a", b"b"], **producer)) == (0, 10, 12)
    answer = topic.give(10, [b"a", b"b"], **(producer | other))
    assert outcome(answer) == (ErrorCode.INVALID_PRODUCE_OFFSET, -1, 12)
    assert outcome(topic.give(10, [b"a", b"b"], **producer)) == (0, 10, 12)
    follows = topic.give(12, [b"c"], **(producer | {"base_sequence": 2}))
    assert outcome(follows) == (0, 12, 13), "the refusals have left nothing behind"


def test_compressed_batches_keep_their_offsets(topic: Topic) -> None:
    assert outcome(topic.give(40, [b"x" * 50] * 3, compression=4)) == (0, 40, 43)


def test_all_three_fields_together(topic: Topic) -> None:
    assert outcome(topic.give(3, [b"a"], epoch=0, count=2)) == (0, 3, 4)
    assert topic.give(9, [b"a"], epoch=9, count=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert topic.give(9, [b"a"], epoch=0, count=9).error_code == ErrorCode.INVALID_PARTITION_COUNT


def test_failure_without_acknowledgement_closes_the_connection(topic: Topic) -> None:
    topic.give(3, [b"a"])
    request = topic.request(
        build_batch([b"x"], timestamp=TIME, base_offset=0), use_offset=True, acks=0
    )
    topic.wire.sock.sendall(encode_request(request, NEWEST, 10, "test"))
    assert topic.wire.sock.recv(1) == b""


def test_given_offsets_inside_a_transaction(running: KstoreBroker) -> None:
    """They belong to it, and the marker of its end gets the offset after them."""
    topic, name = f"given-{uuid4().hex}", f"x-{uuid4().hex}"
    tp = TopicPartition(topic, 0)
    with Producer(running.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        for offsets, commits in (((5, 6), True), ((10, 12), False), ((20, 30), True)):
            producer.begin_transaction()
            sent = [producer.send(topic, b"%d" % at, partition=0, offset=at) for at in offsets]
            assert [each.result(20) for each in sent] == list(offsets)
            (producer.commit_transaction if commits else producer.abort_transaction)()
        producer.begin_transaction()
        marker = producer.send(topic, b"x", partition=0, offset=31)
        with pytest.raises(InvalidProduceOffsetError):
            marker.result(20)
        producer.abort_transaction()
        producer.begin_transaction()
        assert producer.send(topic, b"40", partition=0, offset=40).result(20) == 40
        producer.commit_transaction()
    found: list[tuple[int, bytes | None]] = []
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer(running.bootstrap, **settings) as consumer:
        consumer.assign([tp])
        while consumer.position(tp) < 42:
            found += [(row.offset, row.value) for row in consumer.poll(200)]
    assert found == [(at, b"%d" % at) for at in (5, 6, 20, 30, 40)]
