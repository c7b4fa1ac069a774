"""What a Fetch answer brought of one partition: records for `poll`, lazily, or columns."""

from collections.abc import Iterable
from typing import Any, Self, final

from typing_extensions import Buffer

from kstore._fast.record.columns import Columns
from kstore._fast.record.records import RecordSet
from kstore.types import Header, TopicPartition

@final
class ConsumerRecord:
    """One record and where it came from. It keeps the buffer of its fetch alive; key, value and
    headers are made anew each time they are read."""

    offset: int
    """Its offset in the partition."""
    timestamp: int
    """Milliseconds since 1970, -1 for none; the append time where the topic says LogAppendTime."""
    @property
    def topic(self) -> str:
        """The topic's name."""
    @property
    def partition(self) -> int:
        """The partition's index."""
    @property
    def key(self) -> bytes | None:
        """The key, or None."""
    @property
    def value(self) -> bytes | None:
        """The value, or None (a tombstone)."""
    @property
    def key_size(self) -> int:
        """Bytes of the key, -1 when null."""
    @property
    def value_size(self) -> int:
        """Bytes of the value, -1 when null."""
    @property
    def headers(self) -> tuple[Header, ...]:
        """The headers, in order. Raises InvalidBatchError when they do not fit the record."""
    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
    @property
    def leader_epoch(self) -> int:
        """The leader epoch in which it was written, -1 for unknown."""

@final
class FetchedRecords:
    """The records of one partition that one answer brought, being handed out."""

    tp: TopicPartition
    """The partition."""
    owner: Any
    """Whatever it was made with; the consumer's row of the partition."""
    version: int
    """The owner's version when it was asked for."""
    size_bytes: int
    """Bytes of the batches."""
    end_offset: int
    """The offset after the last batch: where the next fetch goes on."""
    next_offset: int
    """The offset after the last record handed out."""
    leader_epoch: int
    """The largest leader epoch of the records below next_offset, -1 for unknown."""
    last_epoch: int
    """The largest leader epoch of the records below end_offset, -1 for unknown."""
    epoch_starts: list[tuple[int, int]]
    """Each leader epoch of the batches, and the offset after all records of those before it."""
    is_cut_off: bool
    """Whether it ends with a part of a batch, or with nothing."""
    partition_epoch: int
    """The partition epoch of the fetch (KIP-232), -1 for unknown."""
    is_drained: bool
    """Whether all has been handed out; next_offset is end_offset then."""
    def __init__(
        self,
        tp: TopicPartition,
        buffer: Buffer,
        *,
        start_offset: int,
        leader_epoch: int = -1,
        partition_epoch: int = -1,
        verify: bool = True,
        aborted: Iterable[tuple[int, int]] | None = None,
        owner: Any = None,
        version: int = 0,
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> ConsumerRecord: ...
    def __len__(self) -> int: ...
    def skip_to(self, offset: int) -> None:
        """Leave out what lies before an offset."""
    def take(self, out: list[ConsumerRecord], max_records: int) -> int:
        """Append up to so many records and say how many.

        Raises InvalidBatchError at a batch that can't be read, after all before it were taken; and
        again each time, until the consumer seeks.
        """
    def take_columns(self, columns: Columns, max_records: int) -> int:
        """As `take`, into columns."""
    def whole(self) -> RecordSet:
        """All that is left, which counts as handed out."""
    @property
    def offset_after_failure(self) -> int | None:
        """The offset after the batch that can't be read; None if nothing failed or nobody knows."""
