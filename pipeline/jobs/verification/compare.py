"""The differences between two copies of a partition, by blocks and by single records. Pure: numbers
in, findings out; sides.py reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BAD",
    "FINDING_DDL",
    "SUMMARY_DDL",
    "Block",
    "Finding",
    "Summary",
    "block_findings",
    "epoch_findings",
    "record_findings",
]

BAD = {
    "missing": "records that are only on the left",
    "extra": "records that are only on the right",
    "different": "offsets with different records on the two sides",
    "doubled": "offsets with more than one record on one side",
    "behind": "records of the left after the end of the right",
    "corrupt": "batches whose checksum or format is wrong",
    "order": "offsets that do not increase",
    "epoch": "leader epochs that decrease, or differ for the same offsets of one cluster",
    "damaged": "blocks of the archive that differ from what was archived",
    "gap": "offsets between two runs that were never archived",
    "recreated": "topics that were deleted and created again",
    "absent": "topics or partitions that only one side has",
    "key order": "records of a key that are out of order, duplicated or missing",
}
"""Kinds of findings, each of which fails a verification, with their meaning."""


class Block(NamedTuple):
    """The records of one block on one side: offsets `first` to below `end`."""

    first: int
    end: int
    records: int
    digest: int
    epoch: int


@dataclass(frozen=True)
class Finding:
    """A problem: `records` of them at offsets `start` to below `end` of a partition (-1: of the
    topic). `side` is left, right or both.
    """

    kind: str
    topic: str
    partition: int
    start: int
    end: int
    records: int
    side: str
    detail: str = ""


_TYPES = {"str": "string", "int": "bigint", "bool": "boolean"}
FINDING_DDL = ", ".join(f"`{f.name}` {_TYPES[str(f.type)]}" for f in fields(Finding))


@dataclass
class Summary:
    """The comparison of one partition; offsets are -1 if a side does not have it. The compared
    range is what both sides cover.
    """

    topic: str
    partition: int
    left_start: int = -1
    left_end: int = -1
    right_start: int = -1
    right_end: int = -1
    compared_start: int = -1
    compared_end: int = -1
    left_records: int = 0
    right_records: int = 0
    left_digest: int = 0
    right_digest: int = 0
    left_holes: int = 0
    right_holes: int = 0
    blocks: int = 0
    blocks_equal: int = 0
    left_epoch: int = -1
    right_epoch: int = -1
    findings: int = 0
    """The number of records in findings."""

    def row(self) -> dict[str, Any]:
        """The form in the report."""
        return asdict(self) | {"good": self.findings == 0}


SUMMARY_DDL = (
    ", ".join(f"`{f.name}` {_TYPES[str(f.type)]}" for f in fields(Summary)) + ", `good` boolean"
)

PartitionKey = tuple[str, int]


def block_findings(
    tp: PartitionKey, left: dict[int, Block], right: dict[int, Block]
) -> tuple[list[Finding], list[int]]:
    """Blocks that one side does not have, and the numbers of those whose sums differ: only their
    records must be compared one by one.
    """
    found, unequal = [], []
    for number in sorted(left.keys() | right.keys()):
        one, other = left.get(number), right.get(number)
        if one is None or other is None:
            have = one or other
            assert have is not None
            kind = "missing" if other is None else "extra"
            side = "right" if other is None else "left"
            found.append(Finding(kind, *tp, have.first, have.end, have.records, side))
        elif (one.records, one.digest) != (other.records, other.digest):
            unequal.append(number)
    return found, unequal


def epoch_findings(tp: PartitionKey, side: str, blocks: dict[int, Block]) -> Iterator[Finding]:
    """Leader epochs that decrease from one block to the next."""
    highest = -1
    for number in sorted(blocks):
        block = blocks[number]
        if -1 < block.epoch < highest:
            message = f"epoch {block.epoch} after {highest}"
            yield Finding("epoch", *tp, block.first, block.end, block.records, side, message)
        highest = max(highest, block.epoch)


def record_findings(
    tp: PartitionKey,
    left: tuple[NDArray[np.int64], NDArray[np.int64]],
    right: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> list[Finding]:
    """The differences, record by record: each side is (offsets, hashes), in any order."""
    found: list[Finding] = []
    sides = []
    for name, (offsets, hashes) in (("left", left), ("right", right)):
        unique, first, counts = np.unique(offsets, return_index=True, return_counts=True)
        sides.append((unique, hashes[first]))
        more = counts > 1
        found += _runs("doubled", tp, name, unique[more], (counts[more] - 1))
    (ours, our_hashes), (theirs, their_hashes) = sides
    found += _runs("missing", tp, "right", np.setdiff1d(ours, theirs, assume_unique=True))
    found += _runs("extra", tp, "left", np.setdiff1d(theirs, ours, assume_unique=True))
    both, at_left, at_right = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    unequal = our_hashes[at_left] != their_hashes[at_right]
    found += _runs("different", tp, "both", both[unequal])
    return found


def _runs(
    kind: str, tp: PartitionKey, side: str, offsets: Any, counts: Any = None
) -> Iterable[Finding]:
    """One finding per run of consecutive offsets."""
    if not len(offsets):
        return
    breaks = np.flatnonzero(np.diff(offsets) > 1) + 1
    for part in np.split(np.arange(len(offsets)), breaks):
        start, end = int(offsets[part[0]]), int(offsets[part[-1]]) + 1
        records = len(part) if counts is None else int(counts[part].sum())
        yield Finding(kind, *tp, start, end, records, side)
