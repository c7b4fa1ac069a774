"""The replicas on this broker and their logs: it leads, follows, stops and deletes them.

replica_manager.py receives the roles and keeps their order; fetchers.py copies from leaders.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore.broker.runtime.dir_threads import LogDirHangsError
from kstore.broker.runtime.log_dirs.dir_calls import Wanted
from kstore.broker.state.controller.doubts import LARGEST_EPOCH, epochs_by_clock
from kstore.broker.state.metadata.image import INTERNAL_TOPICS
from kstore.broker.state.work import ROWS_BETWEEN, Work
from kstore.errors import ErrorCode
from kstore.log.errors import LogClosedError, LogError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.log_dirs.descriptors import Descriptors
    from kstore.broker.runtime.log_dirs.dir_calls import Taken
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.replication.fetchers import Fetchers
    from kstore.log import Log
    from kstore.log.settings import LogConfig
    from kstore.protocol.controller.broker_requests import LeaderAndIsrPartition

__all__ = ["NO_EPOCH", "NO_LEADER", "Hosted", "OnLeadership", "Replicas"]

log = logging.getLogger("kstore.broker")
NO_EPOCH = -1
NO_LEADER = -1

OnLeadership: TypeAlias = Callable[[TopicPartition, bool, int], None]


class Hosted(NamedTuple):
    """The controller's last request for a replica on this broker."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    state_version: int


class Replicas:
    """The partitions that this broker leads and follows. All methods run on the broker's loop."""

    def __init__(
        self,
        node: Node,
        table: PartitionTable,
        log_manager: LogManager,
        descriptors: Descriptors,
        fetchers: Lazy[Fetchers],
    ) -> None:
        self.on_leadership: list[OnLeadership] = []
        """Called with a partition, whether this broker leads it now, and its leader epoch."""
        self.hosted: dict[TopicPartition, Hosted] = {}
        self._node = node
        self._node_id = node.node_id
        self._table = table
        self._log_manager = log_manager
        self._descriptors = descriptors
        self._fetchers = fetchers
        self._opened: dict[TopicPartition, Log | Exception] = {}
        """Logs that `open_logs` has opened for `take`, or their errors."""
        self._cutting: dict[TopicPartition, asyncio.Future[None]] = {}
        """Partitions whose logs `drop_uncommitted` is truncating."""

    # ---- lookups ----

    def led(self) -> list[TopicPartition]:
        """The partitions that this broker leads."""
        return [place for place, known in self.hosted.items() if known.leader == self._node_id]

    def find(self, place: TopicPartition) -> Partition | None:
        """The partition in the table, whichever broker leads it."""
        return self._table.partition(place.topic.encode(), place.partition)

    def entry(self, name: str, topic_id: UUID) -> TopicEntry:
        """The table's entry of a topic, which is created if missing. An entry of another topic of
        that name is removed.
        """
        entry = self._table.topic(name.encode())
        if entry is not None and entry.topic_id != topic_id.bytes:
            self.forget_topic(name, entry.topic_id)
            entry = None
        if entry is None:
            entry = TopicEntry(name.encode(), topic_id.bytes, internal=name in INTERNAL_TOPICS)
            self._table.add_topic(entry)
        return entry

    def gauges(self) -> Work[dict[str, int]]:
        """Metrics of the partitions that this broker leads."""
        led = under_replicated = 0
        for number, (place, known) in enumerate(list(self.hosted.items()), 1):
            if known.leader == self._node_id:
                led += 1
                partition = self.find(place)
                if partition is not None and partition.online and (isr := partition.isr):
                    under_replicated += len(set(known.replicas)) > len(isr)
            if number % ROWS_BETWEEN == 0:
                yield
        return {"led_partitions": led, "under_replicated_partitions": under_replicated}

    # ---- leading and following ----

    async def open_logs(
        self,
        entry: TopicEntry,
        topic_id: UUID,
        states: Sequence[LeaderAndIsrPartition],
        config: LogConfig,
    ) -> set[TopicPartition]:
        """Open or create the missing logs of these partitions in threads, and wait for repairs of
        the others. After that, `take` does not wait for the disk. Returns the partitions whose log
        dir hangs: their roles cannot begin yet.
        """
        name = entry.name.decode()
        wanted: list[Wanted] = []
        late: set[TopicPartition] = set()
        for state in states:
            place = TopicPartition(name, state.partition_index)
            if self._refusal(place, state) != ErrorCode.NONE:
                continue
            if not await self._settle(place, state):
                late.add(place)
                continue
            partition = self.find(place)
            if partition is None or partition.log is None:
                wanted.append(Wanted(place, topic_id, config, state.is_new))
        why = self._descriptors.refuse_logs(len(wanted)) if wanted else None
        self._opened = {}
        if why is not None:
            self._opened |= dict.fromkeys((each.key for each in wanted), OSError(errno.EMFILE, why))
            wanted = []  # partitions whose logs are open get their roles first
        async for each, opened in self._log_manager.open_logs(wanted, patient=False):
            if isinstance(opened, LogDirHangsError):
                late.add(each.key)
            else:
                self._opened[each.key] = opened
        for state in states:
            place = TopicPartition(name, state.partition_index)
            if (
                place not in late
                and state.leader != NO_LEADER
                and self._refusal(place, state) == ErrorCode.NONE
                and not await self._face_losses(place, state)
            ):
                late.add(place)
        return late

    async def _settle(self, place: TopicPartition, state: LeaderAndIsrPartition) -> bool:
        """If another leader or epoch is requested, stop copying, and wait until the log is no
        longer being truncated. Returns False if its log dir hangs.
        """
        known, fetchers = self.hosted.get(place), self._fetchers.made
        if known is not None and state.leader_epoch == known.leader_epoch:
            return True
        if fetchers is not None:
            # Until the role begins, which may be much later, a response of the former leader could
            # start a truncation that also removes records appended in the new epoch.
            fetchers.stop(place)
        home = self._log_manager.home(place)
        paths = [] if home is None else [home.path]
        cut = self._cutting.get(place)
        if cut is not None and not await self._node.dirs.ended(cut, paths):
            return False
        if fetchers is None or fetchers.is_settled(place):
            return True
        return await self._node.dirs.ended(asyncio.ensure_future(fetchers.settle(place)), paths)

    async def _face_losses(self, place: TopicPartition, state: LeaderAndIsrPartition) -> bool:
        """Prepare a log with lost records: a leader's log skips them, a follower's log is truncated
        before them. A last batch of a leader epoch that has not begun is damaged, and another
        replica supplies it. If it stayed in the leader's log, followers would copy it, and could
        not copy the batches after it. Errors are passed to `take`. Returns False if the log dir
        hangs.
        """
        partition = self.find(place)
        log = self._opened.get(place)
        if log is None and partition is not None:
            log = partition.log
        if log is None or isinstance(log, Exception):
            return True
        known = self.hosted.get(place)
        is_new_epoch = known is None or known.leader_epoch != state.leader_epoch
        doubted = is_new_epoch and log.latest_epoch > state.leader_epoch and len(state.replicas) > 1
        leads = state.leader == self._node_id
        lacking = log.has_lost if leads else log.has_hole
        if not (doubted or lacking):
            return True
        by_clock = epochs_by_clock(self._node.now_ms()) if doubted else None
        face = partial(_face, log, state.leader_epoch, by_clock, lacking, leads)
        self._fetchers().stop(place)  # nothing may be appended meanwhile
        try:
            path, what = log.log_dir.path, f"leaving out what {place} has lost"
            call = self._node.dirs.run(path, what, face)
            if not await self._node.dirs.ended(call, [path]):
                self._opened.pop(place, None)
                return False
            await call
        except (LogError, OSError) as problem:
            self._opened[place] = problem
        return True

    def _refusal(self, place: TopicPartition, state: LeaderAndIsrPartition) -> int:
        """The error if a role is refused; NONE if it is accepted."""
        if self._node_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        known = self.hosted.get(place)
        if known is not None and state.leader_epoch < known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._log_manager.is_offline(place, is_new=state.is_new):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def take(self, entry: TopicEntry, state: LeaderAndIsrPartition, config: LogConfig) -> int:
        """Lead or follow one partition, whose log `open_logs` has opened. Returns an error code.
        FENCED_LEADER_EPOCH: the log has later leader epochs than the role.
        """
        place = TopicPartition(entry.name.decode(), state.partition_index)
        opened = self._opened.pop(place, None)
        refusal = self._refusal(place, state)
        if refusal != ErrorCode.NONE:
            return refusal
        known = self.hosted.get(place)
        new = Hosted(
            state.leader, state.leader_epoch, tuple(state.replicas), tuple(state.isr),
            state.state_version,
        )  # fmt: skip
        if known is not None and new[:3] == known[:3]:
            self._take_isr(place, new, known)
            self._take_epoch(place, state.partition_epoch)
            return ErrorCode.NONE
        code: int = ErrorCode.NONE
        try:
            partition = self._with_log(entry, place, opened)
            is_new = known is not None and (
                known.leader_epoch != state.leader_epoch or known.leader == NO_LEADER
            )
            if self._is_ahead(partition, state, begins=opened is not None or is_new):
                code = ErrorCode.FENCED_LEADER_EPOCH
                new = new._replace(leader=NO_LEADER)
        except (LogError, OSError) as problem:
            self._node.report(f"{place} can't be opened: {problem}")
            return ErrorCode.KAFKA_STORAGE_ERROR
        leads = new.leader == self._node_id
        partition.partition_epoch = state.partition_epoch
        self._log_manager.configure(partition, config, len(state.replicas))
        if leads:
            self._fetchers().stop(place)
            partition.lead(new.leader_epoch, new.state_version, new.replicas, new.isr)
        else:
            self._follow(place, partition, new)
        self.hosted[place] = new
        self._notify(place, leads, state.leader_epoch)
        return code

    def _is_ahead(
        self, partition: Partition, state: LeaderAndIsrPartition, *, begins: bool
    ) -> bool:
        """Whether the log has later leader epochs than the role: then the coordination store was
        restored from an older copy. In this role a leader would append batches that hide those of
        the later epochs, and a follower would truncate them. Raises LogError if the epoch can only
        be damage.

        A leader that ``begins`` also refuses the epoch of its log's last batch: nothing can have
        been written in a new leader's epoch yet.
        """
        latest = partition.log.latest_epoch
        if state.leader == NO_LEADER or latest < state.leader_epoch:
            return False
        if latest > LARGEST_EPOCH:
            raise LogError(f"leader epoch {latest} in its log is too large: check the disk")
        return latest > state.leader_epoch or (begins and state.leader == self._node_id)

    def end_of(self, place: TopicPartition) -> tuple[int, int] | None:
        """The latest leader epoch and the log end offset of a replica. None if it has no log."""
        partition = self.find(place)
        if partition is None or partition.log is None:
            return None
        return partition.log.latest_epoch, partition.log.log_end_offset

    def _follow(self, place: TopicPartition, partition: Partition, new: Hosted) -> None:
        partition.follow(new.leader, new.leader_epoch)
        if new.leader == NO_LEADER:
            self._fetchers().stop(place)
        else:
            self._fetchers().follow(place, partition, new.leader, new.leader_epoch)

    def _take_isr(self, place: TopicPartition, new: Hosted, known: Hosted) -> None:
        """Apply a request whose leader, leader epoch and replicas are known: only the in-sync
        replicas may have changed.
        """
        if new.state_version <= known.state_version:
            return
        self.hosted[place] = new
        partition = self.find(place)
        if partition is not None and new.leader == self._node_id:
            partition.isr_applied(new.isr, new.state_version, new.leader_epoch)

    def _take_epoch(self, place: TopicPartition, partition_epoch: int) -> None:
        """Apply the partition epoch. During an upgrade, a controller with partition epochs may
        follow one without them, or the reverse. A request without one does not change the known
        epoch.
        """
        partition = self.find(place)
        if partition is not None and partition_epoch != NO_EPOCH:
            partition.partition_epoch = partition_epoch

    def _with_log(
        self, entry: TopicEntry, place: TopicPartition, opened: Log | Exception | None
    ) -> Partition:
        """The partition with its log, which was open or was just opened. Raises LogError or OSError
        if that failed.
        """
        if isinstance(opened, Exception):
            raise opened
        partition = self.find(place)
        if partition is not None and partition.log is not None:
            return partition
        if opened is None:
            raise LogClosedError(f"{place} has no log: it was stopped before it was opened")
        if partition is not None:
            partition.replace_log(opened)
            return partition
        partition = Partition(entry, place.partition, opened, leader_id=NO_LEADER)
        partition.online = False
        self._table.add_partition(partition)
        return partition

    async def drop_uncommitted(self, place: TopicPartition, offset: int) -> None:
        """Drop the records of a led partition from an offset on, which only this broker has.
        Waiting requests get an error, as after an election. Until the log is truncated the
        partition has no leader, and a role in another epoch waits. Raises LogError or OSError.
        """
        partition = self.find(place)
        if partition is None or partition.replication is None or place in self._cutting:
            return
        epoch = partition.leader_epoch
        log: Log = partition.log
        partition.follow(NO_LEADER, epoch)
        self._notify(place, False, epoch)
        what = f"cutting {place}"
        cut = self._node.dirs.run(log.log_dir.path, what, partial(log.leave_out, offset))
        self._cutting[place] = cut
        try:
            await cut
        finally:
            del self._cutting[place]
            if not cut.cancelled():
                self._lead_again(place, partition, log, epoch)

    def _lead_again(
        self, place: TopicPartition, partition: Partition, log: Log, epoch: int
    ) -> None:
        """Continue to lead in the same epoch, unless the partition was stopped meanwhile."""
        known = self.hosted.get(place)
        if known is None or known[:2] != (self._node_id, epoch) or partition.log is not log:
            return
        version, in_sync = partition.isr_version, partition.isr
        if known.state_version > version:
            version, in_sync = known.state_version, known.isr
        partition.lead(epoch, version, partition.replicas, in_sync)
        self._notify(place, True, epoch)

    def fence(self) -> None:
        """Stop leading, since this broker's session is lost and others may lead its partitions. The
        controller's next request is accepted, even if its leader epochs are known.
        """
        for place, known in self.hosted.items():
            if known.leader == self._node_id:
                partition = self.find(place)
                if partition is not None:
                    partition.follow(NO_LEADER, known.leader_epoch)
                self._notify(place, False, known.leader_epoch)
        self.hosted.clear()

    # ---- the end of replicas ----

    def forget_topic(self, name: str, topic_id: bytes | None) -> None:
        """Stop the replicas of a deleted topic. Their logs stay until the controller requests their
        deletion.

        Does nothing if the table has another topic of that name; without an id, any topic matches.
        """
        entry = self._table.topic(name.encode())
        if entry is None or topic_id not in (None, entry.topic_id):
            return
        for partition in entry.partitions:
            if partition is not None and partition.log is not None:
                self.stop(TopicPartition(name, partition.index))
        self._table.remove_topic(name.encode())

    def stop(self, place: TopicPartition) -> None:
        """Stop leading or following a partition. Waiting requests get an error."""
        known = self.hosted.pop(place, None)
        self._fetchers().stop(place)
        partition = self.find(place)
        epoch = NO_EPOCH if known is None else known.leader_epoch
        if partition is not None and partition.log is not None:
            partition.follow(NO_LEADER, max(epoch, partition.leader_epoch))
            partition.replace_log(None)
        if known is not None:
            self._notify(place, False, epoch)

    def fail(self, place: TopicPartition) -> None:
        """Stop leading or following a partition whose log dir has failed."""
        self.stop(place)
        self._log_manager.fail(place)

    async def delete(self, places: Iterable[TopicPartition]) -> Awaitable[None]:
        """Delete logs. When this returns, the logs have no log dir any more. The awaitable that it
        returns completes when all logs are closed, and raises the first LogError or OSError. The
        files are deleted a little later, since large ones take time.
        """
        return self._delete(await self._log_manager.take_away(places))

    async def _delete(self, taking: Awaitable[list[Taken]]) -> None:
        self._log_manager.removals.begin(await taking)

    def _notify(self, place: TopicPartition, leads: bool, leader_epoch: int) -> None:
        for callback in self.on_leadership:
            try:
                callback(place, leads, leader_epoch)
            except Exception:
                log.exception("the leader of %s changed, but the broker failed to react", place)


def _face(log: Log, most: int, by_clock: range | None, lacking: bool, leads: bool) -> None:
    """The part of `_face_losses` that uses the disk. A log with later leader epochs than its role
    is not truncated: it refuses the role, and may have the most records of all replicas. With
    ``by_clock``, its last batch is in doubt.
    """
    if by_clock is not None:
        log.doubt_last_batch(most, by_clock)
    if log.latest_epoch > most:
        return
    if lacking and leads:
        log.skip_lost()
    elif lacking:
        log.cut_at_hole()
