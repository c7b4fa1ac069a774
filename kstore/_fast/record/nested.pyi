"""Record batches that are the value of a record of another batch."""

from typing import final

@final
class NestedBatches:
    """The batches, one after the other, in place in the bytes in which they were found."""

    size_bytes: int
    largest_bytes: int
    count: int
    records: int
    def sign(
        self, base_offset: int, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> None:
        """Set these fields of the first batch, and the offsets and sequences that follow in the
        others, in place, and update the checksums.
        """
    def __bytes__(self) -> bytes: ...

def find_nested(
    outer: bytes | bytearray,
    offset: int,
    key: bytes,
    *,
    verify: bool = True,
    size: int = 0x7FFFFFFF,
) -> NestedBatches | None:
    """The batches that are the value of the record at this offset with this key, if it is nothing
    else, and none of them is transactional or of control records. ``outer`` is a batch that nobody
    else uses or resizes, in its first ``size`` bytes: those that are found are signed in it. Raises
    InvalidBatchError for damage. ``verify=False``: the checksum of ``outer`` is not looked at;
    others in it may be signed.

    Goes over the bytes without the GIL: for threads.
    """

def combined_checksum(first: int, second: int, second_size: int) -> int:
    """The CRC-32C of two parts that lie behind one another, by their own and the second's size."""
