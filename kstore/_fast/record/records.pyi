"""Records of batches, decoded lazily."""

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
    """A record. It keeps the buffer (or its batch's decompressed bytes) alive; its parts are
    created when they are read.
    """

    batch: BatchView
    """The record's batch."""
    offset: int
    """Its offset in the partition."""
    timestamp: int
    """Milliseconds since 1970, or -1; the append time if the batch has LogAppendTime."""
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
        """The headers, in order. Raises InvalidBatchError if they are malformed."""
    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
    @property
    def leader_epoch(self) -> int:
        """The batch's partition leader epoch, or -1."""

@final
class RecordIterator(Iterator[Record]):
    """The iterator of a RecordSet."""

    def __next__(self) -> Record: ...

class RecordSet:
    """The records of a buffer of batches. Iterating decodes step by step; indexing keeps all
    records.

    Iteration, ``len`` and indexing raise InvalidBatchError at the first invalid batch, after the
    records before it.
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
        """All values at once, faster than record by record."""
    @property
    def next_offset(self) -> int | None:
        """The offset after the last whole batch: where a reader continues, also across gaps. None
        if there is no batch.
        """
    @property
    def size_bytes(self) -> int:
        """Bytes of the buffer."""

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
    """The records of ``buffer``'s batches at or after ``start_offset`` and below ``end_offset``.

    A partial batch at the end, as in fetch responses, is skipped. ``verify`` verifies each CRC.
    Control batches are skipped unless ``control``. ``aborted`` are (producer id, first offset)
    pairs of a Fetch response: their records are skipped (read_committed).
    ``max_decompressed_bytes`` limits one batch (below 0: 256 MiB).
    """
