"""Record batches (magic 2, the only format Kafka 4 writes): what is wrong with one."""

from typing_extensions import Buffer

DEFAULT_MAX_DECOMPRESSED_BYTES: int
"""The bound on one batch's decompressed records where the caller gives none."""
STATUSES: tuple[tuple[str, str], ...]
"""By status number: name, sentence, Kafka's error code."""
STATUS_NAMES: tuple[str, ...]
"""The names of ``STATUSES``, by status number."""

class InvalidBatchError(ValueError):
    """A batch that is not good: which check failed, where, and what to do."""

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
