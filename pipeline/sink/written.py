"""What a task of the sink tells the driver: Spark carries it from the executors to the commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

__all__ = ["StagedRun", "Written"]


@dataclass
class StagedRun:
    """Batches for one partition of a target topic, in order: the partition of the sink's topic
    where they are, their offsets there, and how many records each has.
    """

    partition: int
    offsets: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


@dataclass
class Written(WriterCommitMessage):
    """What one task's attempt did: what it staged for which partitions (topic, index)."""

    sink: str
    version: int
    attempt: str = ""
    staged: dict[tuple[str, int], StagedRun] = field(default_factory=dict)
