"""The result of a scan of a partition as Arrow columns: records, holes, and blocks.

A hole is a run of offsets without a record: a transaction's marker (commit, abort), an aborted
record, or nothing (compacted, or never written). A block is the sum of the records of BLOCK
offsets: their number, and a digest that does not depend on their order, on their batches, or on who
computes it. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from kstore._fast.record.murmur2 import hash64_column
from kstore.record import BatchView, ControlType, InvalidBatchError, batches, decode, read_control
from kstore.record import to_arrow as decode_arrow

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BLOCK",
    "ENTRY_COLUMNS",
    "ENTRY_SCHEMA",
    "PARTITIONED_BY",
    "Chunk",
    "Hole",
    "blocks_of",
    "content_hashes",
    "decode_chunk",
    "entry_batch",
    "key_hashes",
    "placed_hashes",
    "spark_schema",
    "times_of",
]

BLOCK = 10_000
"""The number of offsets of a block; blocks start at its multiples, in every cluster and archive."""
NO_DATE = "none"
_MAX_MICROS_MS = 253_402_300_799_999  # the end of year 9999, the limit of Spark's timestamps

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ENTRY_COLUMNS: dict[str, tuple[Any, str]] = {
    "entry": (pa.string(), "string"),  # record, hole, block or fault
    "topic": (pa.string(), "string"),
    "date": (pa.string(), "string"),  # of the timestamp, UTC: 2026-01-31, with the hour if asked
    "partition": (pa.int32(), "int"),
    "offset": (pa.int64(), "bigint"),
    "endOffset": (pa.int64(), "bigint"),  # of holes, blocks and faults; exclusive
    "timestamp": (pa.timestamp("us", tz="UTC"), "timestamp"),
    "timestampMillis": (pa.int64(), "bigint"),  # Kafka's timestamp, unchanged
    "timestampType": (pa.int32(), "int"),
    "leaderEpoch": (pa.int32(), "int"),
    "key": (pa.binary(), "binary"),
    "value": (pa.binary(), "binary"),
    "headers": (HEADERS, "array<struct<key:string,value:binary>>"),
    "kind": (pa.string(), "string"),  # of holes and faults
    "records": (pa.int64(), "bigint"),  # of blocks
    "digest": (pa.int64(), "bigint"),  # of blocks
}
"""Name -> Arrow's type and Spark's."""
ENTRY_SCHEMA = pa.schema([(name, kind) for name, (kind, _) in ENTRY_COLUMNS.items()])
PARTITIONED_BY = ("entry", "topic", "date")
"""The columns that are folders in an archive, in this order."""
_NO_BYTES = pa.py_buffer(b"")


def spark_schema(names: Iterable[str] = ENTRY_COLUMNS) -> str:
    """These columns as Spark's DDL."""
    return ", ".join(f"`{name}` {ENTRY_COLUMNS[name][1]}" for name in names)


class Hole(NamedTuple):
    """Offsets `start` to below `end` without a record. `kind`: commit, abort, aborted, none."""

    start: int
    end: int
    kind: str


class Chunk(NamedTuple):
    """The entries of one fetched buffer."""

    rows: Any
    """pyarrow.RecordBatch: the columns of records from offset to headers."""
    holes: list[Hole]
    faults: list[tuple[int, int, str]]
    """Start, end and kind of faults: corrupt, order, epoch."""
    next_offset: int


# ---- decoding ----


def decode_chunk(
    data: Any,
    start: int,
    end: int,
    aborted: Sequence[tuple[int, int]] | None = None,
    *,
    tolerant: bool = False,
) -> Chunk:
    """The records of a fetched buffer at offsets from `start` to below `end`.

    `aborted` as for `decode`. Raises InvalidBatchError for a damaged batch; with `tolerant` it is a
    fault, and the following batches are decoded.
    """
    found = list(batches(data, verify=False))
    faults: list[tuple[int, int, str]] = []
    try:
        rows = _decoded(data, start, end, aborted)
    except InvalidBatchError:
        if not tolerant:
            raise
        rows, faults = _decoded_singly(found, start, end, aborted)
    next_offset = min(max((batch.next_offset for batch in found), default=start), end)
    offsets = rows.column("offset").to_numpy(zero_copy_only=False)
    faults += _disorder(found, offsets)
    rows = _with_batches(rows, offsets, found)
    known = list(_explained(found, aborted))
    known += [Hole(first, last, "") for first, last, kind in faults if kind == "corrupt"]
    holes = [
        Hole(first, last, kind)
        for first, last, kind in _holes(offsets, max(start, 0), next_offset, known)
        if kind
    ]
    return Chunk(rows, holes, faults, max(next_offset, start))


def _decoded(data: Any, start: int, end: int, aborted: Any) -> Any:
    return decode_arrow(data, start_offset=start, end_offset=end, aborted=aborted)


def _decoded_singly(
    found: list[BatchView], start: int, end: int, aborted: Any
) -> tuple[Any, list[tuple[int, int, str]]]:
    parts, faults = [], []
    for batch in found:
        if batch.next_offset <= start or batch.base_offset >= end:
            continue
        try:
            parts.append(_decoded(batch.data, start, end, aborted))
        except InvalidBatchError:
            faults.append((max(batch.base_offset, start), min(batch.next_offset, end), "corrupt"))
    if not parts:
        return _decoded(b"", start, end, None), faults
    table = pa.Table.from_batches(parts).combine_chunks()
    whole = table.to_batches()
    return (whole[0] if whole else _decoded(b"", start, end, None)), faults


def _disorder(found: list[BatchView], offsets: Any) -> list[tuple[int, int, str]]:
    """Faults: offsets that do not increase, and leader epochs that decrease."""
    faults = []
    for before, after in pairwise(found):
        if after.leader_epoch < before.leader_epoch:
            faults.append((after.base_offset, after.next_offset, "epoch"))
    wrong = np.flatnonzero(np.diff(offsets) <= 0) if len(offsets) > 1 else ()
    faults += [(int(offsets[i + 1]), int(offsets[i + 1]) + 1, "order") for i in wrong]
    return faults


def _with_batches(rows: Any, offsets: Any, found: list[BatchView]) -> Any:
    """The rows with two columns of their batches: timestamp type and leader epoch."""
    if len(offsets) and found:
        bases = np.fromiter((b.base_offset for b in found), np.int64, len(found))
        of = np.searchsorted(bases, offsets, side="right") - 1
        types = np.fromiter((b.timestamp_type for b in found), np.int32, len(found))[of]
        epochs = np.fromiter((b.leader_epoch for b in found), np.int32, len(found))[of]
    else:
        types = epochs = np.zeros(0, np.int32)
    return pa.RecordBatch.from_arrays(
        [
            rows.column("offset"),
            rows.column("timestamp"),
            pa.array(types),
            pa.array(epochs),
            rows.column("key"),
            rows.column("value"),
            rows.column("headers"),
        ],
        names=[
            "offset", "timestampMillis", "timestampType", "leaderEpoch", "key", "value", "headers",
        ],
    )  # fmt: skip


# ---- holes ----


def _explained(found: list[BatchView], aborted: Sequence[tuple[int, int]] | None) -> Iterator[Hole]:
    """The offsets of markers and of aborted transactions."""
    waiting = sorted(aborted or (), key=lambda row: row[1], reverse=True)
    doomed: set[int] = set()
    for batch in found:
        while waiting and waiting[-1][1] <= batch.last_offset:
            doomed.add(waiting.pop()[0])
        if batch.is_control:
            kind = "none"
            for record in decode(batch.data, verify=False, control=True):
                marker = read_control(record)
                if marker is not None and marker.type in (ControlType.ABORT, ControlType.COMMIT):
                    kind = "abort" if marker.type == ControlType.ABORT else "commit"
            if kind == "abort":
                doomed.discard(batch.producer_id)
            yield Hole(batch.base_offset, batch.next_offset, kind)
        elif batch.is_transactional and batch.producer_id in doomed:
            yield Hole(batch.base_offset, batch.next_offset, "aborted")


def _holes(offsets: Any, start: int, end: int, known: list[Hole]) -> Iterator[Hole]:
    """All offsets from start to end without a record, with the reason if known."""
    marks = np.concatenate(([start - 1], offsets, [max(end, start)]))
    known = sorted(known)
    at = 0
    for gap in np.flatnonzero(np.diff(marks) > 1):
        first, last = int(marks[gap]) + 1, int(marks[gap + 1])
        while at < len(known) and known[at].end <= first:
            at += 1
        place = first
        for hole in known[at:]:
            if hole.start >= last:
                break
            if hole.start > place:
                yield Hole(place, hole.start, "none")
            until = min(hole.end, last)
            yield Hole(max(hole.start, place), until, hole.kind)
            place = until
        if place < last:
            yield Hole(place, last, "none")


# ---- digests ----


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijective mix of each number (the end of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


def _hashes(array: Any, seed: int) -> NDArray[np.uint64]:
    validity, offsets, data = array.buffers()
    if not len(array):
        return np.zeros(0, np.uint64)
    found = hash64_column(offsets, data or _NO_BYTES, validity, array.offset, len(array), seed)
    return np.frombuffer(found, np.uint64)


def content_hashes(rows: Any) -> NDArray[np.uint64]:
    """Each record's hash over timestamp, key, value and headers; it does not depend on the
    offset.
    """
    times = rows.column("timestampMillis").to_numpy(zero_copy_only=False).view(np.uint64)
    found = _mix(times + np.uint64(0x9E3779B97F4A7C15))
    found = _mix(found ^ _hashes(rows.column("key"), 1))
    found = _mix(found ^ _hashes(rows.column("value"), 2))
    return found ^ _header_hashes(rows.column("headers"))


def key_hashes(rows: Any) -> NDArray[np.uint64]:
    """Each record's key as a number; all records without a key have the same one."""
    return _hashes(rows.column("key"), 1)


def _header_hashes(headers: Any) -> NDArray[np.uint64]:
    """Zero for a record without headers; otherwise the sum of their hashes, which depend on their
    positions.
    """
    pairs = headers.flatten()
    if not len(pairs):
        return np.zeros(len(headers), np.uint64)
    counts = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(counts)
    begins = ends - counts
    places = (np.arange(len(pairs)) - np.repeat(begins, counts)).astype(np.uint64)
    keys, values = pairs.flatten()
    each = _mix(_mix(_hashes(keys, 3) + places) ^ _hashes(values, 4))
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(each, dtype=np.uint64)))
    total: NDArray[np.uint64] = sums[ends] - sums[begins]
    return total


def placed_hashes(content: NDArray[np.uint64], offsets: Any) -> NDArray[np.uint64]:
    """Each record's hash including its offset; a block's digest is the XOR of them."""
    return _mix(content ^ _mix(np.asarray(offsets).view(np.uint64)))


def blocks_of(offsets: Any, placed: NDArray[np.uint64]) -> list[tuple[int, int, int]]:
    """Block number, number of records and digest (signed) of each run of records of one block."""
    if not len(offsets):
        return []
    numbers = np.asarray(offsets) // BLOCK
    begins = np.concatenate(([0], np.flatnonzero(np.diff(numbers)) + 1))
    digests = np.bitwise_xor.reduceat(placed, begins).view(np.int64)
    counts = np.diff(np.concatenate((begins, [len(offsets)])))
    return [
        (int(numbers[begin]), int(count), int(digest))
        for begin, count, digest in zip(begins, counts, digests, strict=True)
    ]


# ---- rows for Spark ----


def entry_batch(entry: str, topic: str, columns: dict[str, Any], dates: Any = None) -> Any:
    """A RecordBatch in ENTRY_SCHEMA; missing columns are null."""
    count = len(next(iter(columns.values())))
    columns = {
        "entry": pa.repeat(pa.scalar(entry), count),
        "topic": pa.repeat(pa.scalar(topic), count),
        "date": pa.repeat(pa.scalar(NO_DATE), count) if dates is None else dates,
    } | columns
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(count, field.type)
        for field in ENTRY_SCHEMA
    ]
    arrays = [
        array if isinstance(array, pa.Array) else pa.array(array, field.type)
        for array, field in zip(arrays, ENTRY_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ENTRY_SCHEMA)


def times_of(millis: Any, *, hourly: bool) -> tuple[Any, Any]:
    """Timestamps and dates from Kafka's milliseconds; null and "none" if there is no time (-1, or
    out of the calendar's range).
    """
    numbers = millis.to_numpy(zero_copy_only=False)
    absent = (numbers < 0) | (numbers > _MAX_MICROS_MS)
    shown = np.where(absent, 0, numbers)
    times = pa.array(shown * 1000, pa.timestamp("us", tz="UTC"), mask=absent)
    unit = "h" if hourly else "D"
    days = shown.astype("datetime64[ms]").astype(f"datetime64[{unit}]")
    unique, at = np.unique(days, return_inverse=True)
    names = np.array([*(str(day).replace("T", "-") for day in unique), NO_DATE], dtype=object)
    at = np.where(absent, len(unique), at)
    dictionary = pa.DictionaryArray.from_arrays(pa.array(at, pa.int32()), pa.array(names))
    return times, dictionary.cast(pa.string())
