"""One step on a share group: it collects records and timers, and has the operations that heartbeats
and departures share. The group does not change until the records are replayed.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kstore.broker.state.groups.consumer.metadata_hash import metadata_hash
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result
from kstore.broker.state.groups.share.assignor import assign
from kstore.broker.state.groups.share.group import ShareGroup
from kstore.broker.state.groups.share.member import (
    Assigned,
    Member,
    current_record,
    current_tombstone,
    member_record,
    member_tombstone,
    target_tombstone,
)
from kstore.broker.state.groups.share.records import (
    epoch_record,
    target_epoch_record,
    target_record,
)
from kstore.broker.state.groups.share.states import TopicStates, states_record
from kstore.broker.state.groups.timers import SessionExpired, TimerChange, TimerKey, has_passed
from kstore.broker.state.work import Work
from kstore.protocol.schema import Message

__all__ = ["ShareStep", "session_key"]


def session_key(group_id: str, member_id: str) -> TimerKey:
    """The timer of a member's session."""
    return ("share session", group_id, member_id)


class ShareStep:
    """The step. ``epoch`` and ``members`` are the future epoch and members of the group."""

    def __init__(self, group: ShareGroup, ctx: GroupContext) -> None:
        self.group = group
        self.ctx = ctx
        self.epoch = group.epoch
        self.members = dict(group.members)
        self.records: list[GroupRecord] = []
        self._timers: list[TimerChange] = []
        self._marks: dict[str, object] = {}

    def result(self, response: Message | None = None) -> Result:
        """The result of the step."""
        marks = tuple((self.group.group_id, name, value) for name, value in self._marks.items())
        return Result(response, tuple(self.records), timers=tuple(self._timers), marks=marks)

    def keep_session(self, member_id: str) -> None:
        """Restart a member's session."""
        group_id = self.group.group_id
        timeout_ms = self.ctx.configs["share.session.timeout.ms"]
        event = SessionExpired(group_id, member_id)
        self._timers.append(TimerChange(session_key(group_id, member_id), timeout_ms, event))

    # ---- members and topics ----

    def update_member(self, old: Member, new: Member) -> bool:
        """Persist a member's own fields. Returns whether its topics changed."""
        self.members[new.member_id] = new
        if new.member_id in self.group.members and new == old:
            return False
        self.records.append(member_record(self.group.group_id, new))
        return new.topics != old.topics

    def remove_members(self, leaving: Iterable[Member]) -> None:
        """Remove members and increase the group epoch, so that others get their partitions."""
        group_id = self.group.group_id
        for member in leaving:
            member_id = member.member_id
            del self.members[member_id]
            self.records.append(current_tombstone(group_id, member_id))
            self.records.append(target_tombstone(group_id, member_id))
            self.records.append(member_tombstone(group_id, member_id))
            self._timers.append(TimerChange(session_key(group_id, member_id), 0, None))
        self._bump_epoch(metadata_hash(self.ctx.topics, self.topics()))

    def topics(self) -> set[str]:
        """The topics that members subscribe to."""
        return {topic for member in self.members.values() for topic in member.topics}

    def update_metadata(self, *, bump: bool) -> None:
        """Compare the subscribed topics with the group's metadata hash. Increase the group epoch if
        they differ, or if ``bump`` is set.
        """
        version = self.ctx.topics.version
        if not bump and self.group.seen_image_version == version:
            return
        known = metadata_hash(self.ctx.topics, self.topics())
        if bump or known != self.group.metadata_hash:
            self._bump_epoch(known)
        self._marks["seen_image_version"] = version

    def _bump_epoch(self, known: int) -> None:
        self.epoch += 1
        self.records.append(epoch_record(self.group.group_id, self.epoch, known))

    # ---- the share partitions' state ----

    def has_unassigned(self) -> bool:
        """Whether partitions were initialized after the target assignment was computed."""
        group = self.group
        if group.epoch > group.assignment_epoch:
            return False  # the target will be computed anyway
        given: dict[UUID, set[int]] = {}
        for target in group.target.values():
            for topic_id, partitions in target.items():
                given.setdefault(topic_id, set()).update(partitions)
        wanted = self._assignable()
        return any(partitions - given.get(key, set()) for key, partitions in wanted.items())

    def _assignable(self) -> dict[UUID, frozenset[int]]:
        """The partitions of subscribed topics whose state is initialized."""
        image = self.ctx.topics.topics
        initialized = self.group.states.initialized
        ids = [image[name].topic_id for name in self.topics() if name in image]
        return {key: initialized[key].partitions for key in ids if key in initialized}

    def initialize(self) -> None:
        """Note the partitions whose state must be initialized. The runtime initializes it."""
        image, states = self.ctx.topics.topics, self.group.states
        added: dict[UUID, TopicStates] = {}
        for name in sorted(self.topics() & image.keys()):
            topic = image[name]
            if topic.topic_id in self.group.deletions:
                continue
            known: set[int] = set()
            for stage in (states.initializing, states.initialized):
                if topic.topic_id in stage:
                    known |= stage[topic.topic_id].partitions
            missing = frozenset(range(len(topic.partitions))) - known
            if missing:
                added[topic.topic_id] = TopicStates(name, missing)
        if added:
            changed = states.without_deleting(added).with_initializing(added)
            self.records.append(states_record(self.group.group_id, changed))

    # ---- assignment ----

    def update_target(self, member_id: str) -> Work[tuple[int, Assigned]]:
        """The target assignment's epoch, and a member's target. The target assignment is computed
        if the group epoch is larger than its epoch, but not more often than the assignment interval
        allows.
        """
        group = self.group
        if group.assignment_epoch >= self.epoch or not self._may_assign():
            return group.assignment_epoch, group.target.get(member_id, {})
        topics = self.ctx.topics.topics
        known: dict[frozenset[str], frozenset[UUID]] = {}
        subscriptions = {}
        for each in self.members.values():
            if each.topics not in known:
                present = (topics[name].topic_id for name in each.topics if name in topics)
                known[each.topics] = frozenset(present)
            subscriptions[each.member_id] = known[each.topics]
            yield
        targets = yield from assign(subscriptions, self._assignable(), group.target)
        for each_id, target in sorted(targets.items()):
            if each_id not in group.target or target != group.target[each_id]:
                self.records.append(target_record(group.group_id, each_id, target))
            yield
        self.records.append(target_epoch_record(group.group_id, self.epoch, self.ctx.now_ms))
        return self.epoch, targets[member_id]

    def _may_assign(self) -> bool:
        """KIP-1263: a burst of changes leads to few computations."""
        assigned_ms = self.group.assignment_timestamp_ms
        interval_ms: int = self.ctx.configs["share.assignment.interval.ms"]
        return not assigned_ms or has_passed(interval_ms, assigned_ms, self.ctx.now_ms)

    def reconcile(self, member: Member, epoch: int, target: Assigned) -> Member:
        """Assign to a member its target in the topics that it subscribes to, and persist that. No
        other member must give up partitions first.
        """
        if member.epoch == epoch and member.topics == self._topics_before(member.member_id):
            return member
        image = self.ctx.topics.topics
        wanted = {image[name].topic_id for name in member.topics if name in image}
        assigned = {key: parts for key, parts in target.items() if key in wanted and parts}
        if member.epoch == epoch:
            if assigned == member.assigned:
                return member
            moved = member._replace(assigned=assigned)
        else:
            moved = member._replace(epoch=epoch, previous_epoch=member.epoch, assigned=assigned)
        self.records.append(current_record(self.group.group_id, moved))
        return moved

    def _topics_before(self, member_id: str) -> frozenset[str]:
        known = self.group.members.get(member_id)
        return frozenset() if known is None else known.topics
