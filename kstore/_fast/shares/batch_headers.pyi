"""The headers of complete batches in memory."""

from typing_extensions import Buffer

class BatchHeaders:
    """The headers of complete batches, one after the other."""

    def __init__(self, view: object) -> None: ...

def slice_of(data: Buffer, first: int, last: int) -> tuple[int, int]:
    """(start, end) of the bytes of the complete batches in ``data`` with any of the offsets."""

def count_of(data: Buffer) -> tuple[int, int]:
    """The number of offsets that complete batches span, and the last of them."""
