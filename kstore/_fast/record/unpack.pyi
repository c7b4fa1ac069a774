"""Inspects clients' compressed batches with little memory; see unpack.pyx."""

class Verdict:
    """The result for one batch."""

    status: int
    has_keys: bool
    anew: bytearray | None
    def __init__(self, status: int = -1, max_bytes: int = 262144) -> None: ...

def look_into(
    batch: bytes | bytearray | memoryview, max_bytes: int, codec: int = -1, level: int = -1
) -> Verdict:
    """The verdict on one batch whose records may decompress to that many bytes; ``codec``: it is to
    be stored in that compression. Holds a window of the records at a time, and the GIL only now
    and then: for threads.
    """

def claim(codec: int, payload: bytes | bytearray | memoryview) -> int:
    """How many bytes a compressed payload says it holds, at most; -1: it is not whole."""

def limit(size_bytes: int, max_message_bytes: int) -> int:
    """What the records of a client's compressed batch of that size may decompress to."""

def find_by_time(
    batch: bytes | bytearray | memoryview, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of a compressed batch's first record that is at or after both, None
    without one. Holds a small window of the records, and is for threads. Raises InvalidBatchError.
    """
