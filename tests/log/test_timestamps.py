"""The lookup of an offset by time in large compressed batches, through a window or in a thread,
finds the same as reading all records.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

import kstore
from kstore._fast.record.batch import InvalidBatchError
from kstore._fast.record.unpack import find_by_time
from kstore.log import timestamps
from kstore.log.timestamps import Look, search
from kstore.record import build_batch, decode

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
VALUE = bytes(40_000)


def large_batch(codec: int, count: int = 50) -> bytes:
    """Records of 40 KB of zeros, each 10 ms after the one before, but one is before all."""
    records = [(None, VALUE, 1000 + 10 * n if n != 7 else 995) for n in range(count)]
    return bytes(build_batch(records, compression=codec))


@pytest.mark.parametrize("codec", CODECS)
def test_a_look_finds_what_all_records_say(codec: int) -> None:
    batch = large_batch(codec)
    records = [(record.offset, record.timestamp) for record in decode(batch)]
    for start in (0, 7, 8, 49):
        for time in (0, 1000, 1001, 1075, 1490, 1491):
            right = next((row for row in records if row[0] >= start and row[1] >= time), None)
            assert find_by_time(batch, time, start) == right


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_look_holds_a_window_alone(codec: int) -> None:
    batch = large_batch(codec, count=1000)  # 40 MB
    find_by_time(batch, 0, 0)  # imports the codec
    tracemalloc.start()
    try:
        assert find_by_time(batch, 1000 + 9990, 0) == (999, 10_990)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
def test_a_damaged_batch_is_named(codec: int) -> None:
    batch = bytearray(large_batch(codec))
    batch[len(batch) // 2 :] = b"\xff" * (len(batch) - len(batch) // 2)
    with pytest.raises(InvalidBatchError):
        find_by_time(bytes(batch), 1 << 50, 0)


def test_a_search_stops_at_a_large_batch_and_goes_on_behind_it(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_batches(large_batch(ZSTD))
        log.append_batches(bytes(build_batch([(None, b"v", 5000)])))
        look = search(log, 1200)
        assert isinstance(look, Look)
        assert look.find() == (20, 1200)
        assert look.next_offset == 50
        assert search(log, 1200, look.next_offset) == (50, 5000)
        assert search(log, 1491) == (50, 5000), "no look where the batch's largest time is before"
        assert log.offset_for_timestamp(1200) == (20, 1200)
        assert log.offset_for_timestamp(1491) == (50, 5000)
        assert timestamps.largest_timestamp(log) == (50, 5000)


def test_small_batches_are_looked_into_at_once(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_batches(bytes(build_batch([(None, b"v" * 10, 7)], compression=ZSTD)))
        assert search(log, 7) == (0, 7)
