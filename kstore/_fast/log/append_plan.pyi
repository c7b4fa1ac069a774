"""The batches of one append before they are written, and the result."""

class AppendInfo:
    """The result of an append."""

    base_offset: int
    """Offset of the first record."""
    last_offset: int
    """Offset of the last record."""
    log_append_time_ms: int
    """The time that LogAppendTime set for all records, else -1."""
    log_start_offset: int
    """The log start offset at that time."""
    duplicate: bool
    """The log already had the batch; the offsets are the original's."""

class AppendPlan:
    """The batches' errors, and the offsets that they get. It has no Python interface."""
