"""The coordination store of a simulation: sessions on trees in memory. One process uses each
session, over a connection that can be slow or cut. The store ends the session when its process is
silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.store import (
    Op,
    Stat,
    Store,
    StoreUnavailableError,
    Watch,
    WatchEvent,
)
from tests.sim.machines.loop import Life, SimLoop, current_life

UNHEARD = 0.9
"""The share of a session's timeout after which a process that hears nothing doubts that it lives.
"""


class Copy(NamedTuple):
    """The contents of a tree at some time."""

    nodes: dict[str, Any]
    counters: dict[str, int]


class StoreServer:
    """All trees by their paths, and the sessions that are alive."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.session_timeout_s = 2.0
        self.unreachable: dict[str, object] = {}
        """Hosts whose way to the store is cut, each with which cut it is."""
        self.majority = True
        """Whether sessions are ended and nodes written at all."""
        self._roots: dict[str, MemoryStore] = {}
        self._sessions: list[SimStore] = []

    def open(self, path: str, **given: Any) -> SimStore:
        """In place of LmdbStore(path, ...): a new session of the current process."""
        life = current_life()
        assert life is not None
        if not given.get("shared"):
            for other in [each for each in self._sessions if each.path == path]:
                other.expire()  # the lock of the folder shows that its process has ended
        session = SimStore(self, self.root(path).new_session(), life, path)
        session.check_reachable()
        self._sessions.append(session)
        return session

    def root(self, path: str) -> MemoryStore:
        """The simulation's own session on a tree."""
        if path not in self._roots:
            self._roots[path] = MemoryStore()
        return self._roots[path]

    def copy(self, path: str) -> Copy:
        """A copy of a tree, without what its sessions own."""
        content = self._content(path)
        nodes = {at: node for at, node in content.nodes.items() if not node.ephemeral_owner}
        return Copy(nodes, dict(content.counters))

    def restore(self, path: str, copy: Copy) -> None:
        """Replace a tree by an older copy. All processes that used it have ended."""
        for session in [each for each in self._sessions if each.path == path]:
            session.expire()
        content, tree = self._content(path), self._tree(path)
        content.nodes.clear()
        content.nodes.update(copy.nodes)
        content.counters |= {"zxid": copy.counters["zxid"]}
        content.changes.clear()
        tree._seen_zxid = copy.counters["zxid"]

    def _tree(self, path: str) -> Any:
        return self.root(path)._tree

    def _content(self, path: str) -> Any:
        return self._tree(path).backend._content

    def life_ended(self, life: Life, *, after_s: float) -> None:
        """A process has ended: its sessions end after a while."""
        for session in self._sessions:
            if session.life is life:
                self.loop.call_later(after_s, session.expire)

    def expire_sessions(self, life: Life) -> int:
        """End the sessions of a living process, as if the store had not heard from it."""
        mine = [s for s in self._sessions if s.life is life and not s.ended]
        for session in mine:
            session.expire()
        return len(mine)

    def cut_off(self, host: str) -> None:
        """Cut a host off from the store; its sessions end after their timeout. A little before
        that, their owners are in doubt, as in zookeeper_store.py.
        """
        cut = self.unreachable[host] = object()
        self._notify_contact()
        self.loop.call_later(self.session_timeout_s * UNHEARD, self._if_still_cut, host, cut, False)
        self.loop.call_later(self.session_timeout_s, self._if_still_cut, host, cut, True)

    def heal(self) -> None:
        """Connect all processes again. Those that were cut off reconnect, and find out which
        sessions ended.
        """
        self.unreachable.clear()
        self.majority = True
        self._notify_contact()

    def lose_majority(self, hosts: Iterable[str]) -> None:
        """Cut all processes off: meanwhile the store ends no sessions."""
        self.majority = False
        for host in hosts:
            self.unreachable[host] = object()
        self.loop.call_later(self.session_timeout_s * UNHEARD, self._doubt_all)
        self._notify_contact()

    def _doubt_all(self) -> None:
        for session in list(self._sessions):
            if session.host in self.unreachable:
                session.doubt()

    def _notify_contact(self) -> None:
        for session in list(self._sessions):
            session.contact_changed()

    def _if_still_cut(self, host: str, cut: object, ends: bool) -> None:
        if self.unreachable.get(host) is not cut:
            return
        for session in [each for each in self._sessions if each.host == host and not each.ended]:
            if ends:
                session.expire()
            else:
                session.doubt()

    def forget(self, session: SimStore) -> None:
        """A session has ended."""
        self._sessions = [each for each in self._sessions if each is not session]


class SimStore(Store):
    """One session of one process."""

    def __init__(self, server: StoreServer, inner: Store, life: Life, path: str) -> None:
        self.life = life
        self.path = path
        self.host = life.name.partition(".")[0]
        self.ended = False
        self._doubted = False
        self._contact: Callable[[], None] | None = None
        self._server = server
        self._inner = inner

    def check_reachable(self) -> None:
        """Raises StoreUnavailableError if the connection is cut."""
        if self.host in self._server.unreachable:
            raise StoreUnavailableError(f"{self.host} can't reach the store")

    def doubt(self) -> None:
        """Its process has not reached the store for so long that the session may have ended."""
        self._doubted = True
        self.contact_changed()

    def contact_changed(self) -> None:
        """Its process learns whether it can reach the store."""
        self._doubted = self._doubted and self.away
        if self._contact is not None and not self.life.dead:
            self.life.context.copy().run(self._contact)

    @property
    def away(self) -> bool:
        return self.host in self._server.unreachable

    @property
    def in_doubt(self) -> bool:
        return self._doubted

    def on_contact(self, callback: Callable[[], None]) -> None:
        self._contact = callback

    def expire(self) -> None:
        """The store ends the session as soon as it can."""
        if self.ended:
            return
        if not self._server.majority:
            self._server.loop.call_later(self._server.session_timeout_s, self.expire)
            return
        self.ended = True
        self._server.forget(self)
        tree: Any = self._inner._tree  # type: ignore[attr-defined]
        tree.expire(self._inner.session_id)
        if not self.life.dead:
            tree.note_lost({self._inner.session_id})

    @property
    def session_id(self) -> int:
        return self._inner.session_id

    @property
    def over(self) -> bool:
        """See Store: a process that cannot reach the store does not know."""
        return self._inner.over and not self.away

    def get(self, path: str) -> tuple[bytes, int]:
        self.check_reachable()
        return self._inner.get(path)

    def stat(self, path: str) -> Stat | None:
        self.check_reachable()
        return self._inner.stat(path)

    def children(self, path: str) -> list[str]:
        self.check_reachable()
        return self._inner.children(path)

    def multi(self, ops: Sequence[Op]) -> list[str | int | None]:
        self.check_reachable()
        return self._inner.multi(ops)

    def watch(self, path: str, callback: Callable[[WatchEvent], None]) -> Watch:
        """See Store; the callback runs later, as the process that asked."""
        self.check_reachable()
        loop, life, server = self._server.loop, self.life, self._server
        last = [0.0]

        def arrived(event: WatchEvent) -> None:
            if life.dead:
                return
            last[0] = max(last[0], loop.time() + life.random.expovariate(500))
            loop.call_at(last[0], tell, event, context=life.context.copy())

        def tell(event: WatchEvent) -> None:
            if self.host in server.unreachable:
                loop.call_later(0.2, tell, event)
            else:
                callback(event)

        return self._inner.watch(path, arrived)

    def new_session(self) -> Store:
        self.check_reachable()
        session = SimStore(self._server, self._inner.new_session(), self.life, self.path)
        self._server._sessions.append(session)
        return session

    def close(self) -> None:
        self.ended = True
        self._server.forget(self)
        self._inner.close()
