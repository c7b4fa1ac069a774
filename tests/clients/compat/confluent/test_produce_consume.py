"""Messages and groups: the same with confluent-kafka and with kstore's module of that API."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import pytest

from tests.clients.compat.confluent.conftest import Library
from tests.conformance.kstore_broker import KstoreBroker

PATIENCE_S = 60


def messages(consumer: Any, count: int) -> list[Any]:
    """So many messages without an error."""
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    assert len(found) == count
    return found


def test_a_delivery_report_says_where_the_message_is(library: Library) -> None:
    topic = library.new_topic(2)
    reports: list[tuple[Any, Any]] = []
    producer = library.root.Producer(library.config(linger_ms=5))
    for value in ("one", b"two"):
        producer.produce(
            topic, value, key="k", partition=1, on_delivery=lambda *told: reports.append(told)
        )
    assert len(producer) == 2
    assert reports == []  # only flush and poll report them
    assert producer.flush(PATIENCE_S) == 0
    assert [error for error, _ in reports] == [None, None]
    rows = [(m.topic(), m.partition(), m.offset(), m.key(), m.value()) for _, m in reports]
    assert rows == [(topic, 1, 0, b"k", b"one"), (topic, 1, 1, b"k", b"two")]
    assert all(message.latency() > 0 for _, message in reports)
    kinds = {message.timestamp()[0] for _, message in reports}
    assert kinds == {library.root.TIMESTAMP_CREATE_TIME}


def test_each_message_of_a_batch_reports_to_its_own_callback(library: Library) -> None:
    reports: list[tuple[str, bytes]] = []

    def report_as(name: str) -> Any:
        return lambda error, message: reports.append((name, message.value()))

    producer = library.root.Producer(library.config())
    rows = [{"value": b"1"}, {"value": b"2", "callback": report_as("own")}, {"value": b"3"}]
    taken = producer.produce_batch(
        library.new_topic(), rows, partition=0, on_delivery=report_as("all")
    )
    assert taken == 3
    assert producer.flush(PATIENCE_S) == 0
    assert reports == [("all", b"1"), ("own", b"2"), ("all", b"3")]


def test_a_topic_that_cannot_be_is_told_to_the_callback(library: Library) -> None:
    told: list[int] = []
    producer = library.root.Producer(library.config())
    producer.produce("no/topic", b"x", on_delivery=lambda error, _: told.append(error.code()))
    assert producer.flush(PATIENCE_S) == 0
    assert told == [library.root.KafkaError.TOPIC_EXCEPTION]


def test_what_cannot_be_sent_is_refused_at_once(library: Library) -> None:
    topic = library.new_topic()
    producer = library.root.Producer(library.config())
    producer.produce(topic, b"first")
    assert producer.flush(PATIENCE_S) == 0
    for value, partition, code in (
        (b"x" * 2_000_000, -1, library.root.KafkaError.MSG_SIZE_TOO_LARGE),
        (b"x", 7, library.root.KafkaError._UNKNOWN_PARTITION),
    ):
        with pytest.raises(library.root.KafkaException) as refused:
            producer.produce(topic, value, partition=partition)
        assert refused.value.args[0].code() == code
    with pytest.raises(TypeError):
        producer.produce(topic, 5)
    with pytest.raises(TypeError, match="header"):
        producer.produce(topic, b"x", headers={"a": 1})
    assert len(producer) == 0


def test_a_full_queue_is_a_buffer_error(library: Library) -> None:
    topic = library.new_topic()
    settings = library.config(linger_ms=10_000) | {"queue.buffering.max.messages": 3}
    producer = library.root.Producer(settings)
    for _ in range(3):
        producer.produce(topic, b"x", on_delivery=lambda *_: None)
    with pytest.raises(BufferError):
        producer.produce(topic, b"x")
    assert producer.flush(PATIENCE_S) == 0


def test_keys_go_to_the_partitions_that_librdkafka_chooses(library: Library) -> None:
    topic = library.new_topic(7)
    for partitioner in ("consistent_random", "murmur2_random", "fnv1a_random"):
        found: dict[bytes, int] = {}
        producer = library.root.Producer(library.config(partitioner=partitioner))
        for number in range(20):
            producer.produce(
                topic,
                b"v",
                key=b"key-%d" % number,
                on_delivery=lambda _, m, found=found: found.update({m.key(): m.partition()}),
            )
        assert producer.flush(PATIENCE_S) == 0
        function = getattr(library.root, partitioner.removesuffix("_random"))
        assert found == {key: function(key, 7) for key in found}
        assert len(set(found.values())) > 3


def test_a_message_has_all_its_parts(library: Library) -> None:
    topic = library.new_topic()
    producer = library.root.Producer(library.config())
    headers = {"a": "text", "b": None, "c": b"\x00"}
    producer.produce(topic, "välue", key=b"k", timestamp=1_700_000_000_123, headers=headers)
    producer.produce(topic, None, key=b"k")
    assert producer.flush(PATIENCE_S) == 0
    with library.consumer(library.new_name()) as consumer:
        consumer.subscribe([topic])
        one, two = messages(consumer, 2)
    assert one.headers() == [("a", b"text"), ("b", None), ("c", b"\x00")]
    assert one.timestamp() == (library.root.TIMESTAMP_CREATE_TIME, 1_700_000_000_123)
    assert (one.topic(), one.partition(), one.offset()) == (topic, 0, 0)
    assert (one.key(), one.value(), len(one)) == (b"k", "välue".encode(), 6)
    assert (two.value(), two.headers(), len(two)) == (None, None, 0)


def test_offsets_are_stored_and_committed(library: Library) -> None:
    topic, group = library.filled([b"%d" % n for n in range(5)]), library.new_name()
    tp = library.root.TopicPartition(topic, 0)
    with library.consumer(group, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        found = messages(consumer, 5)
        committed = consumer.commit(message=found[1], asynchronous=False)
        assert [(row.topic, row.partition, row.offset) for row in committed] == [(topic, 0, 2)]
        assert [row.offset for row in consumer.committed([tp], timeout=PATIENCE_S)] == [2]
        assert [row.offset for row in consumer.position([tp])] == [5]
        consumer.commit(offsets=[library.root.TopicPartition(topic, 0, 3)], asynchronous=False)
    with library.consumer(group, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        assert [m.value() for m in messages(consumer, 2)] == [b"3", b"4"]
        assert consumer.commit() is None  # asynchronous, what was handed out
        deadline = time.monotonic() + PATIENCE_S
        while consumer.committed([tp], timeout=PATIENCE_S)[0].offset != 5:
            consumer.poll(0.1)
            assert time.monotonic() < deadline
        with pytest.raises(library.root.KafkaException) as nothing:
            consumer.commit(asynchronous=False)
        assert nothing.value.args[0].code() == library.root.KafkaError._NO_OFFSET


def test_only_stored_offsets_are_committed_at_the_end(library: Library) -> None:
    topic, group = library.filled([b"%d" % n for n in range(5)]), library.new_name()
    events: list[Any] = []
    settings = library.config(group_id=group, auto_offset_reset="earliest")
    settings["enable.auto.offset.store"] = False
    settings["on_commit"] = lambda error, rows: events.append((error, [r.offset for r in rows]))
    consumer = library.root.Consumer(settings)
    consumer.subscribe([topic])
    consumer.store_offsets(message=messages(consumer, 5)[2])
    consumer.close()
    assert (None, [3]) in events
    with library.consumer(group) as later:
        later.subscribe([topic])
        assert messages(later, 1)[0].value() == b"3"


def test_the_end_of_a_partition_is_told_once(library: Library) -> None:
    topic = library.filled([b"one", b"two"])
    settings = library.config(group_id=library.new_name(), auto_offset_reset="earliest")
    with library.root.Consumer(settings | {"enable.partition.eof": True}) as consumer:
        consumer.subscribe([topic])
        found: list[Any] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < 3 and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            found += [] if message is None else [message]
        assert [m.error() and m.error().code() for m in found] == [
            None, None, library.root.KafkaError._PARTITION_EOF,
        ]  # fmt: skip
        assert (found[2].topic(), found[2].partition(), found[2].offset()) == (topic, 0, 2)
        assert consumer.poll(1) is None


def test_rebalance_callbacks_may_choose_offsets(library: Library) -> None:
    topic, group = library.filled([b"%d" % n for n in range(5)]), library.new_name()
    events: list[tuple[str, list[tuple[str, int]]]] = []

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        events.append(("assign", [(row.topic, row.partition) for row in partitions]))
        for row in partitions:
            row.offset = 3
        consumer.assign(partitions)

    def on_revoke(_consumer: Any, partitions: list[Any]) -> None:
        events.append(("revoke", [(row.topic, row.partition) for row in partitions]))

    consumer = library.consumer(group)
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    assert [m.offset() for m in messages(consumer, 2)] == [3, 4]
    assert [(row.topic, row.partition) for row in consumer.assignment()] == [(topic, 0)]
    consumer.close()
    assert events == [("assign", [(topic, 0)]), ("revoke", [(topic, 0)])]
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


def test_positions_can_be_set(library: Library) -> None:
    topic = library.filled([b"%d" % n for n in range(5)])
    tp = library.root.TopicPartition
    with library.consumer(library.new_name()) as consumer:
        consumer.assign([tp(topic, 0, 2)])
        assert messages(consumer, 1)[0].offset() == 2
        consumer.seek(tp(topic, 0, 4))
        assert messages(consumer, 1)[0].offset() == 4
        assert consumer.get_watermark_offsets(tp(topic, 0), timeout=PATIENCE_S) == (0, 5)
        ahead = int(time.time() * 1000) + 3_600_000
        times = consumer.offsets_for_times([tp(topic, 0, ahead)], timeout=PATIENCE_S)
        assert [row.offset for row in times] == [library.root.OFFSET_END]
        times = consumer.offsets_for_times([tp(topic, 0, 1)], timeout=PATIENCE_S)
        assert [row.offset for row in times] == [0]
        consumer.pause([tp(topic, 0)])
        consumer.seek(tp(topic, 0, 0))
        assert consumer.poll(0.5) is None
        consumer.resume([tp(topic, 0)])
        assert [m.offset() for m in consumer.consume(3, timeout=PATIENCE_S)] == [0, 1, 2]
        with pytest.raises(library.root.KafkaException) as refused:
            consumer.seek(tp("elsewhere", 0, 0))
        names = {refused.value.args[0].name()}
        assert names <= {"_STATE", "_UNKNOWN_PARTITION"}


def test_a_topic_that_is_not_there_is_a_message(library: Library) -> None:
    with library.consumer(library.new_name()) as consumer:
        consumer.subscribe(["nobody-made-this"])
        message = None
        deadline = time.monotonic() + PATIENCE_S
        while message is None and time.monotonic() < deadline:
            message = consumer.poll(0.5)
        assert message is not None
        assert message.error().code() == library.root.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_topics_are_found_by_a_regular_expression(library: Library) -> None:
    topic = library.filled([b"x"])
    settings = {"metadata_max_age_ms": 1000} if library.name != "confluent_kafka" else {}
    with library.consumer(library.new_name(), **settings) as consumer:
        consumer.subscribe([f"^{topic}$"])
        assert messages(consumer, 1)[0].topic() == topic


def test_transactions_are_whole(library: Library) -> None:
    source, target = library.filled([b"a", b"b"]), library.new_topic()
    group = library.new_name()
    producer = library.root.Producer(library.config(transactional_id=group))
    producer.init_transactions(PATIENCE_S)
    with library.consumer(group, enable_auto_commit=False) as consumer:
        consumer.subscribe([source])
        found = messages(consumer, 2)
        producer.begin_transaction()
        producer.produce(target, b"lost")
        producer.flush(PATIENCE_S)
        producer.abort_transaction(PATIENCE_S)
        producer.begin_transaction()
        for message in found:
            producer.produce(target, message.value().upper())
        offsets = consumer.position(consumer.assignment())
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets, metadata, PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
        assert consumer.committed(offsets, timeout=PATIENCE_S)[0].offset == 2
    with library.consumer(library.new_name()) as reader:
        reader.subscribe([target])
        assert [m.value() for m in messages(reader, 2)] == [b"A", b"B"]


def test_a_call_of_a_transaction_ends_by_its_time_out_and_goes_on_when_repeated(
    library: Library, broker: KstoreBroker
) -> None:
    topic = library.new_topic()
    producer = library.root.Producer(library.config(transactional_id=library.new_name()))
    producer.init_transactions(PATIENCE_S)
    assert broker.pid is not None
    for value in (b"first", b"second"):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(PATIENCE_S) == 0
        end = producer.commit_transaction if value == b"second" else producer.abort_transaction
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(library.root.KafkaException) as late:
                end(0.5)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        error = late.value.args[0]
        assert (error.code(), error.retriable(), error.fatal()) == (
            library.root.KafkaError._TIMED_OUT, True, False,
        )  # fmt: skip
        end(PATIENCE_S)
    settings = {"isolation_level": "read_committed"}
    with library.consumer(library.new_name(), **settings) as reader:
        reader.subscribe([topic])
        assert [message.value() for message in messages(reader, 1)] == [b"second"]


def test_a_producer_that_finds_no_broker_gives_up_init_transactions_in_time(
    library: Library,
) -> None:
    nowhere = {"bootstrap.servers": "localhost:1", "transactional.id": "t"}
    producer = library.root.Producer(nowhere)
    with pytest.raises(library.root.KafkaException) as late:
        producer.init_transactions(0.5)
    assert late.value.args[0].code() == library.root.KafkaError._TIMED_OUT
    assert late.value.args[0].retriable()


def test_statistics_and_errors_come_to_callbacks(library: Library) -> None:
    topic = library.filled([b"x"])
    stats: list[dict[str, Any]] = []
    settings = library.config(group_id=library.new_name(), auto_offset_reset="earliest")
    settings |= {"statistics.interval.ms": 100, "stats_cb": lambda t: stats.append(json.loads(t))}
    with library.root.Consumer(settings) as consumer:
        consumer.subscribe([topic])
        messages(consumer, 1)
        deadline = time.monotonic() + PATIENCE_S
        while not stats and time.monotonic() < deadline:
            consumer.poll(0.2)
    assert stats[0]["type"] == "consumer"
    errors: list[int] = []
    nowhere = {"bootstrap.servers": "localhost:1", "error_cb": lambda e: errors.append(e.code())}
    producer = library.root.Producer(nowhere | {"message.timeout.ms": 1500})
    lost: list[int] = []
    producer.produce("t", b"x", on_delivery=lambda error, _: lost.append(error.code()))
    assert len(producer) >= 1
    assert producer.flush(PATIENCE_S) == 0
    deadline = time.monotonic() + PATIENCE_S
    while library.root.KafkaError._ALL_BROKERS_DOWN not in errors and time.monotonic() < deadline:
        producer.poll(0.2)
    assert lost == [library.root.KafkaError._MSG_TIMED_OUT]
    assert library.root.KafkaError._ALL_BROKERS_DOWN in errors
