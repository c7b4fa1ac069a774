"""The end of a partition's visible records. Consumers do not see markers and aborted records, so
few of them commit an offset after these. Code that waits until a group has read a partition needs
the end without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.log.errors import LogError

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition
    from kstore.broker.runtime.node import Node

__all__ = ["visible_end"]


async def visible_end(node: Node, partition: Partition, end: int) -> int | None:
    """The offset after the last visible record below ``end``. None if it is not known now."""
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
