"""Named cursors: where they begin, what a commit keeps, and that they are consumer groups."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import kstore
from kstore.env import SystemEnv
from kstore.log import CursorInUseError, LogDir, OffsetOutOfRangeError
from kstore.log.cursors.group_offsets import OFFSETS_TOPIC, GroupOffsets, offsets_partition_for
from kstore.protocol.coordinator_records.classic import OffsetCommitKey, OffsetCommitValue
from kstore.protocol.coordinator_records.framing import decode_key, decode_value
from kstore.record import Record
from tests.log.handling import ManualClock, numbers


class SteppingClock(ManualClock):
    """The clock advances by a millisecond at each read."""

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_a_new_cursor_begins_at_the_log_start(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many(numbers(0, 10))
        log.delete_before(3)
        cursor = log.cursor("worker")
        assert (cursor.position, cursor.committed, cursor.lag) == (3, None, 7)
        assert values(cursor.poll(4)) == numbers(3, 7)
        assert (cursor.position, cursor.committed) == (7, None)


def test_a_cursor_goes_on_where_it_committed(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many(numbers(0, 10))
        cursor = log.cursor("worker")
        cursor.poll(4)
        assert cursor.commit(metadata="half of it") == 4
        cursor.poll(3)
    with kstore.open_log(tmp_path) as log:
        cursor = log.cursor("worker")
        assert (cursor.position, cursor.committed, cursor.metadata) == (4, 4, "half of it")
        assert values(list(cursor)) == numbers(4, 10)
        assert cursor.poll() == []


def test_names_and_partitions_are_apart(tmp_path: Path) -> None:
    with kstore.open_log_dir(tmp_path) as log_dir:
        first, second = log_dir.log("a"), log_dir.log("a", 1)
        for log in (first, second):
            log.append_many(numbers(0, 10))
        first.cursor("one").commit(3)
        second.cursor("one").commit(4)
        first.cursor("two").commit(5)
        found = [log.cursor(name).committed for log in (first, second) for name in ("one", "two")]
        assert found == [3, 5, 4, None]


def test_cursors_of_one_name_take_turns(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many(numbers(0, 10))
        first, second = log.cursor("worker"), log.cursor("worker")
        first.commit(6)
        assert (second.committed, second.position, second.lag) == (6, 6, 4)
        for use in (second.poll, second.commit, lambda: second.seek(1), lambda: list(second)):
            with pytest.raises(CursorInUseError, match="in use by this process") as caught:
                use()
            assert caught.value.process == os.getpid()
        first.commit(8)
        first.close()
        assert values(second.poll()) == numbers(8, 10)
        waiting = log.cursor("worker", wait=20)
        threading.Timer(0.05, second.close).start()
        waiting.delete()
        del waiting
        assert (first.committed, log.cursor("worker").position) == (None, 0)


def test_a_cursor_that_is_forgotten_lets_go(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many(numbers(0, 3))
        log.cursor("worker").commit(2)
        with log.cursor("worker") as cursor:
            assert values(cursor.poll()) == numbers(2, 3)
        assert values(log.cursor("worker").poll()) == numbers(2, 3)


def test_seek_moves_the_position_alone(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many(numbers(0, 10))
        cursor = log.cursor("worker")
        cursor.poll(2)
        cursor.seek(8)
        assert values(cursor.poll()) == numbers(8, 10)
        assert cursor.committed is None
        for offset in (-1, 11):
            with pytest.raises(OffsetOutOfRangeError):
                cursor.seek(offset)


def test_polling_goes_over_gaps_and_segments(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, segment_bytes=200) as log:
        log.append_many(numbers(0, 3))
        log.append_at(1000, numbers(3, 6))
        log.roll()
        log.append_at(5000, numbers(6, 9))
        cursor = log.cursor("worker")
        found = []
        while records := cursor.poll(2):
            found += values(records)
            cursor.commit()
        assert found == numbers(0, 9)
        assert cursor.committed == log.log_end_offset


def test_poll_waits_for_a_record(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        cursor = log.cursor("worker")
        assert cursor.poll(timeout=0.01) == []
        threading.Timer(0.05, log.append, [b"x"]).start()
        assert values(cursor.poll(timeout=30)) == [b"x"]


def test_a_position_that_was_deleted_is_told_not_skipped(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many(numbers(0, 5))
        log.append_many(numbers(5, 10))
        log.cursor("slow").commit(2)
        log.delete_before(6)
        cursor = log.cursor("slow")
        with pytest.raises(OffsetOutOfRangeError) as caught:
            cursor.poll()
        cursor.seek(caught.value.log_start_offset)
        assert values(cursor.poll()) == numbers(6, 10)


def test_a_position_behind_a_truncated_end_is_told(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        for value in numbers(0, 10):
            log.append(value)
        cursor = log.cursor("worker")
        cursor.poll()
        log.truncate(5)
        with pytest.raises(OffsetOutOfRangeError):
            cursor.poll()


def test_commits_outside_the_log_and_empty_names_are_refused(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        with pytest.raises(ValueError, match="can't commit offset 1"):
            log.cursor("worker").commit(1)
        with pytest.raises(ValueError, match="name is empty"):
            log.cursor("")


def test_a_reader_commits_while_the_writer_lives(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many(numbers(0, 5))
        program = (
            "import kstore, sys\n"
            "log = kstore.open_log(sys.argv[1], read_only=True)\n"
            "cursor = log.cursor('worker')\n"
            "print([int(record.value) for record in cursor.poll(2)], cursor.commit(metadata='x'))\n"
            "sys.stdout.flush(); sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        ) as child:  # fmt: skip
            assert child.stdout is not None
            assert child.stdout.readline() == "[0, 1] 2\n"
            cursor = log.cursor("worker")
            assert (cursor.committed, cursor.metadata) == (2, "x")
            with pytest.raises(CursorInUseError, match=f"process {child.pid}"):
                cursor.poll()
            child.kill()  # -9
            child.wait()
        assert values(cursor.poll()) == numbers(2, 5)


def test_a_folder_shows_the_log_alone(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, topic="orders") as log:
        log.append(b"x")
        log.cursor("worker").commit(1)
        assert [path.name for path in tmp_path.iterdir() if path.name[0] != "."] == ["orders-0"]


def test_a_torn_commit_leaves_the_one_before(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many(numbers(0, 9))
        with log.cursor("worker") as cursor:
            for offset in range(1, 6):
                cursor.commit(offset, metadata="m" * offset)
        (path,) = (tmp_path / ".cursors").iterdir()
        good = path.read_bytes()
        # The fifth is in one place and the fourth in the other.
        newest = good.index(b"mmmmm")
        path.write_bytes(good[:newest] + b"?" + good[newest + 1 :])
        assert log.cursor("worker").committed == 4
        path.write_bytes(good[: newest + 3])
        assert log.cursor("worker").committed in {None, 4}
        path.write_bytes(b"\xff" * len(good))
        assert log.cursor("worker").committed is None
        with pytest.raises(ValueError, match="the limit is 8192"):
            log.cursor("worker").commit(1, metadata="m" * 9000)
        with pytest.raises(ValueError, match="too long"):
            log.cursor("w" * 256)


def test_a_log_made_anew_has_no_old_cursors(tmp_path: Path) -> None:
    with kstore.open_log_dir(tmp_path) as log_dir:
        log = log_dir.log("orders")
        log.append_many(numbers(0, 9))
        log.cursor("worker").commit(5)
        log_dir.delete(log.topic_partition)
        log = log_dir.log("orders")
        log.append_many(numbers(0, 9))
        assert log.cursor("worker").position == 0


def test_a_child_has_not_the_parents_cursor(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many(numbers(0, 9))
        cursor = log.cursor("worker")
        cursor.poll(3)
        child = os.fork()
        if child == 0:
            os._exit(0 if cursor._file.is_held is False else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(CursorInUseError):
            log.cursor("worker").poll()
        assert cursor.commit() == 3


@pytest.mark.parametrize(
    ("name", "partitions", "expected"),
    # From Java: Math.abs(name.hashCode()) % partitions.
    [
        ("", 50, 0),
        ("a", 50, 47),
        ("test", 50, 48),
        ("hello", 50, 22),
        ("polygenelubricants", 50, 0),
    ],
)
def test_the_partition_is_that_of_kafkas_groups(name: str, partitions: int, expected: int) -> None:
    assert offsets_partition_for(name, partitions) == expected


def group_record(log_dir: LogDir, name: str) -> tuple[OffsetCommitKey, OffsetCommitValue | None]:
    """The last commit of a group."""
    record = list(log_dir.log(OFFSETS_TOPIC, offsets_partition_for(name, 50)).records())[-1]
    assert record.key is not None
    key = decode_key(record.key)
    assert isinstance(key, OffsetCommitKey)
    if record.value is None:
        return key, None
    value, version = decode_value(key, record.value)
    assert isinstance(value, OffsetCommitValue)
    assert version == 3
    return key, value


def test_cursors_become_groups_in_a_whole_topic(tmp_path: Path) -> None:
    with kstore.open_log_dir(tmp_path) as log_dir:
        log = log_dir.log("orders", 3)
        log.append_many(numbers(0, 9))
        log.cursor("worker").commit(1, metadata="m")
        assert log_dir.committed_offsets.give_to_groups() == 1
        assert log_dir.committed_offsets.give_to_groups() == 0
        made = [tp.partition for tp in log_dir.partitions() if tp.topic == OFFSETS_TOPIC]
        assert made == list(range(50))
        offsets = log_dir.log(OFFSETS_TOPIC, offsets_partition_for("worker", 50))
        assert offsets.config.cleanup_policy == ("compact",)
        key, value = group_record(log_dir, "worker")
        assert key == OffsetCommitKey(group="worker", topic="orders", partition=3)
        assert value is not None
        assert (value.offset, value.metadata) == (1, "m")


def test_what_was_committed_later_counts(tmp_path: Path) -> None:
    clock = SteppingClock(1_700_000_000_000)
    with kstore.open_log_dir(tmp_path, env=SystemEnv(clock=clock)) as log_dir:
        log = log_dir.log("orders")
        log.append_many(numbers(0, 9))
        groups = GroupOffsets(log_dir)
        cursor = log.cursor("worker")
        cursor.commit(1)
        log_dir.committed_offsets.give_to_groups()
        assert cursor.committed == 1
        # The group continues, as it does in a broker.
        value = OffsetCommitValue(offset=4, commit_timestamp=clock.now_ms())
        groups.commit("worker", log.topic_partition, value)
        assert (cursor.committed, log.cursor("worker").position) == (4, 4)
        # Then the cursor.
        cursor.commit(6)
        assert cursor.committed == 6
        log_dir.committed_offsets.give_to_groups()
        found = group_record(log_dir, "worker")[1]
        assert found is not None
        assert found.offset == 6
        # A group that is deleted in the broker has no offset that could come back.
        groups.commit("worker", log.topic_partition, None)
        assert cursor.committed is None
        assert log_dir.committed_offsets.give_to_groups() == 0
        cursor.commit(2)
        cursor.delete()
        cursor.commit(3)
        assert log_dir.committed_offsets.give_to_groups() == 1
        cursor.delete()
        assert log_dir.committed_offsets.give_to_groups() == 1
        assert group_record(log_dir, "worker")[1] is None


def test_the_count_of_partitions_that_a_directory_has_is_kept(tmp_path: Path) -> None:
    with kstore.open_log_dir(tmp_path) as log_dir:
        for index in range(4):
            log_dir.log(OFFSETS_TOPIC, index)
        log = log_dir.log("a")
        log.append(b"x")
        log.cursor("worker").commit(1)
        log_dir.committed_offsets.give_to_groups()
        offsets = log_dir.log(OFFSETS_TOPIC, offsets_partition_for("worker", 4))
        assert offsets.log_end_offset == 1
