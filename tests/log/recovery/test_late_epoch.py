"""A leader epoch in the last batch that no leader has had: no checksum covers it, and no batch
follows that contradicts it. A replica that learns the current epoch treats the batch as damaged.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kstore
from kstore._fast.record.builder import build_batch
from kstore.log import CorruptLogError
from kstore.log.errors import LogError
from tests.log.handling import flip_bit, remove_index, values

EPOCH_BYTE = 14
LARGE = 2048
MOST = 4


def make(path: Path, epochs: list[int]) -> tuple[Path, list[int]]:
    """A log with a batch of each of these epochs; its file, and where each batch begins."""
    starts = []
    with kstore.open_log(path) as log:
        for number, epoch in enumerate(epochs):
            starts.append(log.segments[-1].size_bytes)
            log.append_many([b"value %d" % number], leader_epoch=epoch)
        return Path(log.segments[-1].path), starts


@pytest.mark.parametrize("epochs", [[0], [0, 0, 0], [0, 3]])
def test_a_last_batch_with_an_epoch_that_no_leader_had_is_damaged(
    tmp_path: Path, epochs: list[int]
) -> None:
    file, starts = make(tmp_path, epochs)
    last, true_epoch = len(epochs) - 1, epochs[-1]
    whole = file.read_bytes()
    flip_bit(file, starts[-1] + EPOCH_BYTE, 3)
    remove_index(tmp_path)
    with kstore.open_log(tmp_path) as log:
        assert log.latest_epoch == LARGE + true_epoch
        log.doubt_last_batch(MOST)
        [damage] = log.damaged_parts()
        assert (damage.first_offset, damage.next_offset) == (last, last + 1)
        at = starts[-1] + 12
        assert damage.reason == (
            f"leader epoch {LARGE + true_epoch} in bytes {at} to {at + 3}, expected at most {MOST}"
        )
        assert log.latest_epoch == (0 if last else -1)
        assert log.log_end_offset == last + 1
        with pytest.raises(CorruptLogError):
            list(log.records(last))
        log.append_many([b"next"], leader_epoch=MOST)
        log.doubt_last_batch(MOST)
        assert log.damaged_parts() == [damage]
        assert log.rewrite(damage, whole[starts[-1] :]) is None
        expected = [b"value %d" % n for n in range(last + 1)] + [b"next"]
        assert values(log) == expected
    remove_index(tmp_path)
    with kstore.open_log(tmp_path) as log:
        assert (log.recovery.damages, values(log)) == ([], expected)


@pytest.mark.parametrize(
    "epochs",
    [[0, MOST], [0, MOST + 1000], [0, LARGE, LARGE], [], [LARGE, LARGE], [0, LARGE + 1024]],
    ids=["not above", "restored store", "two", "empty", "all", "two bits"],
)
def test_batches_that_no_turned_bit_explains_stay(tmp_path: Path, epochs: list[int]) -> None:
    make(tmp_path, epochs)
    with kstore.open_log(tmp_path) as log:
        log.doubt_last_batch(MOST)
        assert log.damaged_parts() == []
        assert log.latest_epoch == max(epochs, default=-1)
        assert values(log) == [b"value %d" % n for n in range(len(epochs))]


def test_a_batch_with_an_epoch_of_a_recovered_partition_stays(tmp_path: Path) -> None:
    """Its clock gave it after one restore, and the store is restored from a copy of before. One
    turned bit would explain it, too: without bit 25, it is between the epochs 8 and ``most``.
    """
    by_clock, most = 60_500_000, 60_100_000
    make(tmp_path, [8, by_clock])
    with kstore.open_log(tmp_path) as log:
        log.doubt_last_batch(most, range(60_000_000, by_clock + 1))
        assert (log.damaged_parts(), log.latest_epoch) == ([], by_clock)
        log.doubt_last_batch(most, range(60_000_000, by_clock))
        assert log.latest_epoch == 8  # such a clock did not give it


def test_no_batch_is_appended_in_a_lower_epoch_than_the_last_one(tmp_path: Path) -> None:
    """It would hide the last one: the log would forget its epoch, and not read it any more."""
    with kstore.open_log(tmp_path) as log:
        log.append_many([b"a"], leader_epoch=4)
        for append in (
            lambda: log.append_many([b"b"], leader_epoch=3),
            lambda: log.append_at(7, [b"b"], leader_epoch=3),
            lambda: log.append_batches(build_batch([b"b"]), leader_epoch=3, origin="coordinator"),
        ):
            with pytest.raises(LogError, match="the leader epoch is below that of the last batch"):
                append()
        log.append_many([b"c"], leader_epoch=4)
        log.append(b"d")
        assert values(log) == [b"a", b"c", b"d"]
        assert log.latest_epoch == 4
