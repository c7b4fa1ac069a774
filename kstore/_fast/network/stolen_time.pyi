"""The time that a hypervisor took from each core; see stolen_time.pyx."""

class StolenTime:
    """Of the cores of this machine; ``path`` is for tests."""

    def __init__(self, path: str = "/proc/stat") -> None: ...
    def remember(self) -> None:
        """For tests: remember the times of all cores."""

    def since_us(self, core: int) -> int:
        """For tests: the time taken from a core since `remember`, rounded up to the next tick, in
        microseconds; 0: less than a tick, or unknown.
        """
