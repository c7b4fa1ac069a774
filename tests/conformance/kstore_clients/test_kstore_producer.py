"""kstore's producers with real brokers, kstore's and Apache Kafka's; librdkafka reads them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, ClassVar

import pytest

from kstore.clients import AdminClient, AIOProducer, Delivery, NewTopic, Producer, ProducerRecord
from kstore.clients.core.producer.transactions import TransactionMachine
from kstore.errors import (
    InvalidProduceOffsetError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    MessageTooLargeError,
    ProducerFencedError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kstore.types import ConsumerGroupMetadata, TopicPartition
from tests.beside.librdkafka import committed_offset, read_all
from tests.beside.waiting import until
from tests.conformance.kstore_broker import KstoreBroker

WAIT_S = 60.0


def read(servers: str, topic: str, partitions: int = 1) -> list[Any]:
    """All committed messages, partition by partition, as librdkafka reads them."""
    return read_all(servers, topic, range(partitions), strict=True)


def test_keys_go_where_librdkafka_and_java_send_them(
    servers: str, admin: AdminClient, topic: str
) -> None:
    from confluent_kafka import Producer as Other

    admin.create_topics([NewTopic(topic, 7)])
    keys = [b"", b"k", b"abc", *(b"key-%d" % n for n in range(50))]
    other = Other({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    theirs: dict[Any, Any] = {}
    for key in keys[1:]:
        other.produce(
            topic, b"x", key, on_delivery=lambda _, m: theirs.update({m.key(): m.partition()})
        )
    other.flush(WAIT_S)
    with Producer(servers) as producer:
        ours = {key: producer.send(topic, b"x", key).partition for key in keys}
    assert {key: ours[key] for key in keys[1:]} == theirs


def test_many_and_arrow_records_arrive(servers: str, admin: AdminClient, topic: str) -> None:
    import pyarrow as pa

    admin.create_topics([NewTopic(topic, 3)])
    keys = [b"k%d" % (n % 20) if n % 3 else None for n in range(5000)]
    values: list[bytes | None] = [b"v%d" % n if n % 100 else None for n in range(5000)]
    table = pa.table(
        {
            "key": pa.chunked_array([keys[:2000], keys[2000:]], pa.binary()),
            "value": pa.chunked_array([values[:2000], values[2000:]], pa.large_binary()),
            "timestamp": pa.array(range(1_700_000_000_000, 1_700_000_005_000)),
        }
    )
    rows = pa.RecordBatch.from_pydict(
        {"value": ["text"], "headers": [[{"key": "h", "value": b"1"}]]},
        pa.schema(
            [
                ("value", pa.string()),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ]
        ),
    )
    with Producer(servers, compression_type="zstd", compression_zstd_level=1) as producer:
        assert producer.send_many(topic, values, keys, timestamp=5).result(WAIT_S) == 5000
        assert producer.send_arrow(topic, table.slice(10)).result(WAIT_S) == 4990
        assert producer.send_arrow(topic, rows).result(WAIT_S) == 1
    found = read(servers, topic, 3)
    sent = list(zip(keys, values, strict=True))
    by_many = [(m.key(), m.value()) for m in found if m.timestamp()[1] == 5]
    by_arrow = {
        m.timestamp()[1] - 1_700_000_000_000: (m.key(), m.value())
        for m in found
        if 1_700_000_000_000 <= m.timestamp()[1] < 1_700_000_005_000
    }
    assert sorted(by_many, key=repr) == sorted(sent, key=repr)
    assert by_arrow == dict(list(enumerate(sent))[10:])
    (last,) = [m for m in found if m.headers()]
    assert (last.value(), last.headers()) == (b"text", [("h", b"1")])


def test_an_asyncio_producer_waits_for_room_and_tells_of_each_record(
    servers: str, admin: AdminClient, topic: str
) -> None:
    admin.create_topics([NewTopic(topic, 2)])
    heard: list[tuple[int, bool]] = []
    loop_thread = threading.get_ident()

    async def run() -> None:
        async with AIOProducer(servers, buffer_memory=65536, batch_size=8192) as producer:
            assert await producer.partitions_for(topic) == 2
            deliveries = [
                await producer.send(
                    topic,
                    b"%d" % n + bytes(1000),
                    b"k%d" % (n % 9),
                    on_delivery=lambda d: heard.append(
                        (d.offset, threading.get_ident() == loop_thread)
                    ),
                )
                for n in range(500)
            ]
            assert await deliveries[-1] >= 0
            await producer.flush(WAIT_S)
            assert all(delivery.done and delivery.error is None for delivery in deliveries)
            many = await producer.send_many(topic, [b"x"] * 1000)
            assert await many == 1000

    asyncio.run(run())
    assert len(heard) == 500
    assert all(here for _, here in heard)
    assert len(read(servers, topic, 2)) == 1500


def test_a_producer_may_be_used_by_many_threads(peer: KstoreBroker, topic: str) -> None:
    with AdminClient(peer.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 3)])
    with Producer(peer.bootstrap, batch_size=2000, buffer_memory=100_000) as producer:

        def write(who: int) -> None:
            for n in range(1000):
                last = producer.send(topic, b"%d" % n, b"%d" % who)
            last.result(WAIT_S)

        threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    found = read(peer.bootstrap, topic, 3)
    for who in range(4):
        values = [int(message.value()) for message in found if message.key() == b"%d" % who]
        assert values == list(range(1000))


def test_interceptors_see_records_on_their_way_and_what_became_of_them(
    servers: str, topic: str
) -> None:
    class Marks:
        done: ClassVar[list[int]] = []

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord(record.topic, b"!" + bytes(record.value or b""), partition=0)

        def on_acknowledgement(self, delivery: Any) -> None:
            self.done.append(delivery.offset)

    class Fails:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise ValueError("a fault of the interceptor")

    with Producer(servers, interceptors=[Marks, Fails()]) as producer:
        producer.send(topic, b"a")
        producer.send(ProducerRecord(topic, b"b", headers=[("h", b"1")]))
        assert producer.send_many(topic, [b"c"]).result(WAIT_S) == 1
    assert sorted(Marks.done) == [0, 1, 2]
    assert [message.value() for message in read(servers, topic)] == [b"!a", b"!b", b"!c"]


def test_a_batch_that_the_broker_finds_too_large_is_split(
    servers: str, admin: AdminClient, topic: str
) -> None:
    admin.create_topics([NewTopic(topic, 1, 1, {"max.message.bytes": "3000"})])
    with Producer(servers, batch_size=100_000, linger_ms=100) as producer:
        sent = [producer.send(topic, b"%03d" % n * 20) for n in range(300)]
        large = producer.send(topic, bytes(5000))
        after = producer.send(topic, b"after")
        with pytest.raises(MessageTooLargeError):
            producer.flush()
        assert isinstance(large.error, MessageTooLargeError)
        assert [delivery.result() for delivery in sent] == list(range(300))
        assert after.result() == 300
    values = [message.value() for message in read(servers, topic)]
    assert values == [b"%03d" % n * 20 for n in range(300)] + [b"after"]


@pytest.mark.parametrize("version", [1, 2])
def test_only_committed_transactions_are_read(
    servers: str, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = TransactionMachine.begin
    if version == 1:  # as a client of before KIP-890, which brokers still serve
        monkeypatch.setattr(
            TransactionMachine, "begin", lambda self, version_2: begin(self, version_2=False)
        )
    group = ConsumerGroupMetadata(f"group-of-{topic}")
    with Producer(servers, transactional_id=topic, batch_size=500) as producer:
        with pytest.raises(InvalidTxnStateError, match="init_transactions"):
            producer.send(topic, b"too early")
        producer.init_transactions()
        with pytest.raises(InvalidTxnStateError, match="begin_transaction"):
            producer.send(topic, b"too early")
        for turn in range(6):
            producer.begin_transaction()
            for n in range(50):
                producer.send(topic, b"%d-%d" % (turn, n), partition=0)
            if turn % 3 == 0:
                producer.flush()
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): 100 + turn}, group)
            if turn % 2:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        producer.begin_transaction()
        producer.commit_transaction()  # an empty one
    values = [message.value() for message in read(servers, topic)]
    assert values == [b"%d-%d" % (turn, n) for turn in (1, 3, 5) for n in range(50)]
    assert committed_offset(servers, group.group_id, topic) == 105


def test_a_producer_that_was_replaced_is_fenced(servers: str, topic: str) -> None:
    old = Producer(servers, transactional_id=topic)
    old.init_transactions()
    old.begin_transaction()
    old.send(topic, b"of the old one", partition=0)
    old.flush()
    with Producer(servers, transactional_id=topic) as new:
        new.init_transactions()
        new.begin_transaction()
        new.send(topic, b"of the new one", partition=0)
        new.commit_transaction()
    old.send(topic, b"late", partition=0)
    with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
        old.commit_transaction()
    with pytest.raises(KafkaError) as caught:
        old.abort_transaction()
    assert caught.value.fatal or isinstance(caught.value, InvalidProducerEpochError)
    with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
        old.begin_transaction()
    old.close()
    assert [message.value() for message in read(servers, topic)] == [b"of the new one"]


def test_records_of_an_asyncio_transaction_are_atomic(servers: str, topic: str) -> None:
    async def run() -> None:
        async with AIOProducer(servers, transactional_id=topic) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(topic, b"no", partition=0)
            await producer.abort_transaction()
            await producer.begin_transaction()
            delivery = await producer.send(topic, b"yes", partition=0)
            await producer.commit_transaction()
            assert delivery.done
            await producer.begin_transaction()
            await producer.send(topic, b"left open", partition=0)

    asyncio.run(run())
    assert [message.value() for message in read(servers, topic)] == [b"yes"]


def test_offsets_that_are_given_are_kept_with_their_gaps(peer: KstoreBroker, topic: str) -> None:
    with AdminClient(peer.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    with Producer(peer.bootstrap) as producer:
        offsets = [5, 6, 7, 20, 21, 1000]
        sent = [
            producer.send(ProducerRecord(topic, b"%d" % offset, partition=0, offset=offset))
            for offset in offsets
        ]
        assert [delivery.result() for delivery in sent] == offsets
        with pytest.raises(ValueError, match="cannot be mixed"):
            producer.send(topic, b"without", partition=0)
        late = producer.send(topic, b"again", partition=0, offset=7)
        with pytest.raises(InvalidProduceOffsetError) as caught:
            late.result()
        assert caught.value.log_end_offset == 1001
        assert producer.send(topic, b"next", partition=0, offset=1001).result() == 1001
        with pytest.raises(InvalidProduceOffsetError):
            producer.flush()
    found = [(message.offset(), message.value()) for message in read(peer.bootstrap, topic)]
    assert found == [(offset, b"%d" % offset) for offset in offsets] + [(1001, b"next")]


@pytest.mark.thorough
@pytest.mark.java
def test_a_kafka_broker_takes_no_given_offsets(kafka: Any, topic: str) -> None:
    with Producer(kafka.bootstrap) as producer:
        delivery = producer.send(topic, b"x", partition=0, offset=5)
        with pytest.raises(UnsupportedVersionError, match="given offsets"):
            delivery.result()
        producer.flush(raise_errors=False)


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("partitioner", ["murmur2", "ordered"])
def test_a_topic_that_grows_while_it_is_written_loses_and_doubles_nothing(
    peer: KstoreBroker, topic: str, partitioner: str
) -> None:
    with AdminClient(peer.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1)])
        with Producer(
            peer.bootstrap, partitioner=partitioner, batch_size=2000, linger_ms=1
        ) as producer:
            sent: list[Delivery] = []
            for count in (1, 2, 3, 8):
                if count > 1:
                    admin.create_partitions({topic: count})
                sent += [
                    producer.send(topic, b"%d" % n, b"k%d" % (n % 31))
                    for n in range(len(sent), len(sent) + 2000)
                ]
            producer.flush()
            assert [delivery.error for delivery in sent if delivery.error] == []
            assert producer.partitions_for(topic) == 8
    found = read(peer.bootstrap, topic, 8)
    assert sorted(int(message.value()) for message in found) == list(range(8000))
    for partition in range(8):
        for key in range(31):
            values = [
                int(message.value())
                for message in found
                if message.partition() == partition and message.key() == b"k%d" % key
            ]
            assert values == sorted(values)
    where = {int(message.value()): (message.partition(), message.offset()) for message in found}
    assert [where[n] for n in range(8000)] == [(d.partition, d.offset) for d in sent]


@pytest.mark.slow
def test_records_are_there_once_and_in_order_although_the_broker_is_killed(
    own_broker: KstoreBroker, topic: str
) -> None:
    with AdminClient(own_broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2)])
    sent: list[Any] = []
    with Producer(own_broker.bootstrap, batch_size=4000, linger_ms=1) as producer:
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                n = len(sent)
                sent.append(producer.send(topic, b"%d" % n, b"k%d" % (n % 13)))
                if n % 500 == 0:
                    stop.wait(0.01)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(3):
                reached = len(sent) + 5000
                while len(sent) < reached or not sent[reached - 5000].done:
                    stop.wait(0.01)
                own_broker.kill()
                own_broker.start()
        finally:
            stop.set()
            writer.join(WAIT_S)
        producer.flush(WAIT_S)
        assert [delivery.error for delivery in sent if delivery.error] == []
    found = read(own_broker.bootstrap, topic, 2)
    assert sorted(int(message.value()) for message in found) == list(range(len(sent)))
    for partition in range(2):
        values = [int(message.value()) for message in found if message.partition() == partition]
        assert values == sorted(values)


def test_a_send_that_finds_no_room_waits_no_longer_than_max_block_ms(
    own_broker: KstoreBroker, topic: str
) -> None:
    with Producer(
        own_broker.bootstrap, buffer_memory=40_000, batch_size=10_000, max_block_ms=300
    ) as producer:
        # On a busy machine, metadata may take longer than max.block.ms.
        until(lambda: producer.send(topic, b"x").result() >= 0, "the topic")
        own_broker.kill()
        with pytest.raises(RequestTimedOutError, match=r"buffer\.memory"):
            producer.send_many(topic, [bytes(1000)] * 100)
        own_broker.start()
        producer.flush(WAIT_S)
        assert producer.send(topic, b"y").result() > 0
