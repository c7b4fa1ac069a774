"""Record batches as columns, piece by piece, for the readers of segments and of Fetch responses. It
creates no Arrow objects; a subclass converts each piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kstore._fast.record.columns import ColumnReader, Columns

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["MAX_BATCH_BYTES", "MAX_BATCH_ROWS", "NO_END", "ColumnDecoder"]

MAX_BATCH_ROWS = 32768
MAX_BATCH_BYTES = 4 << 20
"""The size of keys and values in one piece, in bytes. Spark reads records of 1 KB with a tenth less
CPU in pieces of 4 MB than in pieces of 1 MB, and no less in larger ones.
"""
NO_END = 0x7FFFFFFFFFFFFFFF


class ColumnDecoder:
    """Decodes one partition's record batches: the columns whose flags ``wanted`` is the sum of,
    and, with ``times``, only the records from the first to below the second of these milliseconds.

    ``verify`` verifies each batch's checksum, which brokers and segments have already verified.
    """

    def __init__(
        self,
        wanted: int,
        *,
        verify: bool = True,
        max_rows: int = MAX_BATCH_ROWS,
        max_bytes: int = MAX_BATCH_BYTES,
        times: tuple[int, int] | None = None,
    ) -> None:
        self._wanted = wanted
        self._verify = verify
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._times = times

    def batches(
        self,
        buffer: Buffer,
        start: int,
        end: int = NO_END,
        aborted: Iterable[tuple[int, int]] | None = None,
    ) -> Iterator[Any]:
        """The records at offsets ``start`` to below ``end``, in pieces that are not empty.

        ``aborted`` are (producer id, first offset) as in a Fetch response, for read_committed.
        Raises InvalidBatchError, and OverflowError for a timestamp that is too large in
        microseconds.
        """
        yield from self.drained(self.reader(buffer, start, end, aborted))

    def reader(
        self,
        buffer: Buffer,
        start: int,
        end: int = NO_END,
        aborted: Iterable[tuple[int, int]] | None = None,
        *,
        after: ColumnReader | None = None,
    ) -> ColumnReader:
        """A reader of ``buffer``, for `drained`; ``after`` is the reader of the preceding bytes,
        which has been drained and knows ``aborted``.
        """
        return ColumnReader(
            buffer,
            self._wanted,
            after,
            self._times,
            verify=self._verify,
            start_offset=start,
            end_offset=end,
            aborted=aborted,
        )

    def drained(self, reader: ColumnReader) -> Iterator[Any]:
        """The rest of a reader, in the form of `batches`."""
        while found := reader.read(self._max_rows, self._max_bytes):
            yield self.made(found)

    def made(self, found: Columns) -> Any:
        """Convert a piece."""
        return found
