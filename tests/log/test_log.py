"""The log as its users see it: append, read, roll, retention, truncation, errors, flush policies,
readers in other processes. Other files test crashes, faults and random histories.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import kstore
from kstore.env import SystemEnv
from kstore.log import (
    CorruptBatchError,
    CorruptLogError,
    InvalidProduceOffsetError,
    InvalidTimestampError,
    LogClosedError,
    LogConfig,
    LogDirLockedError,
    LogNotFoundError,
    OffsetOutOfRangeError,
    ReadOnlyLogError,
    RecordTooLargeError,
)
from kstore.record import build_batch
from tests.beside.programs import output_of
from tests.log.handling import ManualClock, flip_bit, values


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def run(code: str, path: Path) -> str:
    """Run Python code in another process; ``path`` is its argument."""
    code = "import sys, kstore\npath = sys.argv[1]\n" + code
    return output_of([sys.executable, "-c", code, path]).strip()


# -- append and read


def test_records_come_back_as_they_were_given(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        assert log.append(b"v", b"k", 123, [("h", b"x"), ("n", None)]) == 0
        info = log.append_many(
            [b"a", (b"k2", None), (None, b"c", 456), (b"d", b"e", 7, [("h", b"")])]
        )
        assert (info.base_offset, info.last_offset) == (1, 4)
        found = list(log.records())
    assert [(r.key, r.value) for r in found] == [
        (b"k", b"v"), (None, b"a"), (b"k2", None), (None, b"c"), (b"d", b"e"),
    ]  # fmt: skip
    assert [found[0].timestamp, found[3].timestamp, found[4].timestamp] == [123, 456, 7]
    assert list(found[0].headers) == [("h", b"x"), ("n", None)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_stored_as_they_are_and_validated(
    tmp_path: Path, codec: str
) -> None:
    rows = [b"row %d" % i * 20 for i in range(100)]
    with kstore.open_log(tmp_path) as log:
        log.append_many(rows, compression=codec)
        ready = log.read_batches(0)
        log.append_batches(ready)
        assert values(log) == rows * 2


def test_more_than_fits_in_a_batch_becomes_several_with_one_append(tmp_path: Path) -> None:
    rows = [b"x" * 400] * 10
    with kstore.open_log(tmp_path, max_message_bytes=1000) as log:
        assert log.append_many(iter(rows)).last_offset == 9
        assert log.append_many(rows).last_offset == 19
        assert values(log) == rows * 2


def test_reads_are_whole_batches_within_max_bytes_but_at_least_one(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, index_interval_bytes=0) as log:
        for _ in range(20):
            log.append_many([b"x" * 100] * 3)
        size = log.size_bytes // 20
        assert [r.offset for r in log.read(4, 1)] == [4, 5]
        assert len(log.read_batches(0, size)) == size
        assert len(log.read_batches(0, 2 * size - 1)) == size
        assert len(log.read_batches(7, 5 * size)) == 5 * size
        assert len(log.read_batches(0)) == 20 * size
        assert log.read_batches(60) == b""


def test_given_offsets_may_leave_gaps_but_not_go_back(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_at(5, [b"a", b"b"])
        log.append_at(2**33, [b"c"])
        assert [s.base_offset for s in log.segments] == [0, 2**33]
        assert [r.offset for r in log.read(0)] == [5, 6]
        assert [r.offset for r in log.read(7)] == [2**33]
        with pytest.raises(InvalidProduceOffsetError) as error:
            log.append_at(6, [b"d"])
        assert error.value.log_end_offset == log.log_end_offset == 2**33 + 1
        assert log.append(b"e") == 2**33 + 1


def test_a_replica_takes_offsets_and_epochs_as_they_are(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path / "a") as leader, kstore.open_log(tmp_path / "b") as follower:
        leader.append_many([b"a", b"b"], leader_epoch=2)
        leader.append_many([b"c"], leader_epoch=5)
        follower.append_batches(leader.read_batches(0), origin="replica")
        assert follower.read_batches(0) == leader.read_batches(0)
        assert follower.end_offset_for_epoch(3) == leader.end_offset_for_epoch(3) == (2, 2)


def test_appends_of_many_threads_are_consecutive(tmp_path: Path) -> None:
    found: dict[int, int] = {}

    def work(number: int) -> None:
        for _ in range(50):
            info = log.append_many([b"%d" % number * 300] * 150)
            found[info.base_offset] = info.last_offset

    with kstore.open_log(tmp_path, segment_bytes=2 << 20) as log:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert log.log_end_offset == 6 * 50 * 150
        ends = [0, *(last + 1 for _, last in sorted(found.items()))]
        assert ends[:-1] == sorted(found)
        assert sum(1 for _ in log.records()) == log.log_end_offset


def test_arrow_columns_have_the_same_records(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many([(b"k", b"v", 5), (None, b"w", 6)])
        table = log.read_arrow(1)
    assert table.column("offset").to_pylist() == [1]
    assert table.column("value").to_pylist() == [b"w"]


# -- time


def test_offsets_are_found_by_time(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, segment_bytes=1000, index_interval_bytes=0) as log:
        for at in range(50):
            log.append(b"x" * 50, timestamp=1000 + at * 10)
        assert log.offset_for_timestamp(0) == (0, 1000)
        assert log.offset_for_timestamp(1205) == (21, 1210)
        assert log.offset_for_timestamp(1491) is None
        assert log.largest_timestamp() == (49, 1490)
        log.delete_before(30)
        assert log.offset_for_timestamp(0) == (30, 1300)


def test_log_append_time_is_the_clock_s(tmp_path: Path, clock: ManualClock) -> None:
    env = SystemEnv(clock=clock)
    with kstore.open_log(tmp_path, env=env, message_timestamp_type="LogAppendTime") as log:
        log.append(b"a", timestamp=5)
        info = log.append_batches(build_batch([b"b"], timestamp=6))
        assert info.log_append_time_ms == clock.ms
        assert [r.timestamp for r in log.records()] == [clock.ms] * 2


def test_timestamps_too_far_from_the_clock_are_refused(tmp_path: Path, clock: ManualClock) -> None:
    limits = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 500}
    with kstore.open_log(tmp_path, env=SystemEnv(clock=clock), **limits) as log:
        for wrong in (clock.ms - 1001, clock.ms + 501):
            with pytest.raises(InvalidTimestampError):
                log.append(b"x", timestamp=wrong)
            with pytest.raises(InvalidTimestampError):
                log.append_many([(None, b"x", clock.ms), (None, b"y", wrong)])
        assert log.append(b"x", timestamp=clock.ms - 1000) == 0


# -- segments


def test_segments_roll_by_size_time_and_index(tmp_path: Path, clock: ManualClock) -> None:
    env = SystemEnv(clock=clock)
    with kstore.open_log_dir(tmp_path, env=env) as folder:
        by_size = folder.log("size", config=LogConfig(segment_bytes=500))
        by_time = folder.log("time", config=LogConfig(segment_ms=100))
        by_index = folder.log(
            "index", config=LogConfig(segment_index_bytes=16, index_interval_bytes=0)
        )
        for at in range(10):
            for log in (by_size, by_time, by_index):
                log.append(b"x" * 50, timestamp=clock.ms + at * 60)
        assert [s.base_offset for s in by_size.segments] == [0, 4, 8]
        assert [s.base_offset for s in by_time.segments] == [0, 2, 4, 6, 8]
        assert [s.base_offset for s in by_index.segments] == [0, 3, 6, 9]
        assert all(len(values(log)) == 10 for log in (by_size, by_time, by_index))


def test_retention_deletes_whole_segments_by_time_and_size(
    tmp_path: Path, clock: ManualClock
) -> None:
    settings = {"segment_bytes": 500, "file_delete_delay_ms": 0}
    with kstore.open_log(
        tmp_path, env=SystemEnv(clock=clock), retention_ms=1000, retention_bytes=700, **settings
    ) as log:
        for _ in range(12):
            log.append(b"x" * 50)
        sizes = [segment.size_bytes for segment in log.segments]
        assert log.enforce_retention() == 1
        assert log.log_start_offset == log.segments[0].base_offset == 4
        assert log.size_bytes == sum(sizes[1:]) >= 700
        clock.ms += 1001
        assert log.enforce_retention() == 2
        assert (log.log_start_offset, log.log_end_offset) == (12, 12)
        assert log.append(b"y") == 12
        with pytest.raises(OffsetOutOfRangeError, match="12 to 13"):
            log.read(3)


def test_delete_before_hides_records_and_survives_reopening(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, segment_bytes=500) as log:
        for at in range(12):
            log.append(b"%d" % at * 40)
        log.delete_before(6)
        assert [s.base_offset for s in log.segments] == [
            s.base_offset for s in log.segments if s.next_offset > 6
        ]
        with pytest.raises(OffsetOutOfRangeError):
            log.delete_before(13)
    with kstore.open_log(tmp_path) as log:
        assert log.log_start_offset == 6
        assert len(values(log)) == 6


def test_truncation_cuts_at_a_batch_and_the_log_goes_on(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, segment_bytes=400, index_interval_bytes=0) as log:
        for _ in range(10):
            log.append_many([b"x" * 30] * 3, leader_epoch=log.log_end_offset // 9)
        assert log.truncate(16) == 15
        assert log.latest_epoch == 1
        assert log.append_many([b"new"]).base_offset == 15
        log.flush()
    with kstore.open_log(tmp_path) as log:
        assert values(log) == [b"x" * 30] * 15 + [b"new"]


def test_the_index_has_every_look_up_after_reopening(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, segment_bytes=40_000, index_interval_bytes=200) as log:
        for at in range(1000):
            log.append(b"%d" % at * 20)
    with kstore.open_log(tmp_path) as log:
        assert log.recovery.scanned_bytes == 0
        for at in range(0, 1000, 7):
            assert log.read(at, 1)[0].value == b"%d" % at * 20


# -- errors: the log is usable after each


def test_bad_batches_are_refused(tmp_path: Path) -> None:
    good = build_batch([b"x"])
    with kstore.open_log(tmp_path) as log:
        for bad in (b"", b"junk", good[:-1], good[:-1] + b"!"):
            with pytest.raises(CorruptBatchError):
                log.append_batches(bad)
        assert log.append_batches(good).base_offset == 0


def test_a_producer_id_without_a_sequence_is_refused_from_a_client(tmp_path: Path) -> None:
    batch = build_batch([b"a"], timestamp=1, producer_id=7, producer_epoch=0)
    with kstore.open_log(tmp_path) as log:
        with pytest.raises(CorruptBatchError):
            log.append_batches(batch)
        assert log.log_end_offset == 0


def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, max_message_bytes=1000, segment_bytes=2000) as log:
        with pytest.raises(RecordTooLargeError, match="1000"):
            log.append(b"x" * 1000)
        with pytest.raises(RecordTooLargeError):
            log.append_many([b"x" * 1000])
        with pytest.raises(RecordTooLargeError, match="segment"):
            log.append_many([b"x" * 500] * 10)
        assert log.append(b"x" * 500) == 0


def test_a_second_writer_is_told_who_has_it(tmp_path: Path) -> None:
    code = (
        "try:\n    kstore.open_log(path)\n"
        "except kstore.log.LogDirLockedError as error:\n    print(error)"
    )
    with kstore.open_log(tmp_path):
        assert f"pid {os.getpid()}" in run("import kstore.log\n" + code, tmp_path)
        with pytest.raises(LogDirLockedError):
            kstore.open_log(tmp_path)
    kstore.open_log(tmp_path).close()


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = kstore.open_log(tmp_path)
    log.append(b"x")
    log.close()
    log.close()
    for use in (lambda: log.append(b"y"), lambda: log.read(0), log.flush, lambda: log.truncate(0)):
        with pytest.raises(LogClosedError):
            use()


def test_a_log_opened_for_reading_refuses_changes(tmp_path: Path) -> None:
    with pytest.raises(LogNotFoundError):
        kstore.open_log(tmp_path / "none", read_only=True)
    with kstore.open_log(tmp_path) as writer:
        writer.append(b"x")
        with kstore.open_log(tmp_path, read_only=True) as log:
            for use in (lambda: log.append(b"y"), log.flush, log.roll):
                with pytest.raises(ReadOnlyLogError):
                    use()
            assert values(log) == [b"x"]


def test_damage_is_met_where_it_lies_and_nothing_is_deleted(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        for at in range(10):
            log.append(b"%d" % at * 50)
        size = log.size_bytes // 10
    path = tmp_path / "log-0" / f"{0:020d}.log"
    flip_bit(path, 5 * size + 70)
    (tmp_path / ".kstore.mdb").unlink()
    with kstore.open_log(tmp_path) as log:
        assert [(d.position, d.end_position) for d in log.recovery.damages] == [
            (5 * size, 6 * size)
        ]
        assert [r.offset for r in log.read(0)] == [0, 1, 2, 3, 4]
        with pytest.raises(CorruptLogError) as error:
            log.read(5)
        assert (error.value.segment, error.value.position) == (str(path), 5 * size)
        assert [r.offset for r in log.read(6)] == [6, 7, 8, 9]
        assert log.append(b"more") == 10
        assert path.stat().st_size > 10 * size


# -- flush policies


def test_always_returns_when_the_record_is_on_the_disk(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, flush="always") as log:
        for append in (lambda: log.append(b"x"), lambda: log.append_many([b"y"]).last_offset):
            offset = append()
            assert log.core.durable_offset == offset + 1


def test_concurrent_appenders_share_syncs_and_all_are_durable(tmp_path: Path) -> None:
    short: list[int] = []

    def work() -> None:
        for _ in range(20):
            offset = log.append(b"x")
            if log.core.durable_offset <= offset:
                short.append(offset)

    with kstore.open_log(tmp_path, flush="always") as log:
        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not short
        assert log.log_end_offset == log.core.durable_offset == 320


def test_interval_flushes_in_the_background(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, flush="interval", flush_interval_ms=10) as log:
        log.append(b"x")
        deadline = time.monotonic() + 20
        while log.core.durable_offset < 1 and time.monotonic() < deadline:
            time.sleep(0.005)
        assert log.core.durable_offset == 1


def test_who_must_not_wait_is_called_when_it_is_durable(tmp_path: Path) -> None:
    called = threading.Event()
    with kstore.open_log(tmp_path) as log:
        log.append(b"x")
        log.when_durable(1, called.set)
        assert called.wait(20)
        assert log.core.durable_offset == 1


# -- directories and other processes


def test_a_directory_holds_many_logs_with_kafka_s_names(tmp_path: Path) -> None:
    with kstore.open_log_dir(tmp_path) as folder:
        first = folder.log("orders", 3)
        first.append(b"x")
        folder.log("a.b_c-d")
        assert folder.log("orders", 3) is first
        assert [str(p) for p in folder.partitions()] == ["a.b_c-d-0", "orders-3"]
        assert folder.topic_id(first.topic_partition) == first.topic_id
        text = (tmp_path / "orders-3" / "partition.metadata").read_text()
        assert text.startswith("version: 0\ntopic_id: ")
        folder.delete(first.topic_partition)
        assert [str(p) for p in folder.partitions()] == ["a.b_c-d-0"]
        assert folder.log("orders", 3).log_end_offset == 0
        with pytest.raises(LogNotFoundError):
            folder.log("none", create=False)
        with pytest.raises(ValueError, match="legal"):
            folder.log("no/slash")


def test_a_reader_in_another_process_sees_appends_rolls_and_deletions(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, segment_bytes=300, file_delete_delay_ms=0) as log:
        log.append(b"first")
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, str(tmp_path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert reader.stdin is not None
        assert reader.stdout is not None

        def ask() -> list[str]:
            reader.stdin.write("\n")
            reader.stdin.flush()
            return reader.stdout.readline().split()

        try:
            assert ask() == ["0", "1", "1"]
            for _ in range(20):
                log.append(b"x" * 50)
            assert ask() == ["0", "21", "21"]
            log.delete_before(12)
            assert ask() == ["12", "21", "9"]
            log.truncate(15)
            log.append_many([b"y"] * 8)
            assert ask() == ["12", "23", "11"]
        finally:
            reader.stdin.close()
            reader.wait(20)


READER = """
import sys, kstore
log = kstore.open_log(sys.argv[1], read_only=True)
for line in sys.stdin:
    end = log.log_end_offset
    print(log.log_start_offset, end, len(list(log.records(end=end))), flush=True)
"""


def test_a_child_process_may_not_append_to_its_parent_s_log(tmp_path: Path) -> None:
    code = (
        "import os, warnings\n"
        "log = kstore.open_log(path); log.append(b'x')\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n        log.append(b'y')\n"
        "    except kstore.log.LogClosedError:\n        os._exit(7)\n"
        "    os._exit(1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), log.append(b'z'))"
    )
    assert run("import kstore.log\n" + code, tmp_path) == "7 1"
    with kstore.open_log(tmp_path) as log:
        assert values(log) == [b"x", b"z"]


def test_an_interpreter_that_ends_leaves_a_log_without_recovery(tmp_path: Path) -> None:
    run("log = kstore.open_log(path)\nfor _ in range(100): log.append(b'x')", tmp_path)
    with kstore.open_log(tmp_path) as log:
        assert (log.log_end_offset, log.recovery.scanned_bytes) == (100, 0)
