"""A member of a group with the consumer protocol (KIP-848): in one heartbeat request, the
coordinator sends the member its assignment, and the member reports what it has taken over.

A state machine like classic_member, with the same methods: they report what happened and when, and
return effects; `advance` is due at `next_wakeup`. The member creates its id and keeps it. A field
is sent only when it has changed, or when a response was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any
from uuid import UUID

from kstore.clients.core.group.group_step import (
    COORDINATOR_LOADING,
    COORDINATOR_MOVED,
    Backoff,
    CommitClaim,
    Effect,
    Fail,
    ForgetCoordinator,
    GroupTopic,
    HandOver,
    LookUp,
    MemberSettings,
    Send,
)
from kstore.errors import CommitFailedError, ErrorCode, error_for
from kstore.protocol.groups.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
)
from kstore.protocol.schema import Message
from kstore.types import TopicPartition

__all__ = ["ConsumerMember", "MemberState"]

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
NOBODY: frozenset[TopicPartition] = frozenset()
FENCED = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
AssignedIds = frozenset[tuple[UUID, int]]


class MemberState(Enum):
    """The state of a member, with the names of Kafka's consumer."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    """There is an assignment that the user does not have yet."""
    ACKNOWLEDGING = "acknowledging"
    """The user has the assignment; the coordinator must be informed."""
    STABLE = "stable"
    FENCED = "fenced"
    """Fenced: the user learns what it has lost, then the member joins again."""
    PREPARE_LEAVING = "prepare leaving"
    """The user gives up its partitions before the member leaves."""
    STALE = "stale"
    """Left because the user did not poll in time; joins again with the next poll."""
    FATAL = "fatal"
    """Only the user can fix it; a new subscription tries again."""


IN_GROUP = {
    MemberState.JOINING,
    MemberState.RECONCILING,
    MemberState.ACKNOWLEDGING,
    MemberState.STABLE,
    MemberState.PREPARE_LEAVING,
}
AT_ONCE = {MemberState.JOINING, MemberState.ACKNOWLEDGING}


class ConsumerMember:
    """A member. `owned` are the partitions that the user knows as its own."""

    def __init__(
        self, settings: MemberSettings, member_id: str, chance: Callable[[], float]
    ) -> None:
        """``member_id`` is new and random: KIP-1082."""
        self._settings = settings
        self.member_id = member_id
        self._backoff = Backoff(settings, chance)
        self.state = MemberState.UNSUBSCRIBED
        self.epoch = JOIN_EPOCH
        self.owned = NOBODY
        self._topics: frozenset[str] | None = None
        self._pattern: str | None = None
        self._names: dict[UUID, str] = {}
        self._target: AssignedIds | None = None
        """The coordinator's last assignment; None: none yet in this membership."""
        self._acknowledged: AssignedIds = frozenset()
        """What the user has, to be sent to the coordinator."""
        self._looking = False
        self._look_ms = 0
        self._sent: dict[str, object] = {}
        self._handing_over: HandOver | None = None
        self._reconciled: AssignedIds | None = None
        self._polled_ms: int | None = None
        self._interval_ms = 0
        self._sent_ms = 0
        self._retry_ms = 0
        self._hurried = False
        self._is_back = False
        self._may_be_known = False
        """Whether the coordinator may have this member although it must join again."""
        self._in_flight: Message | None = None

    # Calls of the user.

    def subscribe(
        self, topics: frozenset[str], now_ms: int, pattern: str | None = None
    ) -> list[Effect]:
        """The topics to read now, or an RE2J pattern that the coordinator matches."""
        changed = (topics, pattern) != (self._topics, self._pattern)
        self._topics, self._pattern = topics, pattern
        if self.state in (MemberState.UNSUBSCRIBED, MemberState.FATAL):
            self._join()
        elif changed:
            self._hurried = True
        return self.advance(now_ms)

    def polled(self, now_ms: int) -> list[Effect]:
        """The user has called poll."""
        self._polled_ms = now_ms
        if self.state is MemberState.STALE:
            self._is_back = True
            self._come_back()
        return self.advance(now_ms)

    def leave(self, now_ms: int, *, hand_over: bool = True) -> list[Effect]:
        """Give up all partitions, then leave; a static member keeps its place for a while."""
        self._topics, self._pattern = None, None
        if hand_over and self.owned and self._handing_over is None:
            change = HandOver(revoked=self.owned, commit=True)
            if self.state not in IN_GROUP or self.epoch <= JOIN_EPOCH:
                change = HandOver(lost=self.owned)
            self.state = MemberState.PREPARE_LEAVING
            return [self._hand_over(change)]
        self.owned = NOBODY
        return self._leave(MemberState.UNSUBSCRIBED)

    # Calls of the shell.

    def metadata_changed(self, topics: Mapping[str, GroupTopic], now_ms: int) -> list[Effect]:
        """The topics that exist."""
        used = {topic_id for topic_id, _ in (self._target or frozenset()) | self._acknowledged}
        kept = {topic_id: name for topic_id, name in self._names.items() if topic_id in used}
        self._names = kept | {topic.topic_id: name for name, topic in topics.items()}
        return self.advance(now_ms)

    def topics_known(self, topics: Mapping[str, GroupTopic], now_ms: int) -> list[Effect]:
        """The metadata that LookUp requested. The broker may not know a new topic yet."""
        self._looking = False
        self._look_ms = now_ms + self._settings.retry_backoff_max_ms
        return self.metadata_changed(topics, now_ms)

    def handed_over(self, now_ms: int) -> list[Effect]:
        """The user knows the new assignment, and has given up what it had to."""
        done, self._handing_over = self._handing_over, None
        if done is not None:
            self.owned = (self.owned - done.revoked - done.lost) | (done.added or NOBODY)
        reconciled, self._reconciled = self._reconciled, None
        if self.state is MemberState.RECONCILING and reconciled is not None:
            self._acknowledged = reconciled
            self.state = MemberState.ACKNOWLEDGING
        elif self.state is MemberState.FENCED:
            self._lose_or_join()
        elif self.state is MemberState.STALE and self.owned:
            return [self._hand_over(HandOver(lost=self.owned))]
        elif self.state is MemberState.STALE:
            self._come_back()
        elif self.state is MemberState.PREPARE_LEAVING:
            return self._leave(MemberState.UNSUBSCRIBED)
        return self._lost_first() + self.advance(now_ms)

    def answered(self, request: Message, response: Message, now_ms: int) -> list[Effect]:
        """The response to a heartbeat."""
        if request is not self._in_flight:
            return []  # the response to leaving, or of another membership
        self._in_flight = None
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code != ErrorCode.NONE:
            return self._refused(response, now_ms) + self.advance(now_ms)
        self._backoff.reset()
        self._may_be_known = False
        self._interval_ms = response.heartbeat_interval_ms
        if self.state in IN_GROUP:
            self.epoch = response.member_epoch
            self._take(response.assignment)
        return self.advance(now_ms)

    def failed(self, request: Message, now_ms: int) -> list[Effect]:
        """The request failed. The next heartbeat sends all fields, because it is unknown what
        arrived.
        """
        if request is self._in_flight:
            self._in_flight = None
            self._sent = {}
            self._may_be_known |= self.state is MemberState.JOINING
            self._retry(now_ms)
        else:
            self._may_be_known = True  # the request to leave was lost
        return self.advance(now_ms)

    # Time.

    def advance(self, now_ms: int) -> list[Effect]:
        """Do what is due."""
        if self._polled_ms is None or self.state not in IN_GROUP:
            return []
        if now_ms - self._polled_ms > self._settings.max_poll_interval_ms:
            return self._go_stale()
        effects = self._reconcile(now_ms)
        if self._may_send and now_ms >= self._due_ms():
            effects.append(self._heartbeat(now_ms))
            effects += self._reconcile(now_ms)
        return effects

    def next_wakeup(self, now_ms: int) -> int | None:
        """When to call `advance` if nothing else happens; None: never."""
        if self._polled_ms is None or self.state not in IN_GROUP:
            return None
        expires_ms = self._polled_ms + self._settings.max_poll_interval_ms + 1
        times = [expires_ms]
        if self._may_send:
            times.append(self._due_ms())
        waits = self.state is MemberState.RECONCILING and self._handing_over is None
        if waits and not self._looking:
            times.append(self._look_ms)
        return min(times)

    def hurry(self, now_ms: int) -> list[Effect]:
        """Send the next heartbeat at once (KIP-253)."""
        self._hurried = True
        return self.advance(now_ms)

    @property
    def _may_send(self) -> bool:
        """One heartbeat at a time; a member that is fenced while it leaves does not join again."""
        leaving = self.state is MemberState.PREPARE_LEAVING and self.epoch == JOIN_EPOCH
        return self._in_flight is None and not leaving

    def _due_ms(self) -> int:
        if self._hurried or self.state in AT_ONCE:
            return self._retry_ms
        return max(self._sent_ms + self._interval_ms, self._retry_ms)

    def _retry(self, now_ms: int) -> None:
        self._retry_ms = now_ms + self._backoff.next_ms()
        self._hurried = True

    @property
    def is_fresh(self) -> bool:
        """Whether it is about to join, and no listener runs."""
        return self.state is MemberState.JOINING and self._handing_over is None

    # Commits.

    def claim(self) -> CommitClaim:
        """The member that commits. Raises CommitFailedError if it is not in the group."""
        if self.epoch <= JOIN_EPOCH or self.state not in IN_GROUP:
            raise CommitFailedError(
                "the consumer is not, or no longer, a member of its group: its partitions may be "
                "assigned to others. Poll more often, or reduce max.poll.records"
            )
        return CommitClaim(self.epoch, self.member_id, self._settings.instance_id)

    def commit_failed(self, code: int, claim: CommitClaim, now_ms: int) -> list[Effect]:
        """A commit was refused; the next heartbeat shows why."""
        return self.hurry(now_ms) if code in FENCED else self.advance(now_ms)

    # Joining, and being fenced.

    def _join(self) -> None:
        wanted = self._topics is not None or self._pattern is not None
        self.state = MemberState.JOINING if wanted else MemberState.UNSUBSCRIBED
        self._forget()

    def _come_back(self) -> None:
        """From STALE: the user polls, and knows what it has lost."""
        if self._is_back and not self.owned and self._handing_over is None:
            self._is_back = False
            self._join()

    def _forget(self) -> None:
        """Reset the state of the membership."""
        self.epoch = JOIN_EPOCH
        self._target, self._reconciled = None, None
        self._acknowledged = frozenset()
        self._looking = False
        self._sent = {}
        self._may_be_known |= self._in_flight is not None
        self._in_flight = None

    def _hand_over(self, change: HandOver) -> HandOver:
        self._handing_over = change
        return change

    def _lost_first(self) -> list[Effect]:
        """In FENCED: report to the user what it has lost."""
        if self.state is MemberState.FENCED and self._handing_over is None and self.owned:
            return [self._hand_over(HandOver(lost=self.owned))]
        return []

    def _lose_or_join(self) -> None:
        if not self.owned and self._handing_over is None:
            self._join()

    def _refused(self, response: ConsumerGroupHeartbeatResponse, now_ms: int) -> list[Effect]:
        code = response.error_code
        self._sent = {}
        if code in FENCED and self.state is MemberState.PREPARE_LEAVING:
            self._forget()
            return []
        if code in FENCED:
            self._may_be_known = code == ErrorCode.FENCED_MEMBER_EPOCH
            self.state = MemberState.FENCED
            self._forget()
            self._lose_or_join()
            return self._lost_first()
        self._retry(now_ms)
        if code in COORDINATOR_MOVED or code == ErrorCode.REQUEST_TIMED_OUT:
            return [ForgetCoordinator()]
        if code == ErrorCode.UNRELEASED_INSTANCE_ID and self._may_be_known:
            # This member itself may have the instance id: release it, then join.
            self._may_be_known = False
            return [self._farewell()]
        error = error_for(code, response.error_message)
        if code in COORDINATOR_LOADING or error.retriable:
            return []
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return [Fail(error)]  # the member stays, and retries
        return self._fail(error)

    def _fail(self, error: Exception) -> list[Effect]:
        self.state = MemberState.FATAL
        self._forget()
        effects: list[Effect] = []
        if self.owned and self._handing_over is None:
            effects.append(self._hand_over(HandOver(lost=self.owned)))
        return [*effects, Fail(error)]

    # The assignment.

    def _take(self, assignment: ConsumerGroupHeartbeatResponseAssignment | None) -> None:
        """Note the coordinator's assignment, if the response has one; in ACKNOWLEDGING, that the
        coordinator knows the member's partitions.
        """
        if assignment is not None:
            self._target = frozenset(
                (row.topic_id, index)
                for row in assignment.topic_partitions
                for index in row.partitions
            )
        is_new = self._target is not None and self._target != self._acknowledged
        if self.state in (MemberState.JOINING, MemberState.ACKNOWLEDGING, MemberState.STABLE):
            first = self.state is MemberState.JOINING and self._target is not None
            self.state = MemberState.RECONCILING if is_new or first else MemberState.STABLE

    def _reconcile(self, now_ms: int) -> list[Effect]:
        """Hand over the part of the target whose topic names are known; look up the others."""
        if self.state is not MemberState.RECONCILING or self._handing_over is not None:
            return []
        target = self._target or frozenset()
        known = frozenset(row for row in target if row[0] in self._names)
        effects: list[Effect] = []
        if known != target and not self._looking and now_ms >= self._look_ms:
            self._looking = True
            topics = None if self._pattern is not None else self._topics
            effects.append(LookUp(topics, doubts=True))
        if known != target and known == self._acknowledged:
            return effects  # hand over nothing before the metadata arrives
        wanted = frozenset(TopicPartition(self._names[row[0]], row[1]) for row in known)
        revoked = self.owned - wanted
        change = HandOver(revoked, added=wanted - self.owned, commit=bool(revoked))
        self._reconciled = known
        return [*effects, self._hand_over(change)]

    def _go_stale(self) -> list[Effect]:
        """The user does not poll: leave, so that others get the partitions."""
        effects = self._leave(MemberState.STALE)
        if self.owned and self._handing_over is None:
            effects.append(self._hand_over(HandOver(lost=self.owned)))
        return effects

    # Heartbeats.

    def _heartbeat(self, now_ms: int) -> Effect:
        self._sent_ms, self._hurried = now_ms, False
        if self.state is MemberState.ACKNOWLEDGING:
            pending = self._target is not None and self._target != self._acknowledged
            self.state = MemberState.RECONCILING if pending else MemberState.STABLE
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._settings.instance_id,
            **self._news(),
        )
        self._in_flight = request
        return Send(request)

    def _news(self) -> dict[str, Any]:
        """The fields that the coordinator does not have yet."""
        names = None if self._pattern is not None else sorted(self._topics or ())
        regex = self._pattern
        if regex is None and self._sent.get("subscribed_topic_regex"):
            regex = ""  # an earlier heartbeat had one
        facts: dict[str, Any] = {
            "rack_id": self._settings.rack,
            "rebalance_timeout_ms": self._settings.max_poll_interval_ms,
            "subscribed_topic_names": names if names is not None else [],
            "subscribed_topic_regex": regex,
            "server_assignor": self._settings.server_assignor,
        }
        news = {
            name: value
            for name, value in facts.items()
            if value is not None and self._sent.get(name) != value
        }
        owned = self._told_to_own()
        if self._sent.get("owned") != owned:
            news["topic_partitions"] = _by_topic(owned)
        self._sent = {**self._sent, **facts, "owned": owned}
        return news

    def _told_to_own(self) -> Any:
        """The partitions to report as owned: at least those that the user has or is about to have,
        because others may get the rest.
        """
        if self.epoch == JOIN_EPOCH:
            return ()
        if self._handing_over is None or self._reconciled is None:
            return tuple(sorted(self._acknowledged))
        known = self._sent.get("owned")
        return tuple(sorted(self._acknowledged | self._reconciled)) if known is None else known

    def _leave(self, then: MemberState) -> list[Effect]:
        """Leave the group, if the coordinator knows this member or may soon."""
        known = self.state in IN_GROUP and (
            self.epoch > JOIN_EPOCH or self._in_flight is not None or self._may_be_known
        )
        self.state = then
        self._forget()
        farewell = self._farewell()
        return [farewell] if known else []

    def _farewell(self) -> Effect:
        instance_id = self._settings.instance_id
        epoch = LEAVE_EPOCH if instance_id is None else STATIC_LEAVE_EPOCH
        return Send(
            ConsumerGroupHeartbeatRequest(
                group_id=self._settings.group_id,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=instance_id,
            )
        )


def _by_topic(
    owned: Collection[tuple[UUID, int]],
) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    rows: dict[UUID, ConsumerGroupHeartbeatRequestTopicPartitions] = {}
    for topic_id, index in owned:
        row = rows.setdefault(
            topic_id, ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=[])
        )
        row.partitions.append(index)
    return list(rows.values())
