"""Whether a slice of a segment may be sent, and is in the page cache."""

from kstore._fast.disk.page_reader import ColdRead
from kstore._fast.log.log_view import LogView

def read_or_wait(
    log: LogView, offset: int, max_offset: int, max_bytes: int, seen: ColdRead | None = None
) -> tuple[bytes, int] | ColdRead:
    """As ``log.read``, of at most so many bytes that are in memory; or what is being brought into
    memory for it. ``seen`` was waited for, and counts as there.
    """

def locate_or_wait(
    log: LogView, offset: int, max_offset: int, seen: ColdRead | None = None
) -> tuple[str, int, int, int, int] | ColdRead | None:
    """As ``log.slice_at`` for one batch that is in memory, or what is being brought into memory for
    it. None: there is no such batch, or its file is only this process's.
    """
