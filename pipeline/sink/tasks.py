"""The executors' side of a sink: stages a task's rows, or sends them to their topics at once with
at-least-once delivery.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from kstore.clients import Producer
from kstore.errors import KafkaError, UnknownTopicOrPartitionError
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.sink.brokers import Brokers
from kstore.pipeline.sink.pieces import Pieces
from kstore.pipeline.sink.rows import RowEncoder, groups
from kstore.pipeline.sink.settings import SinkSettings
from kstore.pipeline.sink.stager import Stager
from kstore.pipeline.sink.staging import (
    JOURNAL,
    Journal,
    data_leaders,
    ensure_topic,
    topic_of,
)
from kstore.pipeline.sink.written import Written
from kstore.pipeline.worker_process import keep_memory, spare_imports

__all__ = ["Task"]


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
        with Brokers(self._settings) as brokers:
            leaders, is_planned = brokers.run(self._begin(brokers))
            if is_planned:
                for _ in batches:
                    pass  # this attempt will not be used
                return made
            self._stage_rows(made, brokers, _Places(brokers, leaders, self._settings), batches)
        return made

    async def _begin(self, brokers: Brokers) -> tuple[list[int], bool]:
        """The leaders of the sink's topic, and whether this version was planned before."""
        topic, target = topic_of(self.sink), self._settings.topic
        if self._creates:
            await brokers.check()
        await brokers.look_up([topic] if target is None else [topic, target])
        leaders = await (ensure_topic if self._creates else data_leaders)(brokers, topic)
        end = await Journal(brokers.cluster, topic).end()
        return leaders, end > 2 * self.version

    def _stage_rows(
        self, made: Written, brokers: Brokers, places: _Places, batches: Iterable[Any]
    ) -> None:
        keep_memory()
        attempt = os.urandom(16)
        stager = Stager(brokers, topic_of(self.sink))
        encoder = RowEncoder(brokers.settings, places.count)
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

    def __init__(self, brokers: Brokers, leaders: list[int], settings: SinkSettings) -> None:
        self._brokers = brokers
        self._staging = leaders
        self._settings = settings
        self._leaders: dict[str, dict[int, int]] = {}

    def count(self, topic: str) -> int:
        """The number of partitions of a topic, which brokers may have to create first."""
        try:
            found = self._brokers.run(self._brokers.topic(topic))
        except UnknownTopicOrPartitionError:
            with Producer(self._settings.clients) as producer:
                return _made(producer, topic)
        rows = found.partitions[: found.count]
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


def _encoded(encoder: RowEncoder, batches: Iterable[Any], topic: str | None) -> Iterable[Any]:
    for batch in batches:
        for group in groups(batch, topic):
            yield from encoder.add(group)
    yield from encoder.finish()
