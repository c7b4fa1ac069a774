"""The coordination store in Apache ZooKeeper (3.6 or newer), with kazoo, for brokers on several
machines.

The tree's rules are ZooKeeper's own; this file converts its errors and events to the contract's.
kazoo 2.11 does not support persistent recursive watches, so their two requests are declared here,
and events are intercepted where kazoo looks up its one-shot watches.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, RLock, Timer
from typing import Any, NamedTuple

from kazoo import exceptions as errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import write_string
from kazoo.protocol.states import Callback, EventType, KazooState, WatchedEvent

from kstore.broker.coordination.store import (
    BadPathError,
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    Set,
    Stat,
    Store,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
    Watch,
    WatchCallback,
    WatchEvent,
    validate_path,
)

__all__ = ["ZooKeeperStore"]

PERSISTENT_RECURSIVE = 1
ANY_WATCHER = 3
INT = struct.Struct(">i")
GRACE_S = 1.0
"""How long calls wait for another server after a connection was lost. An ensemble usually elects
its leader in that time. After that calls fail at once, until a server answers.
"""
LONGEST_PAUSE_S = 0.5
"""The longest pause between two checks whether a server answers again."""
OWN_NODE = "zookeeper"
"""ZooKeeper's own folder in the root, which does not belong to the tree."""
KINDS = {EventType.CREATED: "created", EventType.CHANGED: "changed", EventType.DELETED: "deleted"}
# ZooKeeper's errors that correspond to the tree's rules.
RULES: dict[type[Exception], type[StoreError]] = {
    errors.NoNodeError: NoNodeError,
    errors.NodeExistsError: NodeExistsError,
    errors.BadVersionError: BadVersionError,
    errors.NotEmptyError: NotEmptyError,
    errors.NoChildrenForEphemeralsError: EphemeralParentError,
}


REMAINING_SHARE = 1 / 3
"""The share of the session's timeout that certainly remains when kazoo drops a connection. kazoo
waits for a response for two thirds of the timeout.
"""
UNDER_WAY = 500
"""Reads that are sent before the first response."""


class _WatchRequest(NamedTuple):
    """AddWatch (106) and RemoveWatches (18): a path and a number."""

    type: int
    path: str
    number: int

    def serialize(self) -> bytearray:
        """The request's body."""
        data = bytearray(write_string(self.path))
        data.extend(INT.pack(self.number))
        return data

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> bool:
        """The answer, which is empty."""
        return True


class _Watchers(defaultdict[str, set[Any]]):
    """kazoo's table of one-shot watches. This one also finds persistent watches."""

    def __init__(self, found: Callable[[str], list[Any]]) -> None:
        super().__init__(set)
        self._found = found

    def pop(self, path: str, default: Any = ()) -> Any:
        """The watchers of an event at ``path``."""
        return [*super().pop(path, default), *self._found(path)]


class _ZooKeeperWatch(Watch):
    def __init__(self, store: ZooKeeperStore, path: str, callback: WatchCallback) -> None:
        self._store = store
        self.path = path
        self._prefix = path if path == "/" else path + "/"
        self._callback = callback
        self.active = True

    def covers(self, path: str) -> bool:
        """Whether this watch covers a change of ``path``."""
        return path == self.path or path.startswith(self._prefix)

    def __call__(self, event: WatchedEvent) -> None:
        """Handle an event that kazoo has received."""
        kind = KINDS.get(event.type)
        if self.active and kind is not None:
            self._callback(WatchEvent(kind, event.path))

    def look(self) -> None:
        """Notify the callback: something may have changed without an event."""
        if self.active:
            self._callback(WatchEvent("changed", self.path))

    def cancel(self) -> None:
        """Stop; see the contract."""
        self.active = False
        self._store.forget(self)


class ZooKeeperStore(Store):
    """A session on the ensemble ``connect``: ``host:port,host:port/chroot``; the chroot is created.

    Raises StoreUnavailableError if no server answers within ``connection_timeout_ms``. If the
    ensemble has ended the session (because it heard nothing for ``session_timeout_ms``), every call
    raises StoreClosedError and every watch is notified once. While no server answers, the store is
    `away`. The session continues when a server answers again, since an ensemble without a majority
    ends no sessions. The store is `in_doubt` if no server answered for as long as a session lasts.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
    ) -> None:
        self._connect = connect
        self._timeouts = (session_timeout_ms, connection_timeout_ms)
        self._patience_s = session_timeout_ms / 1000
        self._watches: list[_ZooKeeperWatch] = []
        self._lock = RLock()
        self._closed = False
        self._lost = False
        self._session_id = 0
        self._was_connected = False
        self._in_doubt = False
        self._lost_at: float | None = None
        self._answers = Event()
        self._contact: Callable[[], None] | None = None
        self._deadline: Timer | None = None
        hosts, slash, chroot = connect.partition("/")
        logger = logging.getLogger("kstore.zookeeper")
        logger.setLevel(logging.ERROR)  # otherwise kazoo logs each attempt
        self._client = KazooClient(
            hosts,
            timeout=session_timeout_ms / 1000,
            logger=logger,
            connection_retry={"max_tries": -1, "max_delay": LONGEST_PAUSE_S},
        )
        self._client.add_listener(self._state_changed)
        try:
            self._client.start(connection_timeout_ms / 1000)
        except KazooTimeoutError as error:
            self._client.stop()
            self._client.close()
            raise StoreUnavailableError(
                f"no ZooKeeper server of {connect} answers within {connection_timeout_ms} ms: "
                "check zookeeper.connect and that a majority of the servers runs"
            ) from error
        self._session_id = int(self._client.client_id[0])
        if chroot:
            try:
                with self._translated(chroot):
                    self._answer(self._client.ensure_path_async(slash + chroot))
            except StoreError:
                self.close()
                raise
            self._client.chroot = slash + chroot

    @property
    def session_id(self) -> int:
        """See Store."""
        return self._session_id

    @property
    def over(self) -> bool:
        """See Store."""
        return self._closed or self._lost

    @property
    def away(self) -> bool:
        """See Store."""
        return self._lost_at is not None

    @property
    def in_doubt(self) -> bool:
        """See Store."""
        return self._in_doubt

    def on_contact(self, callback: Callable[[], None]) -> None:
        """See Store. There is one callback."""
        self._contact = callback

    def get(self, path: str) -> tuple[bytes, int]:
        """See Store."""
        data, stat = self._read(self._client.get_async, path)
        return data, stat.version

    def stat(self, path: str) -> Stat | None:
        """See Store."""
        found = self._read(self._client.exists_async, path)
        return None if found is None else _stat(found)

    def read_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """See Store. Many requests are sent at the same time."""
        found: list[tuple[bytes, Stat] | None] = []
        for first in range(0, len(paths), UNDER_WAY):
            some = paths[first : first + UNDER_WAY]
            self._check_reachable()
            pending = [self._client.get_async(validate_path(path)) for path in some]
            for path, answer in zip(some, pending, strict=True):
                try:
                    data, stat = self._answer(answer)
                except errors.NoNodeError:
                    found.append(None)
                except errors.ConnectionLoss:
                    found += super().read_many([path])  # a read may be repeated
                except Exception:
                    with self._translated(path):
                        raise
                else:
                    found.append((data, _stat(stat)))
        return found

    def children(self, path: str) -> list[str]:
        """See Store."""
        names = sorted(self._read(self._client.get_children_async, path))
        if path == "/" and not self._client.chroot and OWN_NODE in names:
            names.remove(OWN_NODE)
        return names

    def multi(self, ops: Sequence[Op]) -> list[str | int | None]:
        """See Store. Raises StoreUnavailableError if the response was lost; the multi may have been
        executed.
        """
        self._check_reachable()
        transaction = self._client.transaction()
        for index, op in enumerate(ops):
            _add(transaction, index, op)
        with self._translated("the transaction"):
            results = self._answer(transaction.commit_async()) if ops else []
        for index, result in enumerate(results):
            if isinstance(result, errors.RolledBackError):
                continue  # because a later operation failed
            if isinstance(result, Exception):
                raise _of(result, index, ops[index].path) from result
        return [_result(op, result) for op, result in zip(ops, results, strict=True)]

    def watch(self, path: str, callback: WatchCallback) -> Watch:
        """See Store."""
        self._check_reachable()
        watch = _ZooKeeperWatch(self, validate_path(path), callback)
        with self._lock:
            self._watches = [*self._watches, watch]
        with self._translated(path):
            self._answer(self._watch_request(106, path, PERSISTENT_RECURSIVE))
        return watch

    def new_session(self) -> Store:
        """See Store."""
        self._check_open()
        session, connection = self._timeouts
        return ZooKeeperStore(
            self._connect, session_timeout_ms=session, connection_timeout_ms=connection
        )

    def close(self) -> None:
        """See Store."""
        if self._closed:
            return
        self._closed = True
        if self._deadline is not None:
            self._deadline.cancel()
        with self._lock:
            for watch in self._watches:
                watch.active = False
            self._watches = []
        self._client.stop()
        self._client.close()

    def forget(self, watch: _ZooKeeperWatch) -> None:
        """Remove a cancelled watch."""
        with self._lock:
            self._watches = [other for other in self._watches if other is not watch]
            left = any(other.path == watch.path for other in self._watches)
        if not left and not self._closed:
            self._watch_request(18, watch.path, ANY_WATCHER)  # the response does not matter

    def _watch_request(self, kind: int, path: str, number: int) -> Any:
        answer = self._client.handler.async_result()
        whole = self._client.chroot + path if path != "/" else self._client.chroot or "/"
        self._client._call(_WatchRequest(kind, whole, number), answer)
        return answer

    def _watchers_of(self, path: str) -> list[_ZooKeeperWatch]:
        path = self._client.unchroot(path)
        return [watch for watch in self._watches if watch.covers(path)]

    def _state_changed(self, state: str) -> None:
        """Runs on kazoo's connection thread, and must not wait."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._closed:
            return
        if state == KazooState.LOST:
            self._lost = self._was_connected
            self._answers.set()
            self._look_all()
        elif state == KazooState.SUSPENDED and self._was_connected:
            self._answers.clear()
            self._lost_at = time.monotonic()
            self._deadline = Timer(self._patience_s * REMAINING_SHARE, self._on_silence)
            self._deadline.daemon = True
            self._deadline.start()
        elif state == KazooState.CONNECTED:
            self._in_doubt, self._lost_at = False, None
            self._answers.set()
            # kazoo and the server drop watches when a connection is lost.
            self._client._data_watchers = _Watchers(self._watchers_of)
            if self._was_connected:
                for path in {watch.path for watch in self._watches}:
                    self._watch_request(106, path, PERSISTENT_RECURSIVE)
                self._look_all()
            self._was_connected = True
        self._notify_contact()

    def _on_silence(self) -> None:
        """Called when no server has answered for as long as a session lasts."""
        if self.away and not self.over:
            self._in_doubt = True
            self._notify_contact()

    def _notify_contact(self) -> None:
        if self._contact is not None:
            self._contact()

    def _look_all(self) -> None:
        for watch in self._watches:
            self._client.handler.dispatch_callback(Callback("watch", watch.look, ()))

    def _read(self, ask: Callable[[str], Any], path: str) -> Any:
        """Read. Retry if the connection was lost, since a read may be repeated."""
        validate_path(path)
        deadline = time.monotonic() + self._patience_s
        with self._translated(path):
            while True:
                self._check_reachable()
                try:
                    return self._answer(ask(path))
                except errors.ConnectionLoss:
                    if time.monotonic() >= deadline:
                        raise

    def _answer(self, pending: Any) -> Any:
        """The response to a request. Raises errors.ConnectionLoss soon after the servers are
        gone.
        """
        deadline = time.monotonic() + self._patience_s
        while not pending.wait(GRACE_S):
            if self._grace_is_over() or time.monotonic() >= deadline:
                raise errors.ConnectionLoss
        return pending.get()

    def _grace_is_over(self) -> bool:
        lost_at = self._lost_at
        return lost_at is not None and time.monotonic() - lost_at >= GRACE_S

    def _check_reachable(self) -> None:
        """Raise StoreUnavailableError if the store is unreachable after a short wait."""
        self._check_open()
        lost_at = self._lost_at
        if lost_at is None:
            return
        if not self._answers.wait(max(0.0, lost_at + GRACE_S - time.monotonic())):
            raise StoreUnavailableError(
                f"no ZooKeeper server of {self._connect} answers since "
                f"{time.monotonic() - lost_at:.0f} s; nothing was asked: check that a majority of "
                "the servers runs"
            )
        self._check_open()

    def _check_open(self) -> None:
        if self.over:
            raise StoreClosedError(
                f"the ZooKeeper session {self._session_id:#x} is over; open a new one"
            )

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except (errors.SessionExpiredError, errors.ConnectionClosedError) as error:
            raise StoreClosedError(
                f"the ZooKeeper session {self._session_id:#x} is over; open a new one"
            ) from error
        except (errors.ConnectionLoss, errors.OperationTimeoutError, KazooTimeoutError) as error:
            raise StoreUnavailableError(
                f"ZooKeeper's answer about {what} was lost: read again whether it was done"
            ) from error
        except errors.ZookeeperError as error:
            raise _of(error, 0, what) from error


def _add(transaction: Any, index: int, op: Op) -> None:
    validate_path(op.path)
    if isinstance(op, Create):
        if op.path == "/":
            raise _at(index, NodeExistsError("the root always exists"))
        transaction.create(op.path, bytes(op.data), ephemeral=op.ephemeral, sequence=op.sequential)
    elif isinstance(op, Set):
        transaction.set_data(op.path, bytes(op.data), op.version)
    elif isinstance(op, Delete):
        if op.path == "/":
            raise _at(index, BadPathError("the root can't be deleted"))
        transaction.delete(op.path, op.version)
    else:
        assert isinstance(op, Check)
        transaction.check(op.path, op.version)


def _stat(found: Any) -> Stat:
    return Stat(found.czxid, found.mzxid, found.version, found.ephemeralOwner)


def _result(op: Op, result: Any) -> str | int | None:
    if isinstance(op, Create):
        return str(result)
    if isinstance(op, Set):
        return int(result.version)
    return None


def _of(error: Exception, index: int, path: str) -> StoreError:
    kind = RULES.get(type(error), StoreError)
    return _at(index, kind(f"{path}: ZooKeeper says {type(error).__name__}"))


def _at(index: int, error: StoreError) -> StoreError:
    error.op_index = index
    return error
