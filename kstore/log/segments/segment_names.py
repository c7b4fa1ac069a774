"""The names of segment files: how files are named, which ones a folder has, and how to open and
remove one. Other modules read the content of segments.
"""

from __future__ import annotations

import errno
import os
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable

from kstore._fast.disk.page_reader import PageReader
from kstore._fast.disk.write_back import WriteBack
from kstore._fast.log.log_segment import LogSegment
from kstore._fast.log.segment_file import SegmentFile
from kstore.env import Env, FileSystem
from kstore.items import check_int, check_name
from kstore.types import TopicPartition

__all__ = [
    "CLEANED_SUFFIX", "CURSORS_FOLDER", "DELETED_SUFFIX", "LOG_SUFFIX", "METADATA_NAME",
    "QUEUE_PREFIX", "REMOVED_SUFFIX", "STRAY_SUFFIX", "SWAP_SUFFIX", "SegmentOpener",
    "directory_name", "new_segment", "only_zeros", "parse_directory_name", "read_topic_id",
    "segment_bases", "segment_path", "unique_path", "write_topic_id",
]  # fmt: skip

LOG_SUFFIX = ".log"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"  # compaction writes here; never read after a crash
SWAP_SUFFIX = ".swap"  # compaction has finished writing; a crash may have come before the rename
METADATA_NAME = "partition.metadata"
CURSORS_FOLDER = ".cursors"  # of a log dir
QUEUE_PREFIX = "queue."  # in a partition's folder, of the files of its work queues
OFFSET_DIGITS = 20
_BYTES_AT_ONCE = 1 << 20
REMOVED_SUFFIX = "-delete"  # of a partition's directory whose files are being deleted
STRAY_SUFFIX = "-stray"  # of one that belongs to no topic, and may contain something useful
_MAX_NAME = 255  # of a file or directory: characters, since names of topics are ASCII


class SegmentOpener:
    """Opens segment files through the environment's file system."""

    def __init__(
        self,
        fs: FileSystem,
        *,
        writable: bool,
        zeros_ahead: bool = False,
        write_back: WriteBack | None = None,
        pages: PageReader | None = None,
        reserve_later: Callable[[SegmentFile], object] | None = None,
        shared: bool = False,
    ) -> None:
        self.fs = fs
        self.writable = writable
        self.zeros_ahead = zeros_ahead
        self.write_back = write_back
        self.pages = pages
        self.reserve_later = reserve_later
        self.shared = shared

    def __call__(self, path: str, *, create: bool = False) -> SegmentFile:
        """Open a file; create it if it does not exist."""
        writable = self.writable or create
        file = self.fs.open_segment(SegmentFile, path, writable=writable, create=create)
        file.zeros_ahead = self.zeros_ahead
        file.write_back = self.write_back
        file.pages = self.pages
        file.reserve_later = self.reserve_later
        if self.shared:
            file.share()
        return file

    def create(self, path: str) -> SegmentFile:
        """Open a file and empty it; create it if it does not exist."""
        file = self.fs.open_segment(SegmentFile, path, writable=True, create=True)
        if file.size_bytes:
            file.truncate(0)
        file.write_back = self.write_back
        return file


def segment_path(directory: str, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """Kafka's name for a segment: its base offset in 20 digits."""
    return os.path.join(directory, f"{base_offset:0{OFFSET_DIGITS}d}{suffix}")


def segment_bases(names: list[str]) -> list[int]:
    """The base offsets of the segments among a directory's names, ascending."""
    end = OFFSET_DIGITS + len(LOG_SUFFIX)
    return sorted(
        int(name[:OFFSET_DIGITS])
        for name in names
        if len(name) == end and name.endswith(LOG_SUFFIX) and name[:OFFSET_DIGITS].isdigit()
    )


def new_segment(opener: SegmentOpener, directory: str, base_offset: int, env: Env) -> LogSegment:
    """Create an empty segment. Raises OSError if the file cannot be created, or exists and has
    data.
    """
    path = segment_path(directory, base_offset)
    file = opener(path, create=True)
    if file.size_bytes:
        file.close()
        raise FileExistsError(errno.EEXIST, "a segment that was not there at opening", path)
    return LogSegment(base_offset, path, opener, created_ms=env.clock.now_ms(), file=file)


def only_zeros(read: Callable[[int, int], bytes], position: int, end: int) -> bool:
    """Whether the bytes [position, end) of a file are space that its writer has reserved ahead of
    the data.

    ``read(size, position)`` returns the file's bytes.
    """
    while position < end:
        piece = read(min(_BYTES_AT_ONCE, end - position), position)
        if not piece or piece.count(0) < len(piece):
            return not piece
        position += len(piece)
    return True


def directory_name(partition: TopicPartition) -> str:
    """Kafka's name for a partition's directory. Raises ValueError for a topic name that Kafka
    refuses.
    """
    topic = partition.topic
    check_name("the topic", topic)
    legal = all(c.isascii() and (c.isalnum() or c in "._-") for c in topic)
    if not legal or not 0 < len(topic) <= 249 or topic in {".", ".."}:
        raise ValueError(
            f"topic {topic!r} is not a legal name: use 1 to 249 letters, digits, '.', '_' and '-'"
        )
    check_int("the partition", partition.partition, 0, 2**31 - 1)
    return f"{topic}-{partition.partition}"


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None if the name is not a partition's."""
    topic, dash, index = name.rpartition("-")
    if not dash or not topic or not index.isdigit() or name.endswith(REMOVED_SUFFIX):
        return None
    return TopicPartition(topic, int(index))


def unique_path(path: str, suffix: str) -> str:
    """A new path for a partition's directory, with a unique id and the suffix. A long name is cut,
    so that every legal name of a topic leaves room for them.
    """
    parent, name = os.path.split(path)
    ending = f".{uuid.uuid4().hex}{suffix}"
    return os.path.join(parent, name[: _MAX_NAME - len(ending)] + ending)


def read_topic_id(fs: FileSystem, directory: str) -> uuid.UUID | None:
    """The topic id in Kafka's partition.metadata; None if there is none that can be read."""
    try:
        text = fs.read_file(os.path.join(directory, METADATA_NAME)).decode("ascii")
        fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        return uuid.UUID(bytes=urlsafe_b64decode(fields["topic_id"] + "=="))
    except (FileNotFoundError, KeyError, ValueError):
        return None


def write_topic_id(fs: FileSystem, directory: str, topic_id: uuid.UUID, *, durable: bool) -> None:
    """Write Kafka's partition.metadata."""
    encoded = urlsafe_b64encode(topic_id.bytes).decode("ascii").rstrip("=")
    content = f"version: 0\ntopic_id: {encoded}".encode("ascii")
    fs.write_file(os.path.join(directory, METADATA_NAME), content, durable=durable)
