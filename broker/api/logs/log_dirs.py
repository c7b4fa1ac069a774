"""DescribeLogDirs 1-5 (KIP-113, KIP-827) and AlterReplicaLogDirs 1-2 (KIP-113): which log dir has
which partition, how large logs are, and moves between log dirs.

runtime/log_dirs/replica_moves.py executes the moves.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from kstore.broker.api import RequestContext
from kstore.broker.api.requests.turns import HasTurns, in_turns, sliced
from kstore.broker.state.work import Work, each
from kstore.errors import ErrorCode
from kstore.protocol.logs.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.log_dirs.replica_moves import ReplicaMoves
    from kstore.broker.runtime.node import Node
    from kstore.log import Log, LogDir

__all__ = ["LogDirParts", "handle_alter_replica_log_dirs", "handle_describe_log_dirs"]

NO_PARTITION = (-1,)
"""A topic without requested partitions counts as one partition."""


class LogDirParts(HasTurns, Protocol):
    """The parts of a broker that these handlers use."""

    @property
    def node(self) -> Node:
        """The process."""

    @property
    def table(self) -> PartitionTable:
        """The partitions that this broker knows."""

    @property
    def log_manager(self) -> LogManager:
        """The log dirs, and the logs in them."""

    @property
    def moves(self) -> Lazy[ReplicaMoves]:
        """The moves between log dirs."""


async def handle_describe_log_dirs(
    broker: LogDirParts, request: DescribeLogDirsRequest, ctx: RequestContext
) -> DescribeLogDirsResponse:
    """Return each log dir with those of the requested partitions (null: all) that it has."""
    results: dict[int, DescribeLogDirsResult] = {}
    for log_dir in broker.log_manager.dirs:
        results[id(log_dir)] = await _space(broker, log_dir)

    def describe(found: tuple[TopicPartition, Log | None]) -> None:
        key, log = found
        if log is not None:
            row = DescribeLogDirsPartition(
                partition_index=key.partition, partition_size=log.size_bytes
            )
            home = broker.moves().home_of(key, log)
            _topic(results[id(home)], key.topic).partitions.append(row)

    await in_turns(broker, ctx, each(describe, _requested(broker, request)))
    moves = [move for move in broker.moves().in_progress() if not move.is_of_deleted]
    wanted = None
    if moves and request.topics is not None:
        wanted = {topic.topic: topic.partitions for topic in request.topics}
    for move in moves:
        key = move.partition
        if wanted is None or key.partition in wanted.get(key.topic, ()):
            future = DescribeLogDirsPartition(
                partition_index=key.partition,
                partition_size=move.copied_bytes,
                offset_lag=move.offset_lag(),
                is_future_key=True,
            )
            _topic(results[id(move.target)], key.topic).partitions.append(future)
    closed = broker.log_manager.failed.keys() - {each.path for each in broker.log_manager.dirs}
    rows = [*results.values(), *map(_failed, sorted(closed))]
    return DescribeLogDirsResponse(results=rows)


def _failed(path: str) -> DescribeLogDirsResult:
    """The result for a log dir that has failed. Its contents are not known."""
    code = ErrorCode.KAFKA_STORAGE_ERROR
    return DescribeLogDirsResult(error_code=code, log_dir=os.path.abspath(path))


async def _space(broker: LogDirParts, log_dir: LogDir) -> DescribeLogDirsResult:
    """A log dir with the sizes of its volume. KAFKA_STORAGE_ERROR if they are not available."""
    path = os.path.abspath(log_dir.path)
    dirs = broker.node.dirs
    if log_dir.path in broker.log_manager.failed:
        return _failed(log_dir.path)
    if dirs.hangs(log_dir.path):
        return DescribeLogDirsResult(log_dir=path)  # this version does not return sizes
    try:
        what = "asking for its size"
        volume = await dirs.run(log_dir.path, what, lambda: os.statvfs(path))
    except OSError:
        return _failed(path)
    return DescribeLogDirsResult(
        log_dir=path,
        total_bytes=volume.f_blocks * volume.f_frsize,
        usable_bytes=volume.f_bavail * volume.f_frsize,
    )


def _requested(
    broker: LogDirParts, request: DescribeLogDirsRequest
) -> Iterator[tuple[TopicPartition, Log | None]]:
    """Each requested partition once, with its log, or None if the log is not open on this
    broker.
    """
    if request.topics is None:
        for partition, _ in broker.log_manager.logs():  # a move may replace the log meanwhile
            yield TopicPartition(partition.entry.name.decode(), partition.index), partition.log
        return
    for topic in request.topics:
        for index in dict.fromkeys(topic.partitions) or NO_PARTITION:
            found = broker.table.partition(topic.topic.encode(), index)
            yield TopicPartition(topic.topic, index), None if found is None else found.log


def _topic(home: DescribeLogDirsResult, name: str) -> DescribeLogDirsTopic:
    """The topic's entry in a log dir's result. Usually it is the last one, since partitions come
    sorted by topic.
    """
    if not home.topics or home.topics[-1].name != name:
        home.topics.append(DescribeLogDirsTopic(name=name))
    return home.topics[-1]


def handle_alter_replica_log_dirs(
    broker: LogDirParts, request: AlterReplicaLogDirsRequest, ctx: RequestContext
) -> AlterReplicaLogDirsResponse | Awaitable[AlterReplicaLogDirsResponse]:
    """Begin the moves. The response has for each partition whether its move has begun."""
    return sliced(broker, ctx, _alter(broker, request))


def _alter(
    broker: LogDirParts, request: AlterReplicaLogDirsRequest
) -> Work[AlterReplicaLogDirsResponse]:
    paths = {os.path.abspath(log_dir.path): log_dir for log_dir in broker.log_manager.dirs}
    results: dict[str, dict[int, AlterReplicaLogDirPartitionResult]] = {}

    def begin(requested: tuple[str, str, int | None]) -> None:
        path, topic, index = requested
        if index is None:
            return
        target, code = paths.get(path), int(ErrorCode.LOG_DIR_NOT_FOUND)
        if target is not None:
            code = broker.moves().begin(TopicPartition(topic, index), target)
        row = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        results.setdefault(topic, {})[index] = row

    def result_of(item: tuple[str, dict[int, Any]]) -> AlterReplicaLogDirTopicResult:
        return AlterReplicaLogDirTopicResult(topic_name=item[0], partitions=list(item[1].values()))

    yield from each(begin, _to_be_moved(request))
    return AlterReplicaLogDirsResponse(results=(yield from each(result_of, results.items())))


def _to_be_moved(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[str, str, int | None]]:
    """Yield path, topic and partition; or None for an entry without partitions."""
    for requested in request.dirs:
        yield requested.path, "", None
        for topic in requested.topics:
            yield requested.path, topic.name, None
            for index in topic.partitions:
                yield requested.path, topic.name, index
