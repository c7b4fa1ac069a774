"""Offset ranges that a Spark task, or a scan, reads from one partition. Spark sends them from the
driver to executors as input partitions, so they have only plain values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kstore.record.column_decoder import ColumnDecoder

__all__ = ["Decoding", "OffsetRange"]


@dataclass(frozen=True)
class OffsetRange:
    """Offsets ``start`` to below ``end`` of one partition.

    Epochs of -1 are unknown. ``leader_epoch`` is the epoch of the record before ``start``, as in a
    committed offset. ``partition_epoch`` distinguishes the topic from a deleted one of the same
    name (KIP-232); ``topic_id`` does so if brokers have no partition epochs.
    """

    topic: str
    partition: int
    start: int
    end: int
    leader_epoch: int = -1
    partition_epoch: int = -1
    topic_id: str = ""

    @property
    def size(self) -> int:
        """The number of offsets in the range; a compacted topic may have fewer records."""
        return max(self.end - self.start, 0)


Decoding = Callable[[OffsetRange, bool], ColumnDecoder]
"""How to decode a range's batches; the reader decides whether to verify checksums."""
