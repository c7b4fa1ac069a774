"""A consumer's membership of its group: the shell of core/group.

It sends the member's requests, hands assignments over to the user through the consumer's shell (see
core/consumer/subscription), and commits. Everything except `on_poll` runs on the loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kstore.clients.core.consumer.commits import AutoCommit, Commit, commits_of
from kstore.clients.core.group.expansion_gate import need_rows, position_rows
from kstore.clients.core.group.group_step import (
    CommitClaim,
    Effect,
    Fail,
    ForgetCoordinator,
    GroupTopic,
    HandOver,
    LookUp,
    Send,
)
from kstore.clients.core.group.protocol_choice import (
    FIRST_VERSION,
    falls_back,
    is_to_be_chosen,
    make_member,
)
from kstore.clients.io.cluster import GROUP
from kstore.clients.io.gate import ExpansionGates
from kstore.clients.io.group_offsets import LANE, GroupOffsets
from kstore.errors import CommitFailedError, KafkaError, RebalanceInProgressError
from kstore.protocol.groups.classic import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    SyncGroupRequest,
)
from kstore.protocol.groups.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kstore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kstore.clients.core.consumer.subscription import Handover, Position, SubscriptionState
    from kstore.clients.core.group.expansion_gate import ExpansionGate
    from kstore.clients.io.cluster import ClusterClient

__all__ = ["GroupCoordinatorClient"]

JOIN_LANE = "join"
"""JoinGroup and SyncGroup wait for the other members."""
JOINING = (JoinGroupRequest, SyncGroupRequest)
HEARTBEATS = (HeartbeatRequest, ConsumerGroupHeartbeatRequest)
_log = logging.getLogger("kstore.clients.group")


class GroupCoordinatorClient:
    """One consumer's membership and commits. ``settings`` are those of `client_settings`, with a
    group.id; ``handover`` is the consumer's shell.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        settings: Mapping[str, Any],
        subscription: SubscriptionState,
        handover: Handover,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Create it on the loop, or pass the loop in. Raises ConfigError for an unknown
        assignor.
        """
        self.group_id: str = settings["group.id"]
        self._cluster = cluster
        self._subscription = subscription
        self._handover = handover
        self._loop = loop or asyncio.get_running_loop()
        self._instance_id: str | None = settings["group.instance.id"]
        self._max_poll_ms: int = settings["max.poll.interval.ms"]
        self._timeout_ms: int = settings["default.api.timeout.ms"]
        self._settings = settings
        self._given: frozenset[str] = getattr(settings, "given", frozenset(settings))
        self._may_fall_back = is_to_be_chosen(self._given)
        self._member = make_member(settings, self._given, str(uuid.uuid4()), random.random)
        self.offsets = GroupOffsets(cluster, settings, subscription, self._claim, self._refused)
        backoff_ms: int = settings["retry.backoff.ms"]
        self._auto: AutoCommit | None = None
        if settings["enable.auto.commit"]:
            self._auto = AutoCommit(settings["auto.commit.interval.ms"], backoff_ms)
        self._gates: ExpansionGates | None = None
        if settings["kstore.kip253.enable"]:
            committed = self.offsets.committed
            self._gates = ExpansionGates(
                cluster, subscription, self.group_id, backoff_ms, committed, self._hurry
            )
        self._tasks: dict[asyncio.Task[None], Effect | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self._polled_ms = -1
        self._told_polled_ms = -1
        self._needs_polls = False
        """Whether the loop must learn of the next poll at once."""
        self._at_poll: dict[TopicPartition, Position] = {}
        self._group_topics: frozenset[str] = frozenset()
        self._is_closed = False
        self._has_subscribed = False
        self.heartbeats = 0
        """The number of commits that succeeded."""
        self.on_attention: list[Callable[[], None]] = []
        """Called on the loop when poll() must call this object: for `raise_error`, or, while the
        user processes records that were fetched long ago, for `on_poll`.
        """
        self._nudge_s = self._max_poll_ms / 3_000
        if self._auto is not None:
            self._nudge_s = min(self._nudge_s, max(settings["auto.commit.interval.ms"], 100) / 1000)
        self._nudge: asyncio.TimerHandle | None = None
        subscription.changed.append(self._subscription_changed)
        cluster.on_update.append(self._metadata_changed)
        self._keep_attention()

    # Calls of the consumer.

    def on_poll(self, now_ms: int) -> None:
        """A poll begins; all records returned before count as consumed. Called in the user's
        thread; ``now_ms`` is from time.monotonic().
        """
        self._polled_ms = now_ms
        auto = self._auto
        if auto is not None and auto.is_due(now_ms):
            auto.begin(now_ms)
            commits = _commits(self._subscription.consumed())
            self._loop.call_soon_threadsafe(self._commit_automatically, commits)
        if self._needs_polls:
            self._at_poll = self._subscription.consumed()
            self._loop.call_soon_threadsafe(self._polled)

    def raise_error(self) -> None:
        """In poll: raise the error that ended the membership, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    @property
    def gate(self) -> ExpansionGate | None:
        """The gate of KIP-253; None if kstore.kip253.enable is off."""
        return None if self._gates is None else self._gates.gate

    @property
    def group_topics(self) -> frozenset[str]:
        """Topics of other members whose metadata the leader must watch."""
        return self._group_topics

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: float | None = None
    ) -> None:
        """Commit; see GroupOffsets.commit for the errors. Raises ValueError for an invalid
        offset.
        """
        await self.offsets.commit(commits_of(offsets), timeout_ms)

    async def commit_once(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit without retries, as Kafka's asynchronous commit."""
        await self.offsets.commit_once(commits_of(offsets))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets, None for partitions without one."""
        return await self.offsets.committed(partitions, timeout_ms)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """For Producer.send_offsets_to_transaction."""
        try:
            claim = self._claim()
        except (CommitFailedError, RebalanceInProgressError):
            claim = CommitClaim(instance_id=self._instance_id)
        return ConsumerGroupMetadata(
            self.group_id, claim.generation, claim.member_id, claim.instance_id
        )

    async def leave(self, timeout_ms: float | None = None) -> None:
        """Give up all partitions (the listener is called) and leave the group; call it before
        SubscriptionState.unsubscribe. Static members do not leave, as in Kafka.
        """
        patience_s = (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        deadline = self._loop.time() + patience_s
        await self._settle(deadline, HandOver)
        for task, effect in self._tasks.items():
            if isinstance(effect, Send) and isinstance(effect.request, JOINING):
                task.cancel()
        self._has_subscribed = False
        self._do(self._member.leave(self._now()))
        await self._settle(deadline)
        gone = [tp for tp in self._subscription.assigned() if self._subscription.uses_group]
        if gone:  # the listener has taken too long
            self._subscription.take_away(gone)

    def stop_committing(self) -> None:
        """The user is gone and it is unknown which records were processed: make no more automatic
        commits.
        """
        self._auto = None

    async def close(self, timeout_ms: float | None = None) -> None:
        """Make the last automatic commit, then leave. Errors are logged, not raised."""
        patience_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if not self._subscription.uses_group:
            await self._commit_consumed(self._subscription.consumed(), patience_ms)
        else:
            await self.leave(patience_ms)
        self._is_closed = True
        self._cluster.on_update.remove(self._metadata_changed)
        self._subscription.changed.remove(self._subscription_changed)
        for timer in (self._timer, self._nudge):
            if timer is not None:
                timer.cancel()
        if self._gates is not None:
            await self._gates.close()
        for task in (tasks := list(self._tasks)):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # The member.

    def _now(self) -> int:
        return int(time.monotonic() * 1000)

    def _claim(self) -> CommitClaim:
        if not self._subscription.uses_group:
            return CommitClaim(instance_id=self._instance_id)
        return self._member.claim()

    def _refused(self, code: int, claim: CommitClaim) -> None:
        if self._subscription.uses_group:
            self._do(self._member.commit_failed(code, claim, self._now()))

    def _hurry(self) -> None:
        self._do(self._member.hurry(self._now()))

    def _polled(self) -> None:
        """A poll, seen on the loop."""
        if self._gates is not None and self._gates.gate.closed:
            self._gates.read_up_to(_offsets(self._at_poll))
        self._do(self._on_polled())

    def _on_polled(self) -> list[Effect]:
        if self._polled_ms <= self._told_polled_ms:
            return []
        self._told_polled_ms = self._polled_ms
        return self._member.polled(self._polled_ms)

    def _subscription_changed(self) -> None:
        subscription = self._subscription
        if not subscription.uses_group:
            return
        topics, pattern = subscription.topics, subscription.broker_pattern
        if subscription.pattern is not None and not topics and not self._has_subscribed:
            return  # wait for the names of topics, so that one rebalance is enough
        self._has_subscribed = True
        self._do(self._member.subscribe(topics, self._now(), pattern))

    def _metadata_changed(self) -> None:
        self._do(self._member.metadata_changed(self._topics(), self._now()))

    def _topics(self) -> dict[str, GroupTopic]:
        topics = self._cluster.view.topics.items()
        return {name: GroupTopic(row.topic_id, len(row.partitions)) for name, row in topics}

    def _tick(self) -> None:
        self._timer = None
        self._do(self._on_polled() + self._member.advance(self._now()))

    def _do(self, effects: Iterable[Effect]) -> None:
        """Start the member's effects, and set the timer for its next wakeup."""
        if self._is_closed:
            return
        for effect in effects:
            match effect:
                case Send():
                    self._spawn(self._send(effect), effect)
                case HandOver():
                    self._spawn(self._hand_over(effect), effect)
                case LookUp():
                    self._spawn(self._look_up(effect), effect)
                case ForgetCoordinator():
                    self._cluster.forget_coordinator(GROUP, self.group_id)
                case Fail():
                    self._fail(effect.error)
        now_ms = self._now()
        wakeup_ms = self._member.next_wakeup(now_ms)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wakeup_ms is not None:
            wait_s = max(wakeup_ms - now_ms, 0) / 1000
            self._timer = self._loop.call_later(wait_s, self._tick)
        gates = self._gates
        waits = gates is not None and bool(gates.gate.closed or gates.gate.is_asked)
        self._needs_polls = self._subscription.uses_group and (waits or wakeup_ms is None)

    def _spawn(self, action: Coroutine[Any, Any, None], effect: Effect | None = None) -> None:
        task = self._loop.create_task(action)
        self._tasks[task] = effect
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error if isinstance(error, Exception) else RuntimeError(str(error)))

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._ask_for_attention()

    def _ask_for_attention(self) -> None:
        for call in self.on_attention:
            call()

    def _keep_attention(self) -> None:
        """The periodic task."""
        if not self._is_closed:
            self._ask_for_attention()
            self._nudge = self._loop.call_later(self._nudge_s, self._keep_attention)

    async def _settle(self, deadline: float, kind: type[object] = object) -> None:
        """Wait until no effects (of a kind) are running, or until the deadline."""
        while (left_s := deadline - self._loop.time()) > 0:
            waiting = [task for task, effect in self._tasks.items() if isinstance(effect, kind)]
            if not waiting:
                return
            await asyncio.wait(waiting, timeout=left_s)

    # Effects of the member.

    async def _send(self, effect: Send) -> None:
        request = effect.request
        lane = JOIN_LANE if isinstance(request, JOINING) else LANE
        try:
            node_id = await self._cluster.coordinator(GROUP, self.group_id)
            if isinstance(request, HEARTBEATS):
                await self._add_positions(request, node_id)
            response = await self._cluster.ask(
                node_id,
                request,
                at_least=FIRST_VERSION if self._may_fall_back else 0,
                extra_wait_ms=effect.extra_wait_ms,
                lane=lane,
            )
        except KafkaError as error:
            if self._fell_back(error.code):
                return
            _log.debug("%s failed: %s", type(request).__name__, error)
            self._cluster.forget_coordinator(GROUP, self.group_id)
            if not error.retriable:
                self._fail(error)
            self._do(self._member.failed(request, self._now()))
            return
        if isinstance(response, (HeartbeatResponse, ConsumerGroupHeartbeatResponse)):
            if self._fell_back(response.error_code):
                return
            self._apply_positions(response)
        self._do(self._member.answered(request, response, self._now()))

    def _fell_back(self, code: int) -> bool:
        """Change to the classic protocol if an error says that the group supports no other."""
        if not self._may_fall_back or not falls_back(code, self._member):
            return False
        _log.info("joining group %s with the classic protocol (error %d)", self.group_id, code)
        self._may_fall_back = False
        self._member = make_member(self._settings, self._given, "", random.random, is_classic=True)
        now_ms = self._now()
        try:
            self._do(self._member.metadata_changed(self._topics(), now_ms))
            if self._has_subscribed:
                wanted, pattern = self._subscription.topics, self._subscription.broker_pattern
                self._do(self._member.subscribe(wanted, now_ms, pattern))
        except ValueError as error:  # a pattern for the coordinator
            self._fail(error)
        if self._polled_ms >= 0:
            self._do(self._member.polled(self._polled_ms))
        return True

    async def _look_up(self, effect: LookUp) -> None:
        topics = effect.topics
        if topics is not None and not topics <= (self._group_topics | self._subscription.topics):
            self._group_topics = topics
            self._cluster.watch_topics(topics | self._subscription.topics)
        if effect.doubts:
            self._cluster.doubt()
        try:
            await self._cluster.retrying(lambda: self._cluster.refresh(topics), self._timeout_ms)
        except KafkaError as error:
            _log.warning("no metadata for the group's topics: %s", error)
        self._do(self._member.topics_known(self._topics(), self._now()))

    async def _hand_over(self, change: HandOver) -> None:
        subscription, handover = self._subscription, self._handover
        gone = change.revoked | change.lost
        subscription.begin_revoking(gone)
        if gone or change.commit:
            consumed = await handover.safe_point()
            if change.commit:
                await self._commit_consumed(consumed, min(self._max_poll_ms, self._timeout_ms))
        await handover.revoked(change.revoked)
        await handover.lost(change.lost)
        if self._gates is not None:
            self._gates.drop(gone)
        subscription.take_away(gone)
        if change.added is not None:
            subscription.give(change.added)
            if self._gates is not None:
                self._gates.hold_back(change.added)
            await handover.assigned(change.added)
            subscription.begin_reading(change.added)
        self._do(self._member.handed_over(self._now()))

    # Commits.

    def _commit_automatically(self, commits: dict[TopicPartition, Commit]) -> None:
        self._spawn(self._commit_in_background(commits))

    async def _commit_in_background(self, commits: dict[TopicPartition, Commit]) -> None:
        assert self._auto is not None
        retry = False
        try:
            await self.offsets.commit_once(commits)
        except KafkaError as error:
            retry = error.retriable or isinstance(error, RebalanceInProgressError)
            _log.log(
                logging.DEBUG if retry else logging.WARNING, "automatic commit failed: %s", error
            )
        finally:
            self._auto.end(self._now(), retry=retry)

    async def _commit_consumed(
        self, consumed: Mapping[TopicPartition, Position], timeout_ms: float
    ) -> None:
        """The automatic commit before partitions are revoked."""
        if self._auto is None:
            return
        try:
            await self.offsets.commit(_commits(consumed), timeout_ms)
        except KafkaError as error:
            _log.warning("automatic commit failed, records may be delivered again: %s", error)

    # KIP-253.

    async def _add_positions(
        self, request: HeartbeatRequest | ConsumerGroupHeartbeatRequest, node_id: int
    ) -> None:
        gates = self._gates
        if gates is None or not (gates.gate.closed or gates.gate.is_asked):
            return
        if await gates.is_known_to(node_id):
            mine = self._subscription.partitions
            positions = {
                tp: (at.offset, at.partition_epoch)
                for tp, at in self._at_poll.items()
                if tp in mine
            }
            request.need_position = need_rows(gates.gate.needed())
            request.position = position_rows(gates.gate.reported(positions))

    def _apply_positions(
        self, response: HeartbeatResponse | ConsumerGroupHeartbeatResponse
    ) -> None:
        if response.error_code:
            return
        self.heartbeats += 1
        gates = self._gates
        if gates is None:
            return
        gates.on_positions(response.position)
        requested = [
            TopicPartition(topic.topic, index)
            for topic in response.need_position
            for index in topic.partitions
        ]
        if gates.gate.requested(requested):
            self._at_poll = self._at_poll or self._subscription.consumed()
            self._hurry()


def _offsets(positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int]:
    return {tp: position.offset for tp, position in positions.items()}


def _commits(positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, Commit]:
    return {tp: Commit(position) for tp, position in positions.items()}
