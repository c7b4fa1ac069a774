"""Where a consumer starts and whether it may continue: resets, and truncated logs (KIP-320).

It interprets responses and sends no requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kstore.clients.core.consumer.lost_records import Divergence
from kstore.clients.core.consumer.offset_epoch import decode, encode_known
from kstore.clients.core.consumer.subscription import AssignedPartition, Position, Reset
from kstore.clients.core.metadata import ClusterView
from kstore.errors import ErrorCode, OffsetOutOfRangeError
from kstore.types import OffsetAndMetadata, TopicPartition

__all__ = [
    "EARLIEST_RESET",
    "LATEST_RESET",
    "LogTruncationError",
    "Needs",
    "committable",
    "committed_position",
    "cut_off",
    "needs",
    "parse_reset",
    "reset_timestamp",
    "watch_leader",
]

LATEST, EARLIEST = -1, -2
LATEST_RESET, EARLIEST_RESET = Reset(LATEST), Reset(EARLIEST)
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class LogTruncationError(
    OffsetOutOfRangeError, code=ErrorCode.OFFSET_OUT_OF_RANGE, client_only=True
):
    """The log was truncated below the position: records that were read no longer exist (KIP-320).

    `positions` are the positions at which it was found; `divergent_offsets` are the offsets at
    which the logs diverge, as far as the leader knew: places to seek to.
    """

    def __init__(
        self,
        positions: Mapping[TopicPartition, int],
        divergent_offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        parts = []
        for tp, offset in sorted(positions.items()):
            known = divergent_offsets.get(tp)
            where = "at an unknown offset" if known is None else f"from offset {known.offset} on"
            parts.append(f"partition {tp}, position {offset}: the log was truncated {where}")
        super().__init__("; ".join(parts))
        self.positions = dict(positions)
        self.divergent_offsets = dict(divergent_offsets)


def parse_reset(text: str) -> Reset | None:
    """Parse auto.offset.reset: earliest, latest, none (None), by_duration:P1DT2H and the like
    (KIP-1106).

    Raises ValueError for anything else.
    """
    kind, _, duration = text.partition(":")
    if not duration and kind in {"earliest", "latest", "none"}:
        return {"earliest": EARLIEST_RESET, "latest": LATEST_RESET, "none": None}[kind]
    found = _DURATION.fullmatch(duration) if kind == "by_duration" else None
    parts = {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}
    if not parts:
        raise ValueError(
            f"auto_offset_reset {text!r} is not one of earliest, latest, none, "
            "by_duration:PnDTnHnMnS"
        )
    return Reset(0, round(sum(float(value) * _UNIT_MS[name] for name, value in parts.items())))


def reset_timestamp(reset: Reset, now_ms: int) -> int:
    """The timestamp for ListOffsets."""
    return reset.timestamp if reset.duration_ms < 0 else max(now_ms - reset.duration_ms, 0)


def committed_position(offset: OffsetAndMetadata, *, uses_partition_epochs: bool) -> Position:
    """The start position for a committed offset, or for one stored elsewhere. Raises ValueError for
    an offset epoch that can't be read.
    """
    epoch = -1 if offset.leader_epoch is None else offset.leader_epoch
    if offset.offset_epoch is None:
        return Position(offset.offset, epoch)
    inside = decode(offset.offset_epoch)
    if not uses_partition_epochs:
        return Position(offset.offset, max(epoch, inside.leader_epoch))
    return Position(offset.offset, max(epoch, inside.leader_epoch), inside.partition_epoch)


def committable(position: Position, metadata: str = "") -> OffsetAndMetadata:
    """A position in the form of a commit."""
    epochs = encode_known(position.partition_epoch, position.leader_epoch)
    return OffsetAndMetadata(position.offset, metadata, position.leader_epoch, epochs)


@dataclass(slots=True)
class Needs:
    """What partitions need before they can be fetched."""

    commits: list[AssignedPartition] = field(default_factory=list)
    """They start at the group's committed offset."""
    resets: list[AssignedPartition] = field(default_factory=list)
    """They need a lookup by timestamp."""
    metadata: list[AssignedPartition] = field(default_factory=list)
    """The metadata is older than their position (KIP-232)."""
    validations: list[AssignedPartition] = field(default_factory=list)
    """Their position must be validated against the leader's log."""

    def __bool__(self) -> bool:
        return bool(self.commits or self.resets or self.metadata or self.validations)


def needs(rows: Iterable[AssignedPartition], view: ClusterView) -> Needs:
    """Sort the assigned partitions by what they need; partitions that need nothing are omitted."""
    found = Needs()
    for row in rows:
        if not row.reading or row.revoking:
            continue
        position = row.position
        if row.reset is not None:
            found.resets.append(row)
        elif position is None:
            found.commits.append(row)
        elif view.is_behind(row.tp, position.partition_epoch, position.leader_epoch):
            found.metadata.append(row)
        elif view.is_another_life(row.tp, position.partition_epoch):
            row.validated = True  # not a truncated log: the fetch returns the error
            row.leader_epoch = view.leader_epoch(row.tp)  # they start at 0 again
        else:
            watch_leader(row, view)
            if not row.validated:
                found.validations.append(row)
    return found


def watch_leader(row: AssignedPartition, view: ClusterView) -> None:
    """A new leader's log may differ: discard what was fetched from the old leader and not returned,
    and validate the position if its leader epoch is known.
    """
    epoch = view.leader_epoch(row.tp)
    if epoch <= row.leader_epoch:
        return
    position = row.position
    if row.leader_epoch >= 0:
        row.discard_fetched()
        if position is not None and position.leader_epoch >= 0:
            row.validated = False
    row.leader_epoch = epoch


def cut_off(
    row: AssignedPartition, found: Divergence, reset: Reset | None
) -> LogTruncationError | None:
    """The log was truncated below a position: continue where the logs diverge, or return the error
    to raise if there is no reset policy.
    """
    position = found.position
    known = found.offset >= 0
    rest = Position(found.offset, found.leader_epoch, position.partition_epoch)
    if reset is None:
        divergent = {row.tp: committable(rest)} if known else {}
        return LogTruncationError({row.tp: position.offset}, divergent)
    if not known:
        row.seek_by_timestamp(reset)
        return None
    epochs = row.epochs
    epochs.cut(rest.offset)
    row.seek(rest)
    row.epochs = epochs
    row.validated = True
    return None
