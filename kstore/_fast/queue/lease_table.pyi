"""The messages of a log that are leased, done or waiting for another try, for one owner."""

from collections.abc import Iterable, Sequence

from kstore._fast.queue.lease_file import LeaseFile

class LeaseTable(LeaseFile):
    """One queue's state, opened by one owner. Threads and processes may use it at the same time.

    ``fd`` is the open file, which belongs to the table from then on; the caller holds its lock
    during the constructor. Times are in ms: ``now_ms`` of a monotonic clock that is the same in all
    processes, ``wall_ms`` is the time of day. Raises LeaseFileError and OSError.
    """

    @property
    def floor(self) -> int:
        """Every message before this offset is done."""
    @property
    def next_offset(self) -> int:
        """No message from this offset on was ever leased."""
    @property
    def next_lease_end_ms(self) -> int:
        """No lease expires before this time."""
    @property
    def next_retry_ms(self) -> int:
        """No message that was given back becomes available before this time."""
    def counts(self) -> tuple[int, int, int, int, int, int]:
        """(leased, waiting for another try, dead, acked, expired leases, lost) messages; the first
        three are current numbers.
        """
    @property
    def cuts(self) -> int:
        """How often the log was truncated."""
    def look_ahead(
        self, from_offset: int, offsets: Sequence[int], end_offset: int, cuts: int
    ) -> None:
        """The log's messages from an offset on, which was ``next_offset``: ``offsets`` (ascending)
        and the end of what was read. ``cuts``: the value before they were read.
        """
    def take_new(self, limit: int, lease_end_ms: int) -> tuple[int, int]:
        """Lease the next messages of those that were read: (index of the first, count)."""
    def take_again(
        self, limit: int, now_ms: int, wall_ms: int, lease_end_ms: int, max_deliveries: int
    ) -> list[tuple[int, int]] | None:
        """Lease messages whose lease has expired, or that were given back: a list of (offset,
        deliveries). A message without a try left becomes a dead letter. None: call ``open_dead``
        first.
        """
    def ack(self, offset: int, deliveries: int) -> bool:
        """A message is done. Returns False if its lease was lost meanwhile."""
    def nack(
        self,
        offset: int,
        deliveries: int,
        wall_ms: int,
        retry_ms: int,
        max_deliveries: int,
        reason: bytes,
    ) -> bool | None:
        """Give a message back, available again from ``retry_ms`` (time of day) on; after its last
        try it becomes a dead letter (0 tries: now). Returns False if its lease was lost, None if
        ``open_dead`` must be called first.
        """
    def extend(self, offset: int, deliveries: int, lease_end_ms: int) -> bool:
        """Extend the lease of a message. Returns False if its lease was lost."""
    def drop_before(self, offset: int) -> int:
        """The log begins here: earlier messages can't be delivered. Returns how many were lost."""
    def cut_at(self, end_offset: int) -> None:
        """The log was truncated here: leased messages after it no longer exist."""
    def open_dead(self, fd: int) -> None:
        """Dead letters are written to this file, which belongs to the table from now on."""
    def dead_letters(self) -> list[tuple[int, int, int, bytes]]:
        """(offset, deliveries, time of death in ms, reason) of each, the oldest first; damaged
        entries are skipped.
        """
    def forget_dead(self, letters: Iterable[tuple[int, int, int]]) -> None:
        """Remove these dead letters, each (offset, deliveries, time of death in ms), and damaged
        ones; others stay. A kill in between leaves one twice.
        """
