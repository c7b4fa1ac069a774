"""How far a table has read its topic, and what it reads next. Pure: all decisions are made from
values.

A snapshot that adds rows has the end offsets of these rows in its summary. The newest such snapshot
among the ancestors of the current one has the progress, so a table that was rolled back continues
from its earlier progress.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.brokers import Partition, Topic
from kstore.pipeline.jobs.scans.scan import Range

__all__ = [
    "COMMIT",
    "PROGRESS",
    "RESYNC",
    "Progress",
    "Round",
    "TablePosition",
    "check_history",
    "first_progress",
    "note_is_due",
    "plan_round",
    "policies",
    "tombstones_may_be_gone",
]

PROGRESS = "kstore.progress"
COMMIT = "kstore.commit"
"""Keys of a snapshot's summary."""
VERSION = 1
RESYNC = "--resync reads the topic from its beginning and replaces the rows of the table"


@dataclass(frozen=True)
class TablePosition:
    """The end of a partition's rows: the next offset, and its leader epoch."""

    next: int
    leader_epoch: int = -1


@dataclass(frozen=True)
class Progress:
    """What a snapshot says about its topic. At `read_ms`, no partition had records beyond its
    position, or the table was empty; `rows` is all or latest.
    """

    topic: str
    topic_id: str
    partition_epoch: int
    cluster_id: str
    rows: str
    read_ms: int
    positions: Mapping[int, TablePosition]

    def text(self) -> str:
        """The form in a summary."""
        positions = {str(p): [at.next, at.leader_epoch] for p, at in sorted(self.positions.items())}
        return json.dumps(
            {
                "version": VERSION,
                "topic": self.topic,
                "topicId": self.topic_id,
                "partitionEpoch": self.partition_epoch,
                "clusterId": self.cluster_id,
                "rows": self.rows,
                "readMs": self.read_ms,
                "partitions": positions,
            },
            separators=(",", ":"),
        )

    @staticmethod
    def parse(text: str) -> Progress:
        """From a summary. Raises JobError if this version cannot read it."""
        try:
            found = json.loads(text)
            if found["version"] > VERSION:
                raise JobError(
                    f"the table was written in version {found['version']} of kstore's notes, this "
                    f"kstore reads up to {VERSION}: install a newer one"
                )
            return Progress(
                found["topic"],
                found["topicId"],
                found["partitionEpoch"],
                found["clusterId"],
                found["rows"],
                found["readMs"],
                {int(p): TablePosition(*at) for p, at in found["partitions"].items()},
            )
        except (ValueError, KeyError, TypeError) as error:
            raise JobError(
                f"the table's snapshot has {PROGRESS}={text[:80]!r}, which kstore did not "
                f"write: {RESYNC}"
            ) from error


@dataclass(frozen=True)
class Round:
    """What is read next, and the progress after it."""

    ranges: tuple[Range, ...]
    after: Progress
    lost: tuple[Range, ...] = ()
    """Offsets that were deleted before the table had them."""

    @property
    def offsets(self) -> int:
        """The number of offsets to read."""
        return sum(each.size for each in self.ranges)


def first_progress(topic: Topic, cluster_id: str, rows: str, now_ms: int) -> Progress:
    """The plan of a new table: each partition begins at its current log start. It is committed
    before anything is read, so records that are deleted later are known to be lost.
    """
    positions = {part.partition: TablePosition(part.start) for part in topic.partitions}
    return Progress(
        topic.name, topic.topic_id, topic.partition_epoch, cluster_id, rows, now_ms, positions
    )


def plan_round(
    topic: Topic,
    known: Progress,
    ends_of_epochs: Mapping[int, int],
    *,
    now_ms: int,
    on_loss: str,
    max_offsets: int = 0,
    cluster_id: str = "",
    report: Callable[[str], None] = lambda _: None,
) -> Round:
    """The records of the topic after `known`; at most `max_offsets`, if it is not 0.

    `ends_of_epochs` has, by partition, the end of the known position's leader epoch in the leader's
    current log, if available. Raises JobError if the table must not be continued.
    """
    _check_same_life(topic, known, cluster_id)
    ranges, lost, positions = [], [], dict(known.positions)
    allowed = max_offsets or sum(part.end - part.start for part in topic.partitions)
    for part in topic.partitions:
        # A partition that the table has never seen is from an expansion: its records begin at 0.
        position = known.positions.get(part.partition, TablePosition(0))
        _check_history(part, position, ends_of_epochs.get(part.partition))
        at = position.next
        if at < part.start:
            gone = Range(part.topic, part.partition, at, part.start)
            _lost(gone, on_loss, report)
            lost.append(gone)
            at = part.start
        end = min(part.end, at + max(allowed, 0))
        if end > at:
            ranges.append(Range(part.topic, part.partition, at, end))
            allowed -= end - at
        positions[part.partition] = TablePosition(max(end, at), part.leader_epoch)
    # After the positions there may be tombstones of rows that the table has had since
    # `known.read_ms`.
    is_whole = all(positions[part.partition].next >= part.end for part in topic.partitions)
    read_ms = now_ms if is_whole else known.read_ms
    return Round(tuple(ranges), replace(known, read_ms=read_ms, positions=positions), tuple(lost))


def check_history(
    topic: Topic, known: Progress, ends_of_epochs: Mapping[int, int], cluster_id: str = ""
) -> None:
    """Check that `topic` is the one of `known` and still has everything that was read. Raises
    JobError.
    """
    _check_same_life(topic, known, cluster_id)
    for part in topic.partitions:
        if part.partition in known.positions:
            position = known.positions[part.partition]
            _check_history(part, position, ends_of_epochs.get(part.partition))


def _check_same_life(topic: Topic, known: Progress, cluster_id: str) -> None:
    if known.topic != topic.name:
        raise JobError(
            f"the table has topic {known.topic}, not {topic.name}: choose another table (--table)"
        )
    other_id = known.topic_id and topic.topic_id and known.topic_id != topic.topic_id
    other_epoch = (
        known.partition_epoch >= 0
        and topic.partition_epoch >= 0
        and known.partition_epoch != topic.partition_epoch
    )
    if other_id or other_epoch:
        raise JobError(
            f"topic {topic.name}: it was deleted and created again since the table was written "
            f"(topic id {known.topic_id or 'unknown'} there, {topic.topic_id or 'unknown'} now); "
            f"nothing was written. Choose another table (--table), or {RESYNC}"
        )
    # Topic ids are more precise than the cluster's; brokers before Kafka 2.8 have none.
    other_cluster = known.cluster_id and cluster_id and known.cluster_id != cluster_id
    if other_cluster and not (known.topic_id and topic.topic_id):
        raise JobError(
            f"topic {topic.name}: the table was written from cluster {known.cluster_id}, and this "
            f"is cluster {cluster_id}; nothing was written. Choose another table (--table), or "
            f"{RESYNC}"
        )
    gone = sorted(set(known.positions) - {part.partition for part in topic.partitions})
    if gone:
        raise JobError(
            f"topic {topic.name}: the table has rows of partition {gone[0]}, which the topic does "
            f"not have: is this another cluster? {RESYNC}"
        )


def _check_history(part: Partition, position: TablePosition, epoch_end: int | None) -> None:
    """Check that the log still has what the table has read."""
    where = f"topic {part.topic}, partition {part.partition}"
    if position.next > part.end:
        raise JobError(
            f"{where}: the table has read to offset {position.next}, and the log ends at "
            f"{part.end}: the cluster has lost records, or is another one; nothing was written. "
            f"{RESYNC}"
        )
    if epoch_end is not None and epoch_end < position.next:
        raise JobError(
            f"{where}: the table has rows up to offset {position.next - 1} of leader epoch "
            f"{position.leader_epoch}, and that epoch ends at {epoch_end} in the log now: an "
            f"unclean leader election has replaced the records from {epoch_end} on; nothing was "
            f"written. {RESYNC}"
        )


def _lost(gone: Range, on_loss: str, report: Callable[[str], None]) -> None:
    message = (
        f"topic {gone.topic}, partition {gone.partition}: offsets {gone.start} to {gone.end - 1} "
        "were deleted before the table had them"
    )
    if on_loss == "fail":
        raise JobError(f"{message}; --on-loss=skip continues at {gone.end}")
    report(f"{message}; continuing at {gone.end}")


def tombstones_may_be_gone(known: Progress, configs: Mapping[str, str | None], now_ms: int) -> bool:
    """Whether compaction may have removed tombstones that the table has not seen: they stay for
    delete.retention.ms, and the table has all that existed at `read_ms`.
    """
    if "compact" not in policies(configs):
        return False
    return now_ms - known.read_ms >= int(configs.get("delete.retention.ms") or 86_400_000)


def note_is_due(known: Progress, configs: Mapping[str, str | None], now_ms: int) -> bool:
    """Whether to note that there was nothing new, so that a quiet topic is not read again later."""
    return "compact" in policies(configs) and tombstones_may_be_gone(
        replace(known, read_ms=now_ms - 4 * (now_ms - known.read_ms)), configs, now_ms
    )


def policies(configs: Mapping[str, str | None]) -> set[str]:
    """From cleanup.policy."""
    return {each.strip() for each in (configs.get("cleanup.policy") or "delete").split(",")}
