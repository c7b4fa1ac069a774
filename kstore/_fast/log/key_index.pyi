"""The first pass of log compaction: keys into the map of each key's last offset."""

from collections.abc import Callable

from typing_extensions import Buffer

from kstore._fast.log.offset_map import OffsetMap

_Decide = Callable[[int, int, int], bool]
"""(producer id, last offset, control type or -2 for data) -> whether the batch may be dropped."""

def index_batches(
    data: Buffer, into: OffsetMap, start_offset: int, decide: _Decide
) -> tuple[int, bool]:
    """Add the keys of all whole batches to the map, except aborted ones and markers.

    Returns the number of processed bytes and whether the map is full: then the batch at that byte
    is incomplete. Raises InvalidBatchError for a damaged batch.
    """
