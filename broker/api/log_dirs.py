"""DescribeLogDirs 1-5 (KIP-113, KIP-827) and AlterReplicaLogDirs 1-2 (KIP-113): which log dir holds
which partition, how large, and moves between them.

The moves themselves are runtime/replica_moves.py's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kstore.broker.api import RequestContext
from kstore.errors import ErrorCode
from kstore.protocol.log_dirs import (
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
    from kstore.broker.runtime.broker import Broker
    from kstore.broker.runtime.replica_moves import ReplicaMoves
    from kstore.log import Log, LogDir

__all__ = ["handle_alter_replica_log_dirs", "handle_describe_log_dirs"]

PER_TURN = 200
"""Partitions described before other work on the loop has its turn."""


async def handle_describe_log_dirs(
    broker: Broker, request: DescribeLogDirsRequest, ctx: RequestContext
) -> DescribeLogDirsResponse:
    """Each log dir with those of the partitions asked for (null: all) that lie in it."""
    results: dict[int, DescribeLogDirsResult] = {}
    for log_dir in broker.replicas.dirs:
        results[id(log_dir)] = await _space(broker, log_dir)
    for count, (key, log) in enumerate(_asked_for(broker, request), 1):
        home = results[id(log.log_dir)]
        row = DescribeLogDirsPartition(partition_index=key.partition, partition_size=log.size_bytes)
        _topic(home, key.topic).partitions.append(row)
        if count % PER_TURN == 0:
            await asyncio.sleep(0)
    wanted = None if request.topics is None else {t.topic: t.partitions for t in request.topics}
    for move in _moves(broker).under_way():
        key = move.partition
        if wanted is None or key.partition in wanted.get(key.topic, ()):
            future = DescribeLogDirsPartition(
                partition_index=key.partition,
                partition_size=move.copied_bytes,
                offset_lag=move.offset_lag(),
                is_future_key=True,
            )
            _topic(results[id(move.target)], key.topic).partitions.append(future)
    return DescribeLogDirsResponse(results=list(results.values()))


async def _space(broker: Broker, log_dir: LogDir) -> DescribeLogDirsResult:
    """A log dir with its volume's sizes; KAFKA_STORAGE_ERROR where they can't be had."""
    path = os.path.abspath(log_dir.path)
    try:
        volume = await broker.run_blocking(lambda: os.statvfs(path))
    except OSError:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
    return DescribeLogDirsResult(
        log_dir=path,
        total_bytes=volume.f_blocks * volume.f_frsize,
        usable_bytes=volume.f_bavail * volume.f_frsize,
    )


def _asked_for(
    broker: Broker, request: DescribeLogDirsRequest
) -> Iterator[tuple[TopicPartition, Log]]:
    """The open logs among the partitions asked for, each once."""
    if request.topics is None:
        for partition, log in broker.replicas.logs():
            yield TopicPartition(partition.entry.name.decode(), partition.index), log
        return
    for topic in request.topics:
        for index in dict.fromkeys(topic.partitions):
            found = broker.table.partition(topic.topic.encode(), index)
            if found is not None and found.log is not None:
                yield TopicPartition(topic.topic, index), found.log


def _topic(home: DescribeLogDirsResult, name: str) -> DescribeLogDirsTopic:
    """The topic's entry in a log dir's result; the last one, where partitions come topic by
    topic.
    """
    if not home.topics or home.topics[-1].name != name:
        home.topics.append(DescribeLogDirsTopic(name=name))
    return home.topics[-1]


def handle_alter_replica_log_dirs(
    broker: Broker, request: AlterReplicaLogDirsRequest, ctx: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Begin the moves; each partition is answered with whether its move has begun."""
    paths = {os.path.abspath(log_dir.path): log_dir for log_dir in broker.replicas.dirs}
    codes: dict[str, dict[int, int]] = {}
    for asked in request.dirs:
        target = paths.get(asked.path)
        for topic in asked.topics:
            for index in topic.partitions:
                code = ErrorCode.LOG_DIR_NOT_FOUND
                if target is not None:
                    code = _moves(broker).begin(TopicPartition(topic.name, index), target)
                codes.setdefault(topic.name, {})[index] = code
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in rows.items()
                ],
            )
            for name, rows in codes.items()
        ]
    )


def _moves(broker: Broker) -> ReplicaMoves:
    if broker.moves is None:
        from kstore.broker.runtime.replica_moves import ReplicaMoves

        broker.moves = ReplicaMoves(broker)
    moves: ReplicaMoves = broker.moves
    return moves
