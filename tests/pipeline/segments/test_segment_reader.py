"""Reading segment files: every record once, wherever they are split. Damage is reported, or skipped
if requested. No Spark and no broker runs here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log import open_log_dir
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.schema import source_schema
from kstore.pipeline.segments.files import SegmentRange
from kstore.pipeline.segments.reader import SegmentReader
from kstore.record import ControlType, EndTransactionMarker, build_batch, control_batch
from tests.log.handling import flip_bit
from tests.pipeline.reading import rows_of

SCHEMA = source_schema(include_headers=False)
ROWS = 400


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Topic t with 400 records in partition 0, in several segments with many index entries, and 5
    in partition 1.
    """
    with open_log_dir(tmp_path, segment_bytes=20_000, index_interval_bytes=512) as opened:
        _fill(opened, 0, ROWS)
        _fill(opened, 1, 5)
        opened.log("__internal", 0).append(b"hidden")
    return tmp_path


def _fill(opened: Any, partition: int, count: int) -> None:
    log = opened.log("t", partition)
    for first in range(0, count, 5):
        batch = [(b"k%d" % n, b"v%03d" % n * 50, 1000 + n) for n in range(first, first + 5)]
        log.append_many(batch)


def _reader(path: Path, **options: str) -> SegmentReader:
    return SegmentReader(SCHEMA, {"path": str(path)} | options)


def _offsets(reader: SegmentReader, partition: int = 0) -> list[int]:
    return [row["offset"] for row in rows_of(reader) if row["partition"] == partition]


def _segments(path: Path) -> list[Path]:
    return sorted((path / "t-0").glob("*.log"))


def test_all_topics_but_internal_ones(log_dir: Path) -> None:
    rows = rows_of(_reader(log_dir))
    assert {(r["topic"], r["partition"]) for r in rows} == {("t", 0), ("t", 1)}
    first = rows[0]
    assert (first["offset"], first["key"], first["value"]) == (0, b"k0", b"v000" * 50)
    assert first["timestamp"].timestamp() == 1.0
    assert first["timestampType"] == 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"minPartitions": "1"},
        {"minPartitions": "30"},
        {"minPartitions": "100000"},
        {"maxRecordsPerPartition": "7"},
        {"maxRecordsPerPartition": "33", "minPartitions": "20"},
    ],
)
def test_every_record_once_in_any_number_of_tasks(log_dir: Path, options: dict[str, str]) -> None:
    assert _offsets(_reader(log_dir, **options)) == list(range(ROWS))


def test_tasks_are_byte_ranges_cut_at_index_entries(log_dir: Path) -> None:
    tasks = _reader(log_dir, minPartitions="40", subscribe="t").partitions()
    ranges = [task.value for task in tasks]
    found = [r for r in ranges if isinstance(r, SegmentRange) and r.partition == 0]
    sizes = [sum(s.end - s.start for s in task.slices) for task in found]
    assert len(found) >= 35
    assert max(sizes) < 3 * sum(sizes) / len(sizes)
    assert any(part.start > 0 for task in found for part in task.slices)


@pytest.mark.parametrize("indexed", [True, False])
def test_offsets_and_times_choose_the_range(log_dir: Path, indexed: bool) -> None:
    if not indexed:
        for name in (".kstore.mdb", ".kstore.mdb-lock"):
            (log_dir / name).unlink(missing_ok=True)
    ends = json.dumps({"t": {"0": 321, "1": -1}})
    starts = json.dumps({"t": {"0": 123, "1": 5}})
    chosen = _reader(log_dir, subscribe="t", startingOffsets=starts, endingOffsets=ends)
    assert _offsets(chosen) == list(range(123, 321))
    assign = json.dumps({"t": [0]})
    timed = _reader(log_dir, assign=assign, startingTimestamp="1050", endingTimestamp="1060")
    assert _offsets(timed) == list(range(50, 60))


def test_a_log_dir_that_is_being_written(log_dir: Path) -> None:
    with open_log_dir(log_dir) as opened:
        opened.log("t", 1).append(b"more")
        assert len(_offsets(_reader(log_dir), partition=1)) == 6


def test_aborted_transactions_are_left_out_for_read_committed(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, topic="t") as log:
        for number, is_commit in enumerate([True, False] * 40):
            batch = build_batch(
                [b"x" * 500] * 3, producer_id=7, producer_epoch=0, transactional=True,
                base_sequence=number * 3,
            )  # fmt: skip
            log.append_batches(batch, origin="client")
            ended = ControlType.COMMIT if is_commit else ControlType.ABORT
            marker = control_batch(
                EndTransactionMarker(ended, 0), producer_id=7, producer_epoch=0, timestamp=1
            )
            log.append_batches(marker, origin="coordinator")
    seen = {"kafka.isolation.level": "read_committed", "maxRecordsPerPartition": "11"}
    expected = [n for n in range(320) if n % 8 in (0, 1, 2)]
    assert _offsets(_reader(tmp_path, **seen)) == expected
    assert len(_offsets(_reader(tmp_path))) == 240


def test_a_damaged_batch_is_named_with_file_byte_and_offset(log_dir: Path) -> None:
    offset, place = _damage(_segments(log_dir)[1])
    with pytest.raises(PipelineError) as caught:
        rows_of(_reader(log_dir))
    text = str(caught.value)
    assert f"topic t, partition 0, offset {offset}: segment {_segments(log_dir)[1]}" in text
    assert f"at byte {place}" in text
    assert "kstore log verify" in text
    assert caught.value.offset == offset


def test_damage_is_left_out_if_data_may_be_lost(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offset, _ = _damage(_segments(log_dir)[1])
    found = _offsets(_reader(log_dir, failOnDataLoss="false"))
    assert sorted(set(range(ROWS)) - set(found)) == list(range(offset, offset + 5))
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(("at", "bit"), [(4, 0), (7, 1), (7, 0), (6, 0)])
def test_a_moved_base_offset_is_named_or_left_out(
    log_dir: Path, capsys: pytest.CaptureFixture[str], at: int, bit: int
) -> None:
    segment = _segments(log_dir)[1]
    offset, place = _damage(segment)
    _damage(segment)  # and back
    flip_bit(segment, place + at, bit)
    with pytest.raises(PipelineError, match=f"hide offsets {offset} to {offset + 4}: base offset"):
        rows_of(_reader(log_dir))
    found = _offsets(_reader(log_dir, failOnDataLoss="false"))
    assert sorted(set(range(ROWS)) - set(found)) == list(range(offset, offset + 5))
    assert len(found) == ROWS - 5
    assert "base offset" in capsys.readouterr().err


def _damage(segment: Path) -> tuple[int, int]:
    """Flip a bit in the third batch; returns its base offset and its position."""
    data = segment.read_bytes()
    place = 0
    for _ in range(2):
        place += int.from_bytes(data[place + 8 : place + 12], "big") + 12
    flip_bit(segment, place + 100)
    return int.from_bytes(data[place : place + 8], "big"), place


def test_a_segment_that_is_gone_is_named(log_dir: Path) -> None:
    reader = _reader(log_dir)
    tasks = reader.partitions()
    gone = _segments(log_dir)[1]
    gone.unlink()
    with pytest.raises(PipelineError, match=f"{gone} can't be read: No such file"):
        [list(reader.read(task)) for task in tasks]
    with pytest.raises(PipelineError, match=f"offset {int(gone.stem)}: the segment .* is missing"):
        _reader(log_dir).partitions()


def test_a_segment_that_was_rewritten_meanwhile_is_refused(log_dir: Path) -> None:
    reader = _reader(log_dir)
    tasks = reader.partitions()
    changed = _segments(log_dir)[0]
    changed.write_bytes(changed.read_bytes()[:-100])
    with pytest.raises(PipelineError, match=r"compacted or cut.*Run the query again"):
        [list(reader.read(task)) for task in tasks]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "missing"}, "topic missing: log dir .* has no partition of it"),
        ({"assign": '{"t": [9]}'}, "topic t, partition 9: log dir .* does not have it"),
        ({"subscribePattern": "z.*"}, "has no partition of subscribePattern z"),
        ({"kafka.bootstrap.servers": "h:1"}, "path and kafka.bootstrap.servers contradict"),
        ({"kafka.isolation.level": "maybe"}, "Give read_uncommitted or read_committed"),
        ({"startingOffsets": '{"t": {"0": 500, "1": 0}}', "subscribe": "t"}, "offset 500: option"),
        ({"startingTimestamp": "999999999"}, "no record has a timestamp of 999999999"),
    ],
)
def test_bad_input_is_named(log_dir: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        _reader(log_dir, **options).partitions()


def test_a_path_that_is_no_log_dir(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="is not a folder here"):
        _reader(tmp_path / "missing").partitions()
    with pytest.raises(PipelineError, match="has no partition"):
        _reader(tmp_path).partitions()
