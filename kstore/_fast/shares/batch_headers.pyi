"""The headers of whole batches in memory."""

from typing_extensions import Buffer

class BatchHeaders:
    """The headers of whole batches, one after the other."""

    def __init__(self, view: object) -> None: ...

def slice_of(data: Buffer, first: int, last: int) -> tuple[int, int]:
    """(start, end) of the bytes of the whole batches in ``data`` with some of the offsets."""

def count_of(data: Buffer) -> tuple[int, int]:
    """How many offsets whole batches span, and at which one they end: (count, last offset)."""
