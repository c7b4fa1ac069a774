"""Record batches (magic 2, the only format that Kafka 4 writes): their validation errors."""

from typing_extensions import Buffer

DEFAULT_MAX_DECOMPRESSED_BYTES: int
"""The default limit on one batch's decompressed records."""
STATUSES: tuple[tuple[str, str], ...]
"""By status number: name, message, Kafka's error code."""
STATUS_NAMES: tuple[str, ...]
"""The names of ``STATUSES``, by status number."""

class InvalidBatchError(ValueError):
    """An invalid batch: the failed check, its position, and what to do."""

    status: str
    """The failed check's name, as in ``STATUS_NAMES``."""
    error_code: int
    """Kafka's error code for it."""
    position: int
    """The batch's first byte in the buffer."""
    def __init__(self, status: int, position: int, detail: str = "") -> None: ...

def seconds_to_validate(batch: Buffer, repeat: int) -> float:
    """Seconds for ``repeat`` validations of one batch with no Python between them (for the
    benchmark)."""
