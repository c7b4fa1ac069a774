"""The first pass of log compaction: keys into the map of each key's last offset."""

from collections.abc import Callable

from typing_extensions import Buffer

from kstore._fast.log.offset_map import OffsetMap

_Decide = Callable[[int, int, int], bool]
"""(producer id, last offset, control type or -2 for data) -> whether the batch may go."""

def index_batches(
    data: Buffer, into: OffsetMap, start_offset: int, decide: _Decide
) -> tuple[int, bool]:
    """Puts the keys of all whole batches into the map, aborted ones and markers left out.

    Returns the bytes done and whether the map is full: then the batch at that byte is not wholly
    in. Raises InvalidBatchError for a damaged batch.
    """
