"""The result of a sink's task: Spark sends it from the executors to the commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

__all__ = ["StagedRun", "Written"]


@dataclass
class StagedRun:
    """Batches for one partition of a target topic, in order: their partition in the sink's topic,
    the offsets of their records there, and the number of rows in each of these records.
    """

    partition: int
    offsets: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


@dataclass
class Written(WriterCommitMessage):
    """The result of a task's attempt: what it staged for each partition (topic, index)."""

    sink: str
    version: int
    attempt: str = ""
    staged: dict[tuple[str, int], StagedRun] = field(default_factory=dict)
