"""A store that can begin a new session when its session is over, for a broker that outlives its
sessions.

All parts of the broker use this object and need not know the current session.
runtime/membership/member.py decides when to open a new session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from kstore.broker.coordination.store import Op, Stat, Store, Watch, WatchCallback, WatchEvent

__all__ = ["RenewableStore"]


class _RenewableWatch(Watch):
    def __init__(self, store: RenewableStore, path: str, callback: WatchCallback) -> None:
        self._store = store
        self.path = path
        self.callback = callback
        self._current: Watch | None = None
        self._cancelled = False

    def set_in(self, session: Store) -> None:
        """Watch in this session from now on, and in no other."""
        if not self._cancelled:
            self._current = session.watch(self.path, self.callback)

    def look(self) -> None:
        """Notify the callback: something may have changed while there was no session."""
        if not self._cancelled:
            self.callback(WatchEvent("changed", self.path))

    def cancel(self) -> None:
        """See Watch."""
        self._cancelled = True
        if self._current is not None:
            self._current.cancel()
        self._store.forget(self)


class RenewableStore(Store):
    """The session of ``open_session``, replaced by a new one after `renew`.

    If a call raises StoreClosedError, the session is over and its ephemeral nodes are deleted.
    """

    def __init__(self, open_session: Callable[[], Store]) -> None:
        self._open_session = open_session
        self._session = open_session()
        self._notify_contact: Callable[[], None] | None = None
        self._watches: list[_RenewableWatch] = []
        self._lock = Lock()

    def renew(self) -> None:
        """Begin a new session. Every watch continues in it, and is notified once. Blocks.

        Raises StoreError if no session can be opened; then the old one stays.
        """
        fresh = self._open_session()
        try:
            with self._lock:
                watches = list(self._watches)
                for watch in watches:
                    watch.set_in(fresh)
                old, self._session = self._session, fresh
                if self._notify_contact is not None:
                    fresh.on_contact(self._notify_contact)
        except BaseException:
            fresh.close()
            raise
        old.close()
        for watch in watches:
            watch.look()

    @property
    def session_id(self) -> int:
        """See Store."""
        return self._session.session_id

    @property
    def over(self) -> bool:
        """See Store."""
        return self._session.over

    def has_expired(self) -> bool:
        """See Store."""
        return self._session.has_expired()

    @property
    def away(self) -> bool:
        """See Store."""
        return self._session.away

    @property
    def in_doubt(self) -> bool:
        """See Store."""
        return self._session.in_doubt

    def on_contact(self, callback: Callable[[], None]) -> None:
        """See Store. There is one callback, for all sessions."""
        with self._lock:
            self._notify_contact = callback
            self._session.on_contact(callback)

    def get(self, path: str) -> tuple[bytes, int]:
        """See Store."""
        return self._session.get(path)

    def stat(self, path: str) -> Stat | None:
        """See Store."""
        return self._session.stat(path)

    def read_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """See Store."""
        return self._session.read_many(paths)

    def children(self, path: str) -> list[str]:
        """See Store."""
        return self._session.children(path)

    def owner_has_ended(self, path: str) -> bool | None:
        """See Store."""
        return self._session.owner_has_ended(path)

    def multi(self, ops: Sequence[Op]) -> list[str | int | None]:
        """See Store."""
        return self._session.multi(ops)

    def watch(self, path: str, callback: WatchCallback) -> Watch:
        """See Store."""
        watch = _RenewableWatch(self, path, callback)
        with self._lock:
            watch.set_in(self._session)
            self._watches.append(watch)
        return watch

    def forget(self, watch: _RenewableWatch) -> None:
        """Remove a cancelled watch."""
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)

    def new_session(self) -> Store:
        """See Store."""
        return self._session.new_session()

    def close(self) -> None:
        """See Store."""
        self._session.close()
