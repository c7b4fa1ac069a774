"""Compaction of a whole log: which segments, which transactions, what a crash leaves, when it is
due.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log import CorruptLogError, Log
from kstore.log.offline.verify import verify
from kstore.log.retention.cleaned_transactions import ABORT, COMMIT, DATA, CleanedTransactions
from kstore.log.retention.cleaner import clean, measure
from kstore.record import (
    ControlType,
    batches,
    build_batch,
)
from tests.log.handling import flip_bit, remove_index
from tests.record.producer_batches import marker, produced

SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact", "segment_bytes": 1000, "retention_ms": -1,
}  # fmt: skip


def compacted(path: Path, **changes: Any) -> Log:
    """A log with cleanup.policy=compact."""
    return kstore.open_log(path, **{**SETTINGS, **changes})


def rows(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of all records."""
    return [(record.offset, record.key, record.value) for record in log.records()]


def fill(log: Log, count: int, keys: int = 5) -> None:
    """Append ``count`` records over a few keys."""
    for number in range(count):
        log.append(b"%d" % number, b"key %d" % (number % keys))


def test_each_key_keeps_its_last_record_below_the_active_segment(tmp_path: Path) -> None:
    with compacted(tmp_path) as log:
        fill(log, 100)
        before = rows(log)
        active = log.segments[-1].base_offset
        report = log.compact()
        last = {key: offset for offset, key, _ in before if offset < active}
        assert rows(log) == [r for r in before if r[0] >= active or last[r[1]] == r[0]]
        assert (report.end_offset, report.records_kept) == (active, 5)
        assert report.bytes_after < report.bytes_before
        assert (log.log_start_offset, log.log_end_offset) == (0, 100)
    assert verify(tmp_path).problem_count == 0


def test_small_segments_become_one(tmp_path: Path) -> None:
    with compacted(tmp_path) as log:
        fill(log, 200)
        log.compact()
        count = len(log.segments)
        fill(log, 50)
        log.compact()
        assert len(log.segments) < count
        assert [s.base_offset for s in log.segments] == sorted(s.base_offset for s in log.segments)
    with compacted(tmp_path) as log:
        assert {key for _, key, _ in rows(log)} == {b"key %d" % n for n in range(5)}


def test_a_log_that_is_not_compacted_is_refused(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log, pytest.raises(ValueError, match="compact"):
        log.compact()


def test_tombstones_go_after_their_horizon(tmp_path: Path) -> None:
    with compacted(tmp_path, delete_retention_ms=1000) as log:
        log.append(b"1", b"gone")
        log.append(None, b"gone")
        log.roll()
        now = log.log_dir.now_ms()
        log.compact(now)
        assert rows(log) == [(1, b"gone", None)]
        log.compact(now + 999)
        assert rows(log) == [(1, b"gone", None)]
        log.compact(now + 1000)
        assert rows(log) == []
        assert (log.log_end_offset, log.append(b"2", b"gone")) == (2, 2)


def test_young_records_stay_for_min_compaction_lag(tmp_path: Path) -> None:
    with compacted(tmp_path, min_compaction_lag_ms=1000) as log:
        for timestamp in (10_000, 10_400, 20_000):
            log.append(b"x", b"k", timestamp)
            log.roll()
        assert measure(log.local, 10_900, None).first_uncleanable_offset == 0
        assert measure(log.local, 11_100, None).first_uncleanable_offset == 1
        assert measure(log.local, 11_500, None).first_uncleanable_offset == 2
        log.compact(11_500)
        assert [offset for offset, _, _ in rows(log)] == [1, 2]


def test_what_is_overdue_by_max_compaction_lag_is_told(tmp_path: Path) -> None:
    with compacted(tmp_path, max_compaction_lag_ms=500) as log:
        log.append(b"x", b"k", 10_000)
        log.roll()
        assert measure(log.local, 10_400, None).overdue_ms == 0
        assert measure(log.local, 10_700, None).overdue_ms == 200
        assert measure(log.local, 10_700, 1).overdue_ms == 0


def test_the_dirty_ratio_counts_what_was_not_cleaned(tmp_path: Path) -> None:
    with compacted(tmp_path) as log:
        fill(log, 100, keys=100)
        assert measure(log.local, 0, None).ratio == 1.0
        end = log.compact().end_offset
        assert measure(log.local, 0, end).ratio == 0.0
        fill(log, 100, keys=100)
        assert 0.3 < measure(log.local, 0, end).ratio < 0.7
        assert measure(log.local, 0, log.log_end_offset + 5).first_dirty_offset == 0


def test_a_small_map_cleans_in_several_rounds(tmp_path: Path) -> None:
    with compacted(tmp_path) as log:
        fill(log, 200, keys=60)
        expected = {key: value for _, key, value in rows(log)}
        ends = []
        done: int | None = None
        while done is None or done < log.segments[-1].base_offset:
            dirt = measure(log.local, 0, done)
            done = clean(log.local, dirt, 0, dedupe_buffer_bytes=24 * 45).end_offset
            ends.append(done)
            assert {key: value for _, key, value in rows(log)} == expected
        assert len(ends) > 3
        assert ends == sorted(set(ends))


def test_nothing_is_changed_where_a_batch_is_damaged(tmp_path: Path) -> None:
    with compacted(tmp_path) as log:
        fill(log, 60)
        segment = Path(log.segments[2].path)
        flip_bit(segment, -1)
        names = sorted(path.name for path in segment.parent.iterdir())
        with pytest.raises(CorruptLogError) as caught:
            log.compact()
        assert caught.value.segment == str(segment)
        assert sorted(path.name for path in segment.parent.iterdir()) == names
        assert log.append(b"usable", b"k") == 60


def test_sequences_of_active_producers_survive(tmp_path: Path) -> None:
    def send(log: Log, sequence: int) -> Any:
        batch = build_batch(
            [(b"k", b"%d" % sequence)], producer_id=4, producer_epoch=1, base_sequence=sequence
        )
        return log.append_batches(batch)

    with compacted(tmp_path) as log:
        for sequence in range(30):
            send(log, sequence)
        fill(log, 40)
        log.append(b"other", b"k")
        log.roll()
        log.compact()
    remove_index(tmp_path)
    with compacted(tmp_path) as log:
        assert send(log, 29).duplicate
        assert not send(log, 30).duplicate


# -- transactions


def test_aborted_data_goes_and_its_marker_only_then() -> None:
    walk = CleanedTransactions([(7, 10)])
    assert not walk.may_discard(8, 9, DATA)
    assert walk.may_discard(7, 10, DATA)
    assert not walk.may_discard(7, 11, ABORT)
    assert not walk.may_discard(8, 12, COMMIT)
    # The next walk meets no batch of either before the markers.
    walk = CleanedTransactions()
    assert walk.may_discard(7, 11, ABORT)
    assert walk.may_discard(8, 12, COMMIT)
    assert walk.may_discard(8, 13, -1)
    assert not walk.may_discard(8, 14, 5)


def transaction(log: Log, producer_id: int, keys: list[bytes], end: ControlType) -> None:
    """A whole transaction of one producer."""
    for key in keys:
        row = key, b"of %d" % producer_id
        log.append_batches(produced(row, producer=producer_id, transactional=True))
    ended = marker(end, producer_id, timestamp=log.log_dir.now_ms())
    log.append_batches(ended, origin="coordinator")


def test_transactions_are_cleaned_as_kafka_does(tmp_path: Path) -> None:
    with compacted(tmp_path, delete_retention_ms=1000) as log:
        transaction(log, 1, [b"a"], ControlType.COMMIT)
        transaction(log, 2, [b"a"], ControlType.ABORT)
        transaction(log, 3, [b"b"], ControlType.COMMIT)
        log.roll()
        committed = [
            (r.key, r.value)
            for r in log.read(0, isolation="read_committed")
        ]  # fmt: skip
        assert committed == [(b"a", b"of 1"), (b"b", b"of 3")]
        now = log.log_dir.now_ms()
        log.compact(now)
        after = [(r.key, r.value) for r in log.records(isolation="read_committed")]
        assert after == committed
        assert b"of 2" not in [r.value for r in log.records()]
        log.append(b"new", b"a")
        log.roll()
        log.compact(now + 1)
        log.compact(now + 5000)
        data = b"".join(log.read_batches(s.base_offset) for s in log.segments[:-1] if s.size_bytes)
        kinds = [(b.base_offset, b.records_count, b.is_control) for b in batches(data)]
        # The first transaction has no records left: its marker went with its horizon, but the last
        # batches of producers that are still known stay, emptied where nothing in them counts.
        assert (4, 1, False) in kinds
        assert [r.value for r in log.records(isolation="read_committed")] == [b"of 3", b"new"]
    assert verify(tmp_path).problem_count == 0


def test_an_open_transaction_stops_the_cleaner(tmp_path: Path) -> None:
    with compacted(tmp_path) as log:
        log.append(b"1", b"a")
        log.roll()
        log.append_batches(
            build_batch(
                [(b"a", b"open")], producer_id=1, producer_epoch=0, base_sequence=0,
                transactional=True,
            )
        )  # fmt: skip
        log.roll()
        assert log.last_stable_offset == 1
        log.compact()
        assert [offset for offset, _, _ in rows(log)] == [0, 1]


# -- what a crash leaves


@pytest.mark.slow
def test_every_state_that_a_crash_in_a_swap_leaves_is_finished(tmp_path: Path) -> None:
    states: list[Path] = []
    source = tmp_path / "source"

    def snapshot() -> None:
        states.append(tmp_path / f"state-{len(states)}")
        shutil.copytree(source, states[-1])

    with compacted(source) as log:
        fill(log, 60)
        expected = {key: value for _, key, value in rows(log)}
        fs = log.log_dir.env.fs
        for name in ("replace", "unlink", "fsync_dir"):
            original = getattr(fs, name)

            def traced(*arguments: Any, original: Any = original) -> Any:
                snapshot()
                return original(*arguments)

            setattr(fs, name, traced)
        log.compact()
        snapshot()
    assert len(states) > 10
    for state in states:
        for without_index in (False, True):
            copy = tmp_path / "copy"
            shutil.copytree(state, copy)
            if without_index:
                remove_index(copy)
            with compacted(copy) as log:
                assert {key: value for _, key, value in rows(log)} == expected
                assert log.recovery.damages == []
                assert log.log_end_offset == 60
                log.compact()
                assert {key: value for _, key, value in rows(log)} == expected
            assert verify(copy).problem_count == 0
            left = [p.name for p in (copy / "log-0").iterdir() if p.suffix in {".swap", ".cleaned"}]
            assert left == []
            shutil.rmtree(copy)
