"""The time that a hypervisor took from each core; see stolen_time.pyx."""

class StolenTime:
    """Of the cores of this machine; ``path`` is for tests."""

    def __init__(self, path: str = "/proc/stat") -> None: ...
    def remember(self) -> None:
        """For tests: remember the times of all cores."""

    def since_us(self, core: int, after_us: int = 0) -> int:
        """For tests: the time taken from a core since `remember`, in microseconds, for a hold that
        began ``after_us`` later; 0: less than a tick, or unknown.
        """
