"""The files of the coordination store in LMDB: locks on them, and checks whether they are
complete.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kstore.broker.coordination.store import StoreDamagedError, StoreLockedError
from kstore.log.index.lmdb_check import find_damage
from kstore.private_files import PRIVATE_FOLDER, check_folder, make_private, open_private

__all__ = [
    "BACKUP",
    "DATA",
    "check",
    "damaged",
    "is_saved_copy",
    "keep_private",
    "lock_folder",
    "opening",
]

LOGGER = logging.getLogger("kstore.broker")

DATA, LOCK, BACKUP = "data.mdb", "lock.mdb", "data.mdb.backup"
LMDB_FILES = (DATA, LOCK, BACKUP)
OPENING_S = 60.0
"""The longest wait for another process that is opening the store."""
LOOK_S = 0.01


@contextmanager
def opening(path: str) -> Iterator[None]:
    """A context in which no other process opens the store: while a store is being created, some of
    its files are missing, as if it were damaged. Raises StoreLockedError if another process takes
    very long.
    """
    folder = os.open(path, os.O_RDONLY)
    try:
        until = time.monotonic() + OPENING_S
        while not _locked(folder):
            if time.monotonic() > until:
                raise StoreLockedError(
                    f"another process has been opening the coordination store {path} for "
                    f"{OPENING_S:.0f} s: look at the brokers there, and at the disk"
                )
            time.sleep(LOOK_S)
        yield
    finally:
        os.close(folder)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def check(path: str) -> None:
    """Check the file before it is opened, since LMDB would end the process at a damaged page."""
    problem = _problem(path)
    if problem is not None:
        raise StoreDamagedError(damaged(path, problem))


def _problem(path: str) -> str | None:
    data = os.path.join(path, DATA)
    if os.path.exists(data):
        return find_damage(data)
    # An empty tree would hide that all data is lost.
    beside = [each for each in (LOCK, BACKUP) if os.path.exists(os.path.join(path, each))]
    return f"{DATA} is missing beside {beside[0]}" if beside else None


def is_saved_copy(path: str) -> bool:
    """Whether the copy is from the last stop, so that nothing was written after it."""
    data, copy = (os.path.join(path, name) for name in (DATA, BACKUP))
    if not os.path.exists(data):
        return True  # the store is empty
    return os.path.exists(copy) and os.path.getmtime(copy) >= os.path.getmtime(data)


def damaged(path: str, problem: str) -> str:
    """The message about a damaged store: what is lost, and what to do."""
    return (
        f"the coordination store {path} is damaged: {problem}. It holds topics, settings, users "
        f"and rights, and can't be rebuilt: stop its brokers, restore a copy of {DATA} ({BACKUP} "
        "next to it is from the last start or stop; later changes are lost), remove "
        f"{LOCK}, and check the disk"
    )


def keep_private(path: str) -> None:
    """Create the folder, or check that no other user may change it. Makes its files private."""
    os.makedirs(path, mode=PRIVATE_FOLDER, exist_ok=True)
    warning = check_folder(path, "the coordination store, which holds credentials,")
    if warning is not None:
        LOGGER.warning("coordination store: %s", warning)
    for name in LMDB_FILES:
        make_private(os.path.join(path, name))


def lock_folder(path: str, kind: int) -> int:
    """Lock the store. Returns a descriptor; closing it releases the lock. ``kind`` is LOCK_SH for a
    shared store, otherwise LOCK_EX. Raises StoreLockedError if another process has the lock.
    """
    descriptor = open_private(os.path.join(path, "owner"), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 100, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreLockedError(
            f"the coordination store {path} is open in process {holder}; stop it or use another"
        ) from None
    if kind == fcntl.LOCK_EX:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
