"""The cache of fetch sessions (KIP-227): ids, limits and eviction.

Principals share the slots. A principal with less than its share can evict sessions of one with
more, but not the reverse. Time and random numbers are arguments. kstore._fast.broker.fetch_session
has the contents of a session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

__all__ = ["FetchSessionCache"]

EVICTION_MS = 120_000
"""Any session can evict one that was unused for this long. A more important session can evict one
that is older than this.
"""
MAX_SESSION_PARTITIONS = 50_000
"""The limit of partitions in a consumer's session: about 20 MB."""
PARTITIONS_PER_SLOT = 250
"""The limit of partitions in all consumers' sessions together, for each slot."""


class Session(Protocol):
    """A session as the cache sees it."""

    @property
    def session_id(self) -> int: ...
    @property
    def principal(self) -> str: ...
    @property
    def privileged(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def last_used_ms(self) -> int: ...


S = TypeVar("S", bound=Session)


class Holder(Generic[S]):
    """The sessions of one principal's consumers."""

    __slots__ = ("partitions", "sessions")

    def __init__(self) -> None:
        self.sessions: dict[int, S] = {}
        self.partitions = 0


class FetchSessionCache(Generic[S]):
    """At most ``max_entries`` sessions, by id."""

    def __init__(self, max_entries: int, random_id: Callable[[], int]) -> None:
        """``random_id`` returns positive int32 numbers that cannot be guessed. It is called again
        for a number in use.
        """
        self.max_entries = max_entries
        self.max_partitions = max(max_entries * PARTITIONS_PER_SLOT, MAX_SESSION_PARTITIONS)
        self.sessions: dict[int, S] = {}
        self.evictions = 0
        self._random_id = random_id
        self._sizes: dict[int, int] = {}  # counted partitions of consumers' sessions
        self._holders: dict[str, Holder[S]] = {}
        self._partitions = 0

    def reserve(self, principal: str, privileged: bool, size: int, now_ms: int) -> int:
        """An id for a new session with this many partitions, or 0, so that the client continues
        without a session. ``privileged``: the client is a follower.
        """
        if self.max_entries <= 0 or (size > MAX_SESSION_PARTITIONS and not privileged):
            return 0
        while self._is_full(privileged, size):
            if not self._evict(principal, privileged, size, now_ms):
                return 0
        while True:
            session_id = self._random_id()
            if session_id > 0 and session_id not in self.sessions:
                return session_id

    def add(self, session: S) -> None:
        """Store a session with its reserved id."""
        self.sessions[session.session_id] = session
        if not session.privileged:
            holder = self._holders.setdefault(session.principal, Holder())
            holder.sessions[session.session_id] = session
            self._sizes[session.session_id] = 0
            self._count(session, session.size)

    def resized(self, session: S) -> bool:
        """Called when a request has changed a session's partitions. Returns whether they are within
        the limits. If not, drops the session.
        """
        if session.privileged:
            return True
        self._count(session, session.size)
        if session.size <= MAX_SESSION_PARTITIONS and self._partitions <= self.max_partitions:
            return True
        self.remove(session.session_id)
        return False

    def remove(self, session_id: int) -> None:
        """Remove a session, if it exists."""
        session = self.sessions.pop(session_id, None)
        if session is None or session.privileged:
            return
        self._count(session, 0)
        del self._sizes[session_id]
        holder = self._holders[session.principal]
        del holder.sessions[session_id]
        if not holder.sessions:
            del self._holders[session.principal]

    def _count(self, session: S, size: int) -> None:
        more = size - self._sizes[session.session_id]
        self._sizes[session.session_id] = size
        self._holders[session.principal].partitions += more
        self._partitions += more

    def _is_full(self, privileged: bool, size: int) -> bool:
        if len(self.sessions) >= self.max_entries:
            return True
        return not privileged and self._partitions + size > self.max_partitions

    def _evict(self, principal: str, privileged: bool, size: int, now_ms: int) -> bool:
        """Evict a session: the one that was unused for the longest time, else one of a principal
        with more than its share, else an older one that is less important.

        Followers' sessions (privileged) are more important than consumers', and larger ones than
        smaller ones.
        """
        has_slot = len(self.sessions) < self.max_entries  # then partitions have no room
        mine = [s for s in self.sessions.values() if not (has_slot and s.privileged)]
        oldest = min(mine, key=_last_used, default=None)
        if oldest is not None and now_ms - oldest.last_used_ms > EVICTION_MS:
            return self._drop(oldest)
        excess = self._excess(principal, privileged, size if has_slot else 0)
        if excess is not None:
            return self._drop(excess)
        ripe = [
            session
            for session in mine
            if now_ms - session.created_ms > EVICTION_MS
            and (privileged or session.principal == principal)
        ]
        least = min(ripe, key=lambda session: (session.privileged, session.size), default=None)
        if least is not None and (least.privileged, least.size) < (privileged, size):
            return self._drop(least)
        return False

    def _excess(self, principal: str, privileged: bool, partitions: int) -> S | None:
        """The session that a principal within its share may evict: one of the principal with the
        most. None if the principal would exceed its share, or no principal does. Shares are of
        slots or, if ``partitions`` is not 0, of partitions.

        A share is the total of all consumers divided by the number of their principals. The slots
        of followers are not part of the total. A follower that needs a slot counts as one more
        principal.
        """

        def held(holder: Holder[S]) -> int:
            return holder.partitions if partitions else len(holder.sessions)

        count = len(self._holders) + (privileged or principal not in self._holders)
        total = self.max_partitions
        if not partitions:
            followers = len(self.sessions) - len(self._sizes)
            total = self.max_entries - (0 if privileged else followers)
        share = max(total // count, 1)
        own = None if privileged else self._holders.get(principal)
        if own is not None and held(own) + (partitions or 1) > share:
            return None
        most = max(self._holders.values(), key=held, default=None)
        if most is None or held(most) <= share:
            return None
        return min(most.sessions.values(), key=_last_used)

    def _drop(self, session: S) -> bool:
        self.remove(session.session_id)
        self.evictions += 1
        return True


def _last_used(session: Session) -> int:
    return session.last_used_ms
