"""Which messages of a log are leased, done or waiting for another try, for one of their takers."""

from collections.abc import Sequence

from kstore._fast.queue.lease_file import LeaseFile

class LeaseTable(LeaseFile):
    """One queue's state, opened by one owner. Threads and processes may use it at the same time.

    ``fd`` is the open file, which is the table's from then on; the caller has it locked while this
    is made. Times are in ms: ``now_ms`` of a clock that only goes up and is the same in all
    processes, ``wall_ms`` of day. Raises LeaseFileError and OSError.
    """

    @property
    def floor(self) -> int:
        """Every message before this offset is done."""
    @property
    def next_offset(self) -> int:
        """No message from this offset on was ever taken."""
    @property
    def next_lease_end_ms(self) -> int:
        """No lease ends before."""
    @property
    def next_retry_ms(self) -> int:
        """Nothing that was given back is to be had before."""
    def counts(self) -> tuple[int, int, int, int, int, int]:
        """(leased, waiting for another try, dead, acked, leases that ended, lost) messages; the
        first three are those of now.
        """
    @property
    def cuts(self) -> int:
        """How often the log was cut off."""
    def look_ahead(
        self, from_offset: int, offsets: Sequence[int], end_offset: int, cuts: int
    ) -> None:
        """The log's messages from an offset on, which was ``next_offset``: ``offsets`` (ascending)
        and where what was read ends. ``cuts``: as it was before they were read.
        """
    def take_new(self, limit: int, lease_end_ms: int) -> tuple[int, int]:
        """Lease the next messages of those looked at: (index of the first, count)."""
    def take_again(
        self, limit: int, now_ms: int, wall_ms: int, lease_end_ms: int, max_deliveries: int
    ) -> list[tuple[int, int]] | None:
        """Lease messages whose lease is over, or that were given back: a list of (offset,
        deliveries). One that has had its tries becomes a dead letter. None: ``open_dead`` first.
        """
    def ack(self, offset: int, deliveries: int) -> bool:
        """A message is done. False: its lease was lost meanwhile."""
    def nack(
        self,
        offset: int,
        deliveries: int,
        wall_ms: int,
        retry_ms: int,
        max_deliveries: int,
        reason: bytes,
    ) -> bool | None:
        """Give a message back, to be had again from ``retry_ms`` (time of day) on; after its last
        try it becomes a dead letter (0 tries: now). False: its lease was lost. None: ``open_dead``.
        """
    def extend(self, offset: int, deliveries: int, lease_end_ms: int) -> bool:
        """Lease a message until then. False: its lease was lost."""
    def drop_before(self, offset: int) -> int:
        """The log begins here: what lies before it can't be delivered. How many were lost."""
    def cut_at(self, end_offset: int) -> None:
        """The log was cut off here: what was taken behind it is gone."""
    def open_dead(self, fd: int) -> None:
        """Dead letters are written to this file, which is the table's from now on."""
    def dead_letters(self) -> list[tuple[int, int, int, bytes]]:
        """(offset, deliveries, time of death in ms, reason) of each, the oldest first; a damaged
        entry is left out.
        """
    def forget_dead(self) -> None:
        """There are no dead letters any more."""
