"""Offline dump and verify over hand-made segment files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kstore
from kstore.log.offline.dump import (
    DumpedBatch,
    DumpedDamage,
    DumpedRecord,
    DumpedSegment,
    as_dict,
    dump,
)
from kstore.log.offline.verify import ExitStatus, verify
from kstore.record import ControlType, EndTransactionMarker, build_batch, control_batch
from kstore.types import TopicPartition


def batch(offset: int, *values: bytes, epoch: int = 0, compression: int = 0) -> bytes:
    """A batch with these values, keyed by offset."""
    records = [(b"k%d" % (offset + at), value, 1000 + at) for at, value in enumerate(values)]
    return build_batch(
        records, base_offset=offset, leader_epoch=epoch, compression=compression
    )  # fmt: skip


def segment(folder: Path, base_offset: int, *parts: bytes) -> Path:
    """A segment file of these bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset:020}.log"
    path.write_bytes(b"".join(parts))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two good segments of a partition: offsets 0..3 and 10..11."""
    here = tmp_path / "orders-3"
    segment(here, 0, batch(0, b"a", b"b"), batch(2, b"c", b"d", compression=4))
    segment(here, 10, batch(10, b"e", b"f", epoch=2))
    return here


def test_batches_and_records_come_in_order(folder: Path) -> None:
    found = list(dump(folder, records=True))
    assert [type(item) for item in found] == [
        DumpedSegment, DumpedBatch, DumpedRecord, DumpedRecord, DumpedBatch, DumpedRecord,
        DumpedRecord, DumpedSegment, DumpedBatch, DumpedRecord, DumpedRecord,
    ]  # fmt: skip
    first, middle = found[0], found[4]
    assert isinstance(first, DumpedSegment)
    assert first.topic_partition == TopicPartition("orders", 3)
    assert isinstance(middle, DumpedBatch)
    assert (middle.base_offset, middle.last_offset, middle.count) == (2, 3, 2)
    assert (middle.compression_codec, middle.is_valid, middle.base_sequence) == ("zstd", True, -1)


def test_filters(folder: Path) -> None:
    def offsets(**filters: object) -> list[int]:
        items = dump(folder, records=True, **filters)  # type: ignore[arg-type]
        return [item.offset for item in items if isinstance(item, DumpedRecord)]

    assert offsets(start_offset=1, end_offset=11) == [1, 2, 3, 10]
    assert offsets(key=b"k3") == [3]
    assert offsets(start_offset=10) == [10, 11]
    assert offsets(max_batches=1) == [0, 1, 10, 11]
    assert offsets(topic_partition=TopicPartition("orders", 4)) == []


def test_a_log_dir_has_all_its_partitions(folder: Path, tmp_path: Path) -> None:
    segment(tmp_path / "other-0", 0, batch(0, b"x"))
    (tmp_path / ".kstore").mkdir()
    names = [item.segment for item in dump(tmp_path) if isinstance(item, DumpedSegment)]
    assert [Path(name).parent.name for name in names] == ["orders-3", "orders-3", "other-0"]
    report = verify(tmp_path)
    assert [(p.topic_partition, p.batches, p.records) for p in report.partitions] == [
        (TopicPartition("orders", 3), 3, 6), (TopicPartition("other", 0), 1, 1),
    ]  # fmt: skip
    assert report.exit_status == ExitStatus.GOOD


def test_json_lines_hold_everything(tmp_path: Path) -> None:
    marker = control_batch(
        EndTransactionMarker(ControlType.ABORT, 4), producer_id=9, producer_epoch=1, timestamp=5
    )
    path = segment(tmp_path, 0, marker, build_batch([(b"\xff", None, 7)], base_offset=1))
    lines = [json.loads(json.dumps(as_dict(item))) for item in dump(path, records=True)]
    assert [line["type"] for line in lines] == ["segment", "batch", "record", "batch", "record"]
    assert (lines[2]["control"], lines[2]["coordinator_epoch"]) == ("ABORT", 4)
    assert (lines[4]["key"], lines[4]["value"]) == ({"base64": "/w=="}, None)


def test_nothing_to_find_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no segment files"):
        list(dump(tmp_path))
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "no-such-file")


def test_a_wrong_crc_is_stepped_over(tmp_path: Path) -> None:
    bad = bytearray(batch(1, b"two"))
    bad[-1] ^= 1
    path = segment(tmp_path, 0, batch(0, b"one"), bytes(bad), batch(2, b"three"))
    position = len(batch(0, b"one"))
    items = list(dump(path))
    assert [getattr(i, "is_valid", None) for i in items] == [None, True, False, None, True]
    report = verify(path)
    (problem,) = report.partitions[0].problems
    assert (problem.position, problem.kind, problem.segment) == (position, "BAD_CRC", str(path))
    assert report.exit_status == ExitStatus.DAMAGED
    assert report.partitions[0].log_end_offset == 3


def test_bytes_that_are_no_batch_are_damage(tmp_path: Path) -> None:
    path = segment(tmp_path, 0, batch(0, b"one"), b"\0" * 100 + b"\1")
    *_, damage = dump(path)
    assert isinstance(damage, DumpedDamage)
    start = len(batch(0, b"one"))
    assert (damage.kind, damage.position, damage.end_position) == ("BAD_MAGIC", start, start + 101)
    assert (damage.first_offset, damage.next_offset) == (1, 1)  # their number is unknown
    assert verify(path).exit_status == ExitStatus.DAMAGED


def test_zeros_are_damage_but_behind_the_last_data(tmp_path: Path) -> None:
    path = segment(tmp_path, 0, batch(0, b"one"), b"\0" * 100)
    assert verify(path).exit_status == ExitStatus.GOOD
    segment(tmp_path, 1, batch(1, b"two"))
    assert verify(tmp_path).exit_status == ExitStatus.DAMAGED


@pytest.mark.parametrize("cut", [8, 12, 40, 61])
def test_a_partial_batch_is_a_torn_tail_only_at_the_very_end(tmp_path: Path, cut: int) -> None:
    whole = batch(1, b"two")
    segment(tmp_path, 0, batch(0, b"one"), whole[:cut])
    report = verify(tmp_path)
    assert report.partitions[0].problems[0].is_torn_tail
    assert report.exit_status == ExitStatus.GOOD
    segment(tmp_path, 5, batch(5, b"six"))
    report = verify(tmp_path)
    assert not report.partitions[0].problems[0].is_torn_tail
    assert report.exit_status == ExitStatus.DAMAGED


def test_offsets_and_epochs_have_to_rise_across_segments(tmp_path: Path) -> None:
    segment(tmp_path / "t-0", 0, batch(0, b"a", b"b", epoch=5))
    segment(tmp_path / "t-0", 1, batch(1, b"b", epoch=5))
    segment(tmp_path / "t-1", 0, batch(0, b"a", epoch=5), batch(1, b"b", epoch=5))
    segment(tmp_path / "t-1", 2, batch(2, b"c", epoch=4), batch(3, b"d", epoch=5))
    found = [problem for report in verify(tmp_path).partitions for problem in report.problems]
    assert [(Path(p.segment).stem[-1], p.kind, p.detail) for p in found] == [
        ("0", "NOT_MONOTONIC", "offsets 0 to 1, but 1 follows"),
        ("2", "EPOCH_NOT_MONOTONIC", "leader epoch 4 in bytes 12 to 15, expected 5"),
    ]


def test_many_problems_are_counted_and_the_first_kept(tmp_path: Path) -> None:
    damaged = [bytes(61) + batch(number, b"value") for number in range(30)]
    segment(tmp_path, 0, *damaged)
    report = verify(tmp_path, max_problems=3).partitions[0]
    assert (report.problem_count, len(report.problems)) == (30, 3)


def test_a_batch_larger_than_a_piece_is_read_whole(tmp_path: Path) -> None:
    path = segment(tmp_path, 0, batch(0, b"a"), batch(1, b"x" * (3 << 20)), batch(2, b"b"))
    assert [i.base_offset for i in dump(path) if isinstance(i, DumpedBatch)] == [0, 1, 2]
    assert verify(path).problem_count == 0


def test_the_index_is_compared_with_the_segments(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, segment_bytes=2000, index_interval_bytes=100) as log:
        for number in range(100):
            log.append(b"x" * 20, timestamp=1000 + number)
        path = Path(log.segments[1].path)
    assert verify(tmp_path).problem_count == 0
    good = path.read_bytes()
    sizes = [item.size for item in dump(path) if isinstance(item, DumpedBatch)]
    path.write_bytes(good[sizes[0] :])
    problems = verify(tmp_path).partitions[0].problems
    assert {problem.kind for problem in problems} == {"INDEX_MISMATCH"}
    assert verify(tmp_path, index=False).problem_count == 0
