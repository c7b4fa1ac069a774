"""Finds damage in segments: bytes that are not a valid batch, the reason, and the offsets that they
hide.

A batch's checksum does not cover its base offset, length, leader epoch and magic. These are
compared with the neighbouring batches: offsets and epochs increase along a log. If batches
contradict each other, the largest set of batches that agree is taken as right. Nothing is changed
here.

Two kinds of damage are not detected: a base offset that changed within a gap (which compaction and
given offsets, KIP-391, leave), and, in the last batch, an offset or epoch that became larger while
the index is lost. On a replica such an epoch is detected when the current leader epoch is known
(corruption.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kstore._fast.record.batch_view import find_batch
from kstore.log.errors import CorruptLogError
from kstore.record import InvalidBatchError, batches

__all__ = [
    "NO_LIMIT", "Bad", "Bounds", "Damage", "Good", "hidden_offsets", "is_batch_at",
    "judge", "piece_at", "restored_header", "survey", "walk",
]  # fmt: skip

Read = Callable[[int, int], bytes]
"""``read(size, position)`` returns bytes of a file; fewer than ``size`` only at its end."""

NO_LIMIT = 2**63 - 1
_HEADER_BYTES = 61
_PREFIX_BYTES = 12
_LENGTH = slice(8, 12)
_MAGIC = 16
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged part of a segment, and the offsets that it hides."""

    segment: str
    position: int
    end_position: int
    first_offset: int = -1
    next_offset: int = -1
    """The damage hides ``first_offset`` to ``next_offset`` - 1. Both are -1 if unknown."""
    kind: str = ""
    """The name of the check that failed: one of ``STATUS_NAMES``, or EPOCH_NOT_MONOTONIC."""
    reason: str = "no whole, valid batch"
    is_whole: bool = False
    """True if the batch has the right checksum, and only its offset or epoch is wrong."""
    is_cut: bool = False
    """True if the file ends in the middle of a batch."""

    @property
    def size_bytes(self) -> int:
        """The number of damaged bytes."""
        return self.end_position - self.position

    def __str__(self) -> str:
        return (
            f"{self.size_bytes} damaged bytes at {self.position} of {self.segment} hide "
            f"{hidden_offsets(self.first_offset, self.next_offset)}: {self.reason}"
        )

    def error(self) -> CorruptLogError:
        """The exception for a reader of one of these offsets."""
        return CorruptLogError(
            self.segment,
            self.position,
            self.reason,
            first_offset=self.first_offset,
            next_offset=self.next_offset,
        )


@dataclass(frozen=True, slots=True)
class Good:
    """A batch with the right checksum. ``span`` is the number of offsets that it has."""

    position: int
    size_bytes: int
    base_offset: int
    span: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Bad:
    """Bytes that are not a batch with the right checksum."""

    position: int
    end_position: int
    kind: str
    reason: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds that the batches of a stretch must keep."""

    expected: int
    """The base offset of the first batch is this or higher."""
    limit: int = NO_LIMIT
    """The last offset of the last batch is below this."""
    limit_is_end: bool = True
    """True if offsets are known to continue at the limit. Otherwise they may end before it."""
    epoch: int = -1
    """The epoch of the first batch is this or higher."""
    epochs: Sequence[tuple[int, int]] = ()
    """(epoch, its first offset) pairs, if they are known for the whole stretch."""
    epoch_after: int = -1
    """The epoch in the batch after the stretch; -1 if there is none."""

    def epoch_of(self, offset: int) -> int | None:
        """The known epoch of an offset."""
        at = bisect_right(self.epochs, offset, key=lambda entry: entry[1])
        return self.epochs[at - 1][0] if at else None


def hidden_offsets(first_offset: int, next_offset: int) -> str:
    """The offsets that damage hides, as text."""
    if next_offset > first_offset:
        return f"offsets {first_offset} to {next_offset - 1}"
    return f"offsets from {first_offset} on" if first_offset >= 0 else "unknown offsets"


# -- walking


def walk(read: Read, start: int, end: int, bounds: Bounds) -> Iterator[Good | Bad]:
    """Iterate over the batches and the damage in [start, end) of a file. After bytes that are not a
    batch, it continues at the next whole batch. A Bad at the end extends to the end.
    """
    position = start
    while position < end:
        piece = piece_at(read, position, end)
        done = 0
        reason = f"only {end - position} bytes are left" if len(piece) < _HEADER_BYTES else ""
        try:
            for view in batches(piece, verify=True):
                yield Good(
                    position + view.position,
                    view.size_bytes,
                    view.base_offset,
                    view.next_offset - view.base_offset,
                    view.leader_epoch,
                )
                done = view.position + view.size_bytes
        except InvalidBatchError as error:
            reason = reason or error.status
        position += done
        if done and not reason:
            continue
        if position >= end:
            return
        found = _next_batch(read, position + 1, end, bounds)
        yield _bad(read, position, found, end)
        position = found


def piece_at(read: Read, position: int, end: int) -> bytes:
    """A megabyte from ``position`` on, or more if one batch needs it and the file has it."""
    piece = read(min(_PIECE_BYTES, end - position), position)
    if len(piece) < _PREFIX_BYTES:
        return piece
    wanted = int.from_bytes(piece[_LENGTH], "big", signed=True) + _PREFIX_BYTES
    if len(piece) < wanted <= end - position:
        piece = read(wanted, position)
    return piece


def _next_batch(read: Read, position: int, end: int, bounds: Bounds) -> int:
    """The position of the next batch that has the right checksum and possible offsets, or
    ``end``.
    """
    while position < end:
        piece = read(min(_PIECE_BYTES + _HEADER_BYTES, end - position), position)
        at = -1
        while True:
            at = find_batch(
                piece, start=at + 1, stop=_PIECE_BYTES, least=bounds.expected, limit=bounds.limit
            )
            if at < 0:
                break
            wanted = int.from_bytes(piece[at : at + _PREFIX_BYTES][_LENGTH], "big") + _PREFIX_BYTES
            if position + at + wanted <= end and _is_whole(read(wanted, position + at)):
                return position + at
        position += _PIECE_BYTES
    return end


def _is_whole(data: bytes | bytearray) -> bool:
    """Whether the bytes are exactly one batch with the right checksum."""
    try:
        return sum(view.size_bytes for view in batches(data, verify=True)) == len(data)
    except InvalidBatchError:
        return False


def is_batch_at(read: Read, position: int, offset: int) -> bool:
    """Whether a whole batch with this base offset starts at this position."""
    head = read(_HEADER_BYTES, position)
    if len(head) < _HEADER_BYTES or int.from_bytes(head[:8], "big", signed=True) != offset:
        return False
    return _is_whole(read(int.from_bytes(head[_LENGTH], "big") + _PREFIX_BYTES, position))


def restored_header(data: bytes) -> bytes | None:
    """The bytes with the length and the magic that a batch of this size has, if the checksum is
    then right: no other byte was damaged. Otherwise None.
    """
    if len(data) < _HEADER_BYTES:
        return None
    restored = bytearray(data)
    restored[_LENGTH] = (len(data) - _PREFIX_BYTES).to_bytes(4, "big")
    restored[_MAGIC] = 2
    return bytes(restored) if _is_whole(restored) else None


def _bad(read: Read, position: int, end_position: int, file_end: int) -> Bad:
    """Describe bytes that are not a batch."""
    size = end_position - position
    head = read(min(size, _HEADER_BYTES), position)
    if len(head) < _HEADER_BYTES:
        why = f"{size} bytes are too few for a batch"
        return Bad(position, end_position, "TRUNCATED", why, is_cut=end_position == file_end)
    length = int.from_bytes(head[_LENGTH], "big", signed=True)
    sized = f"batch length {length} in bytes {position + 8} to {position + 11}"
    magic = f"magic {head[_MAGIC]} in byte {position + _MAGIC}, expected 2"
    wrong = [sized + f", expected {size - _PREFIX_BYTES}"] * (length != size - _PREFIX_BYTES)
    wrong += [magic] * (head[_MAGIC] != 2)
    if size <= _PIECE_BYTES * 64 and wrong and restored_header(read(size, position)) is not None:
        kind = "BAD_MAGIC" if head[_MAGIC] != 2 else "BAD_LENGTH"
        return Bad(position, end_position, kind, "; ".join(wrong))
    left = file_end - position
    if head[_MAGIC] != 2:
        kind, why = "BAD_MAGIC", magic
    elif _HEADER_BYTES <= length + _PREFIX_BYTES <= left:
        last = position + length + 11
        kind, why = "BAD_CRC", f"the checksum of bytes {position + 21} to {last} does not match"
    else:
        is_torn = length + _PREFIX_BYTES > left and end_position == file_end
        kind = "TRUNCATED" if is_torn else "BAD_LENGTH"
        why = f"{sized}, of {left} bytes that are left"
    fits = head[_MAGIC] == 2 and length == size - _PREFIX_BYTES
    return Bad(position, end_position, kind, why, is_cut=end_position == file_end and not fits)


# -- judging


def survey(segment: str, read: Read, start: int, end: int, bounds: Bounds) -> list[Damage]:
    """The damaged parts of [start, end) of a segment file, in ascending order."""
    return judge(segment, list(walk(read, start, end, bounds)), end, bounds)


def judge(segment: str, rows: list[Good | Bad], end: int, bounds: Bounds) -> list[Damage]:
    """The damaged parts among the results of a walk to ``end``, in ascending order."""
    believed = _believed(rows, bounds)
    found: list[Damage] = []
    before = bounds.expected
    at = 0
    while at < len(rows):
        if believed[at]:
            row = rows[at]
            assert isinstance(row, Good)
            before = row.base_offset + row.span
            at += 1
            continue
        stop = at + 1
        while stop < len(rows) and not believed[stop] and type(rows[stop]) is type(rows[at]):
            stop += 1
        found.append(_damage(segment, rows, believed, at, stop, before, bounds, end))
        before = max(before, found[-1].next_offset)
        at = stop
    return found


def _damage(
    segment: str,
    rows: list[Good | Bad],
    believed: list[bool],
    first: int,
    stop: int,
    before: int,
    bounds: Bounds,
    end: int,
) -> Damage:
    """The damage in rows[first:stop]."""
    span = sum(row.span for row in rows[first:stop] if isinstance(row, Good))
    end_position = rows[stop].position if stop < len(rows) else end
    following = next((rows[at] for at in range(stop, len(rows)) if believed[at]), None)
    if isinstance(following, Good):
        behind, after = following.base_offset, following.epoch
    else:
        behind = bounds.limit if bounds.limit_is_end else before + span
        after = bounds.epoch_after if bounds.epoch_after >= 0 else NO_LIMIT
    epoch = next((r.epoch for r in reversed(rows[:first]) if isinstance(r, Good)), bounds.epoch)
    reasons = [
        (row.kind, row.reason)
        if isinstance(row, Bad)
        else _explain_order(row, before, behind - span, bounds.epoch_of(before), epoch, after)
        for row in rows[first:stop]
    ]
    more = [f"and {len(reasons) - 3} batches more"] * (len(reasons) > 3)
    return Damage(
        segment,
        rows[first].position,
        end_position,
        before,
        max(before, behind),
        reasons[0][0],
        "; ".join([reason for _, reason in reasons[:3]] + more),
        is_whole=all(isinstance(row, Good) for row in rows[first:stop]),
        is_cut=any(isinstance(row, Bad) and row.is_cut for row in rows[first:stop]),
    )


def _explain_order(
    row: Good, least: int, most: int, known_epoch: int | None, before: int, after: int
) -> tuple[str, str]:
    """(kind, reason) for a batch that does not fit between its neighbours."""
    if row.base_offset == least > most:
        last = row.base_offset + row.span - 1
        return "NOT_MONOTONIC", f"offsets {least} to {last}, but {most + row.span} follows"
    if not least <= row.base_offset <= most or row.base_offset < 0:
        expected = f"{least}" if most <= least else f"{least} to {most}"
        return "NOT_MONOTONIC", (
            f"base offset {row.base_offset} in bytes {row.position} to {row.position + 7}, "
            f"expected {expected}"
        )
    if known_epoch is not None:
        before = after = known_epoch
    expected = f"{before}" if after <= before else f"{before} to {after}"
    if after == NO_LIMIT:
        expected = f"at least {before}"
    return "EPOCH_NOT_MONOTONIC", (
        f"leader epoch {row.epoch} in bytes {row.position + 12} to {row.position + 15}, "
        f"expected {expected}"
    )


def _believed(rows: list[Good | Bad], bounds: Bounds) -> list[bool]:
    """Which batches are right: the largest set in which offsets leave room for all batches in
    between and epochs increase.

    From the offset of each batch the number of offsets in the batches before it is subtracted. For
    right batches the result never decreases.
    """
    spans, total = [], 0
    for row in rows:
        spans.append(total)
        total += row.span if isinstance(row, Good) else 0
    places = {
        at: row.base_offset - spans[at]
        for at, row in enumerate(rows)
        if isinstance(row, Good) and row.span > 0
    }
    kept = _longest_rising(places, bounds.expected, bounds.limit - total)
    epochs: dict[int, int] = {}
    for at in kept:
        row = rows[at]
        assert isinstance(row, Good)
        known = bounds.epoch_of(row.base_offset)
        if known is None or row.epoch in {known, -1}:
            epochs[at] = row.epoch
    if bounds.epochs:
        kept = list(epochs)
    else:
        if bounds.epoch_after >= 0:
            epochs[len(rows)] = bounds.epoch_after
        kept = [at for at in _steadiest_rising(epochs, bounds.epoch) if at < len(rows)]
    believed = [False] * len(rows)
    for at in kept:
        believed[at] = True
    return believed


def _longest_rising(values: dict[int, int], least: int, most: int) -> list[int]:
    """The keys of the longest subsequence of ``values`` that never decreases, within [least, most].
    If several are longest, the one with the lowest end.
    """
    ends: list[int] = []
    last: list[int] = []
    previous: dict[int, int] = {}
    for key, value in values.items():
        if not least <= value <= most:
            continue
        at = bisect_right(ends, value)
        if at:
            previous[key] = last[at - 1]
        if at == len(ends):
            ends.append(value)
            last.append(key)
        else:
            ends[at] = value
            last[at] = key
    found = []
    key = last[-1] if last else -1
    while key >= 0:
        found.append(key)
        key = previous.get(key, -1)
    return found[::-1]


def _steadiest_rising(values: dict[int, int], least: int) -> list[int]:
    """The keys of the longest subsequence of ``values`` that never decreases, with no value below
    ``least``. If several are longest, the one with the fewest different values; of these, the one
    with the lowest end.
    """
    best: dict[int, tuple[int, int, int]] = {}  # by last value: length, changes (-), last key
    previous: dict[int, int] = {}
    for key, value in values.items():
        if value < least:
            continue
        lower = max((found for at, found in best.items() if at < value), default=(0, 0, -1))
        length, changes, before = max(
            (lower[0], lower[1] - 1, lower[2]), best.get(value, (0, 0, -1))
        )
        best[value] = length + 1, changes, key
        previous[key] = before
    if not best:
        return []
    end = max(best, key=lambda value: (best[value][:2], -value))
    found = []
    key = best[end][2]
    while key >= 0:
        found.append(key)
        key = previous[key]
    return found[::-1]
