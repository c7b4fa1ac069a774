"""The sources of a scan: a log dir, an archive, or brokers. Each reports its offsets first, and is
then read piece by piece. Only the current piece and the next one are in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kstore.pipeline.errors import PipelineError
from kstore.pipeline.ranges import Decoding, OffsetRange
from kstore.pipeline.read_options import EARLIEST, LATEST, OffsetLimit, ReadOptions, Selection
from kstore.pipeline.topic_client import TopicClient
from kstore.types import TopicPartition

__all__ = ["Selected", "archive_batches", "broker_batches", "is_archive", "log_dir_batches"]

NO_START, NO_END = -(2**63), 2**63 - 1
_WORDS = {
    "set failOnDataLoss to false": "pass fail_on_data_loss=False",
    "Set failOnDataLoss to false": "Pass fail_on_data_loss=False",
    "kafka.bootstrap.servers": "bootstrap_servers",
    "kafka.": "config ",
    ", and kafkaConsumer.pollTimeoutMs": "",
}
_EVERYWHERE = OffsetLimit("scan", everywhere=EARLIEST)


@dataclass(frozen=True)
class Selected:
    """Which records to read: all by default. ``times`` are ms, from the first to below the second;
    so are ``offsets``.
    """

    topic: str | None = None
    partitions: tuple[int, ...] | None = None
    offsets: tuple[int | None, int | None] = (None, None)
    times: tuple[int | None, int | None] = (None, None)
    committed: bool = False
    fails: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def limits(self) -> tuple[int, int] | None:
        """The times, if any, as two numbers."""
        first, end = self.times
        if first is None and end is None:
            return None
        return NO_START if first is None else first, NO_END if end is None else end

    def options(self) -> ReadOptions:
        """The options for the readers of the Spark source."""
        topics = () if self.topic is None else (self.topic,)
        return ReadOptions(
            selection=Selection(topics=topics, pattern="" if topics else ".*"),
            starting=_EVERYWHERE,
            ending=_EVERYWHERE,
            client=self.settings,
            fail_on_data_loss=self.fails,
        )

    def ranges(self, client: TopicClient, what: str) -> list[OffsetRange]:
        """The offsets to read, from what ``client`` reports."""
        lives = client.partitions()
        topics = sorted({tp.topic for tp in lives})
        if len(topics) != 1:
            raise ValueError(f"{what} has the topics {topics}: choose one to scan")
        there = sorted(tp.partition for tp in lives)
        wanted = there if self.partitions is None else self.partitions
        missing = [number for number in wanted if number not in there]
        if missing:
            raise PipelineError(
                f"partitions {missing} do not exist",
                topic=topics[0],
                remedy=f"The topic has partitions {there}",
            )
        tps = [TopicPartition(topics[0], number) for number in sorted(set(wanted))]
        bounds = self._bounds(client, tps)
        return [
            OffsetRange(*tp, *bounds[tp], -1, lives[tp].partition_epoch, lives[tp].topic_id)
            for tp in tps
            if bounds[tp][0] < bounds[tp][1]
        ]

    def _bounds(
        self, client: TopicClient, tps: list[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        first, last = self.offsets
        starts = client.offsets(dict.fromkeys(tps, EARLIEST))
        ends = client.offsets(dict.fromkeys(tps, LATEST))
        since = {}
        if self.times[0] is not None:
            since = client.offsets(dict.fromkeys(tps, max(self.times[0], 0)))
        found = {}
        for tp in tps:
            end = ends[tp].offset if last is None else min(ends[tp].offset, last)
            start = starts[tp].offset if first is None else max(starts[tp].offset, first)
            if tp in since:
                start = end if since[tp].offset < 0 else max(start, since[tp].offset)
            found[tp] = start, end
        return found


@contextmanager
def _worded() -> Iterator[None]:
    """The remedy of a PipelineError, with arguments of a scan instead of options of the Spark
    source.
    """
    try:
        yield
    except PipelineError as error:
        remedy = error.remedy
        for option, argument in _WORDS.items():
            remedy = remedy.replace(option, argument)
        raise PipelineError(
            error.problem,
            topic=error.topic,
            partition=error.partition,
            offset=error.offset,
            remedy=remedy,
        ) from error


Batches = Iterator[Any]
Planned = Callable[[], Batches]
"""A plan, to be read once: nothing is open until then."""


def is_archive(path: str) -> bool:
    """Whether `kstore pipeline archive` has written this folder."""
    return os.path.isdir(os.path.join(path, "slices"))


def log_dir_batches(path: str, wanted: Selected, decode: Decoding) -> Planned:
    """The records of a log dir's segments, in the form of ``decode``."""
    from kstore.pipeline.segments.files import read_segments
    from kstore.pipeline.segments.planning import LogDirTopics

    with _worded():
        topics = LogDirTopics(path, wanted.options(), committed=wanted.committed)
        try:
            tasks = topics.tasks(wanted.ranges(topics, path))
        finally:
            topics.close()

    def read() -> Batches:
        with _worded():
            for task in tasks:
                yield from read_segments(task, decode, verify=True, fail_on_data_loss=wanted.fails)

    return read


def archive_batches(path: str, wanted: Selected, schema: Any, batch_rows: int) -> Planned:
    """The records of an archive as pyarrow record batches."""
    from kstore.pipeline.segments.archive_reader import ArchiveTopics, read_archive

    topics = ArchiveTopics(path, wanted.options())
    tasks = topics.tasks(wanted.ranges(topics, path), wanted.limits)

    def read() -> Batches:
        for task in tasks:
            yield from read_archive(task, schema, times=wanted.limits, max_rows=batch_rows)

    return read


def broker_batches(wanted: Selected, decode: Decoding) -> Planned:
    """The records from brokers, in the form of ``decode``."""
    from kstore.pipeline.fetching import FetchClient, read_range

    options = wanted.options()
    topics = TopicClient(options)
    with _worded():
        try:
            ranges = wanted.ranges(topics, f"the cluster at {options.servers}")
        finally:
            topics.close()

    def read() -> Batches:
        client = FetchClient(options.client)
        with _worded():
            try:
                for each in ranges:
                    yield from read_range(each, options, decode, client)
            finally:
                client.close()

    return read
