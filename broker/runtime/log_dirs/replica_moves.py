"""Moves of partitions between the log dirs of this broker (KIP-113). A future log in the other log
dir is filled while the old log serves the partition. Once it has all records, it replaces the old
log. From then on the move cannot be cancelled: other moves of the partition, its deletion and the
broker's stop wait until the folders have their new names.

The folder of a future log contains a mark, so that after a crash the next start knows which of the
two logs to use. api/logs/log_dirs.py receives the requests for moves.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from kstore.broker.runtime.log_dirs.dir_calls import MarkRemovalError
from kstore.broker.runtime.log_dirs.future_logs import drop_future, is_future, mark_future
from kstore.errors import ErrorCode
from kstore.log import errors

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.runtime.log_dirs.dir_calls import Taken
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.node import Node
    from kstore.log import Log, LogDir
    from kstore.log.log import Directory
    from kstore.types import TopicPartition

__all__ = ["ReplicaMove", "ReplicaMoves"]

QUEUED_PAUSE_S = 0.005
"""The pause before the threads that append to the old log are checked again."""
SLICE_BYTES = 256 * 1024
"""Bytes that are copied before other work on the loop runs."""


class ReplicaMove:
    """The move of one partition to another log dir."""

    def __init__(self, partition: TopicPartition, source: Partition, target: LogDir) -> None:
        self.partition = partition
        self.origin: Directory = source.log.log_dir
        self.target = target
        self.future: Log | None = None
        self.made = False
        """Whether the folder of the copy was created."""
        self._source = source

    @property
    def copied_bytes(self) -> int:
        """The size of the copy so far."""
        return 0 if self.future is None else self.future.size_bytes

    @property
    def is_of_deleted(self) -> bool:
        """Whether the partition was deleted; its copy is removed soon."""
        return self._source.deleted

    def offset_lag(self) -> int:
        """How many offsets are still to be copied."""
        reached = 0 if self.future is None else self.future.log_end_offset
        return max(self._source.log_end_offset - reached, 0)


class ReplicaMoves:
    """The current moves on one broker, at most one per partition."""

    def __init__(self, node: Node, table: PartitionTable, log_manager: LogManager) -> None:
        self._node = node
        self._table = table
        self._log_manager = log_manager
        self._moves: dict[TopicPartition, tuple[ReplicaMove, asyncio.Task[None]]] = {}
        """Moves before the swap of the logs. They can be cancelled."""
        self._taking_place: dict[TopicPartition, tuple[ReplicaMove, asyncio.Task[None]]] = {}
        """Moves after the swap. The next move of such a partition waits."""

    def in_progress(self) -> list[ReplicaMove]:
        """The unfinished moves, one for each partition."""
        return [move for move, _ in (self._moves | self._taking_place).values()]

    def home_of(self, key: TopicPartition, log: Log) -> Directory:
        """The log dir of a partition whose log is ``log``. Until a move is finished this is the old
        log dir, since after a crash the old log would be used.
        """
        known = self._taking_place.get(key)
        if known is not None and known[0].future is log:
            return known[0].origin
        return log.log_dir

    def begin(self, key: TopicPartition, target: LogDir) -> int:
        """Begin a move and return Kafka's error code. It replaces an unfinished move of the
        partition to another log dir. A move to the partition's own log dir only cancels the
        unfinished move.
        """
        partition = self._table.partition(key.topic.encode(), key.partition)
        if partition is None or not (partition.online or partition.follows):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        known = self._moves.get(key)
        if known is not None:
            if known[0].target is target:
                return ErrorCode.NONE
            known[1].cancel()
            del self._moves[key]  # a task that has not begun does not do this
        if partition.log.log_dir is not target:
            move = ReplicaMove(key, partition, target)
            before = None if known is None else known[1]
            task = self._node.loop.create_task(self._run(move, partition, before))
            self._moves[key] = (move, task)
        return ErrorCode.NONE

    async def close(self, timeout_s: float) -> None:
        """Cancel all moves that can be cancelled, and delete their copies. Complete the others,
        unless a log dir hangs; then the next start finishes or undoes them.
        """
        moves = [*self._moves.values(), *self._taking_place.values()]
        for _, task in self._moves.values():
            task.cancel()
        if moves:
            await asyncio.wait([task for _, task in moves], timeout=timeout_s)
        for move, task in moves:
            if not task.done():
                self._node.report(
                    f"the broker stops and does not wait for the move of {move.partition} from "
                    f"{move.origin.path} to {move.target.path} any longer"
                )

    async def _run(
        self, move: ReplicaMove, partition: Partition, before: asyncio.Task[None] | None
    ) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            if (prior := self._taking_place.get(move.partition)) is not None:
                await asyncio.wait([prior[1]])
            await self._move(move, partition)
        finally:
            known = self._moves.get(move.partition)
            if known is not None and known[0] is move:
                del self._moves[move.partition]

    async def _move(self, move: ReplicaMove, partition: Partition) -> None:
        """Copy and swap; if that fails, delete the copy. While an earlier move ended, the topic may
        have been deleted or the replica stopped; then there is nothing to move.
        """
        source: Log | None = partition.log
        if partition.deleted or source is None:
            return
        move.origin = source.log_dir
        try:
            await self._copy(move, partition, source)
            if not self._swap(move, partition):
                await self._discard(move)
        except (errors.LogError, OSError) as problem:
            await self._discard(move)
            self._node.report(
                f"{move.partition} stays in {move.origin.path}, because it can't be moved to "
                f"{move.target.path}: {problem}"
            )
        except asyncio.CancelledError:
            await self._discard(move)
            raise

    async def _copy(self, move: ReplicaMove, partition: Partition, source: Log) -> None:
        """Fill the future log up to the end of the old log, which may still grow."""
        path, what = move.target.path, f"moving {move.partition} there"
        run = partial(self._node.dirs.run, path, what)
        call = partial(is_future, move.origin, move.partition)
        if await self._node.dirs.run(move.origin.path, f"moving {move.partition} away", call):
            raise errors.LogStorageError(
                "the folder of its last move still has the mark of a copy, and with two copies a "
                "start can't know which one is complete; restart the broker first"
            )
        move.future = await run(partial(_create, move, source))
        flushed = -1
        while not partition.deleted:
            while move.offset_lag() and not partition.deleted:
                await run(partial(_copy_slice, source, move.future))
            if partition.appends_queued:  # its appends would go to the old log
                await asyncio.sleep(QUEUED_PAUSE_S)
                continue
            if flushed == move.future.log_end_offset:
                return
            flushed = move.future.log_end_offset
            await run(partial(_finish, source, move.future))

    def _swap(self, move: ReplicaMove, partition: Partition) -> bool:
        """Let the new log serve the partition, if the partition still exists. This takes one turn
        of the loop. Appends wait until the folders are renamed, since after a crash before that,
        the old log would be used.
        """
        future, source = move.future, partition.log
        assert future is not None, move.partition
        if partition.deleted or source is None:
            return False
        future.set_high_watermark(source.high_watermark)
        if source.log_start_offset > future.log_start_offset:
            future.delete_before(source.log_start_offset)
        future.configure(source.config)
        move.target.appends.hold(future.core)
        partition.replace_log(future)
        taken = self._log_manager.moved(move.partition, move.target)
        task = self._node.loop.create_task(self._take_place(move, partition, taken))
        self._taking_place[move.partition] = move, task
        return True

    async def _take_place(
        self, move: ReplicaMove, partition: Partition, taken: Awaitable[list[Taken]]
    ) -> None:
        """Wait until the folders have their new names; the files of the old log are removed later.
        If the next start would use the old log, the log dir has failed: then the partition has no
        log any more, and waiting appends are refused.
        """
        assert move.future is not None, move.partition
        try:
            self._log_manager.removals.begin(await taken)
        except MarkRemovalError as problem:
            self._node.report(
                f"the copy of {move.partition} in {move.target.path} is not served: neither the "
                f"old log in {move.origin.path} nor the mark of the copy can be removed: "
                f"{problem}; the next start serves the old log, which has all records"
            )
            while partition.log is move.future:
                await asyncio.sleep(QUEUED_PAUSE_S)
        except (errors.LogError, OSError) as problem:
            path = move.origin.path
            self._node.report(
                f"{move.partition} is served from {move.target.path}, but its old log in {path} "
                f"can't be removed: {problem}; remove {os.path.join(path, str(move.partition))}, "
                "then restart the broker: it does not start with both"
            )
        finally:
            move.target.appends.release(move.future.core)
            del self._taking_place[move.partition]

    async def _discard(self, move: ReplicaMove) -> None:
        """Delete the copy, once its calls have ended."""
        path, what = move.target.path, f"removing the copy of {move.partition}"
        try:
            await self._node.dirs.run(path, what, partial(_drop, move))
        except (errors.LogError, OSError) as problem:
            where = os.path.join(move.target.path, str(move.partition))
            self._node.report(f"{where}, an unfinished copy, can't be removed: {problem}")


def _create(move: ReplicaMove, source: Log) -> Log:
    """Create the copy in one call, so that a new topic with this name finds a log of another
    topic.
    """
    mark_future(move.target, move.partition)
    move.made = True
    return move.target.log(
        *move.partition, create=True, config=source.config, topic_id=source.topic_id
    )


def _drop(move: ReplicaMove) -> None:
    """Delete the copy, but no other log of that name."""
    if move.made:
        drop_future(move.target, move.partition)


def _finish(source: Log, future: Log) -> None:
    """Flush the copy: the old files are deleted soon."""
    if source.log_start_offset > future.log_start_offset:
        future.delete_before(source.log_start_offset)
    future.flush()


def _copy_slice(source: Log, future: Log) -> None:
    """Append the next batches of a log to its copy, including those above the high watermark. If
    the log is truncated meanwhile, the copy has batches that the leader does not have; the follower
    finds these by leader epochs, as usual.
    """
    offset = max(future.log_end_offset, source.log_start_offset)
    data, _ = source.core.read(offset, source.log_end_offset, SLICE_BYTES)
    if not data:
        raise errors.LogStorageError(
            f"{source.topic_partition} has no batch from offset {offset} to its end "
            f"{source.log_end_offset}; append to it before you move it"
        )
    future.append_batches(data, origin="replica")
