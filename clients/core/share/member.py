"""A member of a share group (KIP-932): when it sends which heartbeat, and how responses are
handled.

Partitions are not handed over: several members may have the same ones, so the coordinator's
assignment applies at once. A member that the user does not poll leaves, and joins again with the
next poll.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from uuid import UUID

from kstore.clients.core.backoff import pause_ms
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.shares.heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

__all__ = ["ShareMember", "ShareState"]

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
OUT = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
MOVED = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
NOWHERE: frozenset[tuple[UUID, int]] = frozenset()


class ShareState(Enum):
    """The state of a member."""

    OUTSIDE = "outside"
    """Not subscribed, or left because the user does not poll."""
    MEMBER = "member"
    """In the group, or joining."""
    FAILED = "failed"
    """Refused; a new subscription tries again."""


class ShareMember:
    """One member. Times are in ms; `chance` returns numbers from 0 to 1."""

    def __init__(
        self, group_id: str, member_id: str, chance: Callable[[], float], *,
        rack: str | None = None, max_poll_interval_ms: int = 300_000,
        retry_backoff_ms: int = 100, retry_backoff_max_ms: int = 1_000,
    ) -> None:  # fmt: skip
        self.group_id = group_id
        self.member_id = member_id
        self.state = ShareState.OUTSIDE
        self.epoch = JOIN_EPOCH
        self.assigned = NOWHERE
        self._rack = rack
        self._chance = chance
        self._max_poll_interval_ms = max_poll_interval_ms
        self._backoff_ms = retry_backoff_ms, retry_backoff_max_ms
        self._failures = 0
        self._topics: frozenset[str] = frozenset()
        self._sent_topics: frozenset[str] | None = None
        """The topics that the coordinator knows; None: send all fields."""
        self._due_ms = 0.0
        self._polled_ms = 0.0

    # ---- the user ----

    def subscribe(self, topics: frozenset[str]) -> None:
        """Read these topics instead of the former ones."""
        self._topics = topics
        self._due_ms = 0.0
        if self.state is ShareState.FAILED:
            self.state = ShareState.OUTSIDE

    def polled(self, now_ms: float) -> None:
        """The user has called poll."""
        self._polled_ms = now_ms
        if self.state is ShareState.OUTSIDE and self._topics:
            self.state = ShareState.MEMBER
            self._begin_anew()

    # ---- heartbeats ----

    def is_idle(self, now_ms: float) -> bool:
        """Whether the member must leave because the user does not poll."""
        expires_ms = self._polled_ms + self._max_poll_interval_ms
        return self.state is ShareState.MEMBER and now_ms > expires_ms

    def next_ms(self) -> float | None:
        """When to send the next heartbeat, or to leave; None: not before something happens."""
        if self.state is not ShareState.MEMBER:
            return None
        return min(self._due_ms, self._polled_ms + self._max_poll_interval_ms + 1)

    def heartbeat(self) -> ShareGroupHeartbeatRequest:
        """The request that is due: all fields to join, later only changed ones."""
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if self._sent_topics is None:
            request.rack_id = self._rack
        if self._sent_topics != self._topics:
            request.subscribed_topic_names = sorted(self._topics)
        self._sent_topics = self._topics
        return request

    def leave(self) -> ShareGroupHeartbeatRequest | None:
        """The last request; None if there is nothing to leave."""
        was_in = self.state is ShareState.MEMBER
        self.state = ShareState.OUTSIDE
        self._begin_anew()
        if not was_in:
            return None
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH
        )

    def answered(self, response: ShareGroupHeartbeatResponse, now_ms: float) -> KafkaError | None:
        """Handle a response. Returns the error for the user; NotCoordinatorError and similar ones
        mean that the coordinator must be looked up again.
        """
        code = response.error_code
        if code == ErrorCode.NONE:
            self._failures = 0
            self.epoch = response.member_epoch
            if self._sent_topics == self._topics:
                self._due_ms = now_ms + response.heartbeat_interval_ms
            if response.assignment is not None:
                self.assigned = frozenset(
                    (row.topic_id, index)
                    for row in response.assignment.topic_partitions
                    for index in row.partitions
                )
            return None
        if code in OUT:
            self._begin_anew()
            return None
        error = error_for(code, response.error_message)
        self.failed(now_ms)
        if not error.retriable and code not in MOVED:
            self.state = ShareState.FAILED
            self._begin_anew()
        return error

    def failed(self, now_ms: float) -> None:
        """The request failed: send all fields again, after a pause."""
        self._failures += 1
        self._sent_topics = None
        self._due_ms = now_ms + pause_ms(self._failures, *self._backoff_ms, self._chance())

    def _begin_anew(self) -> None:
        self.epoch, self.assigned, self._sent_topics, self._due_ms = JOIN_EPOCH, NOWHERE, None, 0.0
