"""An open LMDB environment of an index. It is checked before it is opened, and a damaged one is
replaced by an empty one while other users continue: its content is rebuilt from the segments.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import lmdb

from kstore.log.errors import storage_error
from kstore.log.index.lmdb_check import find_damage, move_aside
from kstore.log.index.spare_room import keep_room
from kstore.private_files import PRIVATE_FILE, make_private, refuse_link

__all__ = ["DAMAGE", "SharedEnvironment"]

T = TypeVar("T")

_FIRST_MAP_BYTES = 1 << 34  # virtual; the file is as large as its content
# Up to this size every page is checked before each opening. A larger one that its writer closed is
# trusted, apart from its roots. Checking costs some 1.5 ms per MiB.
_ALWAYS_CHECKED_BYTES = 32 << 20
_LEAST_ROOM_BYTES, _ROOM_SHARE = 256 << 10, 0.5
_REPLACEMENTS = 3  # in one write: otherwise the disk itself is at fault
# LMDB's errors for a damaged page. All others (a full disk, for example) may be temporary.
DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
    lmdb.CursorFullError,
    lmdb.PageFullError,
    lmdb.ProblemError,
)


class SharedEnvironment:
    """A process may open an LMDB environment only once: all users share it."""

    open: dict[str, SharedEnvironment] = {}  # noqa: RUF012 (shared on purpose)
    guard = threading.Lock()

    def __init__(self, path: str, *, read_only: bool, was_closed: bool) -> None:
        """``was_closed``: its last writer has closed it. If LMDB can't open it, a reader raises
        lmdb.Error, and a writer replaces it.
        """
        self.path = path
        self.users = 0
        self.replaced = 0
        """How often it was damaged and replaced."""
        self.on_replaced: list[Callable[[], object]] = []
        self.env: Any = None  # None: damaged, and this process may not replace it
        self._inode = 0
        self._probe = -1
        self._retired: list[Any] = []  # a thread may still be reading from it
        self._swap = threading.Lock()
        self._refuse_links(create=not read_only)
        size = os.path.getsize(path) if os.path.exists(path) else 0
        whole = size <= _ALWAYS_CHECKED_BYTES or not (was_closed or read_only)
        problem = find_damage(path, whole=whole)
        if problem is None:
            try:
                self._open(create=not read_only)
                return
            except DAMAGE as error:
                problem = str(error)
        if read_only:
            raise lmdb.CorruptedError(problem)
        self._replace(problem)

    @classmethod
    def acquire(cls, path: str, *, read_only: bool, was_closed: bool) -> SharedEnvironment | None:
        """The process's environment of a file. None for a reader if the file does not exist or is
        damaged: its writer replaces it.
        """
        with cls.guard:
            shared = cls.open.get(path)
            if shared is None:
                if read_only and not os.path.exists(path):
                    return None
                try:
                    shared = cls(path, read_only=read_only, was_closed=was_closed)
                except lmdb.Error as error:
                    if read_only:
                        return None
                    raise OSError(errno.EIO, f"the index can't be opened: {error}", path) from error
                cls.open[path] = shared
            shared.users += 1
            return shared

    @classmethod
    def after_fork(cls) -> None:
        """In a child process: LMDB's environments belong to the parent, and can't be used here.
        They are closed, which does not affect the parent, so that the child may open its own.
        """
        cls.guard = threading.Lock()
        for shared in cls.open.values():
            shared._close()
        cls.open.clear()

    def release(self) -> None:
        """Release it; the last user closes it."""
        with self.guard:
            self.users -= 1
            if self.users == 0:
                del self.open[self.path]
                self._close()

    def _close(self) -> None:
        for env in (self.env, *self._retired):
            if env is not None:
                env.close()
        if self._probe >= 0:
            os.close(self._probe)
            self._probe = -1

    def _refuse_links(self, *, create: bool) -> None:
        for each in (self.path, self.path + "-lock"):
            if create:
                make_private(each)
            else:
                refuse_link(each)

    def _open(self, *, create: bool) -> None:
        self._refuse_links(create=create)
        writable = create or os.access(self.path, os.W_OK)
        env = lmdb.open(
            self.path,
            subdir=False,
            map_size=_FIRST_MAP_BYTES,
            readonly=not writable,
            create=create,
            readahead=False,
            max_readers=510,
            lock=writable or os.access(os.path.dirname(self.path), os.W_OK),
            mode=PRIVATE_FILE,
        )
        if create:
            env.reader_check()
            keep_room(self.path, _LEAST_ROOM_BYTES, _ROOM_SHARE)
            self._open_probe()
        self._inode = os.stat(self.path).st_ino
        self.env = env

    def _open_probe(self) -> None:
        """Open a file without a name beside the index, if the file system has such files, for
        `_wait_while_frozen`.
        """
        unnamed = getattr(os, "O_TMPFILE", None)
        if self._probe < 0 and unnamed is not None:
            with suppress(OSError):
                folder = os.path.dirname(self.path)
                self._probe = os.open(folder, unnamed | os.O_WRONLY | os.O_CLOEXEC, PRIVATE_FILE)

    def _wait_while_frozen(self) -> None:
        """Wait while the file system is frozen (fsfreeze), and let other threads run. A read
        transaction writes to LMDB's mapped lock file, and the binding holds the GIL meanwhile.
        """
        if self._probe >= 0:
            with suppress(OSError):
                os.pwrite(self._probe, b"", 0)  # the kernel waits before it looks at the length

    # -- damage

    def _replace(self, problem: str) -> None:
        from logging import getLogger

        aside = move_aside(self.path)
        self.replaced += 1
        getLogger("kstore.log").error(
            "the index %s is damaged: %s. It was moved to %s and is rebuilt from the segments; "
            "no record is lost. Check the disk.", self.path, problem, aside,
        )  # fmt: skip
        self._open(create=True)

    def lose(self, env: Any, problem: str, *, heal: bool) -> None:
        """``env`` turned out to be damaged: continue without it, or, with ``heal``, with an empty
        one.
        """
        with self._swap:
            if self.env is not env:
                return  # another thread was first
            self.env = None
            self._retired.append(env)
            if not heal:
                return
            self._replace(problem)
            callbacks = tuple(self.on_replaced)
        for callback in callbacks:
            callback()

    def follow(self) -> None:
        """For a reader: if the writer has replaced the file, open the new one."""
        try:
            inode = os.stat(self.path).st_ino
        except FileNotFoundError:
            return
        if inode == self._inode:
            return
        with self._swap:
            self._inode = inode
            if find_damage(self.path) is not None:
                return
            if self.env is not None:
                self._retired.append(self.env)
                self.env = None
            self._open(create=False)

    # -- transactions

    def look(self, ask: Callable[[Any], T], otherwise: T, *, heal: bool) -> T:
        """The result of ``ask`` in a read transaction; ``otherwise`` if the index is damaged.
        Raises LogStorageError for other errors of LMDB.
        """
        while True:
            env = self.env
            if env is None:
                return otherwise
            self._wait_while_frozen()
            try:
                with env.begin() as transaction:
                    return ask(transaction)
            except lmdb.MapResizedError:
                env.set_mapsize(0)  # another process has enlarged it
            except DAMAGE as error:
                self.lose(env, str(error), heal=heal)
                return otherwise
            except lmdb.Error as error:
                raise self._failed("read", error) from error

    def change(self, do: Callable[[Any], T]) -> T:
        """Run ``do`` in a write transaction; repeat it if the file must grow or was replaced.
        Durable on return. Raises LogStorageError for errors of LMDB.
        """
        last: lmdb.Error | None = None
        for _ in range(_REPLACEMENTS):
            env = self.env
            try:
                if env is not None:
                    return self._change(env, do)
                with self._swap:
                    if self.env is None:
                        self._open(create=True)
            except DAMAGE as error:
                last = error
                self.lose(env, str(error), heal=True)
            except lmdb.Error as error:
                raise self._failed("written", error) from error
        assert last is not None
        raise self._failed("written", last) from last

    def _change(self, env: Any, do: Callable[[Any], T]) -> T:
        while True:
            try:
                with env.begin(write=True) as transaction:
                    result = do(transaction)
                keep_room(self.path, _LEAST_ROOM_BYTES, _ROOM_SHARE)
                return result
            except lmdb.MapFullError:
                env.set_mapsize(env.info()["map_size"] * 2)
            except lmdb.MapResizedError:
                env.set_mapsize(0)

    def _failed(self, done: str, error: lmdb.Error) -> OSError:
        number = errno.ENOSPC if "space" in str(error) else errno.EIO
        reason = OSError(number, f"the index can't be {done}: {error}", self.path)
        return storage_error(reason, f"using {self.path}")
