"""The second pass of log compaction: batches without the records that were overtaken."""

from typing import Self

from typing_extensions import Buffer

from kstore._fast.log.key_index import _Decide
from kstore._fast.log.offset_map import OffsetMap

class BatchCleaner:
    """Writes batches anew with what the map says is each key's last record."""

    offsets: OffsetMap
    """The map that decides."""
    now_ms: int
    """The time that delete horizons are compared with."""
    delete_retention_ms: int
    """How long tombstones stay from when they are first seen here."""
    upper_bound_offset: int
    """The batch that ends here is kept, if only as an empty one."""
    records_read: int
    """Records looked at."""
    records_kept: int
    """Records written."""
    batches_read: int
    """Batches looked at."""
    batches_kept: int
    """Batches written, empty ones included."""
    keyless: int
    """Records without a key: they are dropped."""
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
        """Bytes of whole batches consumed, and the batches that remain of them.

        Raises InvalidBatchError for a damaged batch.
        """
