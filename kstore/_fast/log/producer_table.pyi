"""The producers of one log: sequences, epochs, open and aborted transactions."""

class ProducerEntry:
    """One producer: its epoch, its last five batches, its open transaction."""

    producer_id: int
    """Its producer id."""
    producer_epoch: int
    """Its latest epoch, -1 for none."""
    coordinator_epoch: int
    """Epoch of the transaction coordinator that wrote the last marker, -1 for none."""
    last_timestamp: int
    """Max timestamp of its last batch, ms."""
    txn_first_offset: int
    """The start offset of its open transaction, -1 for none."""
    @property
    def last_sequence(self) -> int:
        """Sequence of its last record, -1 for none."""
    @property
    def last_offset(self) -> int:
        """Offset of its last record, -1 for none."""
    def __init__(self, producer_id: int) -> None: ...

class ProducerTable:
    """All producers of one log."""

    entries: dict[int, ProducerEntry]
    """By producer id."""
    ongoing: dict[int, int]
    """Open transactions: first offset to producer id, ascending."""
    aborted: list[tuple[int, int, int, int]]
    """Aborted transactions: (last offset, first offset, producer id, stable offset), ascending."""
    any_seen: bool
    """Whether this log ever had a producer id."""
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def aborted_between(self, offset: int, upper: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that overlap [offset, upper)."""
    def drop_aborted_before(self, offset: int) -> None:
        """Remove transactions that ended before the log's start."""
    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that have been idle for so long and have no open transaction; returns
        their number.
        """
    def clear(self) -> None:
        """Remove everything."""
    def pack(self) -> bytes:
        """A snapshot."""
    def unpack(self, data: bytes) -> None:
        """Load the state of a snapshot. Raises ValueError for another version."""
