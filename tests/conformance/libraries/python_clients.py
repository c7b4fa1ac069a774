"""One driver per unmodified Python client: the same few verbs (create a topic, send, read, commit
in a group) spoken through confluent-kafka, kafka-python and aiokafka. No assertions here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from tests.beside.librdkafka import consumer_of, make_topics
from tests.conformance.libraries.samples import Sample

DEADLINE_S = 40.0
CHECKS = {"check.crcs": True}


class Read(NamedTuple):
    """A record as a consumer saw it."""

    partition: int
    offset: int
    sample: Sample


class How(NamedTuple):
    """How records are sent; no partition: the client chooses."""

    codec: str = "none"
    idempotent: bool = False
    partition: int | None = 0
    acks: str = "all"

    def keywords(self) -> dict[str, Any]:
        """What the clients written in Python call it."""
        return {
            "compression_type": None if self.codec == "none" else self.codec,
            "enable_idempotence": self.idempotent,
            "linger_ms": 20,
            "acks": self.acks if self.acks == "all" else int(self.acks),
        }

    def record(self, sample: Sample) -> dict[str, Any]:
        """What they call the parts of a record."""
        return {
            "value": sample.value, "key": sample.key, "headers": list(sample.headers),
            "partition": self.partition, "timestamp_ms": sample.timestamp_ms,
        }  # fmt: skip


class Client:
    """The operations of a driver. Each client has `create_topic` with its own admin interface, and
    its own `send` and `read`.
    """

    name: str
    _send: Callable[..., list[int]]
    _read: Callable[..., list[Read]]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def send(self, topic: str, records: Sequence[Sample], **how: Any) -> list[int]:
        """Sends in order, see How, and waits for every acknowledgement; returns the offsets (-1 for
        acks=0).
        """
        return self._send(topic, records, How(**how))

    def read(self, topic: str, count: int, *, partitions: int = 1) -> list[Read]:
        """Reads `count` records from the beginning of the topic's first partitions, without a
        group.
        """
        return self._read(topic, count, None, range(partitions))

    def read_as_group(self, topic: str, group: str, count: int) -> list[Read]:
        """Joins a group, reads `count` records from its position, commits and leaves."""
        return self._read(topic, count, group, ())

    def reader_keywords(self, group: str | None) -> dict[str, Any]:
        """What the clients written in Python call the settings of a consumer."""
        return {
            "bootstrap_servers": self.bootstrap, "group_id": group, "check_crcs": True,
            "auto_offset_reset": "earliest", "enable_auto_commit": False,
        }  # fmt: skip


class ConfluentClient(Client):
    name = "confluent-kafka"

    def create_topic(self, topic: str, partitions: int, **configs: str) -> None:
        make_topics(self.bootstrap, topic, partitions=partitions, **configs)

    def _send(self, topic: str, records: Sequence[Sample], how: How) -> list[int]:
        from confluent_kafka import Producer

        settings = {
            "bootstrap.servers": self.bootstrap,
            "compression.type": how.codec,
            "enable.idempotence": how.idempotent,
            "linger.ms": 20,
            "acks": how.acks,
            "log_level": 0,  # a broker that a test kills is no news
        }
        offsets: list[int] = [-2] * len(records)
        failures: list[Any] = []
        producer = Producer(settings)

        def delivered(index: int, error: Any, message: Any) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets[index] = -1 if message.offset() is None else message.offset()

        for index, record in enumerate(records):
            producer.produce(
                topic, record.value, record.key, -1 if how.partition is None else how.partition,
                on_delivery=partial(delivered, index), timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )  # fmt: skip
        left = producer.flush(DEADLINE_S)
        if left or failures:
            raise RuntimeError(f"{left} records not delivered, errors {failures[:3]}")
        return offsets

    def _poll(self, consumer: Any, count: int) -> list[Read]:
        found: list[Read] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                raise RuntimeError(str(message.error()))
            sample = Sample(
                message.key(), message.value(), message.timestamp()[1], _pairs(message.headers())
            )
            found.append(Read(message.partition(), message.offset(), sample))
        return found

    def _read(
        self, topic: str, count: int, group: str | None, partitions: Iterable[int]
    ) -> list[Read]:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        with closing(consumer_of(self.bootstrap, group or "no-group", CHECKS)) as consumer:
            if group is None:
                consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
            else:
                consumer.subscribe([topic])
            found = self._poll(consumer, count)
            if group is not None and found:
                consumer.commit(asynchronous=False)
            return found


class KafkaPythonClient(Client):
    name = "kafka-python"

    def create_topic(self, topic: str, partitions: int, **configs: str) -> None:
        from kafka.admin import KafkaAdminClient, NewTopic

        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=_dotted(configs))])

    def _send(self, topic: str, records: Sequence[Sample], how: How) -> list[int]:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=self.bootstrap, **how.keywords())
        try:
            futures = [producer.send(topic, **how.record(each)) for each in records]
            producer.flush(DEADLINE_S)
            return [future.get(DEADLINE_S).offset for future in futures]
        finally:
            producer.close(timeout=5)

    def _read(
        self, topic: str, count: int, group: str | None, partitions: Iterable[int]
    ) -> list[Read]:
        from kafka import KafkaConsumer, TopicPartition

        found: list[Read] = []
        deadline = time.monotonic() + DEADLINE_S
        with closing(KafkaConsumer(**self.reader_keywords(group))) as consumer:
            if group is None:
                consumer.assign([TopicPartition(topic, p) for p in partitions])
                consumer.seek_to_beginning()
            else:
                consumer.subscribe([topic])
            while len(found) < count and time.monotonic() < deadline:
                for records in consumer.poll(timeout_ms=500).values():
                    found.extend(_read(record) for record in records)
            if group is not None and found:
                consumer.commit()
            return found


class AiokafkaClient(Client):
    name = "aiokafka"

    def create_topic(self, topic: str, partitions: int, **configs: str) -> None:
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic
        from aiokafka.errors import for_code

        async def run() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                new = NewTopic(topic, partitions, 1, topic_configs=_dotted(configs))
                answer = await admin.create_topics([new])
                for name, code, *message in answer.topic_errors:
                    if code:
                        raise RuntimeError(f"{name}: {for_code(code).__name__} {message}")
            finally:
                await admin.close()

        asyncio.run(run())

    def _send(self, topic: str, records: Sequence[Sample], how: How) -> list[int]:
        from aiokafka import AIOKafkaProducer

        async def run() -> list[int]:
            producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, **how.keywords())
            await producer.start()
            try:
                futures = [await producer.send(topic, **how.record(each)) for each in records]
                done = await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)
                return [-1 if metadata is None else metadata.offset for metadata in done]
            finally:
                await producer.stop()

        return asyncio.run(run())

    def _read(
        self, topic: str, count: int, group: str | None, partitions: Iterable[int]
    ) -> list[Read]:
        return asyncio.run(self._consume(topic, count, group, partitions))

    async def _consume(
        self, topic: str, count: int, group: str | None, partitions: Iterable[int]
    ) -> list[Read]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(**self.reader_keywords(group))
        if group is None:
            consumer.assign([TopicPartition(topic, p) for p in partitions])
        else:
            consumer.subscribe([topic])
        await consumer.start()
        found: list[Read] = []
        deadline = time.monotonic() + DEADLINE_S
        try:
            if group is None:
                await consumer.seek_to_beginning()
            while len(found) < count and time.monotonic() < deadline:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found.extend(_read(record) for record in records)
            if group is not None and found:
                await consumer.commit()
        finally:
            await consumer.stop()
        return found


PYTHON_CLIENTS = {
    client.name: client for client in (ConfluentClient, KafkaPythonClient, AiokafkaClient)
}


def _dotted(configs: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in configs.items()}


def _pairs(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, value) for name, value in headers or ())


def _read(record: Any) -> Read:
    sample = Sample(record.key, record.value, record.timestamp, _pairs(record.headers))
    return Read(record.partition, record.offset, sample)
