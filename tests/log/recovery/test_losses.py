"""Files that are shorter than the index knows, or gone: the loss is reported, and no offset is
assigned twice.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import kstore
from kstore.log import Log, LogConfig, LogError, open_log_dir
from kstore.log.index.index_store import LogState, boot_id
from kstore.log.local.recovery_report import Loss
from tests.log.handling import fill_segments, remove_index, replicated_dir


def make(path: Path, *, close: bool = True) -> tuple[list[Path], list[int]]:
    """A log of three segments with ten one-record batches each, and the sizes of one batch."""
    with kstore.open_log(path, index_interval_bytes=200) as log:
        fill_segments(log, range(30))
        files = [Path(segment.path) for segment in log.segments]
    return files, [file.stat().st_size // 10 for file in files]


def numbers(log: Log) -> list[int]:
    """The numbers in the records, which are their offsets."""
    for record in log.records():
        assert record.value == b"value %03d" % record.offset
    return [record.offset for record in log.records()]


@pytest.mark.parametrize("extra", [0, 30])
def test_a_sealed_segment_that_was_cut_is_a_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, extra: int
) -> None:
    files, sizes = make(tmp_path)
    os.truncate(files[1], 6 * sizes[1] + extra)
    with caplog.at_level(logging.ERROR, "kstore.log"), kstore.open_log(tmp_path) as log:
        assert log.recovery.losses == [Loss(str(files[1]), 16, 20)]
        assert log.recovery.lost_offsets == log.log_dir.lost_offsets == 4
        assert numbers(log) == [*range(16), *range(20, 30)]
        assert log.append(b"value 030") == 30
    [record] = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert f"log-0: offsets 16 to 19 are lost from {files[1]}" in record.getMessage()


@pytest.mark.parametrize("left", [0, 4, 9])
@pytest.mark.parametrize("extra", [0, 7])
def test_offsets_of_an_active_segment_that_was_cut_are_not_given_again(
    tmp_path: Path, left: int, extra: int
) -> None:
    files, sizes = make(tmp_path)
    os.truncate(files[2], left * sizes[2] + extra)
    with kstore.open_log(tmp_path) as log:
        assert log.recovery.losses == [Loss(str(files[2]), 20 + left, 30)]
        assert numbers(log) == list(range(20 + left))
        assert log.log_end_offset == 30
        assert log.append(b"value 030") == 30
    with kstore.open_log(tmp_path) as log:
        assert numbers(log) == [*range(20 + left), 30]
        assert log.recovery.losses == []


@pytest.mark.parametrize("gone", [{2}, {1}, {0}, {1, 2}, {0, 1, 2}])
def test_segments_that_are_gone_are_losses(tmp_path: Path, gone: set[int]) -> None:
    files, _ = make(tmp_path)
    for number in gone:
        files[number].unlink()
    with kstore.open_log(tmp_path) as log:
        expected = [Loss(str(files[n]), 10 * n, 10 * n + 10) for n in sorted(gone)]
        assert log.recovery.losses == expected
        kept = [n for n in range(30) if n // 10 not in gone]
        assert numbers(log) == kept
        assert log.append(b"value 030") == 30
        assert numbers(log) == [*kept, 30]
    with kstore.open_log(tmp_path) as log:
        assert numbers(log) == [*kept, 30]
        assert log.append(b"value 031") == 31


@pytest.mark.parametrize("swap", [False, True])
def test_a_segment_that_is_gone_is_noticed_although_the_folder_has_its_timestamp(
    tmp_path: Path, *, swap: bool
) -> None:
    files, _ = make(tmp_path)
    folder = files[0].parent
    os.utime(folder, (1, 1))
    with kstore.open_log(tmp_path) as log:
        log.append(b"value 030")
    assert folder.stat().st_mtime == 1
    if swap:  # what 0.1.0 left where it failed
        merged = files[0].read_bytes() + files[1].read_bytes()
        files[0].with_suffix(".log.swap").write_bytes(merged)
    files[1].unlink()
    os.utime(folder, (1, 1))
    with kstore.open_log(tmp_path) as log:
        assert log.recovery.losses == ([] if swap else [Loss(str(files[1]), 10, 20)])
        assert numbers(log) == [n for n in range(31) if swap or n // 10 != 1]
    assert not list(folder.glob("*.swap"))


def test_what_retention_and_a_truncation_removed_is_no_loss(tmp_path: Path) -> None:
    make(tmp_path / "log")
    with kstore.open_log(tmp_path / "log", index_interval_bytes=200) as log:
        log.delete_before(12)
        log.truncate(25)
        shutil.copytree(tmp_path / "log", tmp_path / "killed")
    for path in ("log", "killed"):
        with kstore.open_log(tmp_path / path) as log:
            assert log.recovery.losses == []
            assert numbers(log) == list(range(12, 25))
            assert log.append(b"value 025") == 25


def test_segments_deleted_just_before_a_kill_are_no_loss(tmp_path: Path) -> None:
    make(tmp_path / "log")
    with kstore.open_log(tmp_path / "log", retention_ms=1) as log:
        log.log_dir.maintenance.stop()  # no more checkpoints
        log.enforce_retention(2**50)
        shutil.copytree(tmp_path / "log", tmp_path / "killed")
    with kstore.open_log(tmp_path / "killed") as log:
        assert log.recovery.losses == []
        assert log.log_start_offset == log.log_end_offset == 30


def test_a_replica_reports_its_real_end_and_leaves_out_what_it_lost_when_it_leads(
    tmp_path: Path,
) -> None:
    with open_log_dir(tmp_path) as directory:
        log = directory.log("t")
        for _ in range(10):
            log.append(b"x")
        file, size = Path(log.segments[-1].path), log.size_bytes // 10
    os.truncate(file, 6 * size)
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        assert log.recovery.losses == [Loss(str(file), 6, 10)]
        assert log.log_end_offset == 6  # its leader has the rest
        log.skip_lost()
        assert log.log_end_offset == 10
        assert log.append(b"next") == 10
        log.skip_lost()
        assert log.log_end_offset == 11


def test_what_a_replica_lost_is_known_when_it_leads_only_after_further_restarts(
    tmp_path: Path,
) -> None:
    with open_log_dir(tmp_path) as directory:
        log = directory.log("t")
        for number in range(10):
            log.append_many([b"x"], leader_epoch=number // 3)
        file, size = Path(log.segments[-1].path), log.size_bytes // 10
    for left in (4, 2, 2):
        os.truncate(file, left * size)
        with replicated_dir(tmp_path) as directory:
            log = directory.log("t")
            assert log.log_end_offset == left
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        log.skip_lost()
        assert log.core.epochs.as_list() == [(0, 0), (1, 3), (2, 6), (3, 9)]
        assert log.append(b"next") == 10
    with replicated_dir(tmp_path) as directory:
        assert not directory.log("t").has_lost


def lose_power(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, left: int, boot: bytes = b"another"
) -> None:
    """A log of three segments with ten batches each, and a leader epoch every four. When the
    machine stopped, this many batches of the second segment and all of the third were on disk.
    """
    killed = path.with_name("killed")
    with open_log_dir(killed) as directory:
        log = directory.log("t")
        directory.maintenance.stop()  # nothing is synced but what the test syncs
        fill_segments(log, range(12), in_epoch=4)
        log.flush()
        directory.maintenance.save([log.local])
        fill_segments(log, range(12, 30), in_epoch=4)
        files = [Path(segment.path) for segment in log.segments]
        shutil.copytree(killed, path)
    file = path / files[1].relative_to(killed)
    os.truncate(file, file.stat().st_size // 10 * left)
    monkeypatch.setattr("kstore.log.log_dir.boot_id", lambda: boot.ljust(16))


@pytest.mark.parametrize("opened", [1, 3])
def test_a_replica_that_lost_unsynced_records_within_its_log_ends_there_if_another_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: int
) -> None:
    path = tmp_path / "log"
    lose_power(path, monkeypatch, left=4)
    for _ in range(opened - 1):
        with replicated_dir(path) as directory:
            assert directory.log("t").has_hole, "nobody led: the next life has to know, too"
    with replicated_dir(path) as directory:
        log = directory.log("t")
        assert log.log_end_offset == 30
        log.cut_at_hole()
        assert (log.log_end_offset, log.has_hole) == (14, False)
        assert log.core.epochs.as_list() == [(n, 4 * n) for n in range(4)]
    with replicated_dir(path) as directory:
        log = directory.log("t")
        assert not log.has_hole
        log.skip_lost()  # it has to lead after all
        known = [(n, 4 * n) for n in range(8) if n != 4]  # the start of 4 was never known
        assert log.core.epochs.as_list() == known
        assert log.append(b"value 030") == 30
        log.core.set_high_watermark(31)
        assert numbers(log) == [*range(14), 30]


def test_a_replica_that_leads_keeps_what_is_behind_what_it_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_power(tmp_path / "log", monkeypatch, left=4)
    for _ in range(2):
        with replicated_dir(tmp_path / "log") as directory:
            log = directory.log("t")
            log.skip_lost()
            log.cut_at_hole()
            log.core.set_high_watermark(30)
            assert numbers(log) == [*range(14), *range(20, 30)]


def test_gaps_that_were_on_the_disk_are_no_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log_dir(tmp_path / "log") as directory:
        log = directory.log("t")
        log.append(b"value 000")
        log.local.begin_segment(5)
        log.append_at(7, [b"value 007"])
    monkeypatch.setattr("kstore.log.log_dir.boot_id", lambda: b"another".ljust(16))
    with replicated_dir(tmp_path / "log") as directory:
        assert not directory.log("t").has_hole


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("is_synced", [True, False])
def test_the_gap_in_which_a_log_was_cut_is_a_hole_only_if_it_was_not_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, *, is_synced: bool
) -> None:
    with replicated_dir(tmp_path / "log", cleanup_policy=(policy,)) as directory:
        log = directory.log("t")
        directory.maintenance.stop()
        for number in range(10):
            log.append_many([b"value %03d" % number], leader_epoch=0)
        log.append_at(30, [b"value 030"], leader_epoch=1)
        if is_synced:
            log.flush()
        log.truncate(20)
        directory.maintenance.save([log.local])
        shutil.copytree(tmp_path / "log", tmp_path / "cut")
    monkeypatch.setattr("kstore.log.log_dir.boot_id", lambda: b"another".ljust(16))
    with replicated_dir(tmp_path / "cut", cleanup_policy=(policy,)) as directory:
        log = directory.log("t")
        assert (log.log_end_offset, log.has_hole) == (20, not is_synced)
        log.cut_at_hole()
        assert (log.log_end_offset, log.has_lost) == ((20, False) if is_synced else (10, True))
        log.core.set_high_watermark(log.log_end_offset)
        assert numbers(log) == list(range(10))
        assert log.core.epochs.as_list() == [(0, 0)]


def test_a_kill_takes_nothing_within_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_power(tmp_path / "log", monkeypatch, left=4, boot=boot_id())
    with replicated_dir(tmp_path / "log") as directory:
        assert not directory.log("t").has_hole


def test_a_state_tells_of_what_is_lost_unless_an_older_version_wrote_it() -> None:
    lost = {"lost_until": 9, "lost_epochs": [(4, 5), (6, 7)]}
    state = LogState(epochs=[(3, 0)], hole_from=8, **lost)
    packed = state.pack()
    assert LogState.unpack(packed) == state
    older = packed[: -4 - 2 * 12 - 20]
    older += zlib.crc32(older).to_bytes(4, "little")
    assert LogState.unpack(older) == LogState(epochs=[(3, 0)])


def test_a_replica_that_has_fetched_what_it_lost_skips_nothing(tmp_path: Path) -> None:
    with open_log_dir(tmp_path) as directory:
        log = directory.log("t")
        log.append_many([b"x"] * 10)
        file = Path(log.segments[-1].path)
    os.truncate(file, 0)
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        assert log.log_end_offset == 0
        log.append_many([b"x"] * 10)
        log.skip_lost()
        assert (log.log_end_offset, len(log.segments)) == (10, 1)


@pytest.mark.parametrize("begins_segment", [True, False])
def test_what_is_left_out_is_gone_and_its_offsets_are_not_given_again(
    tmp_path: Path, *, begins_segment: bool
) -> None:
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        for number in range(10):
            if number == 6 and begins_segment:
                log.roll()
            log.append(b"value %03d" % number)
        log.core.set_high_watermark(4)
        log.leave_out(6)
        assert (log.log_end_offset, log.high_watermark, directory.lost_offsets) == (10, 4, 4)
        assert log.append(b"value 010") == 10
        log.core.set_high_watermark(11)
        assert numbers(log) == [*range(6), 10]
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        assert log.recovery.losses == []
        assert log.log_end_offset == 11
        assert numbers(log) == [*range(6), 10]


def test_a_clean_log_has_nothing_to_tell(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path)
    with caplog.at_level(logging.INFO, "kstore.log"), kstore.open_log(tmp_path):
        assert caplog.records == []


def test_segments_that_were_deleted_are_no_loss_where_the_last_checkpoint_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = kstore.open_log(tmp_path, retention_bytes=1)
    log.append_many([b"old"] * 5)
    log.roll()
    log.append_many([b"new"] * 5)
    log.log_dir.maintenance.save([log.local])

    def fail(*args: object, **named: object) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(log.log_dir.maintenance, "save_closing", fail)
    assert log.enforce_retention() == 1
    with pytest.raises(kstore.log.LogStorageError):
        log.close()
    assert list(tmp_path.glob("*/*.deleted"))
    with kstore.open_log(tmp_path) as log:
        assert log.recovery.losses == []
    assert not list(tmp_path.glob("*/*.deleted"))


@pytest.mark.parametrize("left", [0, 2, 3, 5, 6, 9])
def test_epochs_that_began_within_what_a_replica_lost_are_known_when_it_leads(
    tmp_path: Path, left: int
) -> None:
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        for number in range(10):
            log.append_many([b"x"], leader_epoch=number // 3)
        file, size = Path(log.segments[-1].path), log.size_bytes // 10
        begun = [(0, 0), (1, 3), (2, 6), (3, 9)]
        assert log.core.epochs.as_list() == begun
    os.truncate(file, left * size)
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        assert log.core.epochs.as_list() == [each for each in begun if each[1] < max(left, 1)]
        log.skip_lost()
        assert log.core.epochs.as_list() == begun
        assert log.log_end_offset == 10


def lose_index(path: Path, *, gap: bool) -> None:
    """A log of three segments and no index; the middle of the second segment, or the whole segment,
    is missing.
    """
    with open_log_dir(path) as directory:
        log = directory.log("t")
        fill_segments(log, range(30), in_epoch=4)
        second = Path(log.segments[1].path)
    if gap:
        second.unlink()
    remove_index(path)


@pytest.mark.parametrize("gap", [True, False])
def test_a_replica_without_an_index_takes_a_gap_between_segments_for_a_hole(
    tmp_path: Path, gap: bool
) -> None:
    lose_index(tmp_path, gap=gap)
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        assert log.has_hole == gap
        log.cut_at_hole()
        assert log.log_end_offset == (10 if gap else 30)
        log.skip_lost()  # it has to lead after all
        assert log.append(b"value 030") == 30


def test_a_compacted_log_without_an_index_and_one_of_a_single_process_may_have_gaps(
    tmp_path: Path,
) -> None:
    lose_index(tmp_path, gap=True)
    for policy, replicated in (("compact", True), ("delete", False)):
        with open_log_dir(tmp_path) as directory:
            directory.replicated = replicated
            log = directory.log("t", config=LogConfig(cleanup_policy=(policy,)))
            assert not log.has_hole
        remove_index(tmp_path)


def test_retention_at_the_moment_when_a_log_is_cut_at_its_hole_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_index(tmp_path, gap=True)
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        log.core.set_high_watermark(30)
        threads: list[threading.Thread] = []
        first_hole = log.local.first_hole

        def delete_meanwhile() -> int:
            found = first_hole()
            thread = threading.Thread(target=suppressed, args=(log.delete_before, 25))
            threads.append(thread)
            thread.start()
            thread.join(0.2)  # where it need not wait it is done by then
            return found

        monkeypatch.setattr(log.local, "first_hole", delete_meanwhile)
        log.cut_at_hole()
        threads[0].join()
        assert log.log_end_offset == 10


def suppressed(do: Callable[[int], object], offset: int) -> None:
    """The log may be too short at that time."""
    with suppress(LogError):
        do(offset)
