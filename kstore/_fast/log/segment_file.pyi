"""One append-only file and its system calls. A Python subclass may replace any method to inject
faults: the log core then goes through it."""

from collections.abc import Callable

from typing_extensions import Buffer

from kstore._fast.disk.page_reader import PageReader
from kstore._fast.disk.write_back import WriteBack

class SegmentFile:
    """An open segment file. Methods raise OSError with the path in it."""

    path: str
    """Its path when it was opened."""
    fd: int
    """The descriptor, -1 when closed."""
    size_bytes: int
    """The end of what was written through this object (or found on opening or ``refresh``)."""
    durable_bytes: int
    """The end of what ``sync`` has made durable."""
    writable: bool
    """Whether it was opened for writing."""
    zeros_ahead: bool
    """Set it if every append is synced: small appends then overwrite preallocated zeros, which
    saves half of a sync. The file is longer than its data until ``give_back`` or ``close``.
    """
    reserve_later: Callable[[SegmentFile], object] | None
    """Where appends are timed: called when half of the disk space that was asked for ahead is
    used, to have a thread call ``reserve_ahead``. None: the writes ask for it themselves."""
    write_back: WriteBack | None
    """Who has the system write early what is written here."""
    pages: PageReader | None
    """Who reads what is not in the page cache, where a loop reads here."""
    def __init__(self, path: str, *, writable: bool = False, create: bool = False) -> None: ...
    def append(self, data: Buffer) -> int:
        """Write at the end with one call; after a failure the file has its former length."""
    def overwrite(self, data: Buffer, position: int) -> int:
        """Writes over bytes that are there; a failure may leave a part of it written. ValueError
        where it would reach behind the end."""
    def read(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes from ``position``; fewer only at the end of the file."""
    def sync(self) -> int:
        """Make everything appended before this call durable (fdatasync, without the GIL)."""
    def truncate(self, size_bytes: int) -> int:
        """Truncate the file. Raises ValueError for a size larger than the file's."""
    def refresh(self) -> int:
        """Read the size again (another process may be writing) and return it."""
    def preallocate(self, size_bytes: int) -> int:
        """Allocate disk space up to ``size_bytes``, if that is supported; the file's size does not
        change.
        """
    def reserve_ahead(self) -> None:
        """Allocate disk space for the next writes, which may continue meanwhile."""
    shared: bool
    """Other processes append to it, too."""
    def share(self) -> None:
        """Other processes append to it, too: no space is taken ahead of the data."""
    def follow(self, size_bytes: int) -> int:
        """Another process has appended or truncated: the new end of the file."""
    def give_back(self) -> int:
        """Free the disk space that was preallocated and is not used."""
    def close(self) -> int:
        """Close the descriptor; calling it again has no effect."""
