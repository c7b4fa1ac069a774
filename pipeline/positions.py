"""A stream's positions as Spark keeps them in a checkpoint: JSON by topic and partition.

Beside each offset stand the epochs that say which life of the partition and which leader's log it
belongs to (KIP-232, KIP-320), and, where a micro-batch does not begin at the position before it,
where it begins: so a batch that is run again reads the same. JSON is always the same text for the
same positions, for Spark compares it.
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
    """The next offset to read, the life that it belongs to, and, if the batch that ends here begins
    elsewhere than at the position before, ``begin``.
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
        """As it is saved."""
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
        """What `to_json` made. Raises PipelineError for anything else."""
        if saved.get("version") != _VERSION:
            raise PipelineError(
                f"the checkpoint's positions are not of the source kstore: {str(saved)[:200]}",
                remedy="Give a query that changes its format a new checkpointLocation",
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
