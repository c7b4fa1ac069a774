"""The files of logs at one moment, held open while brokers write, delete and compact.

First a log's end is noted, then its segments are opened. Data that was sealed at that time does not
change in an open file, even if the file is renamed or deleted.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kstore.backup.errors import BackupError
from kstore.backup.source import BrokerSource
from kstore.env import SystemEnv
from kstore.log import Log, LogConfig, LogDir, LogError
from kstore.log.local.start_offset import read_start_offset
from kstore.log.segments.damage import piece_at
from kstore.log.segments.segment_names import (
    directory_name,
    only_zeros,
    segment_bases,
    segment_path,
)
from kstore.log.segments.swap import SWAP
from kstore.record import BatchView, InvalidBatchError, batches
from kstore.types import TopicPartition

__all__ = [
    "BrokerLogs",
    "Captured",
    "GoneError",
    "Identity",
    "OpenSegment",
    "capture",
    "many_files",
]

TRIES = 50
Known: TypeAlias = "Callable[[Identity, int], bool]"
"""Whether the content of a file with this size is known."""


class GoneError(Exception):
    """The segment's data was deleted while it was read, for example by retention."""


@contextmanager
def many_files() -> Iterator[None]:
    """In this context, the process may open as many files as the system allows."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


class BrokerLogs:
    """The logs of a broker, opened for reading while the broker runs."""

    def __init__(self, broker: BrokerSource) -> None:
        self.node_id = broker.node_id
        self._dirs = [
            LogDir(
                path, read_only=True, flush="os", flush_interval_ms=1000, env=None,
                config=LogConfig(),
            )
            for path in broker.log_dirs
        ]  # fmt: skip

    def log(self, key: TopicPartition) -> Log | None:
        """A partition's log; None if this broker has none."""
        name = directory_name(key)
        for log_dir in self._dirs:
            if os.path.isdir(os.path.join(log_dir.path, name)):
                try:
                    return log_dir.log(key.topic, key.partition, create=False)
                except LogError:
                    if os.path.isdir(os.path.join(log_dir.path, name)):
                        raise
        return None

    def close(self) -> None:
        """Close all logs."""
        for log_dir in self._dirs:
            log_dir.close()


class Identity(NamedTuple):
    """The identity of a file."""

    device: int
    inode: int
    base_offset: int


@dataclass
class OpenSegment:
    """A segment's file. ``size_bytes``: the size of its data, if known."""

    base_offset: int
    path: str
    descriptor: int
    """-1: not open, because its content is known."""
    size_bytes: int
    identity: Identity

    def read(self, size: int, position: int) -> bytes:
        """Read bytes; fewer only at the end."""
        return os.pread(self.descriptor, size, position)

    def pieces(self, position: int = 0) -> Iterator[tuple[bytes, list[BatchView]]]:
        """Whole, valid batches from a position to the end of the data, piece by piece.

        Raises BackupError for damage, GoneError if the file was truncated meanwhile.
        """
        while position < self.size_bytes:
            piece = piece_at(self.read, position, self.size_bytes)
            found: list[BatchView] = []
            kind = ""
            try:
                found.extend(batches(piece, verify=True))
            except InvalidBatchError as error:
                kind = error.status
            done = found[-1].position + found[-1].size_bytes if found else 0
            if found:
                yield piece[:done], found
            position += done
            if done and not kind:
                continue
            if only_zeros(self.read, position, self.size_bytes):
                return
            if os.fstat(self.descriptor).st_size < self.size_bytes:
                raise GoneError(self.path)
            raise BackupError(
                f"{self.path} is damaged at byte {position} ({kind or 'no whole batch'}): run "
                "`kstore log verify` on its folder. If other replicas are in sync the broker "
                "repairs it when it is read; else stop the broker and use `kstore log verify "
                "--repair`"
            )


class Captured(NamedTuple):
    """A log at the moment when its end was noted."""

    node_id: int
    start: int
    end: int
    segments: tuple[OpenSegment, ...]

    def close(self) -> None:
        """Close its files."""
        _close(self.segments)


def capture(log: Log, node_id: int, known: Known | None = None) -> Captured:
    """Note the end of a log, and open its segments except the ``known`` ones."""
    for _ in range(TRIES):
        log.refresh()
        active = log.core.segments[-1]
        base, size_bytes, end = active.base_offset, active.size_bytes, log.core.log_end_offset
        segments = _open_all(log.path, known)
        if segments and segments[-1].base_offset == base:
            segments[-1].size_bytes = size_bytes
            start = max(read_start_offset(SystemEnv().fs, log.path), segments[0].base_offset)
            return Captured(node_id, min(start, end), end, tuple(segments))
        _close(segments or ())
    raise BackupError(
        f"the segments of {log.path} changed during each of {TRIES} attempts: try again. If its "
        "broker does not run, start it once: it has a compaction to finish"
    )


def _open_all(folder: str, known: Known | None) -> list[OpenSegment] | None:
    """All segments; None if they are being replaced at this moment."""
    names = os.listdir(folder)
    if any(name.endswith(SWAP) for name in names):
        return None
    found: list[OpenSegment] = []
    try:
        for base in segment_bases(names):
            found.append(_open(segment_path(folder, base), base, known))
        names = os.listdir(folder)
        same = segment_bases(names) == [each.base_offset for each in found]
        if same and not any(name.endswith(SWAP) for name in names) and _are_named(found):
            return found
    except FileNotFoundError:
        pass  # deleted or replaced meanwhile
    except BaseException:
        _close(found)
        raise
    _close(found)
    return None


def _open(path: str, base: int, known: Known | None) -> OpenSegment:
    status = os.stat(path)
    identity = Identity(status.st_dev, status.st_ino, base)
    if known is not None and known(identity, status.st_size):
        return OpenSegment(base, path, -1, status.st_size, identity)
    descriptor = os.open(path, os.O_RDONLY)
    status = os.fstat(descriptor)
    identity = Identity(status.st_dev, status.st_ino, base)
    return OpenSegment(base, path, descriptor, status.st_size, identity)


def _are_named(segments: Sequence[OpenSegment]) -> bool:
    return all(os.stat(each.path).st_ino == each.identity.inode for each in segments)


def _close(segments: Sequence[OpenSegment]) -> None:
    for each in segments:
        if each.descriptor >= 0:
            os.close(each.descriptor)
            each.descriptor = -1
