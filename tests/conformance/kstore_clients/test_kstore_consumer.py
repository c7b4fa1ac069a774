"""kstore's consumers with a broker: with kstore's, and with Apache Kafka itself."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kstore.clients import (
    AdminClient,
    AIOConsumer,
    Consumer,
    ConsumerRecord,
    NewTopic,
    Producer,
    WakeupError,
)
from kstore.errors import InvalidGroupIdError
from kstore.types import Header, OffsetAndMetadata, TopicPartition

LONG_MS = 60_000


@pytest.fixture
def fill(servers: str) -> Iterator[Callable[..., None]]:
    """Makes a topic and puts numbered records into each of its partitions."""
    with AdminClient(servers) as admin, Producer(servers) as producer:

        def make(topic: str, partitions: int = 1, count: int = 10, first: int = 0) -> None:
            if not first:
                admin.create_topics([NewTopic(topic, num_partitions=partitions)])
            for partition in range(partitions):
                for n in range(first, first + count):
                    producer.send(
                        topic, b"%d" % n, b"k%d" % partition, partition=partition,
                        timestamp=1_000 + n, headers=[Header("n", b"%d" % n)],
                    )  # fmt: skip
            producer.flush()

        yield make


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """So many records, by as many polls as that takes."""
    found: list[ConsumerRecord] = []
    while len(found) < count:
        records = consumer.poll(LONG_MS, max_records=count - len(found))
        assert records, f"{len(found)} of {count} records"
        found += records
    return found


def test_iteration_moves_the_position_record_by_record(
    servers: str, topic: str, fill: Callable[..., None]
) -> None:
    fill(topic, count=100)
    tp = TopicPartition(topic, 0)
    with Consumer(servers, auto_offset_reset="earliest", consumer_timeout_ms=LONG_MS) as consumer:
        consumer.assign([tp])
        for n, record in enumerate(consumer):
            assert (record.offset, record.value) == (n, b"%d" % n)
            assert consumer.position(tp) == n + 1
            if n == 20:
                break
        assert [record.offset for record in consumer.poll(LONG_MS, max_records=2)] == [21, 22]
        for record in consumer:
            if record.offset == 30:
                consumer.seek(tp, 90)
            if record.offset == 99:
                break
            assert record.offset <= 30 or record.offset >= 90


def test_paused_partitions_are_not_handed_out_and_lose_nothing(
    servers: str, topic: str, fill: Callable[..., None]
) -> None:
    fill(topic, partitions=2, count=50)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([first, second])
        head = read(consumer, 5)
        consumer.pause(first)
        assert consumer.paused() == [first]
        seen = [record for record in head if record.partition == 1]
        while len(seen) < 50:
            records = consumer.poll(LONG_MS)
            assert {record.partition for record in records} == {1}
            seen += records
        assert consumer.poll(50) == []
        consumer.resume(first)
        rest = [record for record in head if record.partition == 0]
        rest += read(consumer, 50 - len(rest))
        assert [record.offset for record in rest] == list(range(50))


def test_seeks_to_edges_and_lag(servers: str, topic: str, fill: Callable[..., None]) -> None:
    fill(topic, count=10)
    tp = TopicPartition(topic, 0)
    with Consumer(servers) as consumer:
        consumer.assign([tp])
        consumer.seek_to_end(tp)
        assert consumer.position(tp) == 10
        consumer.seek_to_beginning()
        assert len(read(consumer, 4)) == 4
        assert consumer.current_lag(tp) == 6
        consumer.seek(tp, OffsetAndMetadata(8, "", 0))
        assert [record.offset for record in consumer.poll(LONG_MS)] == [8, 9]
        kept = consumer.position_and_offset_epoch(tp)
        assert kept.offset == 10
        consumer.seek(tp, 5)
        consumer.seek(tp, kept.offset, kept.offset_epoch)
        assert consumer.poll(50) == []
        fill(topic, count=1, first=10)
        assert [record.value for record in consumer.poll(LONG_MS)] == [b"10"]


def test_reset_by_duration_begins_that_long_ago(
    servers: str, topic: str, fill: Callable[..., None]
) -> None:
    fill(topic, count=3)
    tp = TopicPartition(topic, 0)
    with Consumer(servers, auto_offset_reset="by_duration:P36500D") as consumer:
        consumer.assign([tp])
        assert consumer.position(tp) == 0
    with Consumer(servers, auto_offset_reset="by_duration:PT1H") as consumer:
        consumer.assign([tp])
        assert consumer.position(tp) == 3


def test_columns_are_what_records_are(servers: str, topic: str, fill: Callable[..., None]) -> None:
    fill(topic, partitions=3, count=40)
    with Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        rows: list[dict[str, Any]] = []
        while len(rows) < 120:
            batch = consumer.poll_arrow(LONG_MS, headers=True)
            batch.validate(full=True)
            rows += batch.to_pylist()
        empty = consumer.poll_arrow(20, headers=True)
        assert (empty.num_rows, empty.schema) == (0, batch.schema)
        consumer.seek_to_beginning()
        records = {(r.partition, r.offset): r for r in read(consumer, 120)}
    assert len(rows) == len(records)
    for row in rows:
        record = records[row["partition"], row["offset"]]
        assert row["topic"] == topic
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert row["timestamp"] == record.timestamp
        assert [(h["key"], h["value"]) for h in row["headers"]] == list(record.headers)


def test_few_rows_at_a_time(servers: str, topic: str, fill: Callable[..., None]) -> None:
    fill(topic, count=10)
    with Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        offsets: list[int] = []
        while len(offsets) < 10:
            batch = consumer.poll_arrow(LONG_MS, max_records=3)
            assert batch.num_rows <= 3
            offsets += batch.column("offset").to_pylist()
        assert offsets == list(range(10))
        assert consumer.position(TopicPartition(topic, 0)) == 10


def test_topics_by_pattern_without_a_group(
    servers: str, topic: str, fill: Callable[..., None]
) -> None:
    fill(f"{topic}-a", count=2)
    fill(f"{topic}-b", count=2)
    fill(f"other-{topic}-a", count=2)
    with Consumer(servers, auto_offset_reset="earliest", metadata_max_age_ms=200) as consumer:
        consumer.subscribe(re.compile(re.escape(topic) + "-."))
        assert {record.topic for record in read(consumer, 4)} == {f"{topic}-a", f"{topic}-b"}
        fill(f"{topic}-c", count=2)
        assert {record.topic for record in read(consumer, 2)} == {f"{topic}-c"}


def test_wakeup_ends_a_poll_from_another_thread(servers: str, topic: str) -> None:
    with Consumer(topic, bootstrap_servers=servers) as consumer:
        timer = threading.Timer(0.05, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(LONG_MS)
        timer.join()
        assert consumer.poll(20) == []


def test_a_consumer_without_a_group_can_not_commit(servers: str, topic: str) -> None:
    with Consumer(topic, bootstrap_servers=servers) as consumer:
        with pytest.raises(InvalidGroupIdError, match=r"no group\.id"):
            consumer.commit()
        with pytest.raises(InvalidGroupIdError, match=r"no group\.id"):
            consumer.committed([TopicPartition(topic, 0)])


def test_an_assigned_consumer_goes_on_at_its_groups_commits(
    servers: str, topic: str, fill: Callable[..., None]
) -> None:
    fill(topic, count=10)
    tp = TopicPartition(topic, 0)
    settings = {"bootstrap.servers": servers, "group.id": f"g-{topic}", "enable.auto.commit": False}
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        read(consumer, 4)
        consumer.commit()
        told: list[Exception | None] = []
        consumer.commit_async({tp: 7}, lambda offsets, error: told.append(error))
        while not told:
            consumer.poll(100)
        assert told == [None]
        committed = consumer.committed([tp])[tp]
        assert committed is not None
        assert committed.offset == 7
    with Consumer(settings) as consumer:
        consumer.assign([tp])
        assert [record.offset for record in read(consumer, 3)] == [7, 8, 9]


def test_interceptors_see_records_and_commits(
    servers: str, topic: str, fill: Callable[..., None]
) -> None:
    fill(topic, count=4)
    seen: list[object] = []

    class Odd:
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            return [record for record in records if record.offset % 2]

        def on_commit(self, offsets: object) -> None:
            seen.append(offsets)

        def close(self) -> None:
            seen.append("closed")

    tp = TopicPartition(topic, 0)
    with Consumer(
        servers, group_id=f"g-{topic}", auto_offset_reset="earliest", interceptor_classes=[Odd()],
        enable_auto_commit=False,
    ) as consumer:  # fmt: skip
        consumer.assign([tp])
        found: list[ConsumerRecord] = []
        while consumer.position(tp) < 4:
            found += consumer.poll(LONG_MS)
        assert [record.offset for record in found] == [1, 3]
        consumer.commit({tp: 4})
    assert seen == [{tp: OffsetAndMetadata(4)}, "closed"]


def test_the_asynchronous_consumer_reads_by_poll_and_async_for(
    servers: str, topic: str, fill: Callable[..., None]
) -> None:
    fill(topic, partitions=2, count=30)

    async def run() -> None:
        settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
        async with AIOConsumer(settings) as consumer:
            consumer.subscribe([topic])
            found = await consumer.poll(LONG_MS, max_records=7)
            async for record in consumer:
                found.append(record)
                if len(found) == 60:
                    break
            assert len({(r.partition, r.offset) for r in found}) == 60
            first = TopicPartition(topic, 0)
            assert await consumer.position(first) == 30
            assert await consumer.end_offsets([first]) == {first: 30}
            consumer.seek(first, 28)
            batch = await consumer.poll_arrow(LONG_MS)
            assert batch.column("offset").to_pylist() == [28, 29]
            asyncio.get_running_loop().call_later(0.02, consumer.wakeup)
            with pytest.raises(WakeupError):
                await consumer.poll(LONG_MS)

    asyncio.run(run())


def test_a_poll_can_be_cancelled_and_loses_nothing(
    servers: str, topic: str, fill: Callable[..., None]
) -> None:
    fill(topic, count=5)

    async def run() -> None:
        async with AIOConsumer(servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            task = asyncio.create_task(consumer.poll(LONG_MS, max_records=0))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            found: list[int] = []
            while len(found) < 5:
                found += [record.offset for record in await consumer.poll(LONG_MS)]
            assert found == list(range(5))

    asyncio.run(run())
