"""The batches of one append before they are written, and the append's result."""

class AppendInfo:
    """The result of an append."""

    base_offset: int
    """The offset of the first record."""
    last_offset: int
    """The offset of the last record."""
    log_append_time_ms: int
    """The timestamp that all records got (LogAppendTime), in ms since 1970; otherwise -1."""
    log_start_offset: int
    """The log start offset after the append."""
    duplicate: bool
    """True if the log already had the batch. The offsets are those of the original."""

class AppendPlan:
    """The batches' errors, and the offsets that they get. It has no Python interface."""
