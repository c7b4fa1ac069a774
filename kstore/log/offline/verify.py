"""Checks all segments offline: CRC, framing, ascending offsets and epochs; reports the first
problems.

It changes nothing and takes no lock. If there is an index environment, it is compared with the
segments; it is not needed, because the segments are authoritative.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from kstore.log.index.index_store import ENVIRONMENT_NAME, IndexStore
from kstore.log.index.lmdb_check import find_damage
from kstore.log.offline.scan import (
    ScannedBatch,
    SegmentPath,
    Survey,
    scan_segment,
    segment_paths,
    survey_segments,
)
from kstore.log.segments.damage import Damage, hidden_offsets
from kstore.record import BatchView, InvalidBatchError, decode, validate
from kstore.types import TopicPartition

__all__ = ["ExitStatus", "PartitionReport", "Problem", "VerifyReport", "verify"]

# An index entry in log_segment's format: offset delta, position, newest timestamp before it.
_ENTRY = struct.Struct("=IIq")
_MADE_ANEW = "delete it; opening the log creates it again"
# Compaction can leave what a producer may not send: these batches are checked record by record.
_ALLOWED_AFTER_COMPACTION = {"BAD_COUNT", "BAD_OFFSET_DELTA", "BAD_TIMESTAMP"}


class ExitStatus(IntEnum):
    """The exit codes of ``kstore log verify``."""

    GOOD = 0
    """No problems except torn tails: a writer at work, or a crash that opening the log will
    repair.
    """
    DAMAGED = 1
    UNREADABLE = 2
    """Nothing could be checked: no segments, or no permission."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, and its place. ``is_torn_tail``: opening the log would truncate it."""

    segment: str
    position: int
    kind: str
    detail: str
    is_torn_tail: bool = False
    end_position: int = -1
    """The damaged bytes. -1: the problem is not one of the segment's bytes."""
    first_offset: int = -1
    next_offset: int = -1
    """Damaged bytes hide ``first_offset`` to below ``next_offset``."""

    def __str__(self) -> str:
        hides = ""
        if self.end_position >= 0:
            hidden = hidden_offsets(self.first_offset, self.next_offset)
            hides = f"bytes {self.position} to {self.end_position - 1} hide {hidden}: "
        return f"{self.segment} at byte {self.position}: {self.kind}: {hides}{self.detail}"


@dataclass(slots=True)
class PartitionReport:
    """Counts of one partition (or of one file), and its first problems."""

    name: str
    topic_partition: TopicPartition | None = None
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class VerifyReport:
    """All partitions that were checked."""

    partitions: list[PartitionReport] = field(default_factory=list)

    @property
    def problem_count(self) -> int:
        """Problems of all partitions, torn tails included."""
        return sum(report.problem_count for report in self.partitions)

    @property
    def exit_status(self) -> ExitStatus:
        """DAMAGED if anything except a torn tail was found."""
        for report in self.partitions:
            torn = sum(problem.is_torn_tail for problem in report.problems)
            if report.problem_count > torn:
                return ExitStatus.DAMAGED
        return ExitStatus.GOOD


def verify(
    path: str | os.PathLike[str],
    *,
    records: bool = True,
    index: bool = True,
    max_problems: int = 10,
) -> VerifyReport:
    """Check a ``.log`` file, a partition's directory or a log dir and report problems.

    ``records`` also checks every record (decompressing); without it, only headers and CRCs.
    ``index`` compares the index environment of the log dir, if there is one, with the segments. At
    most ``max_problems`` problems are kept for each partition; all are counted. Raises
    FileNotFoundError, and ValueError if there are no segments.
    """
    report = VerifyReport()
    check: _PartitionCheck | None = None
    stores: dict[Path, IndexStore | None] = {}
    damages: dict[Path, str] = {}
    for survey in survey_segments(segment_paths(path)):
        segment = survey.segment
        folder = segment.path.parent
        if check is None or check.folder != folder:
            log_dir = folder.parent
            if index and log_dir not in stores:
                problem = find_damage(str(log_dir / ENVIRONMENT_NAME))
                if problem is not None:
                    damages[log_dir] = f"{problem}: {_MADE_ANEW}"
                stores[log_dir] = _index_of(log_dir) if problem is None else None
            check = _PartitionCheck(segment, records, max_problems, stores.get(log_dir))
            if log_dir in damages:
                check.problem(segment, 0, "INDEX_DAMAGED", damages.pop(log_dir))
            report.partitions.append(check.report)
        check.walk(survey)
    for store in stores.values():
        if store is not None:
            store.close()
    return report


def _index_of(log_dir: Path) -> IndexStore | None:
    """The index environment of a log dir, for reading; None if there is none."""
    if not (log_dir / ENVIRONMENT_NAME).exists():
        return None
    return IndexStore(str(log_dir), read_only=True)


class _PartitionCheck:
    """The state of one partition while its segments are checked in order."""

    def __init__(
        self, first: SegmentPath, records: bool, max_problems: int, store: IndexStore | None
    ) -> None:
        self.store = store
        self.folder = first.path.parent
        self.report = PartitionReport(str(self.folder), first.topic_partition)
        self.records = records
        self.max_problems = max_problems
        self.next_offset = 0

    def walk(self, survey: Survey) -> None:
        """Check one segment."""
        report, segment = self.report, survey.segment
        report.segments += 1
        report.size_bytes += segment.path.stat().st_size
        if report.log_start_offset is None:
            report.log_start_offset = segment.base_offset
        self.next_offset = max(self.next_offset, segment.base_offset)
        index = self.index_entries(segment)
        newest = -1
        for item in scan_segment(survey):
            if isinstance(item, ScannedBatch):
                self.compare(survey, item, index, newest)
                newest = max(newest, item.batch.max_timestamp)
                self.batch(segment, item.position, item.batch)
            else:
                self.damage(survey, item)
                for position in [p for p in index if item.position <= p < item.end_position]:
                    del index[position]
        for position in index:
            self.index_problem(segment, position)
        report.log_end_offset = self.next_offset

    def compare(
        self,
        survey: Survey,
        item: ScannedBatch,
        index: dict[int, tuple[int, int]],
        newest: int,
    ) -> None:
        """Compare a batch with its index entry, if it has one. Damaged batches before it may have
        had a newer timestamp than the remaining ones.
        """
        delta, newest_before = index.pop(item.position, (-1, -1))
        if delta < 0:
            return
        is_newest = newest_before == newest or (survey.damages and newest_before > newest)
        if delta != item.batch.base_offset - survey.segment.base_offset or not is_newest:
            self.index_problem(survey.segment, item.position)

    def index_entries(self, segment: SegmentPath) -> dict[int, tuple[int, int]]:
        """The index's entries of a segment: position to (offset delta, newest time before it)."""
        if self.store is None:
            return {}
        known = self.store.damaged_values
        packed = self.store.pages(self.folder.name, segment.base_offset)
        if self.store.damaged_values > known:
            self.problem(segment, 0, "INDEX_DAMAGED", f"a page is damaged: {_MADE_ANEW}")
        return {position: (delta, newest) for delta, position, newest in _ENTRY.iter_unpack(packed)}

    def index_problem(self, segment: SegmentPath, position: int) -> None:
        """Count an index entry that points elsewhere."""
        detail = f"the index has another batch here: {_MADE_ANEW}"
        self.problem(segment, position, "INDEX_MISMATCH", detail)

    def damage(self, survey: Survey, damage: Damage) -> None:
        """Count damage; a partial batch is a torn tail in the last segment only."""
        is_torn = survey.is_torn_tail(damage)
        self.next_offset = max(self.next_offset, damage.next_offset)
        self.keep(
            Problem(
                damage.segment,
                damage.position,
                damage.kind,
                damage.reason,
                is_torn,
                damage.end_position,
                damage.first_offset,
                damage.next_offset,
            )
        )

    def batch(self, segment: SegmentPath, position: int, batch: BatchView) -> None:
        """Count a whole batch in its place, and check its records."""
        self.report.batches += 1
        self.report.records += batch.records_count
        self.next_offset = batch.next_offset
        if self.records:
            kind, detail = check_records(batch)
            if kind:
                self.problem(segment, position, kind, detail)

    def problem(self, segment: SegmentPath, position: int, kind: str, detail: str) -> None:
        """Count a problem that is not one of damaged bytes."""
        self.keep(Problem(str(segment.path), position, kind, detail))

    def keep(self, problem: Problem) -> None:
        """Count a problem, and keep it if it is among the first."""
        self.report.problem_count += 1
        if len(self.report.problems) < self.max_problems:
            self.report.problems.append(problem)


def check_records(batch: BatchView) -> tuple[str, str]:
    """The problem of a batch's records: (kind, detail), both empty if there is none.

    Batches that compaction has reduced are checked in Python, all others in C.
    """
    try:
        validate(batch.data)
    except InvalidBatchError as error:
        if error.status not in _ALLOWED_AFTER_COMPACTION:
            return error.status, str(error)
        return _check_thinned(batch)
    return "", ""


def _check_thinned(batch: BatchView) -> tuple[str, str]:
    previous = batch.base_offset - 1
    count = 0
    try:
        for record in decode(batch.data, verify=False, control=True):
            if not previous < record.offset <= batch.last_offset:
                return "BAD_OFFSET_DELTA", f"offset {record.offset} after {previous}"
            previous = record.offset
            count += 1
    except InvalidBatchError as error:
        return error.status, str(error)
    if count != batch.records_count:
        return "BAD_COUNT", f"{count} records, the header says {batch.records_count}"
    return "", ""
