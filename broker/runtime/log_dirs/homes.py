"""Which log dir has which partition. This file does not read folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstore.log import LogDir
    from kstore.types import TopicPartition

__all__ = ["Homes"]


class Homes(dict["TopicPartition", "LogDir"]):
    """Partition to its log dir. It also counts the partitions of each log dir, which a new topic
    needs for each of its partitions.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[int, int] = {}

    def count(self, log_dir: LogDir) -> int:
        """How many partitions are in a log dir."""
        return self._counts.get(id(log_dir), 0)

    def __setitem__(self, key: TopicPartition, log_dir: LogDir) -> None:
        self._leave(self.get(key))
        super().__setitem__(key, log_dir)
        self._counts[id(log_dir)] = self.count(log_dir) + 1

    def pop(self, key: TopicPartition, default: Any = None) -> Any:
        """Remove a partition, and return the log dir that had it."""
        found = super().pop(key, default)
        self._leave(found)
        return found

    def _leave(self, log_dir: LogDir | None) -> None:
        if log_dir is not None:
            self._counts[id(log_dir)] -= 1
