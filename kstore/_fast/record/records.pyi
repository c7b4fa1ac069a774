"""The records of batches, decoded when they are accessed."""

from collections.abc import Iterable, Iterator
from typing import Self, Unpack, final, overload

from typing_extensions import Buffer

from kstore._fast.record.batch_view import BatchView
from kstore.types import DecodeOptions, Header

class BatchCursor:
    """Iterates over the batches that a reader may see; used by ``decode`` and by ``columns``."""

    batch: BatchView
    """The current batch."""
    def __new__(
        cls,
        buffer: Buffer,
        **options: Unpack[DecodeOptions],
    ) -> Self: ...

@final
class Record:
    """One record. It keeps the buffer (or its batch's decompressed bytes) in memory. ``key``,
    ``value`` and ``headers`` are created when they are accessed.
    """

    batch: BatchView
    """The record's batch."""
    offset: int
    """The record's offset in its partition."""
    timestamp: int
    """In ms since 1970; -1 if the record has none. With LogAppendTime it is the time of the append.
    """
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
        """The leader epoch of the record's batch, or -1."""

@final
class RecordIterator(Iterator[Record]):
    """The iterator of a RecordSet."""

    def __next__(self) -> Record: ...

class RecordSet:
    """The records in a buffer of batches. Iterating decodes one record after another. Indexing
    decodes all records and keeps them.

    Iteration, ``len`` and indexing raise InvalidBatchError at the first invalid batch. Iteration
    returns the records before it first.
    """

    def __init__(
        self,
        buffer: Buffer,
        **options: Unpack[DecodeOptions],
    ) -> None: ...
    def __iter__(self) -> Iterator[Record]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    @overload
    def __getitem__(self, index: int, /) -> Record: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Record]: ...
    def values(self) -> list[bytes | None]:
        """All values as a list. Faster than reading them record by record."""
    @property
    def next_offset(self) -> int | None:
        """The offset after the last whole batch: a reader continues there, even if offsets have
        gaps. None if there is no batch.
        """
    @property
    def size_bytes(self) -> int:
        """The size of the buffer in bytes."""

def read_headers(data: bytes, position: int) -> tuple[Header, ...]:
    """The headers in a record's bytes after its value, starting with the count."""

def decode(
    buffer: Buffer,
    *,
    verify: bool = True,
    start_offset: int = 0,
    end_offset: int | None = None,
    control: bool = False,
    aborted: Iterable[tuple[int, int]] | None = None,
    max_decompressed_bytes: int = -1,
) -> RecordSet:
    """The records in ``buffer`` with offsets from ``start_offset`` to before ``end_offset``.

    A partial batch at the end, as in fetch responses, is skipped. With ``verify`` each batch's CRC
    is checked. Control batches are skipped unless ``control`` is True. ``aborted`` lists the
    (producer id, first offset) pairs of a Fetch response; records of these transactions are skipped
    (read_committed). ``max_decompressed_bytes`` limits the size of one batch (below 0: 256 MiB).
    """
