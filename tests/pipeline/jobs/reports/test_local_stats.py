"""Statistics without Spark are the same in whatever portions records arrive."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from kstore.pipeline.jobs.reports.local_stats import _added, _keys
from kstore.pipeline.jobs.reports.stats import PartitionStats, Stats, fold, take_sums
from kstore.pipeline.jobs.scans.entries import HEADERS

PLACES = [("t", 0), ("t", 1), ("u", 0)]
EMPTY = ("t", 2)
TIME = 1_600_000_000_000


def records(chance: random.Random, count: int, *, keys: bool, times: bool) -> Any:
    """Records of which some lack key, value, headers or time; all lack keys or times if
    requested.
    """
    rows = [
        (
            b"k%d" % chance.randrange(9) if keys and chance.random() < 0.8 else None,
            b"v" * chance.randrange(300) if chance.random() < 0.8 else None,
            TIME + chance.randrange(10**8) if times and chance.random() < 0.8 else -1,
            [("n", b"x")] if chance.random() < 0.5 else [],
        )
        for _ in range(count)
    ]
    types = (pa.binary(), pa.binary(), pa.int64(), HEADERS)
    columns = [
        pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, ["key", "value", "timestampMillis", "headers"])


def summed(folded: list[Any]) -> Stats:
    """As `gather_here` does."""
    found = Stats(partitions=[PartitionStats(*place, 0, 9) for place in [*PLACES, EMPTY]])
    rows = _added(folded).to_pylist()
    parts = {(part.topic, part.partition): part for part in found.partitions}
    take_sums([row for row in rows if row["entry"] != "key"], found, parts)
    _keys([row for row in rows if row["entry"] == "key"], found, 5)
    return found


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("keys", [True, False])
@pytest.mark.parametrize("times", [True, False])
def test_sums_of_pieces_are_the_sums_of_the_whole(keys: bool, times: bool) -> None:
    chance = random.Random(f"{keys} {times}")
    whole = {place: records(chance, 120, keys=keys, times=times) for place in PLACES}
    pieces = [
        fold(*place, rows.slice(at, 3))
        for place, rows in whole.items()
        for at in range(0, rows.num_rows, 3)
    ]
    chance.shuffle(pieces)
    found = summed(pieces)
    assert found == summed([fold(*place, rows) for place, rows in whole.items()])

    for part in found.partitions[:3]:
        rows = whole[part.topic, part.partition].to_pylist()
        moments = [row["timestampMillis"] for row in rows if row["timestampMillis"] >= 0] or [-1]
        assert (part.first_time, part.last_time) == (min(moments), max(moments))
        assert part.records == 120
        assert part.tombstones == sum(row["value"] is None for row in rows)
        assert part.value_bytes == sum(len(row["value"] or b"") for row in rows)
    assert found.partitions[3] == PartitionStats(*EMPTY, 0, 9)
    assert found.distinct_keys == dict.fromkeys("tu", 10 if keys else 1)
