"""If every append is synced, segment files have zeros after their data: no reader, and no recovery
after a crash, may treat them as data or as damage.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import kstore
from kstore.log.offline.dump import DumpedSegment, dump
from kstore.log.offline.verify import verify
from tests.log.handling import remove_index, values

KILLED = """
import os, signal, sys, kstore
log = kstore.open_log(sys.argv[1], flush="always")
for i in range(int(sys.argv[2])):
    log.append(b"value %d" % i)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_after(path: Path, count: int) -> Path:
    """A log whose writer was killed after `count` synced appends; its only segment's path."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(count)], check=False)
    assert done.returncode == -signal.SIGKILL
    return path / "log-0" / f"{0:020}.log"


def expected(count: int) -> list[bytes]:
    return [b"value %d" % i for i in range(count)]


def test_zeros_are_cut_off_at_opening_and_not_called_torn(tmp_path: Path) -> None:
    segment = killed_after(tmp_path, 100)
    grown = segment.stat().st_size
    assert segment.read_bytes().rstrip(b"\0") != segment.read_bytes()[:-1]
    with kstore.open_log(tmp_path) as log:
        assert values(log) == expected(100)
        assert log.recovery.truncated_bytes == 0
        assert not log.recovery.damages
        assert segment.stat().st_size == log.size_bytes < grown


def test_a_segment_of_zeros_alone_is_an_empty_log(tmp_path: Path) -> None:
    segment = tmp_path / "log-0" / f"{0:020}.log"
    segment.parent.mkdir()
    segment.write_bytes(bytes(1 << 20))
    with kstore.open_log(tmp_path) as log:
        assert log.recovery.truncated_bytes == 0
        assert log.append(b"first") == 0


def test_a_torn_batch_before_zeros_is_cut_and_reported(tmp_path: Path) -> None:
    segment = killed_after(tmp_path, 10)
    data = segment.read_bytes()
    end = len(data.rstrip(b"\0")) + 1
    with segment.open("r+b") as file:
        file.seek(end - 5)
        file.write(b"\0" * 5)  # what a power cut may leave of the last write
    remove_index(tmp_path)
    with kstore.open_log(tmp_path) as log:
        assert values(log) == expected(9)
        assert log.recovery.truncated_bytes > 0


def test_another_process_follows_a_log_that_runs_ahead(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, flush="always") as log:
        log.append(b"value 0")
        with kstore.open_log(tmp_path, read_only=True) as follower:
            assert values(follower) == expected(1)
            assert not follower.recovery.damages
            log.append(b"value 1")
            assert follower.wait(1, timeout=30)
            assert values(follower) == expected(2)
            assert follower.log_end_offset == 2


def test_sealed_segments_hold_no_zeros(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, flush="always") as log:
        log.append(b"value 0")
        log.roll()
        log.append(b"value 1")
        first = tmp_path / "log-0" / f"{0:020}.log"
        assert first.stat().st_size == log.core.segments[0].size_bytes
    assert sum(f.stat().st_size for f in tmp_path.glob("log-0/*.log")) == log.size_bytes


def test_dump_and_verify_stop_at_the_zeros(tmp_path: Path) -> None:
    killed_after(tmp_path, 3)
    found = [item for item in dump(tmp_path) if not isinstance(item, DumpedSegment)]
    assert [type(item).__name__ for item in found] == ["DumpedBatch"] * 3
    assert all(not report.problems for report in verify(tmp_path).partitions)


def test_large_batches_are_written_without_zeros(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, flush="always") as log:
        log.append(b"x" * 500_000)
        segment = tmp_path / "log-0" / f"{0:020}.log"
        assert segment.stat().st_size == log.size_bytes


def machine_stopped(path: Path, lost: int) -> Path:
    """Three batches of 5,000 bytes, of which the second's bytes after its header are `lost` (the
    byte that is there instead), as if the index had never been written.
    """
    with kstore.open_log(path, flush="always") as log:
        for value in (b"a", b"b", b"c"):
            log.append(value * 5000)
        segment = path / "log-0" / f"{0:020}.log"
        size = log.size_bytes
    with segment.open("r+b") as file:
        file.seek(size // 3 + 61)
        file.write(bytes([lost]) * (size // 3 - 61))
    remove_index(path)
    return segment


def test_blocks_that_never_reached_the_disk_end_the_log_there(tmp_path: Path) -> None:
    segment = machine_stopped(tmp_path, 0)
    size = segment.stat().st_size
    with kstore.open_log(tmp_path) as log:
        assert values(log) == [b"a" * 5000]
        assert log.recovery.truncated_bytes == size * 2 // 3
        assert not log.recovery.damages
        assert log.append(b"next") == 1


def test_other_damage_is_kept_and_reported(tmp_path: Path) -> None:
    machine_stopped(tmp_path, 0xFF)
    with kstore.open_log(tmp_path) as log:
        assert len(log.recovery.damages) == 1
        assert log.log_end_offset == 3
