"""One step on a consumer group: it collects records and timers, and has the operations that
heartbeats, joins and departures of classic members share. The group does not change until the
records are replayed.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from uuid import UUID

from kstore.broker.state.groups.consumer.assignor_spec import (
    GroupSpec,
    MemberSpec,
    Open,
    count,
    numbered,
    open_partitions,
    unnumbered,
)
from kstore.broker.state.groups.consumer.assignors import ASSIGNORS
from kstore.broker.state.groups.consumer.group import (
    ConsumerGroup,
    Target,
    partition_metadata_tombstone,
    regex_tombstone,
    target_tombstone,
)
from kstore.broker.state.groups.consumer.member import (
    UNREVOKED_PARTITIONS,
    Member,
    current_assignment_record,
    current_assignment_tombstone,
    member_record,
    member_tombstone,
)
from kstore.broker.state.groups.consumer.metadata_hash import metadata_hash
from kstore.broker.state.groups.consumer.reconcile import Goal, Owned, reconcile
from kstore.broker.state.groups.consumer.records import (
    epoch_record,
    target_epoch_record,
    target_record,
)
from kstore.broker.state.groups.consumer.subscriptions import Subscriptions
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.result import GroupContext, Result, Token
from kstore.broker.state.groups.settings import GroupSettings
from kstore.broker.state.groups.timers import (
    RebalanceExpired,
    RegexesDue,
    SessionExpired,
    TimerChange,
    TimerEvent,
    TimerKey,
    has_passed,
)
from kstore.broker.state.linear_regex import regex_error
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode
from kstore.protocol.schema import Message

__all__ = ["ConsumerStep", "Refusal", "may_assign", "session_timer", "timer_key"]

REGEX_REFRESH_MIN_MS = 10_000
ROWS_PER_MS = 10_000
"""Limits how often the target is computed: (members + partitions) x members rows of work divided by
this are the ms between two computations. With a thousand members that share a thousand partitions
this is 200 ms; with 50 members, none. A computation for a thousand members takes about 6 ms, and
several times as long on a busy machine.
"""
TIMERS_OF_MEMBER = ("session", "rebalance", "rejoin", "sync")


class Refusal(NamedTuple):
    """Why a request is refused."""

    error_code: int
    message: str


def timer_key(what: str, group_id: str, member_id: str) -> TimerKey:
    """The key of a member's timer: session, rebalance, or a classic member's rejoin or sync."""
    return (f"consumer {what}", group_id, member_id)


def session_timer(group_id: str, member_id: str, timeout_ms: int) -> TimerChange:
    """The change that restarts a member's session."""
    key = timer_key("session", group_id, member_id)
    return TimerChange(key, timeout_ms, SessionExpired(group_id, member_id))


def may_assign(group: ConsumerGroup, ctx: GroupContext) -> bool:
    """KIP-1263: a burst of changes leads to few computations, however short the interval is.
    Otherwise a thousand members that join at once would each wait for all earlier computations. The
    first heartbeat after the interval triggers it.
    """
    assigned_ms = group.assignment_timestamp_ms
    members = len(group.members)
    least_ms = members * (members + len(group.owned)) // ROWS_PER_MS
    interval_ms = max(ctx.configs["consumer.assignment.interval.ms"], least_ms)
    return not assigned_ms or has_passed(interval_ms, assigned_ms, ctx.now_ms)


class ConsumerStep:
    """The step. ``epoch`` is the future epoch of the group."""

    def __init__(self, group: ConsumerGroup, ctx: GroupContext, settings: GroupSettings) -> None:
        self.group = group
        self.ctx = ctx
        self.settings = settings
        self.epoch = group.epoch
        self.records: list[GroupRecord] = []
        self.completions: list[tuple[Token, Message]] = []
        self._timers: dict[TimerKey, TimerChange] = {}
        self._marks: dict[str, object] = {}

    def result(self, response: Message | None = None) -> Result:
        """The result of the step."""
        marks = tuple((self.group.group_id, name, value) for name, value in self._marks.items())
        return Result(
            response,
            tuple(self.records),
            tuple(self.completions),
            tuple(self._timers.values()),
            marks=marks,
        )

    # ---- timers ----

    def set_timer(
        self, key: TimerKey, delay_ms: int, event: TimerEvent, *, only_if_absent: bool = False
    ) -> None:
        """Set a timer."""
        self._timers[key] = TimerChange(key, delay_ms, event, only_if_absent)

    def cancel_timer(self, what: str, member_id: str) -> None:
        """Cancel a timer of a member."""
        key = timer_key(what, self.group.group_id, member_id)
        self._timers[key] = TimerChange(key, 0, None)

    def keep_session(self, member_id: str, timeout_ms: int | None = None) -> None:
        """Restart a member's session. The timeout is the group's, or a classic member's own."""
        group_id = self.group.group_id
        if timeout_ms is None:
            timeout_ms = self.ctx.configs["consumer.session.timeout.ms"]
        change = session_timer(group_id, member_id, timeout_ms)
        self._timers[change.key] = change

    def set_rebalance_timer(self, member: Member) -> None:
        """Set the timer that removes a member that does not give up its partitions."""
        group_id = self.group.group_id
        event = RebalanceExpired(group_id, member.member_id, member.epoch)
        key = timer_key("rebalance", group_id, member.member_id)
        self.set_timer(key, member.rebalance_timeout_ms, event)

    # ---- subscriptions ----

    def update_member(self, old: Member, new: Member) -> bool:
        """Persist a member's own fields. Returns whether its topics changed."""
        if new == old:
            return False
        self.records.append(member_record(self.group.group_id, new))
        return new.topics != old.topics

    def update_regex(self, old: Member, new: Member) -> tuple[bool, bool] | Refusal:
        """Process a member's regular expression. Returns whether it changed, and whether the group
        epoch must increase.

        A new expression is resolved after this step. The epoch increases then.
        """
        group = self.group
        changed = (old.regex or "") != (new.regex or "")
        bump = False
        resolve = False
        if changed:
            if old.regex and group.subscriptions.having(old.regex) == 1:
                self.records.append(regex_tombstone(group.group_id, old.regex))
            if not new.regex:
                bump = True
            elif not group.subscriptions.having(new.regex):
                problem = regex_error(new.regex)
                if problem is not None:
                    text = f"SubscribedTopicRegex {new.regex!r} can't be understood: {problem}."
                    return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, text)
                resolve = True
            else:
                bump = new.regex in group.regexes
        if resolve or new.regex or group.regexes:
            self._refresh_regexes(old, new, resolve)
        return changed, bump

    def _refresh_regexes(self, old: Member, new: Member, resolve: bool) -> None:
        group = self.group
        refreshed_ms = next((r.timestamp_ms for r in group.regexes.values()), None)
        now_ms = self.ctx.now_ms
        if refreshed_ms is not None and not has_passed(REGEX_REFRESH_MIN_MS, refreshed_ms, now_ms):
            return
        wanted = group.subscriptions_with(old, new).regexes
        resolve = (
            resolve
            or len(wanted) != len(group.regexes)
            or group.regexes_image_version != self.ctx.topics.version
            or refreshed_ms is None
            or has_passed(self.settings.consumer_regex_refresh_interval_ms, refreshed_ms, now_ms)
        )
        if resolve and wanted:
            self.set_timer(("regexes", group.group_id), 0, RegexesDue(group.group_id))

    def topics_may_differ(self) -> bool:
        """Whether the metadata has changed since the group's topics were last compared."""
        return self.group.seen_image_version != self.ctx.topics.version

    def update_metadata(self, subscriptions: Subscriptions, *, bump: bool) -> None:
        """Compare the subscribed topics with the group's metadata hash. Increase the group epoch if
        they differ, or if ``bump`` is set.
        """
        group = self.group
        names = group.subscribed_topics(subscriptions)
        known = metadata_hash(self.ctx.topics, names)
        if bump or known != group.metadata_hash:
            self.bump_epoch(known)
        self._marks["seen_image_version"] = self.ctx.topics.version
        if group.has_partition_metadata:
            self.records.append(partition_metadata_tombstone(group.group_id))

    def bump_epoch(self, known: int) -> None:
        """Persist the next group epoch, with the metadata hash."""
        self.epoch += 1
        self.records.append(epoch_record(self.group.group_id, self.epoch, known))

    def mark_regexes_resolved(self) -> None:
        """Note the metadata version for which the regular expressions were resolved."""
        self._marks["regexes_image_version"] = self.ctx.topics.version

    # ---- assignment ----

    def update_target(self, old: Member, new: Member) -> Work[tuple[int, Target]]:
        """The target assignment's epoch, and the target of ``new``. The target assignment is
        computed if the group epoch is larger than its epoch, but not more often than the assignment
        interval allows.
        """
        group = self.group
        previous_id = group.static_members.get(new.instance_id or "", new.member_id)
        if group.assignment_epoch >= self.epoch or not may_assign(group, self.ctx):
            owner_id = new.member_id if new.instance_id is None else previous_id
            return group.assignment_epoch, group.target_of(owner_id)
        members = group.with_member(old, new)
        places = open_partitions(map(self.ctx.topics.topics.__getitem__, self.ctx.topics.ordered))
        spec = yield from self._group_spec(members, old, new, previous_id, places)
        assigned = yield from ASSIGNORS[self._assignor_name(members)](spec)
        targets = {member_id: unnumbered(each, places) for member_id, each in assigned.items()}
        for member_id, target in targets.items():
            if target != group.target.get(member_id):
                self.records.append(target_record(group.group_id, member_id, target))
            yield
        self.records.append(target_epoch_record(group.group_id, self.epoch, self.ctx.now_ms))
        return self.epoch, targets[new.member_id]

    def _group_spec(
        self, members: list[Member], old: Member, new: Member, previous_id: str, places: Open
    ) -> Work[GroupSpec]:
        """The assignor's input. ``previous_id`` is the former id of ``new``."""
        group, topics = self.group, self.ctx.topics.topics
        specs: dict[str, MemberSpec] = {}
        partitions: dict[UUID, int] = {}
        known: dict[frozenset[str], frozenset[UUID]] = {}
        # Sorted by id, so that the result does not depend on the order of requests.
        for member in sorted(members, key=lambda each: each.member_id):
            names = group.topics_of(member)
            if names not in known:
                present = [topics[name] for name in names if name in topics]
                partitions.update((topic.topic_id, count(topic)) for topic in present)
                known[names] = frozenset(topic.topic_id for topic in present)
            owner_id = previous_id if member is new else member.member_id
            specs[member.member_id] = MemberSpec(
                member.instance_id, known[names], numbered(group.target_of(owner_id), places)
            )
            yield
        homogeneous = group.subscriptions_with(old, new).homogeneous
        return GroupSpec(specs, partitions, homogeneous)

    def _assignor_name(self, members: list[Member]) -> str:
        """The assignor that most members choose. Members without a choice are not counted."""
        named = Counter(member.assignor for member in members if member.assignor)
        chosen = named.most_common(1)[0][0] if named else self.settings.consumer_assignors[0]
        return chosen if chosen in ASSIGNORS else "uniform"

    def reconcile(
        self, member: Member, target: tuple[int, Target], *, changed: bool, owned: Owned | None
    ) -> Member:
        """Move a member one step towards its target, and persist that."""
        topics = self.ctx.topics.topics
        goal = Goal(
            *target,
            {topics[name].topic_id for name in self.group.topics_of(member) if name in topics},
            changed,
            self.group.owned.keys(),
        )
        moved = reconcile(member, goal, owned)
        if moved != member:
            self.records.append(current_assignment_record(self.group.group_id, moved))
            if moved.classic is None:
                if moved.state == UNREVOKED_PARTITIONS:
                    self.set_rebalance_timer(moved)
                else:
                    self.cancel_timer("rebalance", moved.member_id)
        return moved

    # ---- departures ----

    def remove_members(self, leaving: list[Member]) -> None:
        """Remove members and increase the group epoch, so that others get their partitions."""
        group = self.group
        for member in leaving:
            self.remove_records(member.member_id)
        left = {member.member_id for member in leaving}
        staying = group.subscriptions.after(group.members[member_id] for member_id in left)
        for regex in sorted({m.regex for m in leaving if m.regex} - staying.regexes):
            self.records.append(regex_tombstone(group.group_id, regex))
        self.bump_epoch(metadata_hash(self.ctx.topics, group.subscribed_topics(staying)))
        for member in leaving:
            for what in TIMERS_OF_MEMBER:
                self.cancel_timer(what, member.member_id)

    def remove_records(self, member_id: str) -> None:
        """The tombstones of one member."""
        group_id = self.group.group_id
        self.records.append(current_assignment_tombstone(group_id, member_id))
        self.records.append(target_tombstone(group_id, member_id))
        self.records.append(member_tombstone(group_id, member_id))

    def replace_static(self, old: Member, new_member_id: str) -> Member:
        """Move everything of a static member to its new id."""
        new = old._replace(member_id=new_member_id, epoch=0, previous_epoch=0)
        group_id = self.group.group_id
        self.remove_records(old.member_id)
        self.records.append(member_record(group_id, new))
        target = self.group.target_of(old.member_id)
        self.records.append(target_record(group_id, new_member_id, target))
        self.records.append(current_assignment_record(group_id, new))
        return new
