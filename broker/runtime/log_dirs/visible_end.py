"""Where what a partition shows its readers ends, for those who wait until it was read: markers of
transactions, and what was aborted, are read by nobody, and so committed by few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.log.errors import LogError

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition
    from kstore.broker.runtime.node import Node

__all__ = ["visible_end"]


async def visible_end(node: Node, partition: Partition, end: int) -> int | None:
    """The offset behind the last record below ``end`` that is read; None: not known now."""
    log = partition.log
    if log is None:
        return None
    what = f"reading the end of {partition.entry.name.decode()}-{partition.index}"
    try:
        found: int | None = await node.dirs.run(
            log.log_dir.path, what, lambda: log.visible_end(end)
        )
    except (LogError, OSError):
        return None
    return found
