"""The effects that a group member's state machine requests from its shell, and the types that both
kinds of members share.

A member (classic_member, consumer_member) gets events and returns effects; it has no clock, no
socket and no thread. No decisions are made here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kstore.clients.core.backoff import pause_ms
from kstore.errors import ErrorCode
from kstore.protocol.schema import Message
from kstore.types import TopicPartition

__all__ = [
    "COORDINATOR_LOADING",
    "COORDINATOR_MOVED",
    "Backoff",
    "CommitClaim",
    "Effect",
    "Fail",
    "ForgetCoordinator",
    "GroupTopic",
    "HandOver",
    "LookUp",
    "MemberSettings",
    "Send",
]

COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
COORDINATOR_LOADING = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class MemberSettings(NamedTuple):
    """The consumer's settings for a member; times in ms."""

    group_id: str
    instance_id: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    server_assignor: str | None = None


class GroupTopic(NamedTuple):
    """What a member needs to know about a topic."""

    topic_id: UUID
    partitions: int


class Send(NamedTuple):
    """Send a request to the coordinator; call the member's `answered` or `failed` with the
    result.
    """

    request: Message
    extra_wait_ms: int = 0
    """How much longer than request.timeout.ms the response may take."""


class HandOver(NamedTuple):
    """Report a change of the assignment to the user, then call the member's `handed_over`.

    In this order: the automatic commit (if ``commit``), on_partitions_revoked or
    on_partitions_lost, on_partitions_assigned.
    """

    revoked: frozenset[TopicPartition] = NO_PARTITIONS
    lost: frozenset[TopicPartition] = NO_PARTITIONS
    added: frozenset[TopicPartition] | None = None
    """None: nothing is assigned now; do not call on_partitions_assigned."""
    commit: bool = False


class LookUp(NamedTuple):
    """Fetch metadata of these topics (None: of all), then call the member's `topics_known`."""

    topics: frozenset[str] | None
    doubts: bool = False
    """The coordinator contradicts the metadata: ask another broker."""


class ForgetCoordinator(NamedTuple):
    """Look up the coordinator again before the next request."""


class Fail(NamedTuple):
    """Raise this from the user's next poll. The member has stopped unless it says otherwise."""

    error: Exception


Effect: TypeAlias = Send | HandOver | LookUp | ForgetCoordinator | Fail


class CommitClaim(NamedTuple):
    """The member that commits."""

    generation: int = -1
    """The generation (classic) or member epoch; -1: a consumer outside any group."""
    member_id: str = ""
    instance_id: str | None = None


class Backoff:
    """Pauses after consecutive failures (core/backoff). ``chance`` returns numbers from 0 to 1."""

    def __init__(self, settings: MemberSettings, chance: Callable[[], float]) -> None:
        self._first_ms = settings.retry_backoff_ms
        self._max_ms = settings.retry_backoff_max_ms
        self._chance = chance
        self._failures = 0

    def next_ms(self) -> int:
        """The pause after one more failure."""
        self._failures += 1
        return int(pause_ms(self._failures, self._first_ms, self._max_ms, self._chance()))

    def reset(self) -> None:
        """Success: reset."""
        self._failures = 0
