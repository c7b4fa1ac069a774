"""Which fetch sessions (KIP-227) are kept: ids, the limit, and who gives way to whom.

Pure: time and random numbers come in as arguments. What a session holds is
kstore._fast.fetch_session's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

__all__ = ["FetchSessionCache"]

EVICTION_MS = 120_000
"""A session unused for this long gives way to any; one older than this, to a more important one."""


class Session(Protocol):
    """What the cache has to know of a session."""

    @property
    def session_id(self) -> int: ...
    @property
    def privileged(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def last_used_ms(self) -> int: ...


S = TypeVar("S", bound=Session)


class FetchSessionCache(Generic[S]):
    """At most ``max_entries`` sessions, by id."""

    def __init__(self, max_entries: int, random_id: Callable[[], int]) -> None:
        """``random_id`` gives positive int32 numbers; those in use are asked for again."""
        self.max_entries = max_entries
        self.sessions: dict[int, S] = {}
        self.evictions = 0
        self._random_id = random_id

    def reserve(self, privileged: bool, size: int, now_ms: int) -> int:
        """An id for a new session of so many partitions, or 0: the client goes on without a
        session.
        """
        if self.max_entries <= 0:
            return 0
        if len(self.sessions) >= self.max_entries and not self._evict(privileged, size, now_ms):
            return 0
        while True:
            session_id = self._random_id()
            if session_id > 0 and session_id not in self.sessions:
                return session_id

    def add(self, session: S) -> None:
        """Keep a session under the id that was reserved for it."""
        self.sessions[session.session_id] = session

    def remove(self, session_id: int) -> None:
        """Forget a session, if it is known."""
        self.sessions.pop(session_id, None)

    def _evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        """Make room: first the longest unused, then a less important one that has had its time.

        Followers' sessions (privileged) come before consumers', larger ones before smaller ones.
        """
        oldest = min(self.sessions.values(), key=lambda session: session.last_used_ms)
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            return self._drop(oldest)
        ripe = [s for s in self.sessions.values() if now_ms - s.created_ms > EVICTION_MS]
        if not ripe:
            return False
        least = min(ripe, key=lambda session: (session.privileged, session.size))
        if (least.privileged, least.size) < (privileged, size):
            return self._drop(least)
        return False

    def _drop(self, session: S) -> bool:
        del self.sessions[session.session_id]
        self.evictions += 1
        return True
