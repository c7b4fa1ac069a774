"""A log as a replica uses it: others set the high watermark, which survives a restart and is never
above what was committed. After truncation, the log is as if it had never been longer.
"""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path

import pytest

from kstore.log import Log, LogStorageError, open_log_dir
from kstore.log.local import checkpoint
from kstore.log.settings import LogConfig
from kstore.record import build_batch
from kstore.record.control import ControlType
from tests.log import handling
from tests.log.handling import remove_index, replicated_dir
from tests.record.producer_batches import marker, produced
from tests.reference.fault_fs import FaultyFileSystem

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=100)


def values(log: Log) -> list[bytes | None]:
    log.core.set_high_watermark(log.log_end_offset)
    return handling.values(log)


def test_the_high_watermark_begins_where_it_was_written_down(tmp_path: Path) -> None:
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        for _ in range(5):
            log.append(b"x")
        assert log.high_watermark == 0  # it is not known to be committed
        log.core.set_high_watermark(3)
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        assert (log.high_watermark, log.log_end_offset) == (3, 5)


def test_after_kill_the_high_watermark_is_not_above_the_last_one(tmp_path: Path) -> None:
    with replicated_dir(tmp_path / "a") as directory:
        log = directory.log("t")
        for number in range(20):
            log.append(b"x")
            if number % 5 == 0:
                log.core.set_high_watermark(number)
                checkpoint.write_now(log.local)
        shutil.copytree(tmp_path / "a", tmp_path / "killed", ignore=shutil.ignore_patterns(".lock"))
    with replicated_dir(tmp_path / "killed") as directory:
        log = directory.log("t")
        assert (log.high_watermark, log.log_end_offset) == (15, 20)


def test_without_an_index_nothing_is_known_to_be_committed(tmp_path: Path) -> None:
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        log.append_many([b"x"] * 5)
        log.core.set_high_watermark(5)
    remove_index(tmp_path)
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        assert (log.high_watermark, log.log_end_offset) == (0, 5)


@pytest.mark.parametrize("offset", [0, 3, 10, 1000])
def test_a_log_begins_anew_elsewhere(tmp_path: Path, offset: int) -> None:
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t", config=SMALL)
        for _ in range(10):
            log.append_many([bytes(500)], leader_epoch=4)
        assert len(log.core.segments) > 1
        log.restart(offset)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (offset,) * 3
        assert log.core.epochs.as_list() == []
        assert log.append_many([b"new"], leader_epoch=7).base_offset == offset
    with replicated_dir(tmp_path) as directory:
        log = directory.log("t")
        assert (log.log_start_offset, log.log_end_offset) == (offset, offset + 1)
        assert log.core.epochs.as_list() == [(7, offset)]
        assert values(log) == [b"new"]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("call", ["unlink", "open"])
def test_a_new_beginning_that_fails_half_way_leaves_a_shorter_log(
    tmp_path: Path, call: str, number: int
) -> None:
    fs = FaultyFileSystem(str(tmp_path))
    with replicated_dir(tmp_path, fs) as directory:
        log = directory.log("t", config=SMALL)
        for at in range(12):
            log.append(b"%d" % at * 200)
        before = values(log)
        fs.fail(call, errno.EIO, after=number if call == "unlink" else 0)
        try:
            log.restart(50)
        except (OSError, LogStorageError):
            killed = tmp_path.with_name(tmp_path.name + "-killed")
            shutil.copytree(tmp_path, killed, ignore=shutil.ignore_patterns(".lock"))
            log.restart(50)  # it can be tried again
            with replicated_dir(killed) as found:
                left = values(found.log("t"))
                assert left == before[: len(left)]
        fs.faults.clear()
        assert log.append(b"new") == 50
        assert values(log) == [b"new"]


class Writer:
    """A leader's log of idempotent and transactional batches."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.dir = open_log_dir(str(folder))
        self.log = self.dir.log("t")
        self.chance = chance
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()

    def write(self) -> None:
        producer = self.chance.randrange(4)
        if producer in self.open and self.chance.random() < 0.3:
            kind = self.chance.choice((ControlType.ABORT, ControlType.COMMIT))
            self.log.append_batches(bytearray(marker(kind, producer)), origin="coordinator")
            self.open.discard(producer)
            return
        count = self.chance.randint(1, 3)
        sequence = self.sequences.get(producer, 0)
        batch = produced(
            *[bytes(100)] * count, producer=producer, sequence=sequence,
            transactional=producer % 2 == 0, timestamp=1,
        )  # fmt: skip
        self.sequences[producer] = sequence + count
        if producer % 2 == 0:
            self.open.add(producer)
        self.log.append_batches(bytearray(batch))


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("seed", range(15))
def test_after_cuts_and_restarts_the_producers_are_those_of_the_records(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    writer = Writer(tmp_path / "leader", chance)
    directory = replicated_dir(tmp_path / "copy")
    copy = directory.log("t", config=SMALL)
    for _ in range(60):
        what = chance.random()
        if what < 0.7:
            writer.write()
            if chance.random() < 0.7:
                data, _ = writer.log.core.read(copy.log_end_offset, 1 << 40, 1 << 20)
                if data:
                    copy.append_batches(data, origin="replica")
                    copy.core.set_high_watermark(chance.randint(0, copy.log_end_offset))
        elif what < 0.85:
            # Another leader's records, cut off again.
            end = copy.log_end_offset
            for at in range(chance.randint(1, 12)):
                other = build_batch(
                    [bytes(200)], timestamp=1, base_offset=end + at, leader_epoch=9,
                    producer_id=7, producer_epoch=0, base_sequence=at,
                )  # fmt: skip
                copy.append_batches(other, origin="replica")
            if chance.random() < 0.5:
                checkpoint.write_now(copy.local)
            copy.truncate(end)
        elif what < 0.92:
            copy.truncate(chance.randint(copy.log_start_offset, copy.log_end_offset))
        else:
            directory.close()
            directory = replicated_dir(tmp_path / "copy")
            copy = directory.log("t", config=SMALL)
    check_producers(tmp_path, copy)
    directory.close()
    directory = replicated_dir(tmp_path / "copy")
    check_producers(tmp_path, directory.log("t"))
    directory.close()
    writer.dir.close()


def check_producers(folder: Path, copy: Log) -> None:
    """Against a log that has never held anything else."""
    shutil.rmtree(folder / "fresh", ignore_errors=True)
    with replicated_dir(folder / "fresh") as directory:
        fresh = directory.log("t")
        offset = 0
        while offset < copy.log_end_offset:
            data, offset = copy.core.read(offset, copy.log_end_offset, 1 << 20)
            fresh.append_batches(data, origin="replica")
        assert known_of_producers(copy) == known_of_producers(fresh)
        assert copy.core.epochs.as_list() == fresh.core.epochs.as_list()


def known_of_producers(log: Log) -> tuple[bytes, list[tuple[int, int]]]:
    """Sequences and open transactions, and the aborted ones (not how far readers were then)."""
    producers = log.core.producers
    aborted = producers.aborted_between(0, 1 << 60)
    packed = producers.pack()
    return packed[: len(packed) - 32 * len(aborted)], aborted
