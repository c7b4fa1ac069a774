"""The second pass of log compaction: batches without the records that have a newer one."""

from typing import Self

from typing_extensions import Buffer

from kstore._fast.log.key_index import _Decide
from kstore._fast.log.offset_map import OffsetMap

class BatchCleaner:
    """Rewrites batches; the map has each key's last record."""

    offsets: OffsetMap
    """The map of last offsets."""
    now_ms: int
    """The time that delete horizons are compared with."""
    delete_retention_ms: int
    """How long tombstones stay after they are first seen here."""
    upper_bound_offset: int
    """A batch that ends here is kept, even if it is empty."""
    records_read: int
    """The number of records read."""
    records_kept: int
    """The number of records written."""
    batches_read: int
    """The number of batches read."""
    batches_kept: int
    """The number of batches written, including empty ones."""
    keyless: int
    """The number of records without a key, which are dropped."""
    def __new__(
        cls,
        offsets: OffsetMap,
        *,
        now_ms: int,
        delete_retention_ms: int,
        upper_bound_offset: int,
        last_records: dict[int, tuple[int | None, int]],
        decide: _Decide,
    ) -> Self: ...
    def clean(self, data: Buffer) -> tuple[int, bytes]:
        """The number of bytes of whole batches that were consumed, and the remaining batches.

        Raises InvalidBatchError for a damaged batch.
        """
