"""Restores what a log lost from a sealed segment, or a whole lost segment, with the batches of
another replica.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

import kstore
from kstore.log.local.recovery_report import Loss
from kstore.log.offline.verify import verify
from tests.log.handling import replicated_dir
from tests.log.recovery.test_losses import make, numbers


def place(log: kstore.Log) -> list[tuple[str, int, int]]:
    """What is lost: file names and offsets."""
    return [(Path(p.segment).name, p.first_offset, p.next_offset) for p in log.lost_parts()]


@pytest.fixture
def whole(tmp_path: Path) -> tuple[list[Path], int, bytes]:
    """A log's three files, the size of one batch of the second, and that file's bytes."""
    files, sizes = make(tmp_path / "log")
    return files, sizes[1], files[1].read_bytes()


@pytest.mark.parametrize("left", [0, 6, 9])
@pytest.mark.parametrize("extra", [0, 30])
def test_the_end_of_a_sealed_segment_is_put_back(
    tmp_path: Path, whole: tuple[list[Path], int, bytes], left: int, extra: int
) -> None:
    files, size, data = whole
    os.truncate(files[1], left * size + extra)
    with kstore.open_log(tmp_path / "log") as log:
        [loss] = log.lost_parts()
        assert loss == Loss(str(files[1]), 10 + left, 20)
        assert log.refill(loss, data[left * size :]) is None
        assert log.lost_parts() == []
        assert numbers(log) == list(range(30))
        assert [next(iter(log.read(n))).offset for n in range(30)] == list(range(30))
        assert "not lost" in str(log.refill(loss, data[left * size :]))
        log.append(b"value 030")
    assert files[1].read_bytes() == data
    assert verify(tmp_path / "log").problem_count == 0
    with kstore.open_log(tmp_path / "log") as log:
        assert (log.recovery.losses, log.recovery.damages) == ([], [])
        assert numbers(log) == list(range(31))


def test_it_is_put_back_piece_by_piece(
    tmp_path: Path, whole: tuple[list[Path], int, bytes]
) -> None:
    files, size, data = whole
    os.truncate(files[1], 2 * size)
    with kstore.open_log(tmp_path / "log") as log:
        for number in range(2, 10, 2):
            assert place(log) == [(files[1].name, 10 + number, 20)]
            [loss] = log.lost_parts()
            assert log.refill(loss, data[number * size : (number + 2) * size]) is None
        assert place(log) == []
        assert numbers(log) == list(range(30))
    assert files[1].read_bytes() == data


def test_a_segment_that_is_gone_is_made_again(
    tmp_path: Path, whole: tuple[list[Path], int, bytes]
) -> None:
    files, _, data = whole
    files[1].unlink()
    with kstore.open_log(tmp_path / "log") as log:
        [loss] = log.lost_parts()
        assert log.refill(loss, data) is None
        assert numbers(log) == list(range(30))
    with kstore.open_log(tmp_path / "log") as log:
        assert numbers(log) == list(range(30))
        assert log.recovery.losses == []
    assert verify(tmp_path / "log").problem_count == 0


def test_what_the_other_replica_does_not_have_is_lost_no_more(
    tmp_path: Path, whole: tuple[list[Path], int, bytes]
) -> None:
    files, size, _ = whole
    os.truncate(files[1], 4 * size)
    with kstore.open_log(tmp_path / "log") as log:
        [loss] = log.lost_parts()
        assert log.refill(loss, b"") is None  # compacted away there
        assert log.lost_parts() == []
        assert numbers(log) == [*range(14), *range(20, 30)]


def test_what_does_not_fit_changes_nothing(
    tmp_path: Path, whole: tuple[list[Path], int, bytes]
) -> None:
    files, size, data = whole
    os.truncate(files[1], 6 * size)
    with kstore.open_log(tmp_path / "log") as log:
        [loss] = log.lost_parts()
        for wrong, why in [
            (data[5 * size :], "offsets 15 to 15 do not fit in 16 to 19"),
            (data[6 * size : -1], "not whole, valid batches"),
            (data[6 * size : -1] + b"!", "not whole, valid batches"),
            (data[7 * size :] + data[6 * size : 7 * size], "do not fit in"),
        ]:
            assert why in str(log.refill(loss, wrong))
            assert files[1].read_bytes() == data[: 6 * size]
            assert log.lost_parts() == [loss]


def test_a_kill_in_the_middle_loses_nothing_that_was_there(
    tmp_path: Path, whole: tuple[list[Path], int, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    files, size, data = whole
    os.truncate(files[1], 6 * size)
    with kstore.open_log(tmp_path / "log") as log:
        [loss] = log.lost_parts()
        log.log_dir.maintenance.stop()  # no more checkpoints
        assert log.refill(loss, data[6 * size :]) is None
        shutil.copytree(tmp_path / "log", tmp_path / "killed")
    for length, kept in [(10 * size, 20), (8 * size, 18), (8 * size + 20, 18), (6 * size, 16)]:
        copy = tmp_path / f"killed {length}"
        shutil.copytree(tmp_path / "killed", copy)
        os.truncate(copy / files[1].relative_to(tmp_path / "log"), length)
        with caplog.at_level(logging.ERROR), kstore.open_log(copy) as log:
            assert numbers(log) == [*range(kept), *range(20, 30)]
            assert log.recovery.damages == []


@pytest.mark.parametrize("gone", [{2}, {1, 2}])
def test_the_end_of_the_log_is_left_to_copying_unless_it_leads(
    tmp_path: Path, gone: set[int]
) -> None:
    files, _ = make(tmp_path / "log")
    data = {number: files[number].read_bytes() for number in gone}
    for number in gone:
        files[number].unlink()
    first = 10 * min(gone)
    expected = [Loss(str(files[n]), 10 * n, 10 * n + 10) for n in sorted(gone)]
    for copied in (0, 4, 30 - first):
        path = tmp_path / f"copy {copied}"
        shutil.copytree(tmp_path / "log", path)
        with replicated_dir(path) as directory:
            log = directory.log("log")
            assert (log.lost_parts(), len(log.lost)) == ([], len(gone))
            assert "not lost" in str(log.refill(expected[0], b""))
            for number in range(first, first + copied):
                log.append(b"value %03d" % number)
            log.roll()
            assert log.lost_parts() == []
            assert bool(log.lost) == (first + copied < 30)
            log.skip_lost()
            assert log.log_end_offset == 30
            lost = [
                n for part in log.lost_parts() for n in range(part.first_offset, part.next_offset)
            ]
            assert lost == [*range(first + copied, 30)]
            if copied == 0:
                for loss, number in zip(log.lost_parts(), sorted(gone), strict=True):
                    assert log.refill(loss, data[number]) is None
                log.core.set_high_watermark(30)
                assert numbers(log) == list(range(30))
