"""The driver's side of a sink: makes one plan per version, and carries it out once. sink.py
describes the design, staging.py the journal, placing.py the writes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kstore.clients import AdminClient
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.loop_thread import LoopThread
from kstore.clients.replicator.wire import LATEST, end_of
from kstore.errors import KafkaError, UnknownTopicOrPartitionError
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.sink.placing import failure, place
from kstore.pipeline.sink.settings import SinkSettings, admin_settings, producer_settings
from kstore.pipeline.sink.staging import (
    JOURNAL,
    TRY_MS,
    Journal,
    Plan,
    PlannedTarget,
    Run,
    ensure_topic,
    new_producer_id,
    topic_of,
)
from kstore.pipeline.sink.tasks import check_brokers
from kstore.pipeline.sink.written import Written
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.config.client.configs import ClientSettings

__all__ = ["commit", "forget", "prepare"]

MOST_RECORDS = 0x7FFFFFFF
"""The limit of one version in one partition: sequence numbers have 32 bits."""
LOOK_AGAIN_S = 0.05
DONE = b'{"done":true}'


def commit(settings: SinkSettings, messages: list[Written], *, is_last: bool = False) -> None:
    """Write what the tasks have staged, once. ``is_last``: the sink has no further version."""
    if not messages or not settings.exactly_once:
        return  # a job has at least one task
    sink, version = messages[0].sink, messages[0].version
    client = producer_settings(settings)
    with AdminClient(admin_settings(settings)) as admin:
        thread = LoopThread()
        try:
            thread.run(_commit(client, sink, version, messages))
        except KafkaError as error:
            raise failure(error, topic=settings.topic or topic_of(sink)) from error
        finally:
            thread.close()
        if is_last:
            _delete(admin, topic_of(sink))
        else:
            _trim(admin, topic_of(sink), version, messages)


def prepare(settings: SinkSettings, sink: str) -> None:
    """Create a sink's own topic, if the brokers support what the sink writes."""
    with AdminClient(admin_settings(settings)) as admin:
        try:
            check_brokers(admin)
            ensure_topic(admin, topic_of(sink))
        except KafkaError as error:
            raise failure(error, topic=settings.topic or topic_of(sink)) from error


def forget(settings: SinkSettings, sink: str) -> None:
    """Delete a sink's own topic."""
    with AdminClient(admin_settings(settings)) as admin:
        _delete(admin, topic_of(sink))


def _delete(admin: AdminClient, topic: str) -> None:
    with contextlib.suppress(UnknownTopicOrPartitionError):  # it was deleted before
        admin.delete_topics([topic])


def _trim(admin: AdminClient, topic: str, version: int, messages: Iterable[Written]) -> None:
    """Delete what was written. The journal's end stays, because it shows the sink's progress."""
    before: dict[TopicPartition, int] = {}
    for each in messages:
        for run in each.staged.values():
            tp = TopicPartition(topic, run.partition)
            before[tp] = max(run.offsets[-1] + 1, before.get(tp, 0))
    if before:
        before[TopicPartition(topic, JOURNAL)] = 2 * version
        admin.delete_records(before)


async def _commit(client: ClientSettings, sink: str, version: int, messages: list[Written]) -> None:
    cluster = ClusterClient(client)
    try:
        await _Commit(cluster, sink, version, client["delivery.timeout.ms"]).run(messages)
    finally:
        await cluster.close()


class _Commit:
    def __init__(self, cluster: ClusterClient, sink: str, version: int, timeout_ms: int) -> None:
        self._cluster = cluster
        self._topic = topic_of(sink)
        self._version = version
        self._timeout_ms = timeout_ms
        self._journal = Journal(cluster, self._topic)

    async def run(self, messages: list[Written]) -> None:
        end = await self._journal.end()
        if end % 2 and end < 2 * self._version:
            await self._finish((end - 1) // 2, None)  # an earlier version was left half done
        if end <= 2 * self._version:
            staged = [each for each in messages if each.attempt]
            if not staged:
                return
            plan = await self._plan(staged)
            if await self._journal.put(2 * self._version, plan.encode()):
                await self._finish(self._version, plan)
                return
            while (end := await self._journal.end()) <= 2 * self._version:
                await asyncio.sleep(LOOK_AGAIN_S)  # another driver's plan, still being replicated
        if end == 2 * self._version + 1:
            await self._finish(self._version, None)

    async def _plan(self, staged: list[Written]) -> Plan:
        runs: dict[tuple[str, int], list[Run]] = {}
        for each in staged:
            for where, run in each.staged.items():
                row = Run(each.attempt, run.partition, run.offsets, run.counts)
                runs.setdefault(where, []).append(row)
        for (topic, partition), found in runs.items():
            total = sum(sum(run.counts) for run in found)
            if total > MOST_RECORDS:
                raise PipelineError(
                    f"{total} records are too many for one write",
                    topic=topic, partition=partition,
                    remedy="Make the batch smaller, maxOffsetsPerTrigger for example",
                )  # fmt: skip
        topics = {topic for topic, _ in runs}

        async def planned(topic: str, partition: int, found: list[Run]) -> PlannedTarget:
            tp = TopicPartition(topic, partition)
            epoch = self._cluster.view.leader_epoch(tp)
            base = await end_of(self._cluster, tp, epoch, LATEST)
            return PlannedTarget(topic, partition, base, found)

        async def targets() -> list[PlannedTarget]:
            return [await planned(*where, found) for where, found in sorted(runs.items())]

        await self._cluster.refresh(topics)
        return Plan(
            self._version,
            await new_producer_id(self._cluster),
            await self._cluster.retrying(targets, TRY_MS, topics),
        )

    async def _finish(self, version: int, ours: Plan | None) -> None:
        """Carry out the plan of a version, and write the mark after it."""
        plan = ours or await self._journal.plan(version)
        if plan is not None:
            try:
                await place(
                    self._cluster,
                    self._topic,
                    plan,
                    is_ours=ours is not None,
                    timeout_ms=self._timeout_ms,
                )
            except PipelineError:
                if await self._journal.end() > 2 * version + 1:
                    return  # another driver has done it meanwhile, and deleted what it needed
                raise
            await self._journal.put(2 * version + 1, DONE)
