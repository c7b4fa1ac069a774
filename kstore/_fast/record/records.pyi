"""Records out of batches, lazily. Nothing is decoded before it is asked for."""

from collections.abc import Iterable, Iterator
from typing import Self, Unpack, final, overload

from typing_extensions import Buffer

from kstore._fast.record.batch_view import BatchView
from kstore.types import DecodeOptions, Header

class BatchCursor:
    """Goes through the batches that a reader may see; used by ``decode`` and by ``columns``."""

    batch: BatchView
    """The batch in hand."""
    def __new__(
        cls,
        buffer: Buffer,
        **options: Unpack[DecodeOptions],
    ) -> Self: ...

@final
class Record:
    """One record. It keeps the buffer (or its batch's decompressed bytes) alive; parts are made
    when read."""

    batch: BatchView
    """The batch that it came in."""
    offset: int
    """Its offset in the partition."""
    timestamp: int
    """Milliseconds since 1970, or -1; the append time where the batch says LogAppendTime."""
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
        """The batch's partition leader epoch, or -1."""

@final
class RecordIterator(Iterator[Record]):
    """What iterating over a RecordSet gives."""

    def __next__(self) -> Record: ...

class RecordSet:
    """The records of a buffer of batches. Iterating decodes as it goes; indexing keeps them all.

    Iteration, ``len`` and indexing raise InvalidBatchError at the first batch that is not good,
    after
    the records before it.
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
        """The offset after the last whole batch: where a reader goes on, also across gaps. None if
        none."""
    @property
    def size_bytes(self) -> int:
        """Bytes of the buffer."""

def read_headers(data: bytes, position: int) -> tuple[Header, ...]:
    """Headers out of a record's bytes behind its value, the count first."""

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
    """The records of ``buffer``'s batches at or after ``start_offset`` and before ``end_offset``.

    A partial batch at the end is left out, as fetches have one. ``verify`` checks each CRC. Control
    batches are left out unless ``control``. ``aborted`` are (producer id, first offset) pairs of a
    Fetch
    response: their records are left out (read_committed). ``max_decompressed_bytes`` bounds one
    batch
    (below 0: 256 MiB).
    """
