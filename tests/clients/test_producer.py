"""The producer against a scripted broker: order and sequence numbers over retries; failures."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from kstore.clients import Producer
from kstore.errors import (
    ErrorCode,
    InvalidRecordError,
    MessageTooLargeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from kstore.protocol.logs.produce import PartitionProduceResponse, ProduceRequest
from kstore.record import BatchView, batches, decode
from tests.clients.scripted_log import broker as broker  # a fixture
from tests.plain_messages import Answer
from tests.reference.fake_broker import HANG_UP, SILENCE, FakeBroker

FAST = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "request_timeout_ms": 5000,
    "linger_ms": 200,
}
# Below 13, so that topics go by name: the fake broker has no topic ids.
VERSIONS = {0: (3, 12), 3: (4, 12), 18: (0, 3), 22: (0, 4)}


class Partition:
    """Answers produce requests with the codes of a script, then without error; keeps batches."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.seen: list[BatchView] = []
        self.offset = 100

    def __call__(self, request: ProduceRequest) -> Any:
        """Answer one request for one partition of "t"."""
        (topic,) = request.topic_data
        rows = []
        step = self.script.pop(0) if self.script else 0
        if step is HANG_UP or step is SILENCE:
            return step
        for row in topic.partition_data:
            (batch,) = batches(bytes(row.records or b""), verify=True)
            self.seen.append(batch)
            rows.append(
                PartitionProduceResponse(
                    index=row.index, error_code=step, base_offset=-1 if step else self.offset
                )
            )
            self.offset += 0 if step else batch.records_count
        if request.acks == 0:
            return None
        answer = {"name": topic.name, "partition_responses": rows}
        return Answer.Produce(responses=[answer])


def sequences(partition: Partition) -> list[tuple[int, int, int]]:
    """(producer id, base sequence, records) of each batch that arrived."""
    return [(b.producer_id, b.base_sequence, b.records_count) for b in partition.seen]


def test_records_wait_for_a_flush_and_then_go_as_one_batch(broker: FakeBroker) -> None:
    partition = broker.handlers[ProduceRequest] = Partition()
    with Producer(broker.address, **FAST) as producer:
        sent = [producer.send("t", b"%d" % n) for n in range(3)]
        assert not any(delivery.done for delivery in sent)
        producer.flush()
        assert [delivery.result() for delivery in sent] == [100, 101, 102]
    assert sequences(partition) == [(1001, 0, 3)]


@pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_a_retriable_error_sends_the_same_bytes_again_before_anything_newer(
    broker: FakeBroker, trouble: int
) -> None:
    partition = broker.handlers[ProduceRequest] = Partition(trouble, trouble)
    one = {"max_in_flight_requests_per_connection": 1}
    with Producer(broker.address, batch_size=200, **one, **FAST) as producer:
        for n in range(6):
            producer.send("t", b"%d" * 40 % ((n,) * 40))
        producer.flush()
    first = bytes(partition.seen[0].data)
    assert [bytes(batch.data) == first for batch in partition.seen[:4]] == [True, True, True, False]
    found = [batch.base_sequence for batch in partition.seen]
    assert found == sorted(found)
    assert broker.producer_ids == 1


def test_a_lost_connection_sends_the_same_batch_again(broker: FakeBroker) -> None:
    partition = broker.handlers[ProduceRequest] = Partition(HANG_UP, HANG_UP)
    with Producer(broker.address, **FAST) as producer:
        assert producer.send("t", b"x").result() == 100
    assert sequences(partition) == [(1001, 0, 1)]
    assert len([r for r in broker.requests if isinstance(r, ProduceRequest)]) == 3


def test_an_answer_duplicate_sequence_number_means_delivered(broker: FakeBroker) -> None:
    broker.handlers[ProduceRequest] = Partition(HANG_UP, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    with Producer(broker.address, **FAST) as producer:
        assert producer.send("t", b"x").result() == -1


def test_a_refused_batch_fails_and_frees_its_sequence_numbers(broker: FakeBroker) -> None:
    partition = broker.handlers[ProduceRequest] = Partition(ErrorCode.INVALID_RECORD)
    with Producer(broker.address, **FAST) as producer:
        bad = producer.send("t", b"bad")
        with pytest.raises(InvalidRecordError, match="t-0"):
            producer.flush()
        assert isinstance(bad.error, InvalidRecordError)
        assert producer.send("t", b"good").result() == 100
    assert sequences(partition) == [(1001, 0, 1), (1001, 0, 1)]


def test_a_lost_sequence_goes_on_in_a_new_epoch(broker: FakeBroker) -> None:
    partition = broker.handlers[ProduceRequest] = Partition(
        0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    with Producer(broker.address, **FAST) as producer:
        for value in (b"1", b"2", b"3"):
            producer.send("t", value).result()
    assert sequences(partition) == [(1001, 0, 1), (1001, 1, 1), (1001, 0, 1), (1001, 1, 1)]
    assert [batch.producer_epoch for batch in partition.seen] == [0, 0, 1, 1]
    assert broker.producer_ids == 1


def test_a_batch_that_nobody_answers_fails_when_its_time_is_over(broker: FakeBroker) -> None:
    broker.handlers[ProduceRequest] = Partition(*[SILENCE] * 50)
    timing = {
        "delivery_timeout_ms": 300,
        "request_timeout_ms": 100,
        "retry_backoff_ms": 1,
        "linger_ms": 0,
    }
    producer = Producer(broker.address, **timing)
    delivery = producer.send("t", b"x")
    with pytest.raises(
        RequestTimedOutError, match=r"delivery\.timeout\.ms is over; the last attempt"
    ):
        producer.close()
    assert delivery.done
    assert isinstance(delivery.error, RequestTimedOutError)


def test_without_idempotence_batches_carry_no_producer_id(broker: FakeBroker) -> None:
    partition = broker.handlers[ProduceRequest] = Partition()
    with Producer(broker.address, enable_idempotence=False, **FAST) as producer:
        producer.send("t", b"x").result()
    assert sequences(partition) == [(-1, -1, 1)]
    assert broker.producer_ids == 0


def test_acks_0_waits_for_no_answer(broker: FakeBroker) -> None:
    broker.handlers[ProduceRequest] = Partition()
    with Producer(broker.address, acks=0, **FAST) as producer:
        assert producer.send("t", b"x").result() == -1


def test_keys_and_partitions_decide_where_a_record_goes() -> None:
    with FakeBroker(partitions=5, versions=VERSIONS) as broker:
        broker.handlers[ProduceRequest] = Partition()
        with Producer(broker.address, **FAST) as producer:
            assert producer.send("t", b"x", b"foobar").partition == (-790332482 & 0x7FFFFFFF) % 5
            assert producer.send("t", b"x", b"foobar", 3).partition == 3
            with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 4, not 5"):
                producer.send("t", b"x", partition=5)


def test_records_without_a_key_stay_with_a_partition_for_a_batch() -> None:
    with FakeBroker(partitions=2, versions=VERSIONS) as broker:
        broker.handlers[ProduceRequest] = Partition()
        with Producer(broker.address, batch_size=1000, **FAST) as producer:
            found = [producer.send("t", bytes(60)).partition for _ in range(500)]
    assert set(found) == {0, 1}
    changes = sum(left != right for left, right in itertools.pairwise(found))
    assert changes <= 500 * 96 // 1000


def test_what_cannot_be_sent_is_refused_at_once(broker: FakeBroker) -> None:
    with Producer(broker.address, max_request_size=1000, max_block_ms=1000, **FAST) as producer:
        with pytest.raises(MessageTooLargeError, match="a record of 1001 bytes"):
            producer.send("t", bytes(1001))
        with pytest.raises(UnknownTopicOrPartitionError, match="'missing'"):
            producer.send("missing", b"x")
        seconds: Any = time.time()
        with pytest.raises(TypeError, match="timestamp is float: pass an int, in milliseconds"):
            producer.send("t", b"x", timestamp=seconds)
        with pytest.raises(TypeError, match="timestamp is float"):
            producer.send_many("t", [b"x"], timestamp=seconds)
    with pytest.raises(ValueError, match="closed"):
        producer.send("t", b"x")
    with pytest.raises(ValueError, match="acks"):
        Producer(broker.address, acks=2)
    with pytest.raises(ValueError, match="idempotence and transactions need acks all"):
        Producer(broker.address, acks=1, enable_idempotence=True)


def test_timestamps_and_headers_are_sent(broker: FakeBroker) -> None:
    partition = broker.handlers[ProduceRequest] = Partition()
    with Producer(broker.address, **FAST) as producer:
        producer.send("t", b"v", b"k", timestamp=123, headers=[("h", b"1")])
    (record,) = decode(partition.seen[0].data)
    assert (record.timestamp, record.key, record.headers) == (123, b"k", (("h", b"1"),))
