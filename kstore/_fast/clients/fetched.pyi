"""A partition's records in a Fetch response: decoded on access for `poll`, or as columns."""

from collections.abc import Iterable
from typing import Any, Self, final

from typing_extensions import Buffer

from kstore._fast.record.columns import Columns
from kstore._fast.record.records import RecordSet
from kstore.types import Header, TopicPartition

@final
class ConsumerRecord:
    """A record with its topic, partition and offset. It keeps the buffer of its fetch in memory.
    `key`, `value` and `headers` are created each time they are accessed.
    """

    offset: int
    """The record's offset in its partition."""
    timestamp: int
    """In ms since 1970; -1 if there is none. With LogAppendTime it is the time of the append."""
    @property
    def topic(self) -> str:
        """The topic's name."""
    @property
    def partition(self) -> int:
        """The partition's number."""
    @property
    def key(self) -> bytes | None:
        """The key, or None."""
    @property
    def value(self) -> bytes | None:
        """The value, or None (a tombstone)."""
    @property
    def key_size(self) -> int:
        """The size of the key in bytes; -1 if the key is None."""
    @property
    def value_size(self) -> int:
        """The size of the value in bytes; -1 if the value is None."""
    @property
    def headers(self) -> tuple[Header, ...]:
        """The headers, in order. Raises InvalidBatchError if they are malformed."""
    @property
    def timestamp_type(self) -> int:
        """0 for CreateTime, 1 for LogAppendTime."""
    @property
    def leader_epoch(self) -> int:
        """The leader epoch in which the record was written; -1 if unknown."""

@final
class FetchedRecords:
    """The records of one partition in a response, which are returned step by step."""

    tp: TopicPartition
    """The partition."""
    owner: Any
    """The object that it was created with: the consumer's row of the partition."""
    version: int
    """The owner's version at the time of the request."""
    size_bytes: int
    """The size of the batches in bytes."""
    end_offset: int
    """The offset after the last batch: where the next fetch continues."""
    next_offset: int
    """The offset after the last returned record."""
    leader_epoch: int
    """The largest leader epoch of the records below next_offset, -1 if unknown."""
    last_epoch: int
    """The largest leader epoch of the records below end_offset, -1 if unknown."""
    epoch_starts: list[tuple[int, int]]
    """Each leader epoch of the batches, and the offset after all records of the earlier ones."""
    is_cut_off: bool
    """Whether it ends with a partial batch, or is empty."""
    partition_epoch: int
    """The partition epoch of the fetch (KIP-232), -1 if unknown."""
    is_drained: bool
    """Whether everything was returned; then next_offset is end_offset."""
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
        """Skip what is before an offset."""
    def take(self, out: list[ConsumerRecord], max_records: int) -> int:
        """Append up to so many records to the list, and return their number.

        Raises InvalidBatchError at a batch that can't be read, after all records before it were
        taken; and again each time, until the consumer seeks.
        """
    def take_columns(self, columns: Columns, max_records: int) -> int:
        """As `take`, into columns."""
    def whole(self) -> RecordSet:
        """The rest, which counts as returned."""
    @property
    def offset_after_failure(self) -> int | None:
        """The offset after the batch that can't be read; None if nothing failed or the offset is
        unknown.
        """
