"""The time of each request, by parts; see request_times.pyx."""

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
    """The client's id; None while no request is reported."""
    size_bytes: int
    """Of the request, without its header."""
    ended_us: int
    """When its answer was sent, on the monotonic clock."""
    lost: bool
    """Its connection ended before the answer was sent."""
    chosen: int
    """Bits 0 and 1: chosen by this choice of `RequestTimes.set_chance`."""
    slow: bool
    """It took `RequestTimes.slow_us` or longer."""
    def part_us(self, name: str) -> int:
        """The time in a part; "total": all parts."""

    def parts(self) -> dict[str, int]:
        """All parts by name, and "total"."""

class RequestTimes:
    """The times of all requests of a broker."""

    tell: Callable[[Any, TimedRequest], object] | None
    """Called with the connection and a request that was chosen or slow, in the next turn of the
    loop; None: no reports.
    """
    slow_us: int
    """Requests that take this long are reported; 0: none. The time that a Fetch, JoinGroup or
    SyncGroup waits for others does not count, since its client asked for that.
    """
    def set_chance(self, choice: int, rate: float) -> None:
        """Set the share (0 to 1) of requests that get the bit of choice 0 or 1."""

    def by_api(self) -> dict[int, dict[str, tuple[int, int, list[int]]]]:
        """API key -> part -> (sum in microseconds, number, numbers by bucket). Bucket n has those
        of less than 2 ** n microseconds that are in no earlier bucket; the last has all longer
        ones.
        """
