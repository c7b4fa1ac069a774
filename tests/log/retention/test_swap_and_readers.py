"""A process reads a log while the writer's compaction replaces segments that it has not opened yet:
it gets the remaining records, and no damage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstore.log import Log, open_log_dir

COUNT = 60
LATE = 17


def make(path: Path) -> Log:
    """A log of several segments with keys that repeat, whose index is written."""
    settings: dict[str, Any] = {"segment_bytes": 1000, "cleanup_policy": ("compact",)}
    with open_log_dir(path, **settings) as directory:
        log = directory.log("t")
        for number in range(COUNT):
            log.append(b"%d" % number * 9, b"key %d" % (number * 7 % 23), timestamp=number)
        log.roll()
        log.append(b"active", b"active", timestamp=COUNT)
    return open_log_dir(path, **settings).log("t")


@pytest.mark.parametrize("first", [0, LATE, COUNT - 1])
def test_a_reader_goes_on_after_a_compaction(tmp_path: Path, first: int) -> None:
    log = make(tmp_path)
    with log.log_dir, open_log_dir(tmp_path, read_only=True) as directory:
        reader = directory.log("t")
        log.compact()
        left = [record.offset for record in log.records()]
        assert len(left) == 24
        found, at = [], first
        while at <= COUNT:
            found += [record.offset for record in reader.read(at)]
            at = found[-1] + 1
        assert found == [offset for offset in left if offset >= first]


def test_a_reader_finds_times_after_a_compaction(tmp_path: Path) -> None:
    log = make(tmp_path)
    with log.log_dir, open_log_dir(tmp_path, read_only=True) as directory:
        reader = directory.log("t")
        log.compact()
        left = [record.offset for record in log.records()]
        assert reader.offset_for_timestamp(LATE) == (left[0], left[0])
        assert reader.offset_for_timestamp(COUNT - 1) == (COUNT - 1, COUNT - 1)
