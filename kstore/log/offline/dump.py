"""Shows the content of segment files, offline: batches, their records, and damage, as typed data.

``dump`` yields; the command line prints (``as_dict`` returns plain JSON types). It takes no lock
and needs no index: a broker may write the files meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from kstore.log.offline.scan import (
    ScannedBatch,
    SegmentPath,
    scan_segment,
    segment_paths,
    survey_segments,
)
from kstore.log.segments.damage import NO_LIMIT, Damage, hidden_offsets
from kstore.record import (
    BatchView,
    InvalidBatchError,
    Record,
    batches,
    compression_for,
    decode,
    read_control,
)
from kstore.types import Header, TopicPartition

__all__ = ["DumpedBatch", "DumpedDamage", "DumpedRecord", "DumpedSegment", "as_dict", "dump"]

_LARGEST_SHOWN_BYTES = 64 << 20  # the maximum of damaged bytes that are searched for headers


@dataclass(frozen=True, slots=True)
class DumpedSegment:
    """The start of a segment file."""

    segment: str
    topic_partition: TopicPartition | None
    base_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A batch's header; names as in Kafka's ``DumpLogSegments``."""

    segment: str
    position: int
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    partition_leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    create_time: int
    """The largest timestamp of the batch, or the append time with LogAppendTime."""
    timestamp_type: str
    size: int
    magic: int
    compression_codec: str
    crc: int
    is_valid: bool


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """A record of the batch before it. ``control``: "ABORT" or "COMMIT" of a transaction marker."""

    segment: str
    position: int
    """The position of its batch in the file."""
    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    control: str | None
    coordinator_epoch: int | None


@dataclass(frozen=True, slots=True)
class DumpedDamage:
    """Bytes of the segment that are not a valid batch; the valid batches after them follow."""

    segment: str
    position: int
    end_position: int
    first_offset: int
    next_offset: int
    """It hides ``first_offset`` to below ``next_offset``; -1: unknown."""
    kind: str
    detail: str

    def __str__(self) -> str:
        return (
            f"{self.kind}: bytes {self.position} to {self.end_position - 1} hide "
            f"{hidden_offsets(self.first_offset, self.next_offset)}: {self.detail}"
        )


Dumped = DumpedSegment | DumpedBatch | DumpedRecord | DumpedDamage


def dump(
    path: str | os.PathLike[str],
    *,
    records: bool = False,
    start_offset: int = 0,
    end_offset: int | None = None,
    key: bytes | None = None,
    topic_partition: TopicPartition | None = None,
    max_batches: int | None = None,
) -> Iterator[Dumped]:
    """The content of a ``.log`` file, a partition's directory or a log dir, in order.

    ``records`` adds each batch's records (Kafka's deep iteration). The filters: offsets from
    ``start_offset`` to below ``end_offset``; only records with this ``key``; one partition of a log
    dir; at most ``max_batches`` batches of each segment. Raises FileNotFoundError, and ValueError
    if there are no segments.
    """
    chosen = _between(segment_paths(path), start_offset, end_offset, topic_partition)
    for survey in survey_segments(chosen):
        segment = survey.segment
        name = str(segment.path)
        size = segment.path.stat().st_size
        yield DumpedSegment(name, segment.topic_partition, segment.base_offset, size)
        seen = 0
        for item in scan_segment(survey):
            if max_batches is not None and seen >= max_batches:
                break
            seen += 1
            first, after = _offsets(item)
            if after <= start_offset:
                continue
            if end_offset is not None and first >= end_offset:
                break
            yield from _dump_item(name, item)
            if records and isinstance(item, ScannedBatch):
                yield from _dump_records(name, item, start_offset, end_offset, key)


def _offsets(item: ScannedBatch | Damage) -> tuple[int, int]:
    """Its first offset, and the one after its last; all offsets if unknown."""
    if isinstance(item, ScannedBatch):
        return item.batch.base_offset, item.batch.next_offset
    if item.first_offset < 0:
        return 0, NO_LIMIT
    return item.first_offset, max(item.first_offset, item.next_offset - 1) + 1


def _between(
    segments: list[SegmentPath], start: int, end: int | None, wanted: TopicPartition | None
) -> Iterator[SegmentPath]:
    """Skip segments of other partitions, and those outside the offsets."""
    for at, segment in enumerate(segments):
        if wanted is not None and segment.topic_partition != wanted:
            continue
        if end is not None and segment.base_offset >= end:
            continue
        following = segments[at + 1] if at + 1 < len(segments) else segment
        same_partition = following.path.parent == segment.path.parent
        if same_partition and segment.base_offset < following.base_offset <= start:
            continue
        yield segment


def _dump_item(name: str, item: ScannedBatch | Damage) -> Iterator[Dumped]:
    if isinstance(item, ScannedBatch):
        yield _dumped(name, item.position, item.batch, is_valid=True)
        return
    for batch in _invalid_batches(item):
        yield _dumped(name, item.position + batch.position, batch, is_valid=False)
    yield DumpedDamage(
        name, item.position, item.end_position, item.first_offset, item.next_offset, item.kind,
        item.reason,
    )  # fmt: skip


def _invalid_batches(damage: Damage) -> list[BatchView]:
    """Describe damaged bytes that consist of batch headers."""
    if damage.size_bytes > _LARGEST_SHOWN_BYTES:
        return []
    with open(damage.segment, "rb") as file:
        file.seek(damage.position)
        data = file.read(damage.size_bytes)
    try:
        found = list(batches(data))
    except InvalidBatchError:
        return []
    return found if sum(view.size_bytes for view in found) == len(data) else []


def _dumped(name: str, position: int, batch: BatchView, *, is_valid: bool) -> DumpedBatch:
    has_sequence = batch.base_sequence >= 0
    return DumpedBatch(
        segment=name,
        position=position,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        count=batch.records_count,
        base_sequence=batch.base_sequence,
        last_sequence=_sequence(batch, batch.last_offset) if has_sequence else -1,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        partition_leader_epoch=batch.leader_epoch,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=batch.delete_horizon_ms,
        create_time=batch.max_timestamp,
        timestamp_type="LogAppendTime" if batch.timestamp_type else "CreateTime",
        size=batch.size_bytes,
        magic=2,
        compression_codec=compression_for(batch.compression).name
        if batch.compression <= 4
        else "?",
        crc=batch.crc,
        is_valid=is_valid,
    )


def _sequence(batch: BatchView, offset: int) -> int:
    """Sequence numbers wrap around to 0 after 2^31 - 1."""
    if batch.base_sequence < 0:
        return -1
    return (batch.base_sequence + offset - batch.base_offset) & 0x7FFFFFFF


def _dump_records(
    name: str, item: ScannedBatch, start: int, end: int | None, key: bytes | None
) -> Iterator[Dumped]:
    batch = item.batch
    try:
        for record in decode(
            batch.data, verify=False, start_offset=start, end_offset=end, control=True
        ):
            if key is None or record.key == key:
                yield _dumped_record(name, item.position, batch, record)
    except InvalidBatchError as error:
        yield DumpedDamage(
            name, item.position, item.position + batch.size_bytes, batch.base_offset,
            batch.next_offset, error.status, str(error),
        )  # fmt: skip


def _dumped_record(name: str, position: int, batch: BatchView, record: Record) -> DumpedRecord:
    marker = None
    if batch.is_control:
        try:
            marker = read_control(record)
        except ValueError:
            marker = None
    return DumpedRecord(
        segment=name,
        position=position,
        offset=record.offset,
        timestamp=record.timestamp,
        sequence=_sequence(batch, record.offset),
        key=record.key,
        value=record.value,
        headers=record.headers,
        control=marker.type.name if marker else None,
        coordinator_epoch=marker.coordinator_epoch if marker else None,
    )


def as_dict(item: Dumped) -> dict[str, Any]:
    """Plain JSON types: ``type`` is segment, batch, record or damage.

    Bytes that are not UTF-8 become ``{"base64": ...}``.
    """
    found: dict[str, Any] = {"type": type(item).__name__.removeprefix("Dumped").lower()}
    for field in fields(item):
        value = getattr(item, field.name)
        if field.name == "headers":
            value = [[header.key, _plain(header.value)] for header in value]
        found[field.name] = _plain(value)
    return found


def _plain(value: object) -> object:
    if isinstance(value, TopicPartition):
        return str(value)
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(value).decode()}
