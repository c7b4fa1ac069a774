"""How long the parts of each request take; see request_times.pyx."""

from collections.abc import Callable
from typing import Any

PARTS_BY_NAME: tuple[str, ...]
"""The parts of a request in their order, and "total"."""

class TimedRequest:
    """One request, and its parts in microseconds."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: bytes | None
    """What the client calls itself; None while no request is told."""
    size_bytes: int
    """Of the request, without its header."""
    ended_us: int
    """When its answer was sent, on the monotonic clock."""
    lost: bool
    """Its connection ended before the answer was sent."""
    chosen: int
    """Bit 0 and 1: chosen by this chance of `RequestTimes.set_chance`."""
    slow: bool
    """It took `RequestTimes.slow_us` or longer."""
    def part_us(self, name: str) -> int:
        """How long it was in a part; "total": in all."""

    def parts(self) -> dict[str, int]:
        """All parts by name, and "total"."""

class RequestTimes:
    """The times of all requests of a broker."""

    tell: Callable[[Any, TimedRequest], object] | None
    """Called with the connection and a request that was chosen or slow, in the next turn of the
    loop; None: nobody is told.
    """
    slow_us: int
    """Requests that take so long are told; 0: none. What a Fetch, JoinGroup or SyncGroup waits for
    others does not count, since its client asked for that.
    """
    def set_chance(self, choice: int, rate: float) -> None:
        """Choose so many of all requests, 0 to 1, for choice 0 or 1: those have its bit."""

    def by_api(self) -> dict[int, dict[str, tuple[int, int, list[int]]]]:
        """API key -> part -> (sum in microseconds, how many, how many in each bucket). Bucket n
        has those of less than 2 ** n microseconds that no earlier bucket has; the last has all
        longer ones.
        """
