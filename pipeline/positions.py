"""A stream's positions in a Spark checkpoint: JSON by topic and partition.

Each offset has the epochs of its partition and leader (KIP-232, KIP-320). If a micro-batch does not
start at the previous position, its start is also stored, so that a repeated batch reads the same
records. Equal positions always have the same JSON text, because Spark compares it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kstore.pipeline.errors import PipelineError
from kstore.pipeline.topic_client import Life
from kstore.types import TopicPartition

__all__ = ["Position", "Positions"]

_VERSION = 1


class Position(NamedTuple):
    """The next offset to read, its epochs, and ``begin`` if the batch that ends here does not start
    at the previous position.
    """

    offset: int
    life: Life = Life()
    begin: int | None = None


class Positions(dict[TopicPartition, Position]):
    """The positions of all partitions. ``is_initial``: nothing was read yet, and Spark has not
    saved them.
    """

    def __init__(
        self, rows: Mapping[TopicPartition, Position] | None = None, *, is_initial: bool = False
    ) -> None:
        super().__init__(rows or {})
        self.is_initial = is_initial

    def to_json(self) -> dict[str, Any]:
        """The form in the checkpoint."""
        topics: dict[str, Any] = {}
        for tp in sorted(self):
            row = self[tp]
            topic = topics.setdefault(tp.topic, {"partitions": {}})
            if row.life.topic_id:
                topic["topicId"] = row.life.topic_id
            place = {"offset": row.offset, "leaderEpoch": row.life.leader_epoch}
            if row.life.partition_epoch >= 0:
                place["partitionEpoch"] = row.life.partition_epoch
            if row.begin is not None:
                place["begin"] = row.begin
            topic["partitions"][str(tp.partition)] = place
        found = {"version": _VERSION, "topics": topics}
        return found | {"initial": True} if self.is_initial else found

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Positions:
        """Parse the output of `to_json`. Raises PipelineError for anything else."""
        if saved.get("version") != _VERSION:
            raise PipelineError(
                f"the checkpoint's positions are not of the source kstore: {str(saved)[:200]}",
                remedy="A query whose format changes needs a new checkpointLocation",
            )
        found = cls(is_initial=bool(saved.get("initial")))
        for name, topic in saved["topics"].items():
            for index, row in topic["partitions"].items():
                life = Life(
                    row.get("partitionEpoch", -1),
                    row.get("leaderEpoch", -1),
                    topic.get("topicId", ""),
                )
                tp = TopicPartition(name, int(index))
                found[tp] = Position(row["offset"], life, row.get("begin"))
        return found
