"""A consistent copy of logs while they are written. Sealed segments are shared with the copy, by
reflink if the file system supports it, otherwise by hard link; only the active segment is copied.

Neither side changes a shared file: before a segment is truncated, it gets a file of its own. The
copy gets its name when it is complete and durable: a killed process leaves nothing that looks like
a copy.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kstore.env import sync_dir
from kstore.log.errors import SnapshotError, storage_errors
from kstore.log.local.start_offset import START_OFFSET_NAME, start_offset_line
from kstore.log.segments.segment_names import (
    CURSORS_FOLDER,
    METADATA_NAME,
    QUEUE_PREFIX,
    segment_path,
)
from kstore.log.segments.shared_files import copy_file
from kstore.log.segments.swap import CLEANED
from kstore.private_files import PRIVATE_FILE, PRIVATE_FOLDER

if TYPE_CHECKING:
    from kstore.log.local.local_log import LocalLog

__all__ = ["queue_states", "take_snapshot"]

FICLONE = 0x40049409  # Linux's request for a copy that shares its blocks
TRIES = 20
# In the state of a queue. Its lock and leases are valid until the machine restarts.
QUEUE_BOOT_ID = slice(32, 48)


class SnapshotLog(Protocol):
    """A log; a ``Log``."""

    local: LocalLog

    def refresh(self) -> bool:
        """Look for what another process has written."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The data to copy of one log: (path, base offset, bytes, inode) of its segments, the last of
    which is written to, and its log start offset.
    """

    log: LocalLog
    segments: tuple[tuple[str, int, int, int], ...]
    start: int


def take_snapshot(logs: Sequence[SnapshotLog], directory: str, target: str) -> None:
    """Copy logs of one log dir to a new one, as they are at one moment: a transaction is in all of
    them or in none. The copy is on disk when this returns.

    Raises SnapshotError if ``target`` exists and is not empty or cannot be replaced, and
    LogStorageError; then ``target`` is as before. A killed process leaves the folder
    ``target``.unfinished.*, which nothing needs.
    """
    target = os.path.realpath(target)
    with storage_errors(f"taking a snapshot of {directory} to {target}"):
        _make_parents(os.path.dirname(target))
        mode = None
        if os.path.exists(target):
            if os.listdir(target):
                raise SnapshotError(f"{target} is not empty: take the snapshot to a new folder")
            mode = stat.S_IMODE(os.stat(target).st_mode)
            # The copy takes long: try with an empty folder first.
            _name(_make_unfinished(target), target, mode)
        unfinished = _make_unfinished(target)
        try:
            _copy(sorted(logs, key=lambda log: log.local.name), directory, unfinished)
            _name(unfinished, target, mode)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


def _make_parents(folder: str) -> None:
    """Create a folder and its missing parents, each with a durable name."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    _make_parents(above)
    os.makedirs(folder, exist_ok=True)  # another process may make it, too
    sync_dir(above)


def _make_unfinished(target: str) -> str:
    """An empty folder beside the target, with its own name."""
    made = f"{target}.unfinished.{uuid.uuid4().hex[:8]}"
    try:
        os.mkdir(made, PRIVATE_FOLDER)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        above = os.path.dirname(target)
        inside = f", for example one in {target}" if os.path.exists(target) else ""
        raise SnapshotError(
            f"the snapshot can't be made in {above}, where it gets its name when it is complete: "
            f"{error.strerror}. Take it to a new folder in a folder that can be written{inside}"
        ) from error
    return made


def _copy(rows: Sequence[SnapshotLog], directory: str, target: str) -> None:
    with ExitStack() as locks:
        for log in rows:
            locks.enter_context(log.local.swapping)  # in this process, segments stay
        parts = _share_logs(rows, directory, target)
    for part in parts:
        _complete(part, target)  # takes long: closing a log waits for its lock
    _sync_folder(target)


def _name(unfinished: str, target: str, mode: int | None) -> None:
    """Give the folder its name, and the mode of the folder that it replaces; or remove it."""
    try:
        if mode is not None:
            os.chmod(unfinished, mode)
        os.rename(unfinished, target)
    except OSError as error:
        with suppress(OSError):
            os.chmod(unfinished, PRIVATE_FOLDER)
            shutil.rmtree(unfinished)
        raise SnapshotError(
            f"{target} can't be replaced by the snapshot: {error.strerror}. Take it to a new "
            "folder; if this one is a mount point, to a new folder in it"
        ) from error
    sync_dir(os.path.dirname(target))


def _share_logs(rows: Sequence[SnapshotLog], directory: str, target: str) -> list[_Part]:
    """Give the copy everything that changes in the logs from now on."""
    for _ in range(TRIES):
        try:
            # Before the ends of the logs are known: positions beyond them would skip records.
            _copy_cursors(directory, target, {log.local.name for log in rows})
            queues = {log.local.name: queue_states(log.local.path) for log in rows}
            parts = _capture(rows)
            for part in parts:
                _share_log(part, queues[part.log.name], target)
            if all(map(_is_unchanged, parts)):
                return parts
        except FileNotFoundError:
            pass  # another process has deleted or cleaned a segment meanwhile
        for name in os.listdir(target):
            shutil.rmtree(os.path.join(target, name))
    raise SnapshotError(
        f"the segments changed during each of {TRIES} tries: try again when the writing process "
        "has less to delete and to compact, or let that process take the snapshot"
    )


def _capture(rows: Sequence[SnapshotLog]) -> list[_Part]:
    """All at one moment: with the locks of all logs, in the order in which a transaction takes
    them.
    """
    with ExitStack() as locks:
        for log in rows:
            log.refresh()
            locks.enter_context(log.local.core)
        return [
            _Part(
                log.local,
                tuple(
                    (each.path, each.base_offset, each.size_bytes, os.stat(each.path).st_ino)
                    for each in log.local.core.segments
                ),
                log.local.core.log_start_offset,
            )
            for log in rows
        ]


def _is_unchanged(part: _Part) -> bool:
    try:
        for path, _, size_bytes, inode in part.segments:
            found = os.stat(path)
            if found.st_ino != inode or found.st_size < size_bytes:
                return False
    except FileNotFoundError:
        return False
    return True


def _share_log(part: _Part, queues: Mapping[str, bytes], target: str) -> None:
    folder = os.path.join(target, part.log.name)
    os.mkdir(folder, PRIVATE_FOLDER)
    for path, base, size_bytes, _ in part.segments[:-1]:
        _share(path, segment_path(folder, base), size_bytes)  # a reader may use a swap's file
    path, base, size_bytes, _ = part.segments[-1]
    if not _reflink(path, segment_path(folder, base), size_bytes):
        # Its first bytes do not change, because a truncation replaces a file with two names.
        _link(path, _held(part, target), segment_path(folder, base), size_bytes)
    metadata = os.path.join(part.log.path, METADATA_NAME)
    if os.path.exists(metadata):
        shutil.copyfile(metadata, os.path.join(folder, METADATA_NAME))
    with open(os.path.join(folder, START_OFFSET_NAME), "wb") as file:
        file.write(start_offset_line(part.start))
    for name, state in queues.items():
        flags = os.O_WRONLY | os.O_CREAT
        with open(os.open(os.path.join(folder, name), flags, PRIVATE_FILE), "wb") as made:
            made.write(state)


def _complete(part: _Part, target: str) -> None:
    """Do what needs no lock."""
    folder = os.path.join(target, part.log.name)
    _, base, size_bytes, _ = part.segments[-1]
    held = _held(part, target)
    if os.path.exists(held):
        copy_file(held, segment_path(folder, base), size_bytes)
        os.unlink(held)
    _sync_folder(folder)


def _held(part: _Part, target: str) -> str:
    """The other name of the segment that is written to."""
    base = part.segments[-1][1]
    return segment_path(os.path.join(target, part.log.name), base, CLEANED)


def _share(source: str, target: str, size_bytes: int) -> None:
    """A reflink, else a hard link, else a copy."""
    if not _reflink(source, target, size_bytes):
        _link(source, target, target, size_bytes)


def _link(source: str, link: str, target: str, size_bytes: int) -> None:
    try:
        os.link(source, link)
    except OSError:
        copy_file(source, target, size_bytes)  # another file system, or one without links


def _reflink(source: str, target: str, size_bytes: int) -> bool:
    with open(source, "rb") as file, open(target, "xb") as made:
        try:
            fcntl.ioctl(made, FICLONE, file.fileno())
        except OSError:
            os.unlink(target)
            return False
        made.truncate(size_bytes)
        return True


def queue_states(folder: str) -> dict[str, bytes]:
    """The files of a log's queues as of now, by name; without the locks, and without the leases, of
    their users. To be read before the log's end is: a position beyond the end would skip records.
    """
    found = {}
    for name in os.listdir(folder):
        if name.startswith(QUEUE_PREFIX):
            with open(os.path.join(folder, name), "rb") as file:
                data = bytearray(file.read())
            if not name.endswith(".dead"):
                data[QUEUE_BOOT_ID] = bytes(16)
            found[name] = bytes(data)
    return found


def _copy_cursors(directory: str, target: str, names: set[str]) -> None:
    folder = os.path.join(directory, CURSORS_FOLDER)
    if not os.path.isdir(folder):
        return
    made = os.path.join(target, CURSORS_FOLDER)
    os.mkdir(made, PRIVATE_FOLDER)
    for name in os.listdir(folder):
        if name.partition(":")[0] in names:
            path = os.path.join(made, name)
            shutil.copyfile(os.path.join(folder, name), path)
            os.chmod(path, PRIVATE_FILE)
    _sync_folder(made)


def _sync_folder(folder: str) -> None:
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                os.fsync(file.fileno())
    sync_dir(folder)
