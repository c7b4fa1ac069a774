"""The records of one share-partition that are in flight (KIP-932); see in_flight.pyx."""

from collections.abc import Iterable, Sequence

from typing_extensions import Buffer

from kstore._fast.shares.runs import Runs

class Acquiring:
    """One acquisition."""

class InFlightRecords(Runs):
    """The records in flight, from the start offset to the end offset."""

    def next_fetch_offset(self) -> int:
        """The first offset that can be acquired, if it exists."""
    def next_deadline(self) -> int:
        """When the first acquisition lock expires; -1 if there is none."""
    def count(self) -> int:
        """The number of records in flight: neither acknowledged nor archived."""
    def acquire(
        self,
        owner: int,
        data: Buffer,
        fetch_offset: int,
        *,
        deadline: int,
        max_records: int,
        batch_size: int,
        max_in_flight: int,
        max_deliveries: int,
        record_limit: bool = False,
        aborted: Sequence[tuple[int, int, int]] = (),
    ) -> list[tuple[int, int, int]]:
        """Acquire records of the whole batches ``data``, which were read at ``fetch_offset``;
        [(first offset, last offset, deliveries)].
        """
    def acknowledge(
        self,
        owner: int,
        batches: Iterable[tuple[int, int, bytes]],
        token: int,
        *,
        max_deliveries: int,
        deadline: int,
    ) -> int:
        """Acknowledge ranges, ascending and apart; the error code."""
    def release(self, owner: int, token: int, *, max_deliveries: int) -> bool:
        """Release all records that a member has acquired; returns whether there were any."""
    def expire(self, now: int, token: int, *, max_deliveries: int) -> int:
        """Release records whose locks have expired; returns their number."""
    def changes(self, token: int) -> list[tuple[int, int, int, int]]:
        """[(first offset, last offset, state, deliveries)]: a token's changes from
        start_after() on.
        """
    def start_after(self, token: int) -> int:
        """The start offset after a token is committed."""
    def complete_after(self, token: int) -> int:
        """The number of offsets from start_after() on that are then acknowledged or archived."""
