"""Executes the controller's requests: to lead and follow partitions, stop and delete replicas, and
apply the cluster's metadata.

LeaderAndIsr, StopReplica and UpdateMetadata are handled one after another, in the order of arrival.
A log dir that hangs does not delay them: its roles are applied once it answers again
(delayed_roles.py), and the controller is asked to repeat deletions. Requests of a former
controller, or for an earlier registration of this broker, are refused. replicas.py has the
replicas, image_updates.py the image.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from kstore.broker.coordination.znodes import read_deletions
from kstore.broker.runtime.replication.delayed_roles import DelayedRole, DelayedRoles, wait_for
from kstore.broker.runtime.replication.replicas import NO_EPOCH, NO_LEADER
from kstore.broker.runtime.slices import Slices
from kstore.broker.state.metadata.topic_rules import is_on
from kstore.config.topic_configs import COUNT_REQUIRED, MIRROR, least_producer_id
from kstore.errors import ErrorCode
from kstore.log.errors import LogError
from kstore.protocol.controller.broker_requests import (
    FULL,
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
    from uuid import UUID

    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.membership.membership import Membership
    from kstore.broker.runtime.metadata.image_updates import ImageUpdates
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.replication.counts import PreparedCounts
    from kstore.broker.runtime.replication.replicas import Replicas
    from kstore.broker.state.work import Work

__all__ = ["ReplicaManager"]

TOPIC_DELETED = -2
"""The leader epoch in a StopReplica that deletes a topic. It is above all others."""

ControlRequest: TypeAlias = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


class ReplicaManager:
    """The replicas of this broker, as the controller requests them."""

    def __init__(
        self,
        node: Node,
        membership: Membership,
        store: Store,
        log_manager: LogManager,
        replicas: Replicas,
        images: ImageUpdates,
        counts: PreparedCounts,
    ) -> None:
        self.controller_epoch = -1
        """The highest known controller epoch. Requests with a lower one are refused."""
        self.ready = asyncio.Event()
        """Set once a controller has sent all replicas of this broker, and all metadata."""
        self.on_refused: Callable[[], object] | None = None
        """Called when a delayed role cannot be applied, or its response has the end of a log. The
        controller must know, and sends the roles again.
        """
        self.on_older_store: Callable[[], Awaitable[object]] | None = None
        """Awaited when a log has later leader epochs than its role: the store was restored from an
        older copy.
        """
        self.before_roles: Callable[[Collection[str]], Awaitable[object]] | None = None
        """Awaited with the names of topics before this broker leads or follows their partitions."""
        self.replicas = replicas
        self.images = images
        self._delayed = DelayedRoles(node, log_manager, self._take_delayed)
        self._behind: set[asyncio.Future[None]] = set()
        """Calls in log dirs that hang. They continue without being awaited."""
        self._node = node
        self._membership = membership
        self._store = store
        self._log_manager = log_manager
        self._one_at_a_time = asyncio.Lock()
        self._last_number = (-1, -1)
        """The controller epoch and the number of the last LeaderAndIsr request."""
        self._has_replicas = False
        self._has_metadata = False
        self._counts = counts

    # ---- the controller's requests ----

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Lead or follow the named partitions. A full request also ends all other roles of this
        broker.
        """
        async with self._one_at_a_time:
            refusal = self._refusal(request)
            if refusal == ErrorCode.NONE and self._is_late(request):
                refusal = ErrorCode.STALE_BROKER_EPOCH
            if refusal != ErrorCode.NONE:
                return LeaderAndIsrResponse(error_code=refusal)
            slices = Slices()
            configs = await self.images.configs_of(
                (topic.topic_name, topic.topic_id) for topic in request.topic_states
            )
            if self.before_roles is not None:
                await self.before_roles([topic.topic_name for topic in request.topic_states])
            response = LeaderAndIsrResponse()
            for topic in request.topic_states:
                if self._is_stale(request):  # the session was lost in the meantime
                    return LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
                rows = await self._take_topic(request, topic, configs[topic.topic_name], slices)
                response.topics.append(
                    LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=rows)
                )
            if request.type == FULL:
                await self._stop_strays(request, slices)
                self._has_replicas = True
                self._note_ready()
            return response

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop the named replicas, and delete their logs if the request says so."""
        async with self._one_at_a_time:
            refusal = self._refusal(request)
            if refusal != ErrorCode.NONE:
                return StopReplicaResponse(error_code=refusal)
            slices = Slices()
            rows: list[StopReplicaPartitionError] = []
            later: int = ErrorCode.REQUEST_TIMED_OUT
            deleted: dict[TopicPartition, StopReplicaPartitionError] = {}
            for topic in request.topic_states:
                found = await self._topic_ids(
                    TopicPartition(topic.topic_name, row.partition_index)
                    for row in topic.partition_states
                )
                for row in topic.partition_states:
                    place = TopicPartition(topic.topic_name, row.partition_index)
                    code, delete = later, False
                    if place in found and place not in self._log_manager.leaving:
                        code, delete = self._stop_one(place, topic, row, found[place])
                    answer = StopReplicaPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=row.partition_index,
                        error_code=code,
                    )
                    rows.append(answer)
                    if delete:
                        deleted[place] = answer
                    await slices.breathe()
                self._forget_if_deleted(topic)
            paths = self._log_manager.paths(deleted)
            deleting = asyncio.ensure_future(await self.replicas.delete(deleted))
        # This does not wait for other requests, and runs only while the log dir answers.
        if not await self._node.dirs.ended(deleting, paths):
            self._go_on_with(deleting)
            for place, answer in deleted.items():
                if place in self._log_manager.leaving:
                    answer.error_code = later
            return StopReplicaResponse(partition_errors=rows)
        try:
            await deleting
        except (LogError, OSError) as problem:
            self._node.report(f"logs can't be deleted: {problem}")
            for answer in deleted.values():
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return StopReplicaResponse(partition_errors=rows)

    def _go_on_with(self, work: asyncio.Future[None]) -> None:
        """Let a call in a log dir that hangs continue, without waiting for it."""

        def ended(work: asyncio.Future[None]) -> None:
            self._behind.discard(work)
            if not work.cancelled() and (problem := work.exception()) is not None:
                self._node.report(f"postponed work of a log dir that hung failed: {problem}")

        self._behind.add(work)
        work.add_done_callback(ended)

    async def _topic_ids(
        self, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, UUID | None]:
        """The topic ids of logs. For open logs this needs no disk. Logs whose log dir hangs are
        left out.
        """
        found: dict[TopicPartition, UUID | None] = {}
        unknown: list[TopicPartition] = []
        for place in places:
            partition = self.replicas.find(place)
            if partition is None or partition.log is None:
                unknown.append(place)
            else:
                found[place] = partition.log.topic_id
        return found | await self._log_manager.topic_ids(unknown)

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Apply the controller's brokers and partitions."""
        async with self._one_at_a_time:
            refusal = self._refusal(request)
            if refusal != ErrorCode.NONE:
                return UpdateMetadataResponse(error_code=refusal)
            await self.images.update(request)
            if request.type == FULL:
                self._has_metadata = True
                self._note_ready()
            return UpdateMetadataResponse()

    def gauges(self) -> Work[dict[str, int]]:
        """Metrics of the partitions that this broker leads."""
        return self.replicas.gauges()

    def _refusal(self, request: ControlRequest) -> int:
        """The error if a request is refused. NONE if it is accepted; then its controller epoch is
        stored.
        """
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._is_stale(request):
            return ErrorCode.STALE_BROKER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    def _is_late(self, request: LeaderAndIsrRequest) -> bool:
        """Whether a later request of the same controller was executed before this one. That can
        happen after a stall, because the broker reads its connections in any order. A late full
        request would end the roles that have begun since, also delayed ones, because it does not
        name them.
        """
        number = (request.controller_epoch, request.request_number)
        if request.request_number >= 0 and number < self._last_number:
            return True
        self._last_number = max(self._last_number, number)
        return False

    def _is_stale(self, request: ControlRequest) -> bool:
        """Whether a request is for an earlier registration of this broker. So is each request that
        arrives before this process has registered, while ZooKeeper still has the session of the
        earlier process.
        """
        mine = self._membership.broker_epoch
        return request.broker_epoch != NO_EPOCH and (mine < 0 or request.broker_epoch < mine)

    def _note_ready(self) -> None:
        if self._has_replicas and self._has_metadata:
            self.ready.set()

    # ---- executing requests ----

    async def _take_topic(
        self,
        request: LeaderAndIsrRequest,
        topic: LeaderAndIsrTopic,
        configs: Mapping[str, str],
        slices: Slices,
    ) -> list[LeaderAndIsrPartitionError]:
        rows = []
        entry = self.replicas.entry(topic.topic_name, topic.topic_id)
        if not self._is_outdated(topic):
            self._counts.apply(entry, topic.partition_count, topic.retired_from)
        entry.count_required = is_on(configs, COUNT_REQUIRED)
        entry.mirror = is_on(configs, MIRROR)
        entry.least_producer_id = least_producer_id(configs)
        log_config = self._log_manager.log_config(configs)
        stale = {
            state.partition_index
            for state in topic.partition_states
            if self._delayed.epoch(
                TopicPartition(topic.topic_name, state.partition_index), topic.topic_id
            )
            > state.leader_epoch
        }
        states = [each for each in topic.partition_states if each.partition_index not in stale]
        late = await self.replicas.open_logs(entry, topic.topic_id, states, log_config)
        for state in topic.partition_states:
            code: int = ErrorCode.STALE_BROKER_EPOCH
            role = DelayedRole(request, topic, state)
            if state.partition_index in stale:
                code = ErrorCode.STALE_CONTROLLER_EPOCH
            else:
                self._delayed.drop([role.place])
                if role.place in late:
                    code = ErrorCode.NONE
                    self._delayed.add(role)
                elif not self._is_stale(request):
                    code = self.replicas.take(entry, state, log_config)
            if code == ErrorCode.FENCED_LEADER_EPOCH and self.on_older_store is not None:
                await self.on_older_store()
            row = LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code)
            taken = code == ErrorCode.NONE and role.place not in late
            if code == ErrorCode.FENCED_LEADER_EPOCH or (taken and state.leader == NO_LEADER):
                end = self.replicas.end_of(role.place)
                if end is not None:
                    row.latest_epoch, row.log_end_offset = end
            rows.append(row)
            await slices.breathe()
        return rows

    def _is_outdated(self, topic: LeaderAndIsrTopic) -> bool:
        """Whether a later request for the topic was handled before this one. That can happen after
        a stall, because the broker reads its connections in any order. Each new count comes with
        new leader epochs.
        """
        return any(
            self._newest_epoch(
                TopicPartition(topic.topic_name, state.partition_index), topic.topic_id
            )
            > state.leader_epoch
            for state in topic.partition_states
        )

    def _newest_epoch(self, place: TopicPartition, topic_id: UUID) -> int:
        """The highest leader epoch that the controller has sent, also in a delayed role."""
        known = self.replicas.hosted.get(place)
        taken = NO_EPOCH if known is None else known.leader_epoch
        return max(taken, self._delayed.epoch(place, topic_id))

    def _stop_one(
        self,
        place: TopicPartition,
        topic: StopReplicaTopic,
        row: StopReplicaPartition,
        found: UUID | None,
    ) -> tuple[int, bool]:
        """Stop one replica, whose log has the given topic id. Returns the error code, and whether
        to delete its log.
        """
        newest = self._newest_epoch(place, topic.topic_id)
        if row.leader_epoch not in (TOPIC_DELETED, NO_EPOCH) and row.leader_epoch < newest:
            return ErrorCode.FENCED_LEADER_EPOCH, False
        if found is not None and topic.topic_id not in (ZERO_UUID, found):
            # The log belongs to another topic of that name. The log of the requested topic is gone.
            return ErrorCode.NONE, False
        self._delayed.drop([place])
        self.replicas.stop(place)
        return ErrorCode.NONE, row.delete_partition

    def _forget_if_deleted(self, topic: StopReplicaTopic) -> None:
        """Remove a topic that the controller deletes from the table."""
        if any(row.leader_epoch == TOPIC_DELETED for row in topic.partition_states):
            meant = None if topic.topic_id == ZERO_UUID else topic.topic_id.bytes
            self.replicas.forget_topic(topic.topic_name, meant)

    async def _stop_strays(self, request: LeaderAndIsrRequest, slices: Slices) -> None:
        """Stop replicas that a full request does not name. Logs of deleted topics are deleted. All
        other logs are put aside, since they may have the only copy of records.
        """
        named = {
            TopicPartition(topic.topic_name, state.partition_index)
            for topic in request.topic_states
            for state in topic.partition_states
        }
        strays = [place for place in self._log_manager.places() if place not in named]
        if not strays:
            return
        self._delayed.drop(strays)
        deleted = await self._node.run_blocking(lambda: read_deletions(self._store))
        places: dict[str, list[TopicPartition]] = {}
        for place in strays:
            self.replicas.stop(place)
            home = self._log_manager.home(place)
            if home is not None:
                places.setdefault(home.path, []).append(place)
            await slices.breathe()
        for path, found in places.items():
            paths = {path} | self._log_manager.paths(found)
            ending = asyncio.ensure_future(self._end_strays(path, found, deleted))
            if not await self._node.dirs.ended(ending, paths):
                self._go_on_with(ending)

    async def _end_strays(
        self, path: str, strays: list[TopicPartition], deleted: Mapping[str, UUID]
    ) -> None:
        """Stop the stray replicas of one log dir, unless a newer request names them."""
        slices = Slices()
        while len(found := await self._log_manager.topic_ids(strays)) < len(strays):
            await wait_for(self._node, path)
        for place, topic_id in found.items():
            if place in self.replicas.hosted:
                continue
            try:
                if topic_id is not None and deleted.get(place.topic) == topic_id:
                    await (await self.replicas.delete([place]))
                else:
                    await self._log_manager.put_aside(place)
            except (LogError, OSError) as problem:
                why = (
                    f"the log of {place}, which does not belong on this broker, was not deleted: "
                    f"{problem}"
                )
                self._node.report(why)
            await slices.breathe()

    async def _take_delayed(self, path: str) -> None:
        """Execute the delayed requests for a log dir that answers again."""
        refused = False
        async with self._one_at_a_time:
            for role in self._delayed.in_log_dir(path):
                request, topic, state = role
                if self._refusal(request) != ErrorCode.NONE:
                    self._delayed.drop([role.place])
                    continue
                one = LeaderAndIsrTopic(
                    topic_name=topic.topic_name,
                    topic_id=topic.topic_id,
                    partition_count=topic.partition_count,
                    retired_from=topic.retired_from,
                    partition_states=[state],
                )
                configs = await self.images.configs_of([(one.topic_name, one.topic_id)])
                [row] = await self._take_topic(request, one, configs[one.topic_name], Slices())
                failed = row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                refused |= failed or row.log_end_offset >= 0
        if refused and self.on_refused is not None:
            self.on_refused()
