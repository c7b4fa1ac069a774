"""The offsets that cursors, and consumer groups of the same names, have committed in a log dir."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Protocol

from kstore.log.cursors.cursor_file import CursorFile, Position, cursor_files
from kstore.log.cursors.group_offsets import GroupOffsets, OffsetsLog
from kstore.log.settings import FlushPolicy
from kstore.types import TopicPartition

__all__ = ["CommittedOffsets", "CursorDirectory"]


class CursorDirectory(Protocol):
    """The directory of cursors; a ``LogDir``."""

    path: str

    @property
    def flush_policy(self) -> FlushPolicy:
        """When written data is durable."""

    def now_ms(self) -> int:
        """The environment's time."""

    def partitions(self) -> list[TopicPartition]:
        """The topic-partitions that have a log here."""

    def topic_id(self, key: TopicPartition) -> uuid.UUID | None:
        """The topic id in the partition's metadata file."""

    @property
    def log(self) -> Callable[..., OffsetsLog]:
        """The log of a topic-partition, opened or created."""


class CommittedOffsets:
    """The cursors of one log dir. If a broker has served it, a cursor is the consumer group of the
    same name: the later commit counts.
    """

    def __init__(self, log_dir: CursorDirectory) -> None:
        self._dir = log_dir
        self._groups = GroupOffsets(log_dir)

    def now_ms(self) -> int:
        """The time of the log dir's environment."""
        return self._dir.now_ms()

    def file(self, name: str, tp: TopicPartition) -> CursorFile:
        """The file of a cursor, not locked yet."""
        topic_id = self._dir.topic_id(tp) or uuid.UUID(int=0)
        durable = self._dir.flush_policy is not FlushPolicy.OS
        return CursorFile(self._dir.path, tp, topic_id.bytes, name, durable=durable)

    def committed(self, file: CursorFile) -> Position | None:
        """The last commit of the cursor, or its group; None if there is none, or it was deleted."""
        own = file.load()
        value = self._groups.committed(file.name, file.topic_partition)
        taken = own is None or (value is not None and value.commit_timestamp > own.committed_ms)
        if taken or file.is_taken():
            if value is None:
                return None
            return Position(value.offset, value.metadata, value.commit_timestamp, 0)
        assert own is not None
        return None if own.offset < 0 else own

    def give_to_groups(self) -> int:
        """Write the commits of cursors to ``__consumer_offsets``, for a broker that is about to
        serve this directory; returns their number.
        """
        from kstore.protocol.coordinator_records.classic import OffsetCommitValue

        given = 0
        for tp, name in cursor_files(self._dir.path):
            file = self.file(name, tp)
            own = file.load()
            if own is None or file.is_taken():
                continue
            value = self._groups.committed(name, tp)
            if value is None or value.commit_timestamp <= own.committed_ms:
                new = None
                if own.offset >= 0:
                    new = OffsetCommitValue(
                        offset=own.offset, metadata=own.metadata,
                        commit_timestamp=own.committed_ms,
                    )  # fmt: skip
                if new is not None or value is not None:
                    self._groups.commit(name, tp, new)
                    given += 1
            file.note_taken()
        return given
