"""Truncation during reads, which take no lock, and on a failing disk."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kstore.log import Log, open_log_dir
from tests.log.handling import offsets, replicated_dir, values
from tests.log.retention.failing_files import FailingFiles, is_killed
from tests.log.segments.hooked_files import HookedFiles
from tests.reference.fault_fs import FaultyFileSystem

END, CUT = 12, 6


class Files(HookedFiles):
    """Files that run a function after they are opened or cut, or cannot be cut."""

    when_opened: Callable[[], object] | None = None
    when_cut: Callable[[], object] | None = None
    broken = False

    def before(self, call: str, path: str) -> None:
        if self.broken and call == "truncate":
            raise OSError(errno.EIO, "no")

    def after(self, call: str, path: str) -> None:
        do = None
        if call in {"create", "open"}:
            do, self.when_opened = self.when_opened, None
        elif path.endswith(".log"):
            do, self.when_cut = self.when_cut, None
        if do is not None:
            do()


def make(path: Path, files: HookedFiles, *, roll: int = END) -> Log:
    """A log of twelve batches with a record each, which the caller's log dir closes."""
    directory = replicated_dir(path, files, index_interval_bytes=150)
    log = directory.log("t")
    for number in range(END):
        if number == roll:
            log.roll()
        log.append(b"value %03d" % number)
    log.core.set_high_watermark(END)
    return log


def read(log: Log) -> list[int]:
    """The offsets that a reader finds from the start on, as far as it gets."""
    found: list[int] = []
    offset = 0
    while offset < log.log_end_offset:
        data, behind = log.core.read(offset, log.log_end_offset, 150)
        if not data:
            break
        found += range(offset, behind)
        offset = behind
    return found


@pytest.mark.parametrize("roll", [END, CUT + 2, CUT])
def test_who_reads_while_the_file_is_cut_finds_less_and_no_damage(
    tmp_path: Path, roll: int
) -> None:
    files = Files()
    log = make(tmp_path, files, roll=roll)
    with log.log_dir:
        assert read(log) == list(range(END))
        found: list[list[int]] = []
        files.when_cut = lambda: found.append(read(log))
        assert log.truncate(CUT) == CUT
        [offsets] = found
        assert offsets == list(range(len(offsets)))
        assert len(offsets) <= CUT
        assert read(log) == list(range(CUT))
        assert log.log_dir.state.damages == 0


class WatchedFiles(HookedFiles):
    """Files at whose every call somebody reads."""

    reader: Callable[[], object] | None = None

    def before(self, call: str, path: str) -> None:
        reader, self.reader = self.reader, None
        if reader is not None:
            reader()
            self.reader = reader


@pytest.mark.parametrize("roll", [END, CUT + 2, CUT])
def test_at_every_moment_of_a_truncation_all_that_stays_is_found(tmp_path: Path, roll: int) -> None:
    files = WatchedFiles()
    log = make(tmp_path, files, roll=roll)
    with log.log_dir:
        found: list[list[int]] = []
        files.reader = lambda: found.append(offsets(log))
        assert log.truncate(CUT) == CUT
        files.reader = None
        assert len(found) > 1
        assert [each[:CUT] for each in found] == [list(range(CUT))] * len(found)


@pytest.mark.parametrize("start", [CUT - 1, CUT, CUT + 1])
def test_a_read_that_began_before_a_truncation_looks_again(tmp_path: Path, start: int) -> None:
    files = Files()
    log = make(tmp_path, files)
    with log.log_dir:
        log.core.active.close()
        files.when_opened = lambda: log.truncate(CUT)
        data, behind = log.core.read(min(start, CUT), END, 1 << 20)
        assert (bool(data), behind) == (start < CUT, CUT)


def test_a_truncation_that_fails_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    files = Files()
    log = make(tmp_path, files, roll=8)

    with log.log_dir:
        files.broken = True
        with pytest.raises(OSError, match="no"):
            log.truncate(9)
        files.broken = False
        assert log.log_end_offset == END
        assert read(log) == list(range(END))
        assert log.truncate(9) == 9
        assert log.append(b"value 009") == 9
        log.core.set_high_watermark(10)
        assert read(log) == list(range(10))


def test_a_truncation_that_failed_after_a_segment_was_removed_can_be_tried_again(
    tmp_path: Path,
) -> None:
    files = Files()
    log = make(tmp_path, files, roll=8)
    with log.log_dir:
        files.broken = True
        with pytest.raises(OSError, match="no"):
            log.truncate(CUT)
        files.broken = False
        assert log.truncate(CUT) == CUT
        assert log.append(b"value 006") == CUT
        log.core.set_high_watermark(CUT + 1)
        assert read(log) == list(range(CUT + 1))


# -- where the log ends


def with_gaps(path: Path, **settings: Any) -> Log:
    """A log with records at 0 to 4, 20 to 24 and 40 to 44, in batches of five."""
    directory = replicated_dir(path, **settings)
    log = directory.log("t")
    for base in (0, 20, 40):
        log.append_at(base, [b"value"] * 5, leader_epoch=base)
        log.core.set_high_watermark(log.log_end_offset)
    return log


@pytest.mark.quick_one_in(8)
@pytest.mark.parametrize("segment_bytes", [1 << 20, 130])
@pytest.mark.parametrize("at", [*range(5, 21), *range(25, 41)])
def test_a_log_that_is_cut_in_a_gap_ends_there(tmp_path: Path, at: int, segment_bytes: int) -> None:
    kept = [*range(5), *range(20, 25)] if at >= 25 else [*range(5)]
    with with_gaps(tmp_path, segment_bytes=segment_bytes).log_dir as directory:
        log = directory.log("t")
        assert log.truncate(at) == at
        assert (log.log_end_offset, log.high_watermark) == (at, at)
        assert offsets(log) == kept
        assert log.core.epochs.as_list() == [(e, e) for e in (0, 20) if e < at]
        assert log.truncate(at) == at
        assert log.read_batches(at) == b""
    with replicated_dir(tmp_path, segment_bytes=segment_bytes) as directory:
        log = directory.log("t")
        assert (log.log_end_offset, log.high_watermark) == (at, at)
        assert offsets(log) == kept
        assert log.append(b"next") == at
        assert log.append(b"next") == at + 1


@pytest.mark.parametrize("at", [*range(1, 5), *range(21, 25), *range(41, 45)])
def test_a_log_that_is_cut_in_a_batch_ends_where_the_batch_began(tmp_path: Path, at: int) -> None:
    base = at // 20 * 20
    with with_gaps(tmp_path).log_dir as directory:
        log = directory.log("t")
        assert log.truncate(at) == base
        assert log.log_end_offset == base
        assert offsets(log) == [each for each in (*range(5), *range(20, 25)) if each < base]
        assert log.append(b"next") == base


def test_a_cut_between_compacted_records_gives_no_offset_again(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"segment_bytes": 300, "cleanup_policy": ("compact",)}
    with open_log_dir(tmp_path, **settings) as directory:
        log = directory.log("t")
        for number in range(30):
            log.append(b"%d" % number, b"key")
        log.roll()
        log.append(b"active", b"other")
        log.compact()
        assert offsets(log) == [29, 30]
        assert log.truncate(17) == 17
        assert log.append(b"next") == 17
    with open_log_dir(tmp_path, **settings) as directory:
        assert offsets(directory.log("t")) == [17]


# -- power losses


def after_power_loss(path: Path, cut: Callable[[Log], object], *, index_survives: bool) -> str:
    """A log dir as it is when the power fails after a cut and an append."""
    fs = FaultyFileSystem(str(path / "logs"))
    log = with_gaps(path / "logs", fs=fs, flush="os")
    with log.log_dir:
        log.flush()
        cut(log)
        log.append(b"next")
        log.flush()
        return fs.power_cut(str(path / "after"), index_survives=index_survives, torn="none")


@pytest.mark.parametrize("index_survives", [False, True])
def test_a_power_loss_brings_nothing_back_that_was_cut_in_a_gap(
    tmp_path: Path, index_survives: bool
) -> None:
    def cut(log: Log) -> None:
        assert log.truncate(30) == 30

    with open_log_dir(after_power_loss(tmp_path, cut, index_survives=index_survives)) as directory:
        log = directory.log("t")
        assert offsets(log) == [*range(5), *range(20, 25), 30]
        assert not log.damaged_parts()


@pytest.mark.parametrize("index_survives", [False, True])
def test_a_power_loss_brings_nothing_back_that_was_left_out(
    tmp_path: Path, index_survives: bool
) -> None:
    after = after_power_loss(tmp_path, lambda log: log.leave_out(20), index_survives=index_survives)
    with open_log_dir(after) as directory:
        assert offsets(directory.log("t")) == [*range(5), 45]


# -- a disk that fails


def failing_log(path: Path, files: FailingFiles) -> Log:
    """Four segments, the second with a gap at its end."""
    directory = replicated_dir(path, files, index_interval_bytes=150)
    log = directory.log("t")
    for base in (0, 20, 40, 60):
        for each in range(8):
            log.append_at(base + each, [b"value %02d" % (base + each)], leader_epoch=base + each)
        log.core.set_high_watermark(log.log_end_offset)
        log.roll()
    return log


def is_prefix(log: Log, expected: list[int]) -> int:
    """A log has the first of these records; how many."""
    found = offsets(log)
    assert found == expected[: len(found)]
    assert values(log) == [b"value %02d" % at for at in found]
    assert log.core.epochs.as_list() == [(each, each) for each in found]
    return len(found)


ALL = [base + each for base in (0, 20, 40, 60) for each in range(8)]


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("reopens", [False, True])
@pytest.mark.parametrize("at", [0, 3, 20, 25, 33, 40, 65])
def test_a_cut_that_fails_at_any_call_leaves_the_beginning_and_can_be_tried_again(
    tmp_path: Path, at: int, reopens: bool
) -> None:
    kept = [each for each in ALL if each < at]
    for number in range(100):
        path = tmp_path / str(number)
        files = FailingFiles()
        log = failing_log(path, files)
        failed = files.fails(number, partial(log.truncate, at))
        assert is_prefix(log, ALL) >= len(kept)
        base = min(log.log_end_offset, log.high_watermark)
        assert all(Path(segment.path).exists() for segment in log.segments)
        if reopens:
            log.log_dir.close()
            directory = replicated_dir(path, index_interval_bytes=150)
            log = directory.log("t")
            assert log.recovery.losses == []
            assert is_prefix(log, ALL) >= len(kept)
            assert log.log_end_offset >= base
        with log.log_dir:
            if log.log_end_offset > at:
                assert log.truncate(at) == at
            assert is_prefix(log, ALL) == len(kept)
            if log.log_end_offset <= at:
                log.append_at(at, [b"value"])
        if not failed:
            break
    assert 2 < number < 99


def truncate_and_die(path: Path, at: int, number: int) -> None:
    """Truncate a log, with kill -9 after this number of calls."""
    files = FailingFiles()
    log = failing_log(path, files)
    files.kills, files.left = True, number
    log.truncate(at)


@pytest.mark.quick_one_in(6)
@pytest.mark.parametrize("replicated", [False, True])
@pytest.mark.parametrize("at", [3, 20, 33])
def test_a_kill_while_a_log_is_cut_gives_no_offset_again(
    tmp_path: Path, at: int, replicated: bool
) -> None:
    kept = [each for each in ALL if each < at]
    for number in range(100):
        path = tmp_path / str(number)
        killed = is_killed(partial(truncate_and_die, path, at, number))
        with open_log_dir(path, index_interval_bytes=150) as directory:
            directory.replicated = replicated
            log = directory.log("t")
            log.core.set_high_watermark(log.log_end_offset)
            assert is_prefix(log, ALL) >= len(kept)
            assert log.recovery.damages == []
            if log.log_end_offset < at:
                assert replicated
                log.skip_lost()  # it is to lead
                log.core.set_high_watermark(log.log_end_offset)
            assert log.log_end_offset >= at
            log.truncate(at)
            assert (log.log_end_offset, is_prefix(log, ALL)) == (at, len(kept))
        if not killed:
            break
    assert 2 < number < 99


@pytest.mark.parametrize("to", [0, 10, 60, 100])
def test_a_new_beginning_that_fails_at_any_call_leaves_a_log_that_is_only_shorter(
    tmp_path: Path, to: int
) -> None:
    for number in range(100):
        path = tmp_path / str(number)
        files = FailingFiles()
        log = failing_log(path, files)
        failed = files.fails(number, partial(log.restart, to))
        is_prefix(log, ALL)
        assert all(Path(segment.path).exists() for segment in log.segments)
        with log.log_dir:
            log.restart(to)
            assert (log.log_start_offset, log.log_end_offset, offsets(log)) == (to, to, [])
            assert log.append(b"first") == to
        with open_log_dir(path) as directory:
            assert offsets(directory.log("t")) == [to]
        if not failed:
            break
    assert 2 < number < 99


@pytest.mark.parametrize("at", [20, 25])
def test_a_file_that_could_not_be_removed_makes_room_for_new_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    files = Files()
    log = make(tmp_path, files)
    with log.log_dir:
        log.restart(20)
        log.append(b"value")
        left = Path(log.segments[0].path)
        with monkeypatch.context() as patch:
            patch.setattr(files, "replace", fail)
            with pytest.raises(OSError, match="no"):
                log.restart(10)
        assert left.exists()
        log.append_many([b"value"] * (at - 10))
        log.roll()
        assert left.exists() == (at == 20)
        log.append(b"value")
        log.core.set_high_watermark(at + 1)
        log.enforce_retention()
        assert [Path(segment.path).exists() for segment in log.segments] == [True, True]
    with open_log_dir(tmp_path) as directory:
        log = directory.log("t")
        assert (log.recovery.damages, log.recovery.losses) == ([], [])
        assert offsets(log) == [*range(10, at + 1)]


def fail(*_: object) -> None:
    raise OSError(errno.EIO, "no")


@pytest.mark.parametrize("to", [0, 20, 100])
def test_who_reads_while_a_log_begins_elsewhere_finds_less_and_no_damage(
    tmp_path: Path, to: int
) -> None:
    files = Files()
    log = make(tmp_path, files, roll=8)
    with log.log_dir:
        assert read(log) == list(range(END))
        found: list[list[int]] = []
        files.when_cut = lambda: found.append(read(log))
        log.restart(to)
        assert found == [[]]
        assert log.log_dir.state.damages == 0
