"""A record batch that is the value of a record of another batch."""

from typing import final

@final
class NestedBatch:
    """The batch, in place in the bytes in which it was found."""

    size_bytes: int
    records: int
    def sign(
        self, base_offset: int, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> None:
        """Set these fields, in place, and update the checksum."""
    def __bytes__(self) -> bytes: ...

def find_nested(outer: bytes, offset: int, key: bytes) -> NestedBatch | None:
    """The one batch that is the value of the record at this offset with this key, if it is one, and
    neither transactional nor of control records. ``outer`` is a batch that nobody else uses: the
    one that is found is signed in it. Raises InvalidBatchError for damage.

    Large ones are gone over without the GIL: for threads.
    """

def combined_checksum(first: int, second: int, second_size: int) -> int:
    """The CRC-32C of two parts that lie behind one another, by their own and the second's size."""
