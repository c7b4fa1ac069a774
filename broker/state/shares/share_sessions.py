"""Share sessions (KIP-932): which partitions a member of a share group fetches from a broker, and
the epoch of its next request. Acquired records are not part of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from kstore.errors import ErrorCode

__all__ = ["FINAL_EPOCH", "INITIAL_EPOCH", "ShareSession", "ShareSessionCache", "TopicIdPartition"]

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
C = TypeVar("C")


class TopicIdPartition(NamedTuple):
    """A partition of a topic, by topic id."""

    topic_id: UUID
    partition: int


class ShareSession(Generic[C]):
    """The partitions that one member fetches from this broker."""

    __slots__ = ("connection", "epoch", "group_id", "member_id", "owner", "partitions")

    def __init__(self, group_id: str, member_id: str, owner: int, connection: C) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.owner = owner
        """The number of the owner of acquired records, which is different for each session."""
        self.connection = connection
        """The connection that opened the session. The session ends with it."""
        self.epoch = 1
        """The epoch that the next request must have."""
        self.partitions: dict[TopicIdPartition, None] = {}

    def update(
        self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        """Add partitions, and remove some."""
        for place in added:
            self.partitions[place] = None
        for place in forgotten:
            self.partitions.pop(place, None)

    def in_turn(self) -> list[TopicIdPartition]:
        """The partitions, each time with a different first one."""
        places = list(self.partitions)
        turn = self.epoch % len(places) if places else 0
        return places[turn:] + places[:turn]


class ShareSessionCache(Generic[C]):
    """The sessions of all share groups on one broker."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession[C]] = {}
        self._members: Counter[str] = Counter()
        self._last_owner = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """The total number of their partitions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def get(self, group_id: str, member_id: str) -> ShareSession[C] | None:
        """A member's session."""
        return self._sessions.get((group_id, member_id))

    def open(
        self, group_id: str, member_id: str, connection: C, max_sessions: int
    ) -> ShareSession[C] | int:
        """Open a session. Returns an error code if there are too many. The member's earlier session
        must be removed first.
        """
        if len(self._sessions) >= max_sessions:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        self._last_owner += 1
        session = ShareSession(group_id, member_id, self._last_owner, connection)
        self._sessions[group_id, member_id] = session
        self._members[group_id] += 1
        return session

    def take(self, group_id: str, member_id: str, epoch: int) -> ShareSession[C] | int:
        """The session of a request with the expected epoch, or an error code. The final epoch is
        always accepted.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        return session

    def remove(self, group_id: str, member_id: str) -> ShareSession[C] | None:
        """End a member's session."""
        session = self._sessions.pop((group_id, member_id), None)
        if session is not None:
            self._members[group_id] -= 1
            if not self._members[group_id]:
                del self._members[group_id]
        return session

    def has(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._members

    def of_connection(self, connection: C) -> list[ShareSession[C]]:
        """The sessions that a connection has opened."""
        return [one for one in self._sessions.values() if one.connection is connection]
