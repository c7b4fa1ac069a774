"""What the controller has this broker do: lead partitions, follow others, stop and delete replicas,
and know the cluster's metadata.

LeaderAndIsr, StopReplica and UpdateMetadata are handled one after another, in the order in which
they came. Whatever comes from a controller that is no more, or is meant for an earlier life of this
broker, is refused. Copying from leaders is runtime/fetchers.py's, the image image_updates.py's.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore.broker.coordination.znodes import read_deletions
from kstore.broker.runtime.metadata.image_updates import ImageUpdates
from kstore.broker.runtime.slices import Slices
from kstore.broker.state.metadata.image import INTERNAL_TOPICS
from kstore.broker.state.metadata.topic_rules import is_on
from kstore.config.topic_configs import COUNT_REQUIRED
from kstore.errors import ErrorCode
from kstore.log.errors import LogError
from kstore.protocol.controller.broker_requests import (
    FULL,
    LeaderAndIsrPartition,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopic,
    LeaderAndIsrTopicError,
    StopReplicaPartition,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopic,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kstore.protocol.schema import ZERO_UUID
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker
    from kstore.log.settings import LogConfig

__all__ = ["Hosted", "OnLeadership", "ReplicaManager"]

log = logging.getLogger("kstore.broker")
TOPIC_DELETED = -2
"""The leader epoch in a StopReplica that ends a topic; it stands above every other."""
NO_EPOCH = -1
NO_LEADER = -1

OnLeadership: TypeAlias = Callable[[TopicPartition, bool, int], None]
ControlRequest: TypeAlias = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


class Hosted(NamedTuple):
    """What the controller last said of a replica on this broker."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    state_version: int


class ReplicaManager:
    """The replicas of this broker, as the controller wants them."""

    def __init__(self, broker: Broker) -> None:
        self.controller_epoch = -1
        """The highest that was heard of; a request of a lower one is refused."""
        self.ready = asyncio.Event()
        """Set once a controller has said all that this broker has, and all that there is."""
        self.on_leadership: list[OnLeadership] = []
        """Called with partition, whether this broker leads it now, and its leader epoch."""
        self.hosted: dict[TopicPartition, Hosted] = {}
        self.images = ImageUpdates(broker, self)
        self._broker = broker
        self._one_at_a_time = asyncio.Lock()
        self._told_replicas = False
        self._told_metadata = False

    # ---- the controller's requests ----

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Lead or follow the partitions named; a full request also ends all others here."""
        async with self._one_at_a_time:
            refusal = self._refusal(request)
            if refusal != ErrorCode.NONE:
                return LeaderAndIsrResponse(error_code=refusal)
            slices = Slices()
            configs = await self.images.configs_of(
                (topic.topic_name, topic.topic_id) for topic in request.topic_states
            )
            response = LeaderAndIsrResponse()
            for topic in request.topic_states:
                if self._is_stale(request):  # the session was lost meanwhile
                    return LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
                rows = await self._take_topic(request, topic, configs[topic.topic_name], slices)
                response.topics.append(
                    LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=rows)
                )
            if request.type == FULL:
                await self._stop_strays(request, slices)
                self._told_replicas = True
                self._note_ready()
            return response

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """End the replicas named, and delete their logs where the request says so."""
        async with self._one_at_a_time:
            refusal = self._refusal(request)
            if refusal != ErrorCode.NONE:
                return StopReplicaResponse(error_code=refusal)
            slices = Slices()
            response = StopReplicaResponse()
            for topic in request.topic_states:
                for row in topic.partition_states:
                    response.partition_errors.append(
                        StopReplicaPartitionError(
                            topic_name=topic.topic_name,
                            partition_index=row.partition_index,
                            error_code=self._stop_one(topic, row),
                        )
                    )
                    await slices.breathe()
                self._forget_if_deleted(topic)
            return response

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Take over what the controller knows of brokers and partitions."""
        async with self._one_at_a_time:
            refusal = self._refusal(request)
            if refusal != ErrorCode.NONE:
                return UpdateMetadataResponse(error_code=refusal)
            await self.images.update(request)
            if request.type == FULL:
                self._told_metadata = True
                self._note_ready()
            return UpdateMetadataResponse()

    def fence(self) -> None:
        """This broker's session is lost: others may lead what it led, so it stops to lead. What
        the controller says next is taken, also in the epochs known already.
        """
        for place, known in self.hosted.items():
            if known.leader == self._broker.node_id:
                partition = self._find(place)
                if partition is not None:
                    partition.follow(NO_LEADER, known.leader_epoch)
                self._tell(place, False, known.leader_epoch)
        self.hosted.clear()

    def _refusal(self, request: ControlRequest) -> int:
        """Why a request is not obeyed; NONE where it is, which is remembered."""
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._is_stale(request):
            return ErrorCode.STALE_BROKER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    def _is_stale(self, request: ControlRequest) -> bool:
        """Whether it is meant for an earlier life of this broker."""
        mine = self._broker.membership.broker_epoch
        return request.broker_epoch != NO_EPOCH and request.broker_epoch < mine

    def _note_ready(self) -> None:
        if self._told_replicas and self._told_metadata:
            self.ready.set()

    def gauges(self) -> dict[str, int]:
        """What metrics tell of the partitions that this broker leads."""
        node_id, table = self._broker.node_id, self._broker.table
        led = {place: known for place, known in self.hosted.items() if known.leader == node_id}
        under_replicated = 0
        for place, known in led.items():
            partition = table.partition(place.topic.encode(), place.partition)
            if partition is not None and partition.online and (isr := partition.isr):
                under_replicated += len(set(known.replicas)) > len(isr)
        return {"led_partitions": len(led), "under_replicated_partitions": under_replicated}

    # ---- leading and following ----

    async def _take_topic(
        self,
        request: LeaderAndIsrRequest,
        topic: LeaderAndIsrTopic,
        configs: Mapping[str, str],
        slices: Slices,
    ) -> list[LeaderAndIsrPartitionError]:
        rows = []
        entry = self.entry(topic.topic_name, topic.topic_id)
        entry.partition_count = topic.partition_count
        entry.count_required = is_on(configs, COUNT_REQUIRED)
        log_config = self._broker.log_manager.log_config(configs)
        for state in topic.partition_states:
            code: int = ErrorCode.STALE_BROKER_EPOCH
            if not self._is_stale(request):
                code = self._take(entry, topic, state, log_config)
            rows.append(
                LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code)
            )
            await slices.breathe()
        return rows

    def _take(
        self,
        entry: TopicEntry,
        topic: LeaderAndIsrTopic,
        state: LeaderAndIsrPartition,
        config: LogConfig,
    ) -> int:
        """Lead or follow one partition; the error code if that can't be."""
        broker = self._broker
        place = TopicPartition(topic.topic_name, state.partition_index)
        if broker.node_id not in state.replicas:
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
        try:
            partition = self._open(entry, topic, state.partition_index, config)
            if state.leader == broker.node_id:
                partition.log.skip_lost()
        except (LogError, OSError) as problem:
            broker.report(f"{place} can't be opened: {problem}")
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition.partition_epoch = state.partition_epoch
        broker.log_manager.configure(partition, config, len(state.replicas))
        if state.leader == broker.node_id:
            self._broker.fetchers.stop(place)
            partition.lead(new.leader_epoch, new.state_version, new.replicas, new.isr)
        else:
            partition.follow(state.leader, state.leader_epoch)
            if state.leader == NO_LEADER:
                self._broker.fetchers.stop(place)
            else:
                self._broker.fetchers.follow(place, partition, state.leader, state.leader_epoch)
        self.hosted[place] = new
        self._tell(place, state.leader == broker.node_id, state.leader_epoch)
        return ErrorCode.NONE

    def _take_isr(self, place: TopicPartition, new: Hosted, known: Hosted) -> None:
        """Leader, epoch and replicas are known: at most the in-sync replicas have changed."""
        if new.state_version <= known.state_version:
            return
        self.hosted[place] = new
        partition = self._find(place)
        if partition is not None and new.leader == self._broker.node_id:
            partition.isr_applied(new.isr, new.state_version, new.leader_epoch)

    def _take_epoch(self, place: TopicPartition, partition_epoch: int) -> None:
        """A controller that tells partition epochs may come after one that does not (or the other
        way round, in the middle of a migration: what is known stays).
        """
        partition = self._find(place)
        if partition is not None and partition_epoch != NO_EPOCH:
            partition.partition_epoch = partition_epoch

    def _open(
        self, entry: TopicEntry, topic: LeaderAndIsrTopic, index: int, config: LogConfig
    ) -> Partition:
        """The partition with its log, which is opened or made. The log of another topic of that
        name is put aside first.
        """
        log_manager = self._broker.log_manager
        table = self._broker.table
        partition = table.partition(entry.name, index)
        if partition is not None and partition.log is not None:
            return partition
        place = TopicPartition(topic.topic_name, index)
        why = self._broker.descriptors.refuse_logs(1)
        if why is not None:
            raise OSError(errno.EMFILE, why)
        found = log_manager.topic_id(place)
        if found is not None and found != topic.topic_id:
            log_manager.put_aside(topic.topic_name, index)
        opened = log_manager.open_log(place, topic.topic_id, config)
        if partition is not None:
            partition.replace_log(opened)
            return partition
        partition = Partition(entry, index, opened, leader_id=NO_LEADER)
        partition.online = False
        table.add_partition(partition)
        return partition

    def entry(self, name: str, topic_id: UUID) -> TopicEntry:
        """The table's entry of a topic, made if it is missing. What is there of another topic of
        that name ends.
        """
        table = self._broker.table
        entry = table.topic(name.encode())
        if entry is not None and entry.topic_id != topic_id.bytes:
            self.forget_topic(name, entry.topic_id)
            entry = None
        if entry is None:
            entry = TopicEntry(name.encode(), topic_id.bytes, internal=name in INTERNAL_TOPICS)
            table.add_topic(entry)
        return entry

    def drop_uncommitted(self, place: TopicPartition, offset: int) -> None:
        """Lead a partition without what lies at an offset and behind it, which only this broker
        has: who waits for it is told, as by a change of leaders. Raises LogError, OSError.
        """
        partition = self._find(place)
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

    # ---- the end of replicas ----

    def forget_topic(self, name: str, topic_id: bytes) -> None:
        """A topic is gone: its replicas stop. Their logs stay until the controller says more.

        Nothing happens if what is there is another topic of that name.
        """
        entry = self._broker.table.topic(name.encode())
        if entry is None or entry.topic_id != topic_id:
            return
        for partition in entry.partitions:
            if partition is not None and partition.log is not None:
                self._stop(TopicPartition(name, partition.index))
        self._broker.table.remove_topic(name.encode())

    def _stop(self, place: TopicPartition) -> None:
        """Neither lead nor follow a partition any more; who waits for it is told."""
        known = self.hosted.pop(place, None)
        self._broker.fetchers.stop(place)
        partition = self._find(place)
        epoch = NO_EPOCH if known is None else known.leader_epoch
        if partition is not None and partition.log is not None:
            partition.follow(NO_LEADER, max(epoch, partition.leader_epoch))
            partition.replace_log(None)
        if known is not None:
            self._tell(place, False, epoch)

    def _stop_one(self, topic: StopReplicaTopic, row: StopReplicaPartition) -> int:
        place = TopicPartition(topic.topic_name, row.partition_index)
        known = self.hosted.get(place)
        if (
            known is not None
            and row.leader_epoch not in (TOPIC_DELETED, NO_EPOCH)
            and row.leader_epoch < known.leader_epoch
        ):
            return ErrorCode.FENCED_LEADER_EPOCH
        log_manager = self._broker.log_manager
        found = log_manager.topic_id(place)
        if found is not None and topic.topic_id not in (ZERO_UUID, found):
            return ErrorCode.NONE  # the log of another topic of that name; the one meant is gone
        self._stop(place)
        if row.delete_partition:
            try:
                self._delete(place)
            except (LogError, OSError) as problem:
                self._broker.report(f"the log of {place} can't be deleted: {problem}")
                return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _delete(self, place: TopicPartition) -> None:
        """Delete a log; its files go a little later, off the loop: large ones take their time."""
        remove = self._broker.log_manager.take_away(place.topic, place.partition)
        if remove is not None:
            removal = asyncio.ensure_future(self._broker.run_blocking(remove))
            removal.add_done_callback(lambda done: self._note_removal(place, done))

    def _note_removal(self, place: TopicPartition, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (problem := done.exception()) is not None:
            why = f"files of {place}, which is deleted, stay until a restart: {problem}"
            self._broker.report(why)

    def _forget_if_deleted(self, topic: StopReplicaTopic) -> None:
        if not any(row.leader_epoch == TOPIC_DELETED for row in topic.partition_states):
            return
        entry = self._broker.table.topic(topic.topic_name.encode())
        if entry is not None and topic.topic_id.bytes in (ZERO_UUID.bytes, entry.topic_id):
            self.forget_topic(topic.topic_name, entry.topic_id)

    async def _stop_strays(self, request: LeaderAndIsrRequest, slices: Slices) -> None:
        """End what a full request does not name. Logs of deleted topics are deleted, all others
        put aside: they may hold what nobody else has.
        """
        broker = self._broker
        named = {
            TopicPartition(topic.topic_name, state.partition_index)
            for topic in request.topic_states
            for state in topic.partition_states
        }
        strays = [place for place in broker.log_manager.places() if place not in named]
        if not strays:
            return
        deleted = await broker.run_blocking(lambda: read_deletions(broker.store))
        for place in strays:
            self._stop(place)
            topic_id = broker.log_manager.topic_id(place)
            try:
                if topic_id is not None and deleted.get(place.topic) == topic_id:
                    self._delete(place)
                else:
                    broker.log_manager.put_aside(place.topic, place.partition)
            except (LogError, OSError) as problem:
                broker.report(f"the log of {place}, which is not wanted here, stays: {problem}")
            await slices.breathe()

    # ---- small things ----

    def led(self) -> Iterable[TopicPartition]:
        """The partitions that this broker leads."""
        node = self._broker.node_id
        return [place for place, known in self.hosted.items() if known.leader == node]

    def _find(self, place: TopicPartition) -> Partition | None:
        return self._broker.table.partition(place.topic.encode(), place.partition)

    def _tell(self, place: TopicPartition, leads: bool, leader_epoch: int) -> None:
        for callback in self.on_leadership:
            try:
                callback(place, leads, leader_epoch)
            except Exception:
                log.exception("leadership of %s: a part of the broker failed", place)
