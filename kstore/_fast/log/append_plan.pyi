"""The batches of one append before they are written, and where they went."""

class AppendInfo:
    """Where an append went."""

    base_offset: int
    """Offset of the first record."""
    last_offset: int
    """Offset of the last record."""
    log_append_time_ms: int
    """The time given to all records with LogAppendTime, else -1."""
    log_start_offset: int
    """The log start offset then."""
    duplicate: bool
    """The batch was in the log already; the offsets are the original's."""

class AppendPlan:
    """What is wrong with them, which offsets they get. Nothing of it is for Python."""
