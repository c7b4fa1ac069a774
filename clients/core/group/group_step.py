"""What a group member's state machine asks of its shell, and what both kinds of members share.

A member (classic_member, consumer_member) is told what happened and answers with effects; it has
no clock, no socket and no thread. Nothing is decided here.
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
    """The consumer's settings that a member needs; times in ms."""

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
    """What a member needs to know of a topic."""

    topic_id: UUID
    partitions: int


class Send(NamedTuple):
    """Send to the coordinator; the member's `answered` or `failed` takes what comes of it."""

    request: Message
    extra_wait_ms: int = 0
    """How much longer than request.timeout.ms the answer may take."""


class HandOver(NamedTuple):
    """Tell the user of a change of the assignment, then call the member's `handed_over`.

    In this order: the automatic commit (where ``commit``), on_partitions_revoked or
    on_partitions_lost, on_partitions_assigned.
    """

    revoked: frozenset[TopicPartition] = NO_PARTITIONS
    lost: frozenset[TopicPartition] = NO_PARTITIONS
    added: frozenset[TopicPartition] | None = None
    """None: nothing is assigned now, and on_partitions_assigned is not called."""
    commit: bool = False


class LookUp(NamedTuple):
    """Fetch metadata of these topics (None: of all), then call the member's `topics_known`."""

    topics: frozenset[str] | None
    doubts: bool = False
    """The coordinator contradicts the metadata that is known: ask another broker."""


class ForgetCoordinator(NamedTuple):
    """Look the coordinator up again before the next request."""


class Fail(NamedTuple):
    """Raise this from the user's next poll; unless the member says otherwise it has stopped."""

    error: Exception


Effect: TypeAlias = Send | HandOver | LookUp | ForgetCoordinator | Fail


class CommitClaim(NamedTuple):
    """Whom a commit is from."""

    generation: int = -1
    """The generation (classic) or member epoch; -1: a consumer outside any group."""
    member_id: str = ""
    instance_id: str | None = None


class Backoff:
    """Pauses after failures in a row (core/backoff). ``chance`` returns numbers from 0 to 1."""

    def __init__(self, settings: MemberSettings, chance: Callable[[], float]) -> None:
        self._first_ms = settings.retry_backoff_ms
        self._max_ms = settings.retry_backoff_max_ms
        self._chance = chance
        self._failures = 0

    def next_ms(self) -> int:
        """How long to wait after one more failure."""
        self._failures += 1
        return int(pause_ms(self._failures, self._first_ms, self._max_ms, self._chance()))

    def reset(self) -> None:
        """It worked."""
        self._failures = 0
