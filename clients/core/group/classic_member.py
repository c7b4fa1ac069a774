"""A member of a group with the classic protocol: join, sync, heartbeat, leave; eager or cooperative
(KIP-429), dynamic or static (KIP-345).

A state machine. Its methods report what happened and when (now_ms, any monotonic clock). Each
returns effects for the shell (group_step); call `advance` again at `next_wakeup`. The member joins
with the user's first poll.

One machine does what Kafka's consumer does in its poll and in its heartbeat thread. So heartbeats
continue while listeners run, and stop only while a JoinGroup is outstanding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kstore.clients.core.group.assignors import Assignor, Subscription
from kstore.clients.core.group.classic_protocol import decode_assignment
from kstore.clients.core.group.classic_requests import (
    PROTOCOL_TYPE,
    heartbeat_request,
    join_request,
    leave_request,
    subscriptions_of,
    sync_request,
)
from kstore.clients.core.group.classic_state import HEARTBEATING, REJOIN, ClassicState
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
from kstore.errors import (
    CommitFailedError,
    ErrorCode,
    InconsistentGroupProtocolError,
    KafkaError,
    ProtocolError,
    RebalanceInProgressError,
    error_for,
)
from kstore.protocol.groups.classic import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from kstore.protocol.schema import Message
from kstore.types import TopicPartition

__all__ = ["ClassicMember"]

NO_GENERATION = -1
JOIN_LAPSE_MS = 5_000
"""JoinGroup is answered when all have joined: after max.poll.interval.ms, plus a margin."""
NOBODY: frozenset[TopicPartition] = frozenset()


class ClassicMember:
    """A member. `owned` are the partitions that the user knows as its own."""

    def __init__(
        self,
        settings: MemberSettings,
        assignors: Sequence[Assignor],
        chance: Callable[[], float],
    ) -> None:
        """The group uses the first assignor that all members have. The protocol is cooperative only
        if all assignors are, as in Kafka, so that a rolling change of the assignor is safe.
        """
        self._settings = settings
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self.cooperative = all(assignor.cooperative for assignor in assignors)
        self._backoff = Backoff(settings, chance)
        self.state = ClassicState.UNJOINED
        self.generation = NO_GENERATION
        self.member_id = ""
        self.owned = NOBODY
        self.is_leader = False
        self._protocol: str | None = None
        self._topics: frozenset[str] = frozenset()
        self._is_wanted = False
        """Whether there is a subscription, even if none of its topics exists."""
        self._joined_topics: frozenset[str] | None = None
        self._counts: dict[str, int] = {}
        self._assigned_counts: dict[str, int] | None = None
        self._group: dict[str, Subscription] = {}
        self._rejoin = True
        self._prepared = False
        self._handing_over: HandOver | None = None
        self._waiting_for: Message | None = None
        """The outstanding JoinGroup or SyncGroup."""
        self._retry_ms = 0
        self._polled_ms: int | None = None
        self._expired = False
        self._answered_ms = 0
        self._heartbeat_ms = 0
        self._heartbeat_sent = False
        self._reason = ""

    # Calls of the user.

    def subscribe(
        self, topics: frozenset[str], now_ms: int, pattern: str | None = None
    ) -> list[Effect]:
        """The topics to read now; a change makes the member rejoin. Raises ValueError for a
        pattern: coordinators of this protocol do not match patterns.
        """
        if pattern is not None:
            raise ValueError("a SubscriptionPattern needs group.protocol=consumer: use re.compile")
        self._topics, self._is_wanted = topics, True
        if self.state is ClassicState.FAILED:
            self.state = ClassicState.UNJOINED
        if self._joined_topics is not None and topics != self._joined_topics:
            self._ask_to_rejoin("the subscription has changed")
        return self.advance(now_ms)

    def polled(self, now_ms: int) -> list[Effect]:
        """The user has called poll."""
        self._polled_ms = now_ms
        self._expired = False
        return self.advance(now_ms)

    def leave(self, now_ms: int, *, hand_over: bool = True) -> list[Effect]:
        """Give up all partitions, then leave. Static members do not leave: they may return within
        session.timeout.ms.
        """
        self._topics, self._joined_topics = frozenset(), None
        self._is_wanted = False
        if hand_over and self.owned and self._handing_over is None:
            self.state = ClassicState.LEAVING
            return [self._hand_over(self._given_up(self.owned))]
        self.owned = NOBODY
        return self._leave("the consumer is being closed or unsubscribes")

    def metadata_changed(self, topics: Mapping[str, GroupTopic], now_ms: int) -> list[Effect]:
        """The topics that exist. A leader rejoins if the topics of its group have changed since it
        assigned them.
        """
        self._counts = {name: topic.partitions for name, topic in topics.items()}
        known = self._assigned_counts
        if self.is_leader and known is not None and self._group_counts() != known:
            self._ask_to_rejoin("the topics of the group have changed")
        return self.advance(now_ms)

    # Calls of the shell.

    def topics_known(self, topics: Mapping[str, GroupTopic], now_ms: int) -> list[Effect]:
        """The metadata that LookUp requested: the leader now assigns partitions."""
        self._counts = {name: topic.partitions for name, topic in topics.items()}
        if self.state is not ClassicState.ASSIGNING:
            return self.advance(now_ms)
        self._assigned_counts = self._group_counts()
        assignor = self._assignors[self._protocol or ""]
        given = assignor.assign(self._assigned_counts, self._group)
        return self._sync({member_id: tuple(given.get(member_id, ())) for member_id in self._group})

    def handed_over(self, now_ms: int) -> list[Effect]:
        """The user knows the new assignment, and has given up what it had to."""
        done, self._handing_over = self._handing_over, None
        if done is not None:
            self.owned = (self.owned - done.revoked - done.lost) | (done.added or NOBODY)
        if self.state is ClassicState.PREPARING:
            self.state = ClassicState.READY
        elif self.state is ClassicState.LEAVING:
            return self._leave("the consumer is being closed or unsubscribes")
        return self.advance(now_ms)

    def answered(self, request: Message, response: Message, now_ms: int) -> list[Effect]:
        """The response to a request."""
        if isinstance(response, HeartbeatResponse):
            self._heartbeat_sent = False
            effects = self._heartbeat_answer(request, response.error_code, now_ms)
        elif isinstance(response, LeaveGroupResponse):
            effects = []
        elif request is not self._waiting_for:
            effects = []  # the member has left or restarted in the meantime
        else:
            self._waiting_for = None
            if isinstance(response, JoinGroupResponse):
                effects = self._join_answer(response, now_ms)
            else:
                assert isinstance(response, SyncGroupResponse)
                effects = self._sync_answer(response, now_ms)
        return effects + self.advance(now_ms)

    def failed(self, request: Message, now_ms: int) -> list[Effect]:
        """The request failed: the connection was lost, it timed out, or there is no coordinator."""
        if isinstance(request, HeartbeatRequest):
            self._heartbeat_sent = False
            self._heartbeat_ms = now_ms + self._backoff.next_ms()
        elif request is self._waiting_for:
            self._waiting_for = None
            self._try_again(now_ms)
        return self.advance(now_ms)

    # Time.

    def advance(self, now_ms: int) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        if self._polled_ms is None or not self._is_wanted:
            return effects
        if self._is_member and now_ms - self._polled_ms > self._settings.max_poll_interval_ms:
            self._expired = True
            effects += self._leave("the time between polls was longer than max.poll.interval.ms")
            self._rejoin = True
        if self._expired:
            return effects
        effects += self._begin_rejoin(now_ms)
        if self.state is ClassicState.READY and now_ms >= self._retry_ms:
            effects.append(self._join())
        return effects + self._heartbeat(now_ms)

    def next_wakeup(self, now_ms: int) -> int | None:
        """When to call `advance` if nothing else happens; None: never."""
        if self._polled_ms is None or not self._is_wanted or self._expired:
            return None
        times = []
        if self.state is ClassicState.READY:
            times.append(max(self._retry_ms, now_ms))
        if self._is_member:
            times.append(self._polled_ms + self._settings.max_poll_interval_ms + 1)
            if not self._heartbeat_sent and self.state in HEARTBEATING:
                times.append(self._heartbeat_ms)
            if self._answered_ms:
                times.append(self._answered_ms + self._settings.session_timeout_ms + 1)
        return min(times, default=None)

    def hurry(self, now_ms: int) -> list[Effect]:
        """Send the next heartbeat at once (KIP-253)."""
        self._heartbeat_ms = min(self._heartbeat_ms, now_ms)
        return self.advance(now_ms)

    # Commits.

    def claim(self) -> CommitClaim:
        """The member that commits; raises an error if the coordinator would refuse the commit."""
        settled = self.state in (
            ClassicState.STABLE,
            ClassicState.PREPARING,
            ClassicState.LEAVING,
        )
        if not settled and self.state not in (ClassicState.UNJOINED, ClassicState.FAILED):
            raise RebalanceInProgressError(
                "the group is rebalancing: call poll() until that is done, then commit what is "
                "still assigned"
            )
        if not settled or self.generation == NO_GENERATION:
            raise CommitFailedError(
                "the consumer is not, or no longer, a member of its group: its partitions may be "
                "assigned to others. Poll more often, or reduce max.poll.records"
            )
        return CommitClaim(self.generation, self.member_id, self._settings.instance_id)

    def commit_failed(self, code: int, claim: CommitClaim, now_ms: int) -> list[Effect]:
        """A commit was refused because of the membership."""
        if claim.generation != self.generation or self._waiting_for is not None:
            return []
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._ask_to_rejoin("a commit got REBALANCE_IN_PROGRESS")
        elif code in REJOIN:
            self._reset(f"a commit got error {code}", code)
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            return self._fail(error_for(code))
        return self.advance(now_ms)

    @property
    def _is_member(self) -> bool:
        joined = self.member_id != "" and self.generation != NO_GENERATION
        return joined and self.state in HEARTBEATING

    # Joining.

    def _ask_to_rejoin(self, reason: str) -> None:
        self._rejoin = True
        self._reason = reason

    def _reset(self, reason: str, code: int) -> None:
        """The coordinator does not know this member, or its generation, any more."""
        self.generation = NO_GENERATION
        self._protocol = None
        if code != ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""
        self.state = ClassicState.UNJOINED
        self.is_leader = False
        self._prepared = False
        self._waiting_for = None
        self._ask_to_rejoin(reason)

    def _try_again(self, now_ms: int) -> None:
        self.state = ClassicState.READY
        self._retry_ms = now_ms + self._backoff.next_ms()

    def _given_up(self, partitions: frozenset[TopicPartition]) -> HandOver:
        """The partitions are revoked while this is a member, and lost if it was removed."""
        if self.generation == NO_GENERATION or not self.member_id:
            return HandOver(lost=partitions)
        return HandOver(revoked=partitions, commit=True)

    def _hand_over(self, change: HandOver) -> HandOver:
        self._handing_over = change
        return change

    def _begin_rejoin(self, now_ms: int) -> list[Effect]:
        """The user gives up the partitions that it may not keep during a rebalance, if any."""
        resting = self.state in (ClassicState.STABLE, ClassicState.UNJOINED)
        if not (self._rejoin and resting) or self._handing_over is not None:
            return []
        if self._prepared or not self.owned:
            self.state = ClassicState.READY
            self._prepared = True
            return []
        change = self._given_up(self.owned)
        if self.cooperative and not change.lost:
            gone = frozenset(tp for tp in self.owned if tp.topic not in self._topics)
            change = HandOver(revoked=gone, commit=True)
        self.state = ClassicState.PREPARING
        self._prepared = True
        return [self._hand_over(change)]

    def _join(self) -> Effect:
        self.state = ClassicState.JOINING
        self._rejoin = False
        self._joined_topics = self._topics
        owned = tuple(sorted(self.owned))
        subscriptions = {
            assignor.name: Subscription(
                self._topics,
                owned,
                self.generation,
                assignor.user_data(self._topics),
                rack=self._settings.rack,
            )
            for assignor in self._assignors.values()
        }
        request = join_request(self._settings, self.member_id, subscriptions, self._reason)
        self._waiting_for = request
        # The longest wait counts in full, in addition to request.timeout.ms.
        extra_ms = self._settings.max_poll_interval_ms + JOIN_LAPSE_MS
        return Send(request, extra_ms)

    def _join_answer(self, response: JoinGroupResponse, now_ms: int) -> list[Effect]:
        code = response.error_code
        if code == ErrorCode.NONE:
            return self._joined(response, now_ms)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.state = ClassicState.READY
            return []
        return self._refused(code, "JoinGroup", now_ms)

    def _refused(self, code: int, what: str, now_ms: int) -> list[Effect]:
        """Handle an error of JoinGroup or SyncGroup."""
        if code in COORDINATOR_MOVED or code == ErrorCode.REQUEST_TIMED_OUT:
            self._try_again(now_ms)
            return [ForgetCoordinator()]
        if code in COORDINATOR_LOADING:
            self._try_again(now_ms)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._reason = f"{what} got REBALANCE_IN_PROGRESS"
            self.state = ClassicState.READY
            self._retry_ms = now_ms
        elif code in REJOIN:
            self._reset(f"{what} got error {code}", code)
            self._retry_ms = now_ms + self._backoff.next_ms()
        else:
            error = error_for(code)
            if error.retriable:
                self._try_again(now_ms)
            else:
                return self._fail(error)
        return []

    def _fail(self, error: Exception) -> list[Effect]:
        self.state = ClassicState.FAILED
        self.generation = NO_GENERATION
        self.member_id = ""
        self._prepared = False
        self._rejoin = True
        self._waiting_for = None
        lost: list[Effect] = []
        if self.owned and self._handing_over is None:
            lost = [self._hand_over(HandOver(lost=self.owned))]
        return [*lost, Fail(error)]

    def _joined(self, response: JoinGroupResponse, now_ms: int) -> list[Effect]:
        if response.protocol_type not in (None, PROTOCOL_TYPE):
            text = f"the group is of type {response.protocol_type!r}, not {PROTOCOL_TYPE!r}"
            return self._fail(InconsistentGroupProtocolError(text))
        self.generation, self.member_id = response.generation_id, response.member_id
        self._protocol = response.protocol_name
        self._backoff.reset()
        self._answered_ms = now_ms
        self._heartbeat_ms = now_ms + self._settings.heartbeat_interval_ms
        self.is_leader = response.leader == response.member_id
        self._assigned_counts = None
        if not self.is_leader:
            return self._sync({})
        try:
            self._group = subscriptions_of(response.members)
        except ProtocolError as problem:
            return self._fail(InconsistentGroupProtocolError(f"a member's subscription: {problem}"))
        topics = frozenset().union(*(row.topics for row in self._group.values()))
        if response.skip_assignment:  # a static leader has returned, and nothing changes
            self._assigned_counts = self._group_counts()
            return [*self._sync({}), LookUp(topics)]
        self.state = ClassicState.ASSIGNING
        return [LookUp(topics)]

    def _group_counts(self) -> dict[str, int]:
        topics = frozenset().union(*(row.topics for row in self._group.values()))
        return {name: self._counts[name] for name in sorted(topics & self._counts.keys())}

    def _sync(self, given: Mapping[str, tuple[TopicPartition, ...]]) -> list[Effect]:
        self.state = ClassicState.SYNCING
        request = sync_request(
            self._settings, self.member_id, self.generation, self._protocol, given
        )
        self._waiting_for = request
        return [Send(request)]

    def _sync_answer(self, response: SyncGroupResponse, now_ms: int) -> list[Effect]:
        if response.error_code != ErrorCode.NONE:
            return self._refused(response.error_code, "SyncGroup", now_ms)
        try:
            assigned = decode_assignment(bytes(response.assignment))
        except ProtocolError as problem:
            return self._fail(InconsistentGroupProtocolError(f"the leader's answer: {problem}"))
        self.state = ClassicState.STABLE
        self._prepared = False
        if any(tp.topic not in self._topics for tp in assigned):
            self._ask_to_rejoin("the assignment has topics that are not subscribed to")
            return []
        self._assignors[self._protocol or ""].on_assignment(assigned, self.generation)
        revoked = self.owned - assigned
        if revoked:
            self._ask_to_rejoin("partitions were revoked for other members")
        change = HandOver(revoked=revoked, added=assigned - self.owned, commit=bool(revoked))
        return [self._hand_over(change)]

    # Staying and leaving.

    def _heartbeat(self, now_ms: int) -> list[Effect]:
        if not self._is_member:
            return []
        effects: list[Effect] = []
        if now_ms - self._answered_ms > self._settings.session_timeout_ms:
            self._answered_ms = now_ms
            effects.append(ForgetCoordinator())
        if not self._heartbeat_sent and now_ms >= self._heartbeat_ms:
            self._heartbeat_sent = True
            self._heartbeat_ms = now_ms + self._settings.heartbeat_interval_ms
            request = heartbeat_request(self._settings, self.member_id, self.generation)
            effects.append(Send(request))
        return effects

    def _heartbeat_answer(self, request: Message, code: int, now_ms: int) -> list[Effect]:
        assert isinstance(request, HeartbeatRequest)
        if code == ErrorCode.NONE:
            self._answered_ms = now_ms
            self._backoff.reset()
            return []
        if (request.generation_id, request.member_id) != (self.generation, self.member_id):
            return []  # of an earlier membership
        if self._waiting_for is not None:
            return []  # its response reports the error
        if code in COORDINATOR_MOVED or code == ErrorCode.REQUEST_TIMED_OUT:
            self._heartbeat_ms = now_ms + self._backoff.next_ms()
            return [ForgetCoordinator()]
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._answered_ms = now_ms
            if self.state is ClassicState.STABLE:
                self._ask_to_rejoin("the group rebalances")
        elif code in REJOIN:
            self._reset(f"Heartbeat got error {code}", code)
        else:
            error: KafkaError = error_for(code)
            if not error.retriable:
                return self._fail(error)
            self._heartbeat_ms = now_ms + self._backoff.next_ms()
        return []

    def _leave(self, reason: str) -> list[Effect]:
        """Forget the membership, and leave the group if this is a dynamic member."""
        effects: list[Effect] = []
        if self.member_id and self._settings.instance_id is None:
            effects.append(Send(leave_request(self._settings, self.member_id, reason)))
        self._reset(reason, ErrorCode.UNKNOWN_MEMBER_ID)
        self._heartbeat_sent = False
        return effects
