"""How calm the disk of one log dir is."""

from kstore._fast.disk.disk_probe import DiskProbe
from kstore._fast.disk.write_back import WriteBack

class DirCalm:
    """The disk of one log dir, as appends see it."""

    threaded: bool
    """There are threads that appends may be left to."""
    threads_always: bool
    """All appends are theirs."""
    over_budget: bool
    """More waits to be written back than should."""
    def follow(self, write_back: WriteBack | None) -> None:
        """More is unwritten than should be whenever this one says so, too."""
    probe: DiskProbe | None
    """Asks the disk while small appends need no thread."""
    def watch_disk(self, probe: DiskProbe | None) -> None:
        """It is not calm while this one waits for the disk."""
    untimed: bool
    """The machine's clock says nothing: in a simulation."""
    @property
    def calm(self) -> bool:
        """Whether small appends need no thread now."""
    def note_slow(self) -> None:
        """A write took too long just now."""

    def note_loop_write(self, took_us: int) -> None:
        """A write of the loop's thread, which is the calling one, took so long. What it waited for
        a core does not count.
        """
