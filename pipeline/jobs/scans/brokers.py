"""The requests of jobs to a cluster: its topics, the start and end of their partitions, and the
record batches of a range of offsets. It decodes nothing and writes nothing; it needs no Spark.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.list_offsets import epoch_ends, list_offsets
from kstore.clients.io.loop_thread import LoopThread
from kstore.clients.replicator.wire import EARLIEST, LATEST, fetch
from kstore.config.client.configs import client_settings
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.pipeline.errors import PipelineError
from kstore.record import batches
from kstore.types import TopicPartition

__all__ = ["Brokers", "Fetched", "Partition", "Topic"]

FETCH_BYTES = 4 << 20
FETCH_WAIT_MS = 500


class Fetched(NamedTuple):
    """Whole record batches from the requested offset on, and the aborted transactions among
    them.
    """

    data: Any
    aborted: list[tuple[int, int]] | None
    offset: int
    next_offset: int


@dataclass(frozen=True)
class Partition:
    """A partition: offsets `start` to below `end`; epochs of -1 are unknown."""

    topic: str
    partition: int
    start: int
    end: int
    leader_epoch: int = -1
    partition_epoch: int = -1


@dataclass(frozen=True)
class Topic:
    """A topic with its partitions in order. `topic_id` is empty if brokers have none."""

    name: str
    topic_id: str
    partitions: tuple[Partition, ...]

    @property
    def partition_epoch(self) -> int:
        """The partition epoch of this incarnation of the topic (KIP-232), -1 if brokers do not send
        it.
        """
        return self.partitions[0].partition_epoch if self.partitions else -1


class Brokers:
    """A cluster by the settings of a consumer, with its own thread; close it.

    `read_committed` ends partitions at their last stable offset and skips aborted records.
    """

    def __init__(self, settings: Mapping[str, Any], *, read_committed: bool = True) -> None:
        self._settings = client_settings("consumer", settings, {})
        self._isolation = int(read_committed)
        self._thread = LoopThread()
        self.cluster = ClusterClient(self._settings, loop=self._thread.loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and stop the thread."""
        self._thread.run(self.cluster.close())
        self._thread.close()

    @property
    def cluster_id(self) -> str:
        """The cluster's id, if a request has been answered."""
        return self.cluster.view.cluster_id or ""

    @property
    def timeout_ms(self) -> int:
        """The maximum time of a request with all its retries."""
        wait_ms: int = self._settings["default.api.timeout.ms"]
        return wait_ms

    # ---- topics ----

    def topics(self, wanted: re.Pattern[str]) -> list[Topic]:
        """The topics whose whole name matches, without internal ones, by name."""
        return self._thread.run(self._topics(wanted))

    async def _topics(self, wanted: re.Pattern[str]) -> list[Topic]:
        cluster, view = self.cluster, self.cluster.view
        await cluster.retrying(partial(cluster.refresh, None), self.timeout_ms)
        names = sorted(
            topic.name
            for topic in view.topics.values()
            if not topic.is_internal and wanted.fullmatch(topic.name)
        )
        tps = [
            TopicPartition(name, row.partition)
            for name in names
            for row in view.topics[name].partitions
        ]
        starts = await self._offsets(tps, EARLIEST)
        ends = await self._offsets(tps, LATEST)
        found = []
        for name in names:
            topic = view.topics[name]
            partitions = tuple(
                Partition(
                    name,
                    row.partition,
                    starts[TopicPartition(name, row.partition)],
                    ends[TopicPartition(name, row.partition)],
                    row.leader_epoch,
                    row.partition_epoch,
                )
                for row in topic.partitions
            )
            topic_id = str(topic.topic_id) if topic.topic_id.int else ""
            found.append(Topic(name, topic_id, partitions))
        return found

    async def _offsets(self, tps: list[TopicPartition], which: int) -> dict[TopicPartition, int]:
        if not tps:
            return {}
        found = await list_offsets(
            self.cluster,
            dict.fromkeys(tps, which),
            isolation_level=self._isolation,
            timeout_ms=self.timeout_ms,
        )
        return {tp: row.offset for tp, row in found.items()}

    def ends(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The log end offset (last stable offset) of each partition."""
        return self._thread.run(self._offsets(tps, LATEST))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The end of each leader epoch in the log of the partition's leader; -1, or no row, if the
        leader does not know.
        """
        if not epochs:
            return {}
        return self._thread.run(self._epoch_ends(epochs))

    async def _epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        topics = sorted({tp.topic for tp in epochs})

        async def ask() -> dict[TopicPartition, int]:
            found = await epoch_ends(self.cluster, epochs)
            for end in found.values():
                if isinstance(end, KafkaError) and end.retriable:
                    raise end
            return {
                tp: end.end_offset for tp, end in found.items() if not isinstance(end, KafkaError)
            }

        return await self.cluster.retrying(ask, self.timeout_ms, topics)

    # ---- records ----

    def read(self, tp: TopicPartition, start: int, end: int) -> Iterator[Fetched]:
        """The batches with offsets `start` to below `end`; the next ones are fetched while the
        caller processes the last. Raises PipelineError.
        """
        if start >= end:
            return
        loop = self._thread.loop
        waiting = asyncio.run_coroutine_threadsafe(self._fetch(tp, start), loop)
        try:
            while True:
                came = waiting.result()
                if came.next_offset >= end:
                    break
                waiting = asyncio.run_coroutine_threadsafe(self._fetch(tp, came.next_offset), loop)
                yield came
            yield came
        finally:
            waiting.cancel()

    async def _fetch(self, tp: TopicPartition, offset: int) -> Fetched:
        try:
            return await self.cluster.retrying(
                partial(self._fetch_once, tp, offset), self.timeout_ms, [tp.topic]
            )
        except KafkaError as error:
            raise PipelineError(
                (str(error) or type(error).description).rstrip("."),
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
                remedy=_remedy(error),
            ) from error

    async def _fetch_once(self, tp: TopicPartition, offset: int) -> Fetched:
        cluster = self.cluster
        if tp.topic not in cluster.view.topics:
            await cluster.refresh([tp.topic])
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_ms / 2000
        while True:
            node, epoch = cluster.view.leader(tp), cluster.view.leader_epoch(tp)
            rows = await fetch(
                cluster,
                node,
                [(tp, offset, epoch)],
                isolation=self._isolation,
                wait_ms=FETCH_WAIT_MS,
                max_bytes=FETCH_BYTES,
                partition_bytes=FETCH_BYTES,
            )
            row = rows[tp]
            if row.error_code:
                raise error_for(row.error_code)
            aborted = [(t.producer_id, t.first_offset) for t in row.aborted_transactions or ()]
            data = row.records or b""
            next_offset = max((b.next_offset for b in batches(data, verify=False)), default=0)
            if next_offset > offset:
                return Fetched(data, aborted if self._isolation else None, offset, next_offset)
            if loop.time() > deadline:
                raise error_for(ErrorCode.REQUEST_TIMED_OUT, "the leader sends no records")


def _remedy(error: KafkaError) -> str:
    if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return "The records were deleted meanwhile (retention); start the job again"
    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "Check whether the topic was deleted while the job ran"
    if error.retriable:
        return (
            "Check that the partition has a leader and that its broker can be reached, and start"
            " the job again"
        )
    return "Check the brokers' logs"
