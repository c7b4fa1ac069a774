"""The executors' side of a sink: a task's rows are staged, or sent to their topics right away where
once is not asked for.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Any

from kstore.clients import AdminClient, Producer
from kstore.errors import KafkaError, UnknownTopicOrPartitionError
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.sink.rows import RowEncoder, groups
from kstore.pipeline.sink.settings import SinkSettings, admin_settings, producer_settings
from kstore.pipeline.sink.staging import (
    JOURNAL,
    LARGEST_RECORD,
    StagedKey,
    data_partitions,
    ensure_topic,
    topic_of,
)
from kstore.pipeline.sink.written import Written
from kstore.pipeline.worker_process import spare_imports
from kstore.types import TopicPartition

__all__ = ["Task", "check_brokers"]

NEEDED = ("kstore.kip391", "kstore.kip359")
STAGING: dict[str, Any] = {
    "compression.type": "none",  # the batches are compressed already, if they are to be
    "batch.size": 1 << 20,
    "max.request.size": LARGEST_RECORD,
    "buffer.memory": 2 * LARGEST_RECORD,
    "enable.idempotence": True,
    "acks": "all",
    "partitioner.class": None,
    "kstore.auto.create.topics": False,
}


class Task:
    """One attempt at one task. ``creates``: it creates the sink's topic where that is missing; a
    task may outlive its job, so the topic of a sink that is deleted with its job is the driver's.
    """

    def __init__(
        self, settings: SinkSettings, sink: str, version: int, *, creates: bool = True
    ) -> None:
        self.sink = sink
        self.version = version
        self._settings = settings
        self._creates = creates

    def write(self, batches: Iterable[Any]) -> Written:
        """All rows, or an error."""
        spare_imports()
        try:
            if self._settings.exactly_once:
                return self._stage(batches)
            return self._send(batches)
        except KafkaError as error:
            raise PipelineError(
                f"writing failed: {str(error).rstrip('.')}",
                topic=self._settings.topic,
                remedy="Spark tries the task again as often as spark.task.maxFailures says",
            ) from error

    def _stage(self, batches: Iterable[Any]) -> Written:
        made = Written(self.sink, self.version)
        topic = topic_of(self.sink)
        with AdminClient(admin_settings(self._settings)) as admin:
            if self._creates:
                check_brokers(admin)
            count = (ensure_topic if self._creates else data_partitions)(admin, topic)
            journal = TopicPartition(topic, JOURNAL)
            if admin.list_offsets({journal: "latest"})[journal].offset > 2 * self.version:
                for _ in batches:
                    pass  # it was planned before: this attempt will not be asked for
                return made
            self._stage_rows(made, admin, topic, count, batches)
        return made

    def _stage_rows(
        self, made: Written, admin: AdminClient, topic: str, count: int, batches: Iterable[Any]
    ) -> None:
        attempt = os.urandom(16)
        made.attempt = attempt.hex()
        made.partition = 1 + attempt[0] % count
        with Producer(dict(self._settings.clients) | STAGING) as producer:
            encoder = RowEncoder(producer_settings(self._settings), self._counted(admin))
            deliveries = []
            for encoded in _encoded(encoder, batches, self._settings.topic):
                place = encoded.topic, encoded.partition
                made.records[place] = made.records.get(place, 0) + encoded.records
                key = StagedKey(attempt, encoded.partition, encoded.records, encoded.topic)
                deliveries.append(producer.send(topic, encoded.data, key.encode(), made.partition))
            producer.flush()
        offsets = [delivery.result() for delivery in deliveries]
        made.start, made.end = min(offsets), max(offsets) + 1

    def _counted(self, admin: AdminClient) -> Callable[[str], int]:
        """How many partitions a topic has, which brokers may have to create first."""

        def count(topic: str) -> int:
            with contextlib.suppress(UnknownTopicOrPartitionError):
                return len(admin.describe_topics([topic])[0].partitions)
            with Producer(self._settings.clients) as producer:
                return self._made(producer, topic)

        return count

    def _made(self, producer: Producer, topic: str) -> int:
        try:
            return producer.partitions_for(topic)
        except UnknownTopicOrPartitionError:
            raise PipelineError(
                "there is no such topic, and brokers do not create it",
                topic=topic,
                remedy="Create it (kstore topics create)",
            ) from None

    def _send(self, batches: Iterable[Any]) -> Written:
        made = Written(self.sink, self.version)
        with Producer(self._settings.clients) as producer:
            for batch in batches:
                for group in groups(batch, self._settings.topic):
                    self._made(producer, group.topic)
                    partition = None if group.partition < 0 else group.partition
                    producer.send_arrow(group.topic, group.rows, partition=partition)
            producer.flush()
        return made


def check_brokers(admin: AdminClient) -> None:
    """Before anything is made there: these brokers take given offsets, under a leader epoch."""
    offered = admin.describe_features().supported
    missing = [name for name in NEEDED if name not in offered]
    if missing:
        raise PipelineError(
            f"the brokers do not take given offsets ({', '.join(missing)})",
            remedy="Set kstore.delivery to at-least-once for other brokers than kstore's",
        )


def _encoded(encoder: RowEncoder, batches: Iterable[Any], topic: str | None) -> Iterable[Any]:
    for batch in batches:
        for group in groups(batch, topic):
            yield from encoder.add(group)
    yield from encoder.finish()
