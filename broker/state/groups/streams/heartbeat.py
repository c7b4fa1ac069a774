"""StreamsGroupHeartbeat (KIP-1071): members join, stay, get tasks and leave.

A step reads the group and returns the records that change it, and marks that change soft state. The
order of the decisions, and so of records and statuses, is Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable

from kstore.broker.state.groups.contract import Group, ShardState, absence
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.broker.state.groups.streams.describe import endpoint_partitions
from kstore.broker.state.groups.streams.group import (
    STREAMS_KIND,
    MemberState,
    SoftState,
    StreamsGroup,
    StreamsMember,
)
from kstore.broker.state.groups.streams.reconcile import reconcile_member
from kstore.broker.state.groups.streams.records import (
    current_record,
    epoch_record,
    member_record,
    topology_record,
)
from kstore.broker.state.groups.streams.requests import JOIN_EPOCH
from kstore.broker.state.groups.streams.target import (
    TargetAssignment,
    assignment_configs,
    assignment_is_due,
    compute_target,
    configured_topology,
    metadata_hash,
)
from kstore.broker.state.groups.streams.tasks import (
    NO_TASKS,
    TaskId,
    Tasks,
    by_subtopology,
    task_ids,
)
from kstore.broker.state.groups.streams.timers import (
    cancel_rebalance_timer,
    delay_timer,
    leave_group,
    rebalance_timer,
    session_timer,
)
from kstore.broker.state.groups.streams.topics import (
    ASSIGNMENT_DELAYED,
    SHUTDOWN_APPLICATION,
    STALE_TOPOLOGY,
    ConfiguredTopology,
)
from kstore.broker.state.groups.streams.topology import StreamsError, Topology, topology_value
from kstore.broker.state.groups.timers import TimerChange
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.groups.streams_groups import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatResponseTaskIds,
)

__all__ = ["heartbeat"]

NO_TIMEOUT = -1
NOT_VALIDATED = -1


def heartbeat(
    shard: ShardState,
    group: Group | None,
    request: StreamsGroupHeartbeatRequest,
    ctx: GroupContext,
) -> Work[Result]:
    """Decide about one heartbeat, which has passed `requests.check_heartbeat`."""
    try:
        if request.member_epoch < JOIN_EPOCH:
            return leave_group(group, request)
        return (yield from _Step(shard, group, request, ctx).run())
    except StreamsError as problem:
        response = StreamsGroupHeartbeatResponse(
            error_code=problem.code, error_message=problem.message
        )
        return Result(response)


class _Step:
    """One heartbeat of a member that joins or stays."""

    def __init__(
        self,
        shard: ShardState,
        known: Group | None,
        request: StreamsGroupHeartbeatRequest,
        ctx: GroupContext,
    ) -> None:
        self.request = request
        self.ctx = ctx
        self.is_known = known is not None
        self.records: list[GroupRecord] = []
        self.timers: list[TimerChange] = []
        self.statuses: list[Status] = []
        self.group = self._group(shard, known)
        self.soft = self.group.soft
        self.owned = _owned_tasks(request)
        self.bumped = False

    def _group(self, shard: ShardState, known: Group | None) -> StreamsGroup:
        group_id = self.request.group_id
        if self.request.member_epoch != JOIN_EPOCH:
            return _streams_group(known, group_id)
        if known is None or (known.kind == "classic" and known.is_empty):
            # The streams group replaces an empty classic group, whose offsets stay.
            self.records += [] if known is None else known.tombstones()
            return StreamsGroup(group_id)
        group = _streams_group(known, group_id)
        if len(group.members) >= shard.settings.streams_max_size:
            raise StreamsError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"Group {group_id} is full with {len(group.members)} members: remove one first.",
            )
        return group

    def run(self) -> Work[Result]:
        """Make the decision."""
        group, group_id = self.group, self.group.group_id
        member = self._member()
        updated = self._updated(member)
        if updated != member:
            self.records.append(member_record(group_id, updated))
            self.bumped = True
        topology = self._topology()
        if group.topology is not None and updated.topology_epoch < group.topology.epoch:
            self._add_status(
                STALE_TOPOLOGY,
                f"Member {updated.member_id} has topology epoch {updated.topology_epoch}, the "
                f"group has {group.topology.epoch}: update the member's application.",
            )
        configured = self._configured(topology)
        epoch, configs = self._epoch(topology, configured)
        target = yield from self._target(updated, configured, epoch, configs)
        reconciled = reconcile_member(
            group, updated, target.epoch, target.tasks.get(updated.member_id, NO_TASKS), self.owned
        )
        self._take_reconciled(updated, reconciled)
        self.timers.append(session_timer(self.ctx, group_id, updated.member_id))
        if self.request.shutdown_application and self.soft.shutdown_member_id is None:
            self.soft = self.soft._replace(shutdown_member_id=updated.member_id)
        response = self._response(member, reconciled, configured)
        return Result(response, tuple(self.records), timers=tuple(self.timers), marks=self._marks())

    # ---- the member ----

    def _member(self) -> StreamsMember:
        member_id, epoch = self.request.member_id, self.request.member_epoch
        member = self.group.members.get(member_id)
        if epoch == JOIN_EPOCH:
            return member or StreamsMember(member_id)
        if member is None:
            raise StreamsError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Group {self.group.group_id} has no member {member_id}: join with epoch 0.",
            )
        if epoch > member.member_epoch or (
            epoch < member.member_epoch and not self._missed_one_answer(member)
        ):
            raise StreamsError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"Member {member_id} sent epoch {epoch} and has {member.member_epoch}: it must "
                "give up its tasks and join again.",
            )
        return member

    def _missed_one_answer(self, member: StreamsMember) -> bool:
        """Whether the member has missed only the response with the new epoch."""
        return (
            self.request.member_epoch == member.previous_member_epoch
            and self.owned is not None
            and member.assigned.contains(self.owned)
        )

    def _updated(self, member: StreamsMember) -> StreamsMember:
        """The member with this request's values."""
        request = self.request
        updated = member._replace(
            client_id=self.ctx.client_id,
            client_host=self.ctx.client_host,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            process_id=member.process_id if request.process_id is None else request.process_id,
        )
        if request.rebalance_timeout_ms != NO_TIMEOUT:
            updated = updated._replace(rebalance_timeout_ms=request.rebalance_timeout_ms)
        if request.topology is not None:
            updated = updated._replace(topology_epoch=request.topology.epoch)
        if request.user_endpoint is not None:
            endpoint = (request.user_endpoint.host, request.user_endpoint.port)
            updated = updated._replace(user_endpoint=endpoint)
        if request.client_tags is not None:
            tags = {tag.key: tag.value for tag in request.client_tags}
            if len(tags) != len(request.client_tags):
                raise StreamsError(ErrorCode.UNKNOWN_SERVER_ERROR)
            updated = updated._replace(client_tags=tuple(sorted(tags.items())))
        return updated

    def _take_reconciled(self, before: StreamsMember, after: StreamsMember) -> None:
        if after == before:
            return
        group_id = self.group.group_id
        self.records.append(current_record(group_id, after))
        if after.state == MemberState.UNREVOKED_TASKS:
            self.timers.append(rebalance_timer(group_id, after))
        else:
            self.timers.append(cancel_rebalance_timer(group_id, after.member_id))

    # ---- the group ----

    def _topology(self) -> Topology:
        """The group's topology: the first one that a member sends."""
        present, sent = self.group.topology, self.request.topology
        if sent is None:
            if present is None:
                raise StreamsError(ErrorCode.UNKNOWN_SERVER_ERROR)
            return present
        value = topology_value(sent)
        topology = Topology(value)
        if present is None:
            self.records.append(topology_record(self.group.group_id, value))
            return topology
        if present.epoch <= topology.epoch and present != topology:
            raise StreamsError(
                ErrorCode.INVALID_REQUEST,
                f"Group {self.group.group_id} keeps its topology of epoch {present.epoch}: use "
                "another application id for another topology.",
            )
        return present

    def _configured(self, topology: Topology) -> ConfiguredTopology:
        """The topology matched with the topics. It is matched again when these have changed."""
        image, configured = self.ctx.topics, self.soft.configured
        is_new = self.group.topology is None
        self.metadata_hash = self.group.metadata_hash
        if not is_new and configured is not None and self.soft.image_version == image.version:
            return configured
        self.metadata_hash = metadata_hash(topology, image)
        if self.metadata_hash != self.group.metadata_hash:
            self.bumped = is_new = True
        if is_new or configured is None:
            configured = configured_topology(topology, image)
        self.soft = self.soft._replace(configured=configured, image_version=image.version)
        return configured

    def _epoch(
        self, topology: Topology, configured: ConfiguredTopology
    ) -> tuple[int, dict[str, str]]:
        """The group epoch and the assignor's settings, after a change that requires a rebalance."""
        group = self.group
        validated = NOT_VALIDATED
        if configured.is_ready:
            validated = topology.epoch
            self._check_owned(configured)
        configs = assignment_configs(self.ctx)
        changed = validated != group.validated_topology_epoch
        if not (self.bumped or changed or configs != group.assignment_configs):
            return group.group_epoch, configs
        epoch = group.group_epoch + 1
        self.records.append(
            epoch_record(group.group_id, epoch, self.metadata_hash, validated, configs)
        )
        return epoch, configs

    def _check_owned(self, configured: ConfiguredTopology) -> None:
        subtopologies = configured.subtopologies or {}
        for entries in (self.request.active_tasks, self.request.standby_tasks):
            for entry in entries or ():
                subtopology = subtopologies.get(entry.subtopology_id)
                count = 0 if subtopology is None else subtopology.tasks
                wrong = [part for part in entry.partitions if not 0 <= part < count]
                if subtopology is None or wrong:
                    raise StreamsError(
                        ErrorCode.INVALID_REQUEST,
                        f"Subtopology {entry.subtopology_id} has {count} tasks, not {wrong}.",
                    )

    def _target(
        self,
        member: StreamsMember,
        configured: ConfiguredTopology,
        epoch: int,
        configs: dict[str, str],
    ) -> Work[TargetAssignment]:
        """The target assignment. It is computed again if the epoch requires that and the interval
        is over.
        """
        group, ctx = self.group, self.ctx
        if group.is_empty and not self.soft.delay_pending:
            delay_ms = ctx.configs["streams.initial.rebalance.delay.ms"]
            if delay_ms > 0:
                self.timers.append(delay_timer(group.group_id, delay_ms))
                self.soft = self.soft._replace(delay_pending=True)
        if self.soft.delay_pending:
            self._add_status(
                ASSIGNMENT_DELAYED,
                "Tasks follow when streams.initial.rebalance.delay.ms is over.",
            )
            return TargetAssignment(group.assignment_epoch, {})
        if group.assignment_epoch >= epoch:
            return TargetAssignment(group.assignment_epoch, group.targets)
        if not assignment_is_due(group, ctx):
            self._add_status(
                ASSIGNMENT_DELAYED,
                "New tasks follow when streams.assignment.interval.ms is over.",
            )
            return TargetAssignment(group.assignment_epoch, group.targets)
        members = {**group.members, member.member_id: member}
        target = yield from compute_target(group, members, configured, epoch, configs, ctx.now_ms)
        self.records += target.records
        return target

    # ---- the answer ----

    def _response(
        self, before: StreamsMember, member: StreamsMember, configured: ConfiguredTopology
    ) -> StreamsGroupHeartbeatResponse:
        request = self.request
        response = StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self.ctx.configs["streams.heartbeat.interval.ms"],
        )
        changed = request.member_epoch == JOIN_EPOCH or before.assigned != member.assigned
        # A member that reports other tasks has missed the last response. Kafka 4.3.1 does not
        # repeat the tasks, so there the member waits until the next rebalance.
        if changed or (self.owned is not None and not member.assigned.equals(self.owned)):
            response.active_tasks = _task_ids(member.assigned.active)
            response.standby_tasks = _task_ids(member.assigned.standby)
            response.warmup_tasks = _task_ids(member.assigned.warmup)
        if changed and member.user_endpoint is not None:
            endpoint_epoch = self.soft.endpoint_epoch + 1
            self.soft = self.soft._replace(endpoint_epoch=endpoint_epoch)
        if self.soft.endpoint_epoch != request.endpoint_information_epoch:
            others = [m for m in self.group.members.values() if m.member_id != member.member_id]
            response.partitions_by_user_endpoint = endpoint_partitions(
                [*others, member], configured, self.ctx.topics
            )
        if self.is_known:
            response.endpoint_information_epoch = self.soft.endpoint_epoch
        if configured.problem is not None:
            self.statuses.append(configured.problem)
        if self.soft.shutdown_member_id is not None:
            self._add_status(
                SHUTDOWN_APPLICATION,
                f"Member {self.soft.shutdown_member_id} has failed permanently and asks the whole "
                "application to stop.",
            )
        response.status = self.statuses
        return response

    def _add_status(self, code: int, detail: str) -> None:
        self.statuses.append(Status(status_code=code, status_detail=detail))

    def _marks(self) -> tuple[tuple[str, str, SoftState], ...]:
        if self.soft == self.group.soft:
            return ()
        soft = self.soft
        if not self.is_known:
            # Kafka creates a new group twice, here and on replay, and only the delay's timer
            # remains.
            soft = SoftState(delay_pending=soft.delay_pending)
        return ((self.group.group_id, "soft", soft),)


def _streams_group(known: Group | None, group_id: str) -> StreamsGroup:
    if isinstance(known, StreamsGroup):
        return known
    raise StreamsError(ErrorCode.GROUP_ID_NOT_FOUND, absence(known, group_id, STREAMS_KIND))


def _owned_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """The tasks that the member reports. None if it reports none."""
    active, standby = request.active_tasks, request.standby_tasks
    if active is None or standby is None or request.warmup_tasks is None:
        return None
    return Tasks(task_ids(active), task_ids(standby), task_ids(request.warmup_tasks))


def _task_ids(tasks: Iterable[TaskId]) -> list[StreamsGroupHeartbeatResponseTaskIds]:
    return by_subtopology(tasks, StreamsGroupHeartbeatResponseTaskIds)
