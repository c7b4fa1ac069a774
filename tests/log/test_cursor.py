"""Named cursors: where they begin, what a commit keeps, and that they are consumer groups."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import kstore
from kstore.log import OffsetOutOfRangeError, ReadOnlyLogError
from kstore.log.cursor import OFFSETS_TOPIC, offsets_partition_for
from kstore.protocol.coordinator_records.classic import OffsetCommitKey, OffsetCommitValue
from kstore.protocol.coordinator_records.framing import decode_key, decode_value
from kstore.record import Record


def values(records: list[Record]) -> list[bytes | None]:
    """The values of records."""
    return [record.value for record in records]


def numbers(start: int, end: int) -> list[bytes]:
    """Values in order."""
    return [b"%d" % number for number in range(start, end)]


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


def test_cursors_of_one_name_see_each_others_commits(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many(numbers(0, 10))
        first, second = log.cursor("worker"), log.cursor("worker")
        first.commit(6)
        assert second.committed == 6
        second.delete()
        assert (first.committed, log.cursor("worker").position) == (None, 0)


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


def test_a_read_only_log_has_cursors_that_can_not_commit(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many(numbers(0, 5))
        cursor = log.cursor("worker")
        cursor.commit(2)
        with kstore.open_log(tmp_path, read_only=True) as reader:
            seen = reader.cursor("worker")
            assert (seen.committed, values(seen.poll(2))) == (2, numbers(2, 4))
            cursor.commit(3)
            assert seen.committed == 3
            with pytest.raises(ReadOnlyLogError, match="commit in the process that writes"):
                seen.commit()


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


def test_commits_are_kafkas_records_in_a_whole_topic(tmp_path: Path) -> None:
    with kstore.open_log_dir(tmp_path) as log_dir:
        log = log_dir.log("orders", 3)
        log.append(b"x")
        log.cursor("worker").commit(1, metadata="m")
        made = [tp.partition for tp in log_dir.partitions() if tp.topic == OFFSETS_TOPIC]
        assert made == list(range(50))
        offsets = log_dir.log(OFFSETS_TOPIC, offsets_partition_for("worker", 50))
        assert offsets.config.cleanup_policy == ("compact",)
        (record,) = offsets.records()
        assert record.key is not None
        assert record.value is not None
        key = decode_key(record.key)
        value, version = decode_value(key, record.value)
        assert key == OffsetCommitKey(group="worker", topic="orders", partition=3)
        assert isinstance(value, OffsetCommitValue)
        assert (value.offset, value.metadata, version) == (1, "m", 3)


def test_the_count_that_a_directory_has_is_kept(tmp_path: Path) -> None:
    with kstore.open_log_dir(tmp_path) as log_dir:
        for index in range(4):
            log_dir.log(OFFSETS_TOPIC, index)
        log = log_dir.log("a")
        log.append(b"x")
        log.cursor("worker").commit(1)
        offsets = log_dir.log(OFFSETS_TOPIC, offsets_partition_for("worker", 4))
        assert offsets.log_end_offset == 1


def test_commits_survive_compaction_of_their_topic(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log:
        log.append_many(numbers(0, 100))
        cursor = log.cursor("worker")
        offsets = log.log_dir.log(OFFSETS_TOPIC, offsets_partition_for("worker", 50))
        for offset in range(60):
            cursor.commit(offset)
            if offset % 10 == 0:
                offsets.roll()
        offsets = log.log_dir.log(OFFSETS_TOPIC, offsets_partition_for("worker", 50))
        offsets.compact()
        assert len(list(offsets.records())) < 20
    with kstore.open_log(tmp_path) as log:
        assert log.cursor("worker").committed == 59
