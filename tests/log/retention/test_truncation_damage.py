"""Truncation of a log with damage: records before the offset stay, wherever the damage is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.log import CorruptLogError, Log, open_log_dir
from kstore.record import decode

BASES = (0, 20, 40)


def make(path: Path, *, damaged: int) -> None:
    """Create segments with batches of two records at 0, 2, 4, at 20, 22, 24, and at 40, 42, 44; the
    header of the batch at ``damaged`` is invalid.
    """
    with open_log_dir(path, index_interval_bytes=1) as directory:
        log = directory.log("t")
        for base in BASES:
            if base:
                log.local.begin_segment(base)
            for at in range(base, base + 6, 2):
                log.append_at(at, [b"%02d" % at, b"%02d" % (at + 1)])
        base = damaged // 20 * 20
        [file] = [Path(s.path) for s in log.segments if s.base_offset == base]
        position = log.core.slice_at(damaged, log.log_end_offset, 0)[1]
    with file.open("r+b") as opened:
        opened.seek(position + 8)
        opened.write(b"\xff" * 16)


def offsets(log: Log) -> list[int]:
    """The offsets of all records that can be read."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            data, offset = log.core.read(offset, log.log_end_offset, 1)
        except CorruptLogError as error:
            offset = error.next_offset
            continue
        records = list(decode(data))
        assert all(record.value == b"%02d" % record.offset for record in records)
        found += [record.offset for record in records]
    return found


ALL = [at for base in BASES for at in range(base, base + 6)]


@pytest.mark.parametrize("at", [5, 6, 13, 20, 22, 24, 26, 33, 40, 44])
@pytest.mark.parametrize("damaged", [20, 22, 40])
def test_a_cut_keeps_what_can_be_read_before_it(tmp_path: Path, damaged: int, at: int) -> None:
    make(tmp_path, damaged=damaged)
    with open_log_dir(tmp_path) as directory:
        log = directory.log("t")
        end = log.truncate(at)
        assert at - 1 <= end <= at or end == damaged < at
        assert log.log_end_offset == end
        expected = [each for each in ALL if each < end and each // 2 * 2 != damaged]
        assert offsets(log) == expected
        assert log.append(b"%02d" % end) == end
        assert offsets(log) == [*expected, end]
