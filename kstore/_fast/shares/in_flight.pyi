"""The records of one share-partition that are in flight (KIP-932); see in_flight.pyx."""

from collections.abc import Iterable, Sequence

from typing_extensions import Buffer

from kstore._fast.shares.runs import Runs

class Acquiring:
    """One acquisition."""

class InFlightRecords(Runs):
    """What is in flight, from the start offset to the end offset."""

    def next_fetch_offset(self) -> int:
        """The first offset that can be acquired, if it is there."""
    def next_deadline(self) -> int:
        """When the first acquisition lock ends; -1 if none does."""
    def count(self) -> int:
        """How many records are in flight: neither acknowledged nor archived for good."""
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
        """Give up all that a member has acquired; whether there was something."""
    def expire(self, now: int, token: int, *, max_deliveries: int) -> int:
        """Give up what was acquired until now or earlier; how many records that were."""
    def changes(self, token: int) -> list[tuple[int, int, int, int]]:
        """[(first offset, last offset, state, deliveries)]: what a token has changed behind
        start_after().
        """
    def start_after(self, token: int) -> int:
        """The start offset once a token is committed."""
    def complete_after(self, token: int) -> int:
        """How many offsets behind start_after() are acknowledged or archived then."""
