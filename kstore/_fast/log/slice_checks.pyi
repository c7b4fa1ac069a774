"""Whether a slice of a segment may be sent, and is in the page cache."""

from collections.abc import Callable

from kstore._fast.disk.page_reader import ColdRead
from kstore._fast.log.log_view import LogView

def cold_read(
    log: LogView, offset: int, max_bytes: int, tell: Callable[[], object]
) -> ColdRead | None:
    """Has what a read of up to ``max_bytes`` at ``offset`` needs read into the page cache, and
    ``tell()`` called on the loop then. None: nothing has to be waited for.
    """
