"""Offset ranges: what one Spark task, or a scan, reads from one partition of a topic. They travel
from the driver to executors within Spark's input partitions, and hold plain values only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kstore.record.column_decoder import ColumnDecoder

__all__ = ["Decoding", "OffsetRange"]


@dataclass(frozen=True)
class OffsetRange:
    """Offsets ``start`` to before ``end`` of one partition.

    Epochs of -1 are not known. ``leader_epoch`` is that of the record before ``start``, as beside a
    committed offset; ``partition_epoch`` tells the topic from one of the same name that was
    deleted before (KIP-232); ``topic_id`` does, where brokers have no partition epochs.
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
        """Offsets in the range; in a compacted topic there may be fewer records."""
        return max(self.end - self.start, 0)


Decoding = Callable[[OffsetRange, bool], ColumnDecoder]
"""How a range's batches are decoded; whether checksums are checked is the reader's to say."""
