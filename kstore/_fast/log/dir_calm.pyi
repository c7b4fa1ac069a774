"""How calm the disk of one log dir is."""

class DirCalm:
    """The disk of one log dir, as appends see it."""

    threaded: bool
    """There are threads that appends may be left to."""
    threads_always: bool
    """All appends are theirs."""
    over_budget: bool
    """More waits to be written back than should."""
    @property
    def calm(self) -> bool:
        """Whether small appends need no thread now."""
    def note_slow(self) -> None:
        """A write took too long just now."""
