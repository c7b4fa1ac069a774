"""Record batches as views of a buffer: their content, validation, and changes in place."""

from collections.abc import Iterator

from typing_extensions import Buffer

class BatchView:
    """One batch's header, and its bytes in the buffer that it keeps alive. Created by
    ``batches``.
    """

    position: int
    """The batch's first byte in the buffer."""
    @property
    def base_offset(self) -> int:
        """Offset of the first record (as sent: compaction may have removed it)."""
    @property
    def last_offset(self) -> int:
        """Offset of the last record (as sent)."""
    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, including base offset and length."""
    @property
    def leader_epoch(self) -> int:
        """Partition leader epoch that the leader wrote, or -1."""
    @property
    def crc(self) -> int:
        """The stored CRC-32C."""
    @property
    def attributes(self) -> int:
        """The 16 attribute bits."""
    @property
    def compression(self) -> int:
        """Compression type 0 to 4."""
    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record (a transaction marker)."""
    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may drop its tombstones and markers, if set."""
    @property
    def base_timestamp(self) -> int:
        """The base of the records' timestamp deltas."""
    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, or the append time with LogAppendTime."""
    @property
    def producer_id(self) -> int:
        """Producer id, or -1."""
    @property
    def producer_epoch(self) -> int:
        """Producer epoch, or -1."""
    @property
    def base_sequence(self) -> int:
        """Sequence number of the first record, or -1."""
    @property
    def records_count(self) -> int:
        """Number of records in the batch."""
    @property
    def data(self) -> memoryview:
        """The batch's bytes, not copied."""

def validate(
    buffer: Buffer,
    *,
    expected_offset: int | None = None,
    max_decompressed_bytes: int = ...,
) -> list[BatchView]:
    """Validate every batch of ``buffer`` completely, decompressing if necessary; raises
    InvalidBatchError.

    The buffer must end with a batch. ``expected_offset`` is for given offsets (KIP-391): base
    offsets must be at or above it, and ascend from batch to batch.
    """

def batches(buffer: Buffer, *, verify: bool = False, position: int = 0) -> Iterator[BatchView]:
    """The whole batches of ``buffer`` from byte ``position``; a partial one at the end is skipped.

    Raises InvalidBatchError for bytes that are not a batch, and with ``verify`` for a wrong CRC.
    """

def assign(
    batch: Buffer, *, base_offset: int, leader_epoch: int, log_append_time: int | None = None
) -> None:
    """Set the leader's fields in place; a ``log_append_time`` (ms) recomputes the CRC."""

def find_batch(buffer: Buffer, *, start: int, stop: int, least: int, limit: int) -> int:
    """The first position in [start, stop) at which a batch with offsets in [least, limit) may
    begin, judged by its header (the caller must verify the checksum), or -1.
    """

def find_disorder(buffer: Buffer, *, least: int, limit: int) -> tuple[int, int, int]:
    """The position of the first batch that does not follow the ones before it, in offsets [least,
    limit), or -1; the offset that is expected next; and the number of bytes of the batches that
    follow.
    """
