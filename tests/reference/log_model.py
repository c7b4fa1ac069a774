"""What a log is, in the slowest and simplest way: a list of batches. The real log is compared with
it. It knows segments only as far as they are visible from outside: retention and compaction work on
whole segments, so the test says which batches are in which segment.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ModelRecord:
    """A record as every read path has to give it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class ModelBatch:
    """Records that were appended together. ``last_offset`` outlives the record that had it."""

    base_offset: int
    last_offset: int
    epoch: int
    records: tuple[ModelRecord, ...]


@dataclass
class LogModel:
    """Batches in order, the first offset that may be read, and the next offset."""

    batches: list[ModelBatch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, offset it began at), both ascending; the last one outlives its records."""

    def append(
        self,
        records: list[tuple[bytes | None, bytes | None, int]],
        epoch: int,
        base_offset: int | None = None,
    ) -> int:
        """Append (key, value, timestamp) records as one batch, at the end or at a given offset."""
        base = self.end if base_offset is None else base_offset
        assert base >= self.end
        last = base + len(records) - 1
        made = tuple(ModelRecord(base + at, t, k, v) for at, (k, v, t) in enumerate(records))
        self.batches.append(ModelBatch(base, last, epoch, made))
        self.end = last + 1
        if not self.epochs or epoch > self.epochs[-1][0]:
            self.epochs.append((epoch, base))
        return base

    def truncate(self, offset: int, end: int) -> None:
        """Drop every batch that reaches ``offset`` or is after it; then the log ends at ``end``.
        ``end`` is between the last remaining batch and ``offset``: a batch that is cut in two is
        dropped completely.
        """
        if offset >= self.end:
            assert end == self.end
            return
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        assert end <= offset, (end, offset, self)
        assert not self.batches or self.batches[-1].last_offset < end
        self.end = end
        self.start = min(self.start, end)
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < end]

    def delete_before(self, offset: int) -> None:
        """Raise the start; whether batches are still in a segment is not visible."""
        self.start = max(self.start, min(offset, self.end))
        self.batches = [batch for batch in self.batches if batch.last_offset >= self.start]
        begun = [(epoch, begin) for epoch, begin in self.epochs if begin <= self.start]
        later = [(epoch, begin) for epoch, begin in self.epochs if begin > self.start]
        self.epochs = [(begun[-1][0], self.start), *later] if begun else later

    def records(self, start: int | None = None, end: int | None = None) -> list[ModelRecord]:
        """The readable records from ``start`` up to (not with) ``end``."""
        low = self.start if start is None else max(start, self.start)
        high = self.end if end is None else end
        return [r for batch in self.batches for r in batch.records if low <= r.offset < high]

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """The first readable record at or after a time, as (offset, timestamp)."""
        for record in self.records():
            if record.timestamp >= timestamp:
                return record.offset, record.timestamp
        return None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """KIP-279: the largest epoch not above ``epoch``, and where the next one begins."""
        if not self.epochs or epoch < 0:
            return -1, -1
        if epoch == self.epochs[-1][0]:
            return epoch, self.end
        higher = [(e, begin) for e, begin in self.epochs if e > epoch]
        if not higher:
            return -1, -1
        lower = [e for e, _ in self.epochs if e <= epoch]
        return (lower[-1] if lower else epoch), higher[0][1]

    def compact(self, below: int, now_ms: int) -> None:
        """Keep the last record of each key among those below ``below``; keyless ones go."""
        last: dict[bytes, int] = {}
        for batch in self.batches:
            if batch.last_offset < below:
                for record in batch.records:
                    if record.key is not None:
                        last[record.key] = record.offset
        kept = []
        for batch in self.batches:
            records = tuple(
                r
                for r in batch.records
                if batch.last_offset >= below or (r.key is not None and last[r.key] == r.offset)
            )
            if records or batch.last_offset >= below:
                kept.append(ModelBatch(batch.base_offset, batch.last_offset, batch.epoch, records))
        self.batches = kept

    def as_map(self) -> dict[bytes, bytes]:
        """The readable records replayed as a map: later ones win, null values remove."""
        found: dict[bytes, bytes] = {}
        for record in self.records():
            if record.key is None:
                continue
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record.value
        return found
