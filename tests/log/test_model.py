"""The log against a model: random histories of appends, cuts, rolls, deletions, cleanings and
reopenings, compared on every way to read. A crash here is a process that ends without closing.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import kstore
from kstore.env import SystemEnv
from kstore.log import InvalidProduceOffsetError, Log, OffsetOutOfRangeError
from kstore.record import batches
from tests.log.handling import ManualClock, remove_index
from tests.reference.log_model import LogModel, ModelRecord

KEYS = st.sampled_from([None, b"a", b"b", b"c", b"d"])
VALUES = st.sampled_from([None, b"", b"1", b"22" * 40])
RECORDS = st.lists(st.tuples(KEYS, VALUES, st.integers(1_000, 9_000)), min_size=1, max_size=8)
COMPRESSIONS = st.sampled_from(["none", "none", "zstd", "lz4", "gzip", "snappy"])
DAY_MS = 86_400_000


def kept(record: Any) -> ModelRecord:
    """A record as the model has it."""
    return ModelRecord(record.offset, record.timestamp, record.key, record.value)


class LogMachine(RuleBasedStateMachine):
    """One log, all its operations, and its expected state."""

    topic_configs: ClassVar[dict[str, Any]] = {}

    @initialize(
        segment_bytes=st.sampled_from([400, 1000, 1 << 20]), interval=st.sampled_from([0, 300])
    )
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.folder = tempfile.mkdtemp(prefix="kstore-model-")
        self.clock = ManualClock(10_000)
        self.configs = {
            "segment_bytes": segment_bytes, "index_interval_bytes": interval,
            "retention_ms": -1, "delete_retention_ms": 5_000, **self.topic_configs,
        }  # fmt: skip
        self.model = LogModel()
        self.epoch = 0
        self.log = self.open()

    def open(self) -> Log:
        return kstore.open_log(self.folder, env=SystemEnv(clock=self.clock), **self.configs)

    def teardown(self) -> None:
        """Close and remove it."""
        if hasattr(self, "log"):
            self.log.close()
            shutil.rmtree(self.folder)

    def too_large(self, records: list[Any]) -> bool:
        """Whether a batch of these would not fit into a segment."""
        size = 200 + sum(len(k or b"") + len(v or b"") + 30 for k, v, _ in records)
        return size > self.configs["segment_bytes"]

    # -- appends

    @rule(record=RECORDS.map(lambda records: records[0]))
    def append(self, record: tuple[bytes | None, bytes | None, int]) -> None:
        key, value, timestamp = record
        offset = self.log.append(value, key, timestamp)
        # It takes the log's latest epoch, which a truncation may have taken back.
        epoch = self.model.epochs[-1][0] if self.model.epochs else 0
        assert offset == self.model.append([record], epoch)

    @rule(records=RECORDS, compression=COMPRESSIONS, bump=st.booleans())
    def append_many(self, records: list[Any], compression: str, bump: bool) -> None:
        if self.too_large(records):
            return
        self.epoch += bump
        info = self.log.append_many(records, compression=compression, leader_epoch=self.epoch)
        assert info.base_offset == self.model.append(records, self.epoch)
        assert info.last_offset == self.model.end - 1

    @rule(records=RECORDS, gap=st.sampled_from([0, 0, 1, 7, 1000, 3 * 2**31]))
    def append_at(self, records: list[Any], gap: int) -> None:
        if self.too_large(records) or self.model.end > 2**40:
            return
        base = self.model.end + gap
        info = self.log.append_at(base, records, leader_epoch=self.epoch)
        assert info.base_offset == self.model.append(records, self.epoch, base) == base

    @rule(records=RECORDS, back=st.integers(1, 5))
    def append_below_the_end_is_refused(self, records: list[Any], back: int) -> None:
        base = self.model.end - back
        if base < 0 or self.too_large(records):
            return
        with pytest.raises(InvalidProduceOffsetError) as caught:
            self.log.append_at(base, records)
        assert caught.value.log_end_offset == self.model.end

    # -- what shortens it

    def some_offset(self, fraction: float) -> int:
        """An offset between the log's start and end; rather one that a batch is near."""
        low, high = self.model.start, self.model.end
        marks = [b.base_offset for b in self.model.batches] + [
            b.last_offset for b in self.model.batches
        ]
        near = [m + d for m in marks for d in (0, 1) if low <= m + d <= high] or [low]
        near.sort()
        return near[int(fraction * (len(near) - 1))]

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        offset = self.some_offset(fraction)
        end = self.log.truncate(offset)
        self.model.truncate(offset, end)
        if not self.model.batches:
            # Deleted records that are still in a segment may keep their epoch known.
            self.model.epochs = self.log.core.epochs.as_list()

    @rule(fraction=st.floats(0, 1))
    def delete_before(self, fraction: float) -> None:
        offset = self.some_offset(fraction)
        self.log.delete_before(offset)
        self.model.delete_before(offset)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(keep=st.integers(0, 1500))
    def retention_by_size(self, keep: int) -> None:
        before = self.log.size_bytes
        self.log.configure(self.log.config.with_changes(retention_bytes=keep))
        self.log.enforce_retention()
        self.log.configure(self.log.config.with_changes(retention_bytes=-1))
        first = self.log.segments[0].base_offset
        if self.log.config.deletes and before > keep:
            self.model.delete_before(first)
        self.model.delete_before(self.log.log_start_offset)

    @rule(age=st.integers(0, 10_000))
    def retention_by_time(self, age: int) -> None:
        self.log.configure(self.log.config.with_changes(retention_ms=age))
        self.log.enforce_retention(11_000)
        self.log.configure(self.log.config.with_changes(retention_ms=-1))
        self.model.delete_before(self.log.log_start_offset)

    # -- reopening

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = self.open()
        assert self.log.recovery.truncated_bytes == 0

    @rule()
    def crash_and_reopen(self) -> None:
        copy = tempfile.mkdtemp(prefix="kstore-model-")
        shutil.copytree(self.folder, copy, dirs_exist_ok=True)
        self.log.close()
        shutil.rmtree(self.folder)
        self.folder = copy
        self.log = self.open()
        assert self.log.recovery.truncated_bytes == 0
        self.forget_epochs_without_records()

    @rule()
    def reopen_without_its_index(self) -> None:
        looked_up = self.look_ups()
        self.log.close()
        remove_index(Path(self.folder))
        self.log = self.open()
        # The start lives in the index only: without it, what is still in the segments is readable.
        self.log.delete_before(self.model.start)
        assert self.look_ups() == looked_up
        self.forget_epochs_without_records()

    def forget_epochs_without_records(self) -> None:
        """Epochs without a batch may be forgotten, or (after a crash) remembered at the end of the
        log.
        """
        known = self.log.core.epochs.as_list()
        begun = dict(self.model.epochs)
        for epoch, start in known:
            # If the first batches of an epoch were cleaned away, it seems to begin later.
            assert start >= self.model.end or begun[epoch] <= start
            first = next((b for b in self.model.batches if b.epoch == epoch and b.records), None)
            assert first is None or start <= max(first.base_offset, self.model.start)
        there = {batch.epoch for batch in self.model.batches if batch.records}
        assert there <= {epoch for epoch, _ in known}
        self.model.epochs = known

    def look_ups(self) -> list[Any]:
        """What the indexes answer, for offsets and times all over the log."""
        log = self.log
        found: list[Any] = [log.log_start_offset, log.log_end_offset]
        for batch in self.model.batches:
            if batch.last_offset >= log.log_start_offset:
                offset = max(batch.last_offset, log.log_start_offset)
                found.append(next(batches(log.read_batches(offset, 1))).base_offset)
                found += [log.offset_for_timestamp(record.timestamp) for record in batch.records]
        return found

    # -- what has to hold

    @invariant()
    def it_reads_as_the_model_does(self) -> None:
        if not hasattr(self, "log"):
            return
        log, model = self.log, self.model
        expected = model.records()
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        assert log.high_watermark == log.last_stable_offset == model.end
        assert [kept(record) for record in log.records()] == expected

    @rule(fraction=st.floats(0, 1), max_bytes=st.sampled_from([1, 150, 1 << 20]))
    def read_from_anywhere(self, fraction: float, max_bytes: int) -> None:
        offset = self.some_offset(fraction)
        expected = self.model.records(offset)
        found: list[ModelRecord] = []
        arrow: list[int] = []
        raw: list[int] = []
        at = offset
        while at < self.model.end:
            records = self.log.read(at, max_bytes)
            found += [kept(record) for record in records]
            arrow += self.log.read_arrow(at, max_bytes).column("offset").to_pylist()
            data = self.log.read_batches(at, max_bytes)
            views = list(batches(data, verify=True))
            assert len(data) <= max_bytes or len(views) <= 1
            # The cleaner leaves empty batches, so that a log's end or a sequence stays known.
            raw += [view.base_offset for view in views if view.records_count]
            if records.next_offset is None:
                break
            assert records.next_offset > at
            at = records.next_offset
        assert found == expected
        assert arrow == [record.offset for record in expected]
        model_batches = [b.base_offset for b in self.model.batches if b.last_offset >= offset]
        assert raw == model_batches

    @rule(timestamp=st.integers(900, 9_100))
    def look_up_a_time(self, timestamp: int) -> None:
        assert self.log.offset_for_timestamp(timestamp) == self.model.offset_for_timestamp(
            timestamp
        )

    @rule(beyond=st.integers(1, 100))
    def outside_is_out_of_range(self, beyond: int) -> None:
        for offset in (self.model.start - beyond, self.model.end + beyond):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                self.log.read(offset)
            assert caught.value.log_end_offset == self.model.end

    @rule(epoch=st.integers(-1, 6))
    def epochs_end_where_the_next_begins(self, epoch: int) -> None:
        assert self.log.end_offset_for_epoch(epoch) == self.model.end_offset_for_epoch(epoch)


class CompactedMachine(LogMachine):
    """The same with a compacted topic."""

    topic_configs: ClassVar[dict[str, Any]] = {"cleanup_policy": ("compact", "delete")}

    @rule()
    def compact(self) -> None:
        before = self.model.as_map()
        upper = self.log.segments[-1].base_offset
        self.log.compact()
        self.model.compact(upper, self.clock.ms)
        assert self.model.as_map() == before


def run(machine: type[LogMachine], examples: int) -> None:
    """So many histories."""
    profile = settings(
        max_examples=examples, stateful_step_count=25, deadline=None,
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=profile)


@pytest.mark.parametrize("machine", [LogMachine, CompactedMachine])
def test_a_log_is_what_the_model_says(machine: type[LogMachine]) -> None:
    run(machine, 5)


@pytest.mark.slow
@pytest.mark.parametrize("examples", [40, pytest.param(200, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("machine", [LogMachine, CompactedMachine])
def test_a_log_is_what_the_model_says_in_many_histories(
    machine: type[LogMachine], examples: int
) -> None:
    run(machine, examples)
