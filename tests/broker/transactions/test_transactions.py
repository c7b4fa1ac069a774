"""Transactions over a real socket: timeouts, expiry, fencing, epochs that run out, crashes at each
stage, transactions that hang. The probes compare the answers with Kafka's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from kstore.broker.runtime.coordinators.partitions import partition_of
from kstore.broker.state.transactions.state import (
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TV_2,
    Transaction,
    record_of,
)
from kstore.errors import ErrorCode
from kstore.protocol.coordinator_records.transactions import encode_key, encode_value
from kstore.types import TopicPartition
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.reference.transactional_producer import NAME, TOPIC, Producer

STATE_PARTITIONS = 3
SETTINGS = {
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "offsets.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
}
Start = Callable[..., KstoreBroker]


@pytest.fixture
def producer(start_broker: Start) -> Producer:
    """A producer, and the topic that it writes to."""
    made = Producer(start_broker(SETTINGS))
    made.create_topic()
    assert made.init().error_code == ErrorCode.NONE
    return made


def write_state(log_dir: Path, transaction: Transaction) -> None:
    """Put a record into __transaction_state of a broker that does not run."""
    record = record_of(transaction)
    assert record.value is not None
    key, value = encode_key(record.key), encode_value(record.value, record.value_version)
    index = partition_of(transaction.transactional_id, STATE_PARTITIONS)
    with kstore.open_log_dir(log_dir) as opened:
        opened.log("__transaction_state", index).append(value, key)


# ---- time ----


def test_a_transaction_that_runs_out_of_time_is_aborted_and_its_producer_fenced(producer) -> None:
    producer.init(timeout_ms=50)
    assert producer.write(b"late") == [ErrorCode.NONE]
    assert producer.await_state("CompleteAbort").producer_epoch == producer.epoch + 1
    assert producer.stable_offset() == 2
    assert producer.read() == []
    assert producer.write(b"later", 1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.end(committed=True).error_code == ErrorCode.INVALID_TXN_STATE
    assert producer.init().error_code == ErrorCode.NONE
    assert producer.write(b"anew") == [ErrorCode.NONE]
    assert producer.end(committed=True).error_code == ErrorCode.NONE
    assert producer.read() == [b"anew"]


@pytest.mark.slow
def test_a_transactional_id_that_nobody_uses_is_forgotten(start_broker: Start) -> None:
    broker = start_broker(SETTINGS | {"transactional.id.expiration.ms": "200"})
    producer = Producer(broker)
    producer.init()
    deadline = time.monotonic() + 20
    while producer.state().error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    broker.kill()
    broker.start()
    again = Producer(broker)
    again.ask(Ask.FindCoordinator(key=NAME, key_type=1), 3)
    assert again.state().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.slow
def test_many_long_ids_are_forgotten_though_they_do_not_fit_in_one_batch(
    start_broker: Start,
) -> None:
    few = {"transaction.state.log.num.partitions": "1"}
    broker = start_broker(SETTINGS | few)
    Producer(broker).init()
    broker.kill()
    with kstore.open_log_dir(broker.log_dir) as opened:
        log = opened.log("__transaction_state", 0)
        for number in range(100):
            record = record_of(Transaction(f"{number:03}" * 4000, number, 0, updated_ms=0))
            assert record.value is not None
            log.append(encode_value(record.value, record.value_version), encode_key(record.key))
    broker.start()
    producer = Producer(broker)
    deadline = time.monotonic() + 20
    while len(producer.ask(Ask.ListTransactions(), 1).transaction_states) != 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    broker.stop()
    with kstore.open_log_dir(broker.log_dir) as opened:
        log = opened.log("__transaction_state", 0)
        values = {record.key: record.value for record in log.records()}
    assert sum(value is not None for value in values.values()) == 1


# ---- fencing and epochs ----


def test_a_second_producer_ends_the_firsts_transaction_and_fences_it(producer) -> None:
    producer.write(b"first")
    second = producer.twin()
    assert second.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert second.init().error_code == ErrorCode.NONE
    assert (second.id, second.epoch) == (producer.id, producer.epoch + 2)
    assert producer.write(b"zombie", 1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.add(1) == [ErrorCode.PRODUCER_FENCED]
    assert producer.end(committed=True).error_code == ErrorCode.PRODUCER_FENCED
    assert producer.read() == []


@pytest.mark.slow
def test_each_end_takes_an_epoch_until_a_new_id_begins_at_0(start_broker: Start) -> None:
    broker = start_broker(SETTINGS)
    producer = Producer(broker)
    producer.create_topic()
    producer.init()
    broker.stop()
    used = Transaction(NAME, 77, 32_765, timeout_ms=60_000, updated_ms=int(time.time() * 1000))
    write_state(broker.log_dir, used)
    broker.start()
    producer = Producer(broker)
    producer.ask(Ask.FindCoordinator(key=NAME, key_type=1), 3)
    producer.id, producer.epoch = 77, 32_765
    seen = []
    for number in range(3):
        assert producer.write(b"%d" % number) == [ErrorCode.NONE]
        before = (producer.id, producer.epoch)
        producer.end(committed=True)
        seen.append(producer.epoch)
        after = (producer.id, producer.epoch)
        producer.id, producer.epoch = before
        assert producer.end(committed=True).error_code == ErrorCode.NONE  # a repetition
        assert (producer.id, producer.epoch) == after
    assert seen == [32_766, 0, 1]
    assert producer.id != 77
    assert producer.read() == [b"0", b"1", b"2"]


# ---- partitions ----


def test_a_request_with_two_producers_batches_is_refused(producer) -> None:
    rows = [{"index": 0, "records": producer.batch(b"mine", 0)}]
    producer.epoch += 1
    rows.append({"index": 1, "records": producer.batch(b"other", 0)})
    topics = [{"name": TOPIC, "partition_data": rows}]
    request = Ask.Produce(transactional_id=NAME, acks=-1, timeout_ms=5000, topic_data=topics)
    answer = producer.ask(request, 12)
    codes = [row.error_code for row in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert producer.state().transaction_state == "Empty"


def test_one_request_adds_all_its_partitions_with_one_record(start_broker: Start) -> None:
    broker = start_broker(SETTINGS)
    producer = Producer(broker)
    producer.create_topic(100)
    producer.init()
    places = range(100)
    assert set(producer.write(b"v", 0, *places)) == {ErrorCode.NONE}
    assert set(producer.write(b"w", 1, *places)) == {ErrorCode.NONE}
    found = producer.state()
    assert (found.transaction_state, found.topics[0].partitions) == ("Ongoing", list(places))
    assert producer.end(committed=True).error_code == ErrorCode.NONE
    assert producer.state().transaction_state == "CompleteCommit"
    assert {producer.stable_offset(place) for place in places} == {3}
    broker.stop()
    index = partition_of(NAME, STATE_PARTITIONS)
    with kstore.open_log_dir(broker.log_dir, read_only=True) as opened:
        log = opened.log("__transaction_state", index, create=False)
        assert log.log_end_offset == 4  # empty, ongoing, prepared, complete


def test_a_topic_that_is_deleted_does_not_hold_a_transaction_up(producer) -> None:
    producer.write(b"v")
    delete = Ask.DeleteTopics(topics=[{"name": TOPIC}], timeout_ms=20_000)
    assert producer.ask(delete, 6).responses[0].error_code == ErrorCode.NONE
    assert producer.end(committed=True).error_code == ErrorCode.NONE
    assert producer.state().transaction_state == "CompleteCommit"


@pytest.mark.parametrize(
    ("version", "error_code"),
    [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_an_older_producer_has_to_add_the_partition_first(producer, version, error_code) -> None:
    assert producer.write(b"v", version=version) == [error_code]
    assert producer.add(0) == [ErrorCode.NONE]
    assert producer.write(b"v", version=version) == [ErrorCode.NONE]
    assert producer.end(committed=True, version=4).error_code == ErrorCode.NONE
    assert producer.write(b"late", 1, version=version) == [error_code]


def test_a_hanging_transaction_is_found_and_ended(start_broker: Start) -> None:
    broker = start_broker(SETTINGS | {"transaction.partition.verification.enable": "false"})
    producer = Producer(broker)
    producer.create_topic()
    producer.init()
    assert producer.write(b"hangs", version=11) == [ErrorCode.NONE]
    assert producer.stable_offset() == 0
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    answer = producer.ask(Ask.DescribeProducers(topics=topics), 0)
    (found,) = answer.topics[0].partitions[0].active_producers
    assert (found.producer_id, found.current_txn_start_offset) == (producer.id, 0)
    marker = {
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": TOPIC, "partition_indexes": [0]}],
        "coordinator_epoch": max(found.coordinator_epoch, 0),
    }
    answer = producer.ask(Ask.WriteTxnMarkers(markers=[marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert producer.stable_offset() == 2
    assert producer.read() == []


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.slow), 40])
def test_a_marker_that_can_not_be_written_is_tried_again(
    start_broker: Start, partitions: int
) -> None:
    producer = Producer(start_broker(SETTINGS))
    producer.create_topic(partitions)
    producer.init()

    def allow_batches_of(size_bytes: int) -> None:
        config = {"name": "max.message.bytes", "value": str(size_bytes)}
        resource = {"resource_type": 2, "resource_name": TOPIC, "configs": [config]}
        request = Ask.IncrementalAlterConfigs(resources=[resource])
        assert producer.ask(request, 1).responses[0].error_code == ErrorCode.NONE

    producer.write(b"v", 0, *range(partitions))
    allow_batches_of(10)
    assert producer.end(committed=True).error_code == ErrorCode.NONE
    assert producer.state().transaction_state == "PrepareCommit"
    assert producer.end(committed=True).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.read() == []
    allow_batches_of(1000)
    producer.await_state("CompleteCommit")
    assert producer.read(0) == producer.read(partitions - 1) == [b"v"]


# ---- crashes ----


@pytest.mark.slow
@pytest.mark.parametrize(
    "state", [PREPARE_COMMIT, pytest.param(PREPARE_ABORT, marks=pytest.mark.slow)]
)
def test_a_transaction_that_a_crash_left_prepared_is_completed(
    start_broker: Start, state: int
) -> None:
    broker = start_broker(SETTINGS)
    producer = Producer(broker)
    producer.create_topic()
    producer.init()
    producer.write(b"v", 0, 0, 1)
    assert producer.commit_offset("g", 5) == ErrorCode.NONE
    offsets = TopicPartition("__consumer_offsets", partition_of("g", 3))
    broker.kill()
    now_ms = int(time.time() * 1000)
    prepared = Transaction(
        NAME,
        producer.id,
        producer.epoch + 1,
        timeout_ms=60_000,
        state=state,
        partitions=frozenset({TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1), offsets}),
        started_ms=now_ms,
        updated_ms=now_ms,
        client_version=TV_2,
    )
    write_state(broker.log_dir, prepared)
    broker.start()
    again = Producer(broker)
    again.ask(Ask.FindCoordinator(key=NAME, key_type=1), 3)
    committed = state == PREPARE_COMMIT
    again.await_state("CompleteCommit" if committed else "CompleteAbort")
    assert [again.stable_offset(place) for place in (0, 1)] == [2, 2]
    assert again.read(0) == again.read(1) == ([b"v"] if committed else [])
    assert again.offset("g") == (5 if committed else -1, ErrorCode.NONE)


@pytest.mark.slow
@pytest.mark.parametrize("committed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_ongoing_transaction_goes_on_after_a_crash(start_broker: Start, committed: bool) -> None:
    broker = start_broker(SETTINGS)
    producer = Producer(broker)
    producer.create_topic()
    producer.init()
    producer.write(b"before")
    assert producer.commit_offset("g", 3) == ErrorCode.NONE
    assert producer.offset("g") == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    broker.kill()
    broker.start()
    again = Producer(broker)
    again.id, again.epoch = producer.id, producer.epoch
    again.ask(Ask.FindCoordinator(key=NAME, key_type=1), 3)
    assert again.await_state("Ongoing").producer_epoch == producer.epoch
    assert again.offset("g") == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert again.write(b"after", 1) == [ErrorCode.NONE]
    assert again.end(committed=committed).error_code == ErrorCode.NONE
    assert again.read() == ([b"before", b"after"] if committed else [])
    assert again.offset("g") == (3 if committed else -1, ErrorCode.NONE)


@pytest.mark.slow
def test_with_every_write_on_the_disk_transactions_end_in_order(start_broker: Start) -> None:
    producer = Producer(start_broker(SETTINGS | {"kstore.flush.policy": "always"}))
    producer.create_topic()
    producer.init()
    for number, committed in enumerate((True, False, True)):
        assert producer.write(b"%d" % number, 0, 0, 1) == [ErrorCode.NONE] * 2
        assert producer.end(committed=committed).error_code == ErrorCode.NONE
    assert producer.read(0) == producer.read(1) == [b"0", b"2"]
