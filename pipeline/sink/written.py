"""What a task of the sink tells the driver: Spark carries it from the executors to the commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

__all__ = ["Written"]


@dataclass
class Written(WriterCommitMessage):
    """What one task's attempt did: where it staged its rows, and for which partitions."""

    sink: str
    version: int
    attempt: str = ""
    partition: int = -1
    start: int = 0
    end: int = 0
    records: dict[tuple[str, int], int] = field(default_factory=dict)
