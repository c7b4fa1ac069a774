"""Records as columns in Arrow's memory layout. Every column is readable through the buffer
protocol."""

from typing import Self, Unpack, final

from typing_extensions import Buffer

from kstore.types import DecodeOptions

OFFSET: int
TIMESTAMP: int
KEY: int
VALUE: int
HEADERS: int
TIMESTAMP_TYPE: int
MICROSECONDS: int

@final
class ColumnMemory(Buffer):
    """A column's bytes, read-only."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class BinaryColumn:
    """Variable-size values."""

    offsets: ColumnMemory
    """int32, one more than values."""
    data: ColumnMemory
    """The values' bytes, one after another."""
    validity: ColumnMemory | None
    """Bitmap, least significant bit first; None without nulls."""
    count: int
    """Values."""
    nulls: int
    """Nulls among them."""

@final
class Columns:
    """All columns of a decode."""

    offset: ColumnMemory
    """int64 record offsets."""
    timestamp: ColumnMemory
    """int64 milliseconds; microseconds where MICROSECONDS was asked for."""
    timestamp_type: ColumnMemory
    """int32: 0 CreateTime, 1 LogAppendTime."""
    key: BinaryColumn
    """Keys."""
    value: BinaryColumn
    """Values."""
    header_offsets: ColumnMemory
    """int32, one more than records: where each record's headers begin."""
    header_key: BinaryColumn
    """Header keys, UTF-8 as far as the producer wrote it."""
    header_value: BinaryColumn
    """Header values."""
    count: int
    """Records."""
    def __len__(self) -> int: ...

def decode_columns(
    buffer: Buffer,
    *,
    max_records: int | None = None,
    **options: Unpack[DecodeOptions],
) -> Columns:
    """The records of ``buffer`` as columns; options as for ``records.decode``."""

@final
class ColumnReader:
    """The records of ``buffer`` as columns, in pieces; options as for ``records.decode``.

    ``wanted`` is the sum of OFFSET, TIMESTAMP, KEY, VALUE, HEADERS and TIMESTAMP_TYPE, for the
    columns to fill, and of MICROSECONDS for timestamps in that unit. A timestamp that does not fit
    raises OverflowError. ``after`` is the reader of the preceding bytes, which has read all of
    them: it knows the transactions that are aborted. ``times`` are two numbers of milliseconds:
    only records from the first to below the second are decoded.
    """

    position: int
    """The position of the next batch; at the end, that of a partial batch, or of one at or after
    ``end_offset``.
    """

    def __new__(
        cls,
        buffer: Buffer,
        wanted: int,
        after: ColumnReader | None = None,
        times: tuple[int, int] | None = None,
        **options: Unpack[DecodeOptions],
    ) -> Self: ...
    def read(self, max_records: int, max_bytes: int) -> Columns:
        """The next records, up to so many, or until keys and values have so many bytes. The result
        is empty at the end. Records before a damaged batch are returned first.
        """
