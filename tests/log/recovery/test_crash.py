"""kill -9 at random moments, hundreds of times: acknowledged records are there, in order, once.

Each scenario keeps its directory over all its kills, so that crashes fall on crashes. The parent
opens the log after each kill (which recovers it), compares, and closes it; the next child continues
from there.
"""

from __future__ import annotations

import random
import struct
import threading
from pathlib import Path

import pytest

import kstore
from kstore.log import Log
from tests.log.shared.writers import Say, killed_run

pytestmark = pytest.mark.slow

_VALUE = struct.Struct(">qqq")


@pytest.fixture(params=[12, pytest.param(28, marks=pytest.mark.thorough)])
def kills(request: pytest.FixtureRequest) -> int:
    """How often a scenario is killed: 40 times by `make test` and `make test-all` together."""
    return int(request.param)


def value(run: int, thread: int, number: int) -> bytes:
    """A record that says who wrote it."""
    return _VALUE.pack(run, thread, number) + b"." * (number % 60)


def parse(data: bytes | None) -> tuple[int, int, int]:
    """(run, thread, number) of a record."""
    run, thread, number = _VALUE.unpack(data[: _VALUE.size])
    return run, thread, number


def contents(log: Log) -> list[tuple[int, tuple[int, int, int]]]:
    """(offset, record) of everything in the log."""
    return [(record.offset, parse(record.value)) for record in log.records()]


def check_reopened(log: Log) -> None:
    """Whatever happened, recovery found no damage but a torn tail."""
    assert log.recovery.damages == []


@pytest.mark.parametrize(
    "flush", ["os", pytest.param("interval", marks=pytest.mark.thorough), "always"]
)
def test_acknowledged_records_are_there_in_order_once(
    tmp_path: Path, kills: int, flush: str
) -> None:
    chance = random.Random(flush)
    settings = {"flush": flush, "segment_bytes": 2_000, "index_interval_bytes": 200}
    before: list[tuple[int, tuple[int, int, int]]] = []
    for run in range(kills):

        def work(acknowledge: Say, run: int = run) -> None:
            log = kstore.open_log(tmp_path, **settings)
            acknowledge(-1, 0, 0)
            number = 0
            while True:
                count = number % 5 + 1
                if count == 1:
                    log.append(value(run, 0, number))
                else:
                    log.append_many([value(run, 0, number + at) for at in range(count)])
                number += count
                acknowledge(number, log.log_end_offset, 0)

        acknowledged = killed_run(work, chance)
        with kstore.open_log(tmp_path, **settings) as log:
            check_reopened(log)
            found = contents(log)
        assert found[: len(before)] == before
        new = found[len(before) :]
        assert [offset for offset, _ in found] == list(range(len(found)))
        assert [row for _, row in new] == [(run, 0, number) for number in range(len(new))]
        numbers, end_offsets, _ = acknowledged[-1]
        assert len(new) >= numbers
        assert len(found) >= end_offsets
        before = found


def test_concurrent_appenders_with_group_commit(tmp_path: Path, kills: int) -> None:
    chance = random.Random(7)
    threads = 4
    before = 0
    for run in range(kills):

        def work(acknowledge: Say, run: int = run) -> None:
            log = kstore.open_log(tmp_path, flush="always", segment_bytes=3_000)
            acknowledge(-1, -1, -1)

            def append(thread: int) -> None:
                number = 0
                while True:
                    offset = log.append(value(run, thread, number))
                    acknowledge(thread, number, offset)
                    number += 1

            for thread in range(threads):
                threading.Thread(target=append, args=(thread,), daemon=True).start()

        acknowledged = killed_run(work, chance, most_ms=30)
        with kstore.open_log(tmp_path) as log:
            check_reopened(log)
            found = [(r.offset, parse(r.value)) for r in log.records(before)]
            before = log.log_end_offset
        at = dict(found)
        for thread, number, offset in acknowledged[1:]:
            assert at[offset] == (run, thread, number)
        for thread in range(threads):
            numbers = [number for _, (_, by, number) in found if by == thread]
            assert numbers == list(range(len(numbers)))


def test_retention_deletes_only_from_the_start(tmp_path: Path, kills: int) -> None:
    chance = random.Random(11)
    settings = {"segment_bytes": 1_500, "retention_bytes": 6_000}
    for run in range(kills):

        def work(acknowledge: Say, run: int = run) -> None:
            log = kstore.open_log(tmp_path, **settings)
            acknowledge(log.log_end_offset, log.log_start_offset, 0)
            number = 0
            while True:
                log.append_many([value(run, 0, number + at) for at in range(7)])
                number += 7
                acknowledge(log.log_end_offset, log.log_start_offset, 0)
                log.enforce_retention()
                if number % 5 == 0:
                    log.delete_before(log.log_start_offset + 3)
                acknowledge(log.log_end_offset, log.log_start_offset, 0)

        acknowledged = killed_run(work, chance)
        end, start, _ = acknowledged[-1]
        with kstore.open_log(tmp_path, **settings) as log:
            check_reopened(log)
            assert log.log_end_offset >= end
            assert log.log_start_offset >= start
            found = [record.offset for record in log.records()]
            assert found == list(range(log.log_start_offset, log.log_end_offset))


def test_compaction_keeps_the_last_acknowledged_value_of_each_key(
    tmp_path: Path, kills: int
) -> None:
    chance = random.Random(13)
    settings = {
        "segment_bytes": 1_000, "cleanup_policy": "compact", "delete_retention_ms": 0,
    }  # fmt: skip
    known: dict[bytes, int] = {}
    total = 0
    for _ in range(kills):

        def work(acknowledge: Say, total: int = total) -> None:
            log = kstore.open_log(tmp_path, **settings)
            acknowledge(-1, -1, -1)
            # The cleaner runs beside the appends, all the time.
            threading.Thread(
                target=lambda: [log.compact() for _ in iter(int, 1)], daemon=True
            ).start()
            number = total
            while True:
                key = number % 7
                log.append(b"%d" % number if number % 3 else None, b"%d" % key)
                acknowledge(key, number, 0)
                number += 1

        acknowledged = killed_run(work, chance, most_ms=30)
        for key, number, _ in acknowledged[1:]:
            known[b"%d" % key] = number
            total = number + 1
        with kstore.open_log(tmp_path, **settings) as log:
            check_reopened(log)
            records = list(log.records())
            end = log.log_end_offset
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        last = {record.key: record for record in records}
        for key, number in known.items():
            if key in last and last[key].offset >= total:
                # Written, but no longer acknowledged.
                continue
            if number % 3:
                assert last[key].value == b"%d" % number
            elif key in last:
                assert last[key].value is None
        total = end
        for record in records:
            assert record.key is not None
            known[record.key] = max(known.get(record.key, -1), record.offset)


def test_a_cursor_goes_on_from_its_last_acknowledged_commit(tmp_path: Path, kills: int) -> None:
    chance = random.Random(17)
    committed = 0
    for run in range(kills):

        def work(acknowledge: Say, run: int = run) -> None:
            log = kstore.open_log(tmp_path, segment_bytes=4_000)
            log.append_many([value(run, 0, number) for number in range(50)])
            cursor = log.cursor("worker")
            acknowledge(cursor.position, -1, log.log_end_offset)
            while records := cursor.poll(3):
                acknowledge(cursor.commit(), records[0].offset, len(records))

        acknowledged = killed_run(work, chance)
        position, _, _ = acknowledged[0]
        assert position >= committed
        expected = position
        for commit, first, count in acknowledged[1:]:
            assert (first, commit) == (expected, first + count)
            expected = commit
        with kstore.open_log(tmp_path) as log:
            committed = log.cursor("worker").committed or 0
            assert committed >= expected
            assert committed <= expected + 3
