"""The executors' side of a sink: stages a task's rows, or sends them to their topics at once with
at-least-once delivery.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from kstore.clients import AdminClient, Producer
from kstore.errors import KafkaError, UnknownTopicOrPartitionError
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.sink.pieces import Pieces
from kstore.pipeline.sink.rows import RowEncoder, groups
from kstore.pipeline.sink.settings import SinkSettings, admin_settings, producer_settings
from kstore.pipeline.sink.stager import Stager
from kstore.pipeline.sink.staging import JOURNAL, data_leaders, ensure_topic, topic_of
from kstore.pipeline.sink.written import Written
from kstore.pipeline.worker_process import keep_memory, spare_imports
from kstore.types import TopicPartition

__all__ = ["Task", "check_brokers"]

NEEDED = ("kstore.kip391", "kstore.kip359", "kstore.copybatches")


class Task:
    """One attempt of a task. ``creates``: it creates the sink's topic if it is missing. A task may
    outlive its job, so the driver creates the topic of a sink that is deleted with its job.
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
            leaders = (ensure_topic if self._creates else data_leaders)(admin, topic)
            journal = TopicPartition(topic, JOURNAL)
            if admin.list_offsets({journal: "latest"})[journal].offset > 2 * self.version:
                for _ in batches:
                    pass  # it was planned before: this attempt will not be used
                return made
            self._stage_rows(made, _Places(admin, leaders, self._settings), batches)
        return made

    def _stage_rows(self, made: Written, places: _Places, batches: Iterable[Any]) -> None:
        keep_memory()
        attempt = os.urandom(16)
        settings = producer_settings(self._settings)
        with Stager(settings, topic_of(self.sink)) as stager:
            encoder = RowEncoder(settings, places.count)
            pieces = Pieces(stager, attempt, places.near, made.staged)
            for encoded in _encoded(encoder, batches, self._settings.topic):
                pieces.add(encoded)
            pieces.finish()
        made.attempt = attempt.hex()

    def _send(self, batches: Iterable[Any]) -> Written:
        made = Written(self.sink, self.version)
        with Producer(self._settings.clients) as producer:
            for batch in batches:
                for group in groups(batch, self._settings.topic):
                    _made(producer, group.topic)
                    partition = None if group.partition < 0 else group.partition
                    producer.send_arrow(group.topic, group.rows, partition=partition)
            producer.flush()
        return made


class _Places:
    """The partition counts of the target topics, and the partitions in which batches for each are
    staged: on the target's leader, which then copies them from its own log.
    """

    def __init__(self, admin: AdminClient, leaders: list[int], settings: SinkSettings) -> None:
        self._admin = admin
        self._staging = leaders
        self._settings = settings
        self._leaders: dict[str, dict[int, int]] = {}

    def count(self, topic: str) -> int:
        """The number of partitions of a topic, which brokers may have to create first."""
        try:
            found = self._admin.describe_topics([topic])[0]
        except UnknownTopicOrPartitionError:
            with Producer(self._settings.clients) as producer:
                return _made(producer, topic)
        rows = found.partitions if found.remaining < 0 else found.partitions[: found.remaining]
        self._leaders[topic] = {row.partition: row.leader for row in rows}
        return len(rows)

    def near(self, topic: str, partition: int, chance: int) -> int:
        """A partition of the sink's topic for a partition's batches."""
        leader = self._leaders.get(topic, {}).get(partition)
        every = range(len(self._staging))
        found = [index for index in every if self._staging[index] == leader] or list(every)
        return JOURNAL + 1 + found[chance % len(found)]


def _made(producer: Producer, topic: str) -> int:
    try:
        return producer.partitions_for(topic)
    except UnknownTopicOrPartitionError:
        raise PipelineError(
            "there is no such topic, and brokers do not create it",
            topic=topic,
            remedy="Create it (kstore topic create)",
        ) from None


def check_brokers(admin: AdminClient) -> None:
    """Check, before anything is created, that the brokers support given offsets and leader
    epochs.
    """
    offered = admin.describe_features().supported
    missing = [name for name in NEEDED if name not in offered]
    if missing:
        raise PipelineError(
            f"the brokers do not accept given offsets ({', '.join(missing)})",
            remedy="Set kstore.delivery to at-least-once for brokers other than kstore's",
        )


def _encoded(encoder: RowEncoder, batches: Iterable[Any], topic: str | None) -> Iterable[Any]:
    for batch in batches:
        for group in groups(batch, topic):
            yield from encoder.add(group)
    yield from encoder.finish()
