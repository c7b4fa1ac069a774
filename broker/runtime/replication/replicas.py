"""The replicas on this broker: partitions that it leads, follows, stops and deletes, each with the
log that belongs to it.

Who is to lead what, and in which order it is said, is replica_manager.py's; copying from leaders
is fetchers.py's.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore.broker.state.metadata.image import INTERNAL_TOPICS
from kstore.errors import ErrorCode
from kstore.log.errors import LogError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.log_dirs.descriptors import Descriptors
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.replication.fetchers import Fetchers
    from kstore.log.settings import LogConfig
    from kstore.protocol.controller.broker_requests import LeaderAndIsrPartition

__all__ = ["NO_EPOCH", "Hosted", "OnLeadership", "Replicas"]

log = logging.getLogger("kstore.broker")
NO_EPOCH = -1
NO_LEADER = -1

OnLeadership: TypeAlias = Callable[[TopicPartition, bool, int], None]


class Hosted(NamedTuple):
    """What the controller last said of a replica on this broker."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    state_version: int


class Replicas:
    """What this broker leads and follows. All methods belong to the broker's loop."""

    def __init__(
        self,
        node: Node,
        table: PartitionTable,
        log_manager: LogManager,
        descriptors: Descriptors,
        fetchers: Lazy[Fetchers],
    ) -> None:
        self.on_leadership: list[OnLeadership] = []
        """Called with partition, whether this broker leads it now, and its leader epoch."""
        self.hosted: dict[TopicPartition, Hosted] = {}
        self._node = node
        self._node_id = node.node_id
        self._table = table
        self._log_manager = log_manager
        self._descriptors = descriptors
        self._fetchers = fetchers

    # ---- what there is ----

    def led(self) -> list[TopicPartition]:
        """The partitions that this broker leads."""
        return [place for place, known in self.hosted.items() if known.leader == self._node_id]

    def find(self, place: TopicPartition) -> Partition | None:
        """The partition in the table, whoever leads it."""
        return self._table.partition(place.topic.encode(), place.partition)

    def entry(self, name: str, topic_id: UUID) -> TopicEntry:
        """The table's entry of a topic, made if it is missing. What is there of another topic of
        that name ends.
        """
        entry = self._table.topic(name.encode())
        if entry is not None and entry.topic_id != topic_id.bytes:
            self.forget_topic(name, entry.topic_id)
            entry = None
        if entry is None:
            entry = TopicEntry(name.encode(), topic_id.bytes, internal=name in INTERNAL_TOPICS)
            self._table.add_topic(entry)
        return entry

    def gauges(self) -> dict[str, int]:
        """What metrics tell of the partitions that this broker leads."""
        led, under_replicated = self.led(), 0
        for place in led:
            partition = self.find(place)
            if partition is not None and partition.online and (isr := partition.isr):
                under_replicated += len(set(self.hosted[place].replicas)) > len(isr)
        return {"led_partitions": len(led), "under_replicated_partitions": under_replicated}

    # ---- leading and following ----

    def take(
        self, entry: TopicEntry, topic_id: UUID, state: LeaderAndIsrPartition, config: LogConfig
    ) -> int:
        """Lead or follow one partition; the error code if that can't be."""
        place = TopicPartition(entry.name.decode(), state.partition_index)
        if self._node_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        known = self.hosted.get(place)
        if known is not None and state.leader_epoch < known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        new = Hosted(
            state.leader, state.leader_epoch, tuple(state.replicas), tuple(state.isr),
            state.state_version,
        )  # fmt: skip
        if known is not None and new[:3] == known[:3]:
            self._take_isr(place, new, known)
            self._take_epoch(place, state.partition_epoch)
            return ErrorCode.NONE
        leads = state.leader == self._node_id
        try:
            partition = self._open(entry, place, topic_id, config)
            if leads:
                partition.log.skip_lost()
        except (LogError, OSError) as problem:
            self._node.report(f"{place} can't be opened: {problem}")
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition.partition_epoch = state.partition_epoch
        self._log_manager.configure(partition, config, len(state.replicas))
        if leads:
            self._fetchers().stop(place)
            partition.lead(new.leader_epoch, new.state_version, new.replicas, new.isr)
        else:
            self._follow(place, partition, new)
        self.hosted[place] = new
        self._tell(place, leads, state.leader_epoch)
        return ErrorCode.NONE

    def _follow(self, place: TopicPartition, partition: Partition, new: Hosted) -> None:
        partition.follow(new.leader, new.leader_epoch)
        if new.leader == NO_LEADER:
            self._fetchers().stop(place)
        else:
            self._fetchers().follow(place, partition, new.leader, new.leader_epoch)

    def _take_isr(self, place: TopicPartition, new: Hosted, known: Hosted) -> None:
        """Leader, epoch and replicas are known: at most the in-sync replicas have changed."""
        if new.state_version <= known.state_version:
            return
        self.hosted[place] = new
        partition = self.find(place)
        if partition is not None and new.leader == self._node_id:
            partition.isr_applied(new.isr, new.state_version, new.leader_epoch)

    def _take_epoch(self, place: TopicPartition, partition_epoch: int) -> None:
        """A controller that tells partition epochs may come after one that does not (or the other
        way round, in the middle of a migration: what is known stays).
        """
        partition = self.find(place)
        if partition is not None and partition_epoch != NO_EPOCH:
            partition.partition_epoch = partition_epoch

    def _open(
        self, entry: TopicEntry, place: TopicPartition, topic_id: UUID, config: LogConfig
    ) -> Partition:
        """The partition with its log, which is opened or made. The log of another topic of that
        name is put aside first.
        """
        partition = self.find(place)
        if partition is not None and partition.log is not None:
            return partition
        why = self._descriptors.refuse_logs(1)
        if why is not None:
            raise OSError(errno.EMFILE, why)
        found = self._log_manager.topic_id(place)
        if found is not None and found != topic_id:
            self._log_manager.put_aside(*place)
        opened = self._log_manager.open_log(place, topic_id, config)
        if partition is not None:
            partition.replace_log(opened)
            return partition
        partition = Partition(entry, place.partition, opened, leader_id=NO_LEADER)
        partition.online = False
        self._table.add_partition(partition)
        return partition

    def drop_uncommitted(self, place: TopicPartition, offset: int) -> None:
        """Lead a partition without what lies at an offset and behind it, which only this broker
        has: who waits for it is told, as by a change of leaders. Raises LogError, OSError.
        """
        partition = self.find(place)
        if partition is None or partition.replication is None:
            return
        epoch = partition.leader_epoch
        partition.follow(NO_LEADER, epoch)
        self._tell(place, False, epoch)
        try:
            partition.log.leave_out(offset)
        finally:
            partition.lead(epoch, partition.isr_version, partition.replicas, partition.isr)
            self._tell(place, True, epoch)

    def fence(self) -> None:
        """This broker's session is lost: others may lead what it led, so it stops to lead. What
        the controller says next is taken, also in the epochs known already.
        """
        for place, known in self.hosted.items():
            if known.leader == self._node_id:
                partition = self.find(place)
                if partition is not None:
                    partition.follow(NO_LEADER, known.leader_epoch)
                self._tell(place, False, known.leader_epoch)
        self.hosted.clear()

    # ---- the end of replicas ----

    def forget_topic(self, name: str, topic_id: bytes | None) -> None:
        """A topic is gone: its replicas stop. Their logs stay until the controller says more.

        Nothing happens if what is there is another topic of that name; without an id, any is meant.
        """
        entry = self._table.topic(name.encode())
        if entry is None or topic_id not in (None, entry.topic_id):
            return
        for partition in entry.partitions:
            if partition is not None and partition.log is not None:
                self.stop(TopicPartition(name, partition.index))
        self._table.remove_topic(name.encode())

    def stop(self, place: TopicPartition) -> None:
        """Neither lead nor follow a partition any more; who waits for it is told."""
        known = self.hosted.pop(place, None)
        self._fetchers().stop(place)
        partition = self.find(place)
        epoch = NO_EPOCH if known is None else known.leader_epoch
        if partition is not None and partition.log is not None:
            partition.follow(NO_LEADER, max(epoch, partition.leader_epoch))
            partition.replace_log(None)
        if known is not None:
            self._tell(place, False, epoch)

    def delete(self, place: TopicPartition) -> None:
        """Delete a log; its files go a little later, off the loop: large ones take their time.
        Raises LogError, OSError.
        """
        remove = self._log_manager.take_away(place.topic, place.partition)
        if remove is not None:
            removal = asyncio.ensure_future(self._node.run_blocking(remove))
            removal.add_done_callback(lambda done: self._note_removal(place, done))

    def _note_removal(self, place: TopicPartition, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (problem := done.exception()) is not None:
            why = f"files of {place}, which is deleted, stay until a restart: {problem}"
            self._node.report(why)

    def _tell(self, place: TopicPartition, leads: bool, leader_epoch: int) -> None:
        for callback in self.on_leadership:
            try:
                callback(place, leads, leader_epoch)
            except Exception:
                log.exception("leadership of %s: a part of the broker failed", place)
