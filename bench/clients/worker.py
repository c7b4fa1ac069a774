"""One client with one task in a separate process, to measure its CPU time and memory: `python -m
bench.clients.worker CLIENT WORK BOOTSTRAP TOPIC COUNT SIZE` prints the results as JSON. Connecting,
imports and the first thousand records are not counted.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["WORKS"]

WARM = 1000
PARTITIONS = 4
BATCH_BYTES = 128 * 1024
LINGER_MS = 5
FETCH_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Task:
    """The task: `count` records of `size` bytes, to or from a topic of four partitions."""

    bootstrap: str
    topic: str
    count: int
    size: int

    @property
    def value(self) -> bytes:
        return b"v" * self.size


Figures = dict[str, float]


def _measured(work: Callable[[], int]) -> Figures:
    """Run it. Returns the number of records."""
    cpu, begin = time.process_time(), time.perf_counter()
    handled = work()
    return _figures(handled, time.perf_counter() - begin, time.process_time() - cpu)


async def _measured_async(work: Callable[[], Awaitable[int]]) -> Figures:
    cpu, begin = time.process_time(), time.perf_counter()
    handled = await work()
    return _figures(handled, time.perf_counter() - begin, time.process_time() - cpu)


def _figures(handled: int, seconds: float, cpu_seconds: float) -> Figures:
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "records": handled,
        "rate": handled / seconds,
        "per_cpu_s": handled / cpu_seconds,
        "cpu_s_per_million": cpu_seconds / handled * 1e6,
        "peak_mb": peak_kb * 1024 / 1e6,
    }


def _latencies(times: list[float]) -> Figures:
    ordered = sorted(times)
    return {
        "records": len(ordered),
        "p50_ms": ordered[len(ordered) // 2] * 1e3,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3,
    }


def _module(name: str) -> Any:
    """A client without types."""
    return importlib.import_module(name)


# ---- kstore ----


def _kstore_producer(task: Task, **more: Any) -> Any:
    from kstore.clients import Producer

    settings = {
        "bootstrap.servers": task.bootstrap,
        "batch.size": BATCH_BYTES,
        "linger.ms": LINGER_MS,
        "buffer.memory": 64 << 20,
    }
    return Producer(settings | {key.replace("_", "."): value for key, value in more.items()})


def kstore_produce(task: Task) -> Figures:
    """send(), one call per record."""
    with _kstore_producer(task) as producer:
        value, topic, send = task.value, task.topic, producer.send

        def work(count: int) -> int:
            for _ in range(count):
                send(topic, value)
            producer.flush()
            return count

        work(WARM)
        return _measured(lambda: work(task.count))


def kstore_produce_many(task: Task) -> Figures:
    """send_many(), a thousand values per call."""
    with _kstore_producer(task) as producer:
        values = [task.value] * 1000

        def work(count: int) -> int:
            for _ in range(count // 1000):
                producer.send_many(task.topic, values)
            producer.flush()
            return count

        work(WARM)
        return _measured(lambda: work(task.count))


def kstore_produce_async(task: Task) -> Figures:
    """AIOProducer.send(), one call per record."""
    from kstore.clients import AIOProducer

    async def run() -> Figures:
        settings = {
            "bootstrap.servers": task.bootstrap,
            "batch.size": BATCH_BYTES,
            "linger.ms": LINGER_MS,
        }
        async with AIOProducer(settings) as producer:
            value = task.value

            async def work(count: int) -> int:
                for _ in range(count):
                    await producer.send(task.topic, value)
                await producer.flush()
                return count

            await work(WARM)
            return await _measured_async(lambda: work(task.count))

    return asyncio.run(run())


def kstore_latency(task: Task) -> Figures:
    """One record at a time; each is awaited."""
    with _kstore_producer(task, linger_ms=0) as producer:
        times = []
        for place in range(WARM + task.count):
            begin = time.perf_counter()
            producer.send(task.topic, task.value).result(30)
            if place >= WARM:
                times.append(time.perf_counter() - begin)
        return _latencies(times)


def _kstore_consumer(task: Task) -> Any:
    from kstore.clients import Consumer
    from kstore.types import TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": task.bootstrap, "max.partition.fetch.bytes": FETCH_BYTES}
    )
    consumer.assign([TopicPartition(task.topic, index) for index in range(PARTITIONS)])
    consumer.seek_to_beginning()
    return consumer


def kstore_consume(task: Task) -> Figures:
    """poll(), and each record's value is accessed."""
    with _kstore_consumer(task) as consumer:

        def work(count: int) -> int:
            found = size = 0
            while found < count:
                records = consumer.poll(1000)
                found += len(records)
                for record in records:
                    size += len(record.value)
            return found

        taken = work(1)
        return _measured(lambda: work(task.count - taken))


def kstore_consume_arrow(task: Task) -> Figures:
    """poll_arrow(), whole columns."""
    with _kstore_consumer(task) as consumer:

        def work(count: int) -> int:
            found = 0
            while found < count:
                batch = consumer.poll_arrow(1000)
                found += batch.num_rows
            return found

        taken = work(1)
        return _measured(lambda: work(task.count - taken))


def kstore_consume_async(task: Task) -> Figures:
    """AIOConsumer.poll(), and each record's value is accessed."""
    from kstore.clients import AIOConsumer
    from kstore.types import TopicPartition

    async def run() -> Figures:
        settings = {"bootstrap.servers": task.bootstrap, "max.partition.fetch.bytes": FETCH_BYTES}
        async with AIOConsumer(settings) as consumer:
            consumer.assign([TopicPartition(task.topic, index) for index in range(PARTITIONS)])
            consumer.seek_to_beginning()

            async def work(count: int) -> int:
                found = size = 0
                while found < count:
                    records = await consumer.poll(1000)
                    found += len(records)
                    for record in records:
                        size += len(record.value)
                return found

            taken = await work(1)
            return await _measured_async(lambda: work(task.count - taken))

    return asyncio.run(run())


# ---- confluent-kafka ----


def _confluent_producer(task: Task, linger_ms: int) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "batch.size": BATCH_BYTES,
            "linger.ms": linger_ms,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )


def confluent_produce(task: Task) -> Figures:
    """produce(), one call per record."""
    producer = _confluent_producer(task, LINGER_MS)
    value, topic, produce = task.value, task.topic, producer.produce

    def work(count: int) -> int:
        for _ in range(count):
            try:
                produce(topic, value)
            except BufferError:
                producer.poll(0.05)
                produce(topic, value)
        if producer.flush(120):
            raise RuntimeError("not all records were delivered")
        return count

    work(WARM)
    return _measured(lambda: work(task.count))


def confluent_latency(task: Task) -> Figures:
    """One record at a time; each is awaited."""
    producer = _confluent_producer(task, 0)
    times = []
    for place in range(WARM + task.count):
        begin = time.perf_counter()
        producer.produce(task.topic, task.value)
        producer.flush(30)
        if place >= WARM:
            times.append(time.perf_counter() - begin)
    return _latencies(times)


def confluent_consume(task: Task) -> Figures:
    """consume() of a thousand records at a time, and each record's value is accessed."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "max.partition.fetch.bytes": FETCH_BYTES,
        }
    )
    consumer.assign([TopicPartition(task.topic, index, 0) for index in range(PARTITIONS)])

    def work(count: int) -> int:
        found = size = 0
        while found < count:
            for message in consumer.consume(1000, 1.0):
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                size += len(message.value() or b"")
                found += 1
        return found

    taken = work(1)
    return _measured(lambda: work(task.count - taken))


# ---- kafka-python ----


def kafka_python_produce(task: Task) -> Figures:
    """send(), one call per record."""
    producer = _module("kafka").KafkaProducer(
        bootstrap_servers=task.bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS, acks="all"
    )

    def work(count: int) -> int:
        for _ in range(count):
            producer.send(task.topic, task.value)
        producer.flush()
        return count

    work(WARM)
    found = _measured(lambda: work(task.count))
    producer.close()
    return found


def kafka_python_latency(task: Task) -> Figures:
    """One record at a time; each is awaited."""
    producer = _module("kafka").KafkaProducer(bootstrap_servers=task.bootstrap, acks="all")
    times = []
    for place in range(WARM + task.count):
        begin = time.perf_counter()
        producer.send(task.topic, task.value).get(30)
        if place >= WARM:
            times.append(time.perf_counter() - begin)
    producer.close()
    return _latencies(times)


def kafka_python_consume(task: Task) -> Figures:
    """poll(), and each record's value is accessed."""
    kafka = _module("kafka")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=task.bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    consumer.assign([kafka.TopicPartition(task.topic, index) for index in range(PARTITIONS)])
    consumer.seek_to_beginning()

    def work(count: int) -> int:
        found = size = 0
        while found < count:
            for records in consumer.poll(1000, max_records=5000).values():
                for record in records:
                    size += len(record.value)
                found += len(records)
        return found

    taken = work(1)
    found = _measured(lambda: work(task.count - taken))
    consumer.close()
    return found


# ---- aiokafka ----


def aiokafka_produce(task: Task) -> Figures:
    """send(), one call per record."""

    async def run() -> Figures:
        producer = _module("aiokafka").AIOKafkaProducer(
            bootstrap_servers=task.bootstrap,
            max_batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
            acks="all",
        )
        await producer.start()

        async def work(count: int) -> int:
            for _ in range(count):
                await producer.send(task.topic, task.value)
            await producer.flush()
            return count

        await work(WARM)
        found = await _measured_async(lambda: work(task.count))
        await producer.stop()
        return found

    return asyncio.run(run())


def aiokafka_latency(task: Task) -> Figures:
    """One record at a time; each is awaited."""

    async def run() -> Figures:
        producer = _module("aiokafka").AIOKafkaProducer(
            bootstrap_servers=task.bootstrap, acks="all"
        )
        await producer.start()
        times = []
        for place in range(WARM + task.count):
            begin = time.perf_counter()
            await producer.send_and_wait(task.topic, task.value)
            if place >= WARM:
                times.append(time.perf_counter() - begin)
        await producer.stop()
        return _latencies(times)

    return asyncio.run(run())


def aiokafka_consume(task: Task) -> Figures:
    """getmany(), and each record's value is accessed."""

    async def run() -> Figures:
        aiokafka = _module("aiokafka")
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=task.bootstrap,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=FETCH_BYTES,
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(task.topic, index) for index in range(PARTITIONS)])
        await consumer.seek_to_beginning()

        async def work(count: int) -> int:
            found = size = 0
            while found < count:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    for record in records:
                        size += len(record.value)
                    found += len(records)
            return found

        taken = await work(1)
        found = await _measured_async(lambda: work(task.count - taken))
        await consumer.stop()
        return found

    return asyncio.run(run())


WORKS: dict[str, Callable[[Task], Figures]] = {
    "kstore produce": kstore_produce,
    "kstore produce_many": kstore_produce_many,
    "kstore produce_async": kstore_produce_async,
    "kstore latency": kstore_latency,
    "kstore consume": kstore_consume,
    "kstore consume_arrow": kstore_consume_arrow,
    "kstore consume_async": kstore_consume_async,
    "confluent-kafka produce": confluent_produce,
    "confluent-kafka latency": confluent_latency,
    "confluent-kafka consume": confluent_consume,
    "kafka-python produce": kafka_python_produce,
    "kafka-python latency": kafka_python_latency,
    "kafka-python consume": kafka_python_consume,
    "aiokafka produce": aiokafka_produce,
    "aiokafka latency": aiokafka_latency,
    "aiokafka consume": aiokafka_consume,
}
"""By client and task."""


def main(arguments: list[str]) -> None:
    """Run the task of the command line and print the results."""
    client, work, bootstrap, topic, count, size = arguments
    task = Task(bootstrap, topic, int(count), int(size))
    print(json.dumps(WORKS[f"{client} {work}"](task)))


if __name__ == "__main__":
    main(sys.argv[1:])
