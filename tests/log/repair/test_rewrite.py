"""Damage written again from another replica: only what fits takes its place, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

import kstore
from kstore.log import CorruptLogError, Log
from kstore.record import build_batch
from tests.log.handling import flip_bit, remove_index
from tests.log.segments.test_damage import COUNT, make, read_all

EVERY = {n: b"value %d" % n for n in range(COUNT * 2)}
BASE_OFFSET, EPOCH, RECORDS = 4, 15, 65


def meet(log: Log, offset: int) -> None:
    """Read damage, so that it becomes known."""
    with pytest.raises(CorruptLogError):
        for _ in log.records(offset):
            pass


@pytest.mark.quick_one_in(8)
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("number", [0, 2, 4, 5, 6, 8])
@pytest.mark.parametrize("at", [BASE_OFFSET, EPOCH, RECORDS, 8, 17])
def test_the_same_batches_take_the_place_of_damage(
    tmp_path: Path, at: int, number: int, indexed: bool
) -> None:
    path = tmp_path / "log"
    file, start, end = make(path)[number]
    whole = file.read_bytes()
    with kstore.open_log(path) as log:
        epochs = log.core.epochs.as_list()
    flip_bit(file, start + at, 3)
    if not indexed:
        remove_index(path)
    with kstore.open_log(path) as log:
        if indexed:
            meet(log, number * 2)
        [damage] = log.damaged_parts()
        assert log.rewrite(damage, whole[start:end]) is None
        assert file.read_bytes()[: len(whole)] == whole
        assert log.damaged_parts() == []
        assert log.log_dir.repaired_parts == 1
        assert log.core.epochs.as_list() == epochs
        assert read_all(log) == (EVERY, [])
        assert "not in the log" in str(log.rewrite(damage, whole[start:end]))
        log.append(b"goes on")
    with kstore.open_log(path) as log:
        assert read_all(log) == ({**EVERY, COUNT * 2: b"goes on"}, [])
        assert log.recovery.damages == []


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file, start, end = make(path)[5]
    batch = file.read_bytes()[start:end]
    flip_bit(file, start + RECORDS, 3)
    damaged = file.read_bytes()
    flipped = bytearray(batch)
    flipped[-1] ^= 1

    def changed(at: int, value: bytes) -> bytes:
        return batch[:at] + value + batch[at + len(value) :]

    with kstore.open_log(path) as log:
        meet(log, 10)
        [damage] = log.damaged_parts()
        for data, why in [
            (b"", "0 bytes of batches"),
            (batch + batch, f"{2 * len(batch)} bytes of batches"),
            (build_batch([b"more than there was" * 9], base_offset=10), "bytes of batches, but"),
            (batch[:-1], "not whole, valid batches"),
            (bytes(flipped), "not whole, valid batches"),
            (changed(0, (9).to_bytes(8, "big")), "offsets 9 to 10 do not fit in 10 to 11"),
            (changed(0, (11).to_bytes(8, "big")), "offsets 11 to 12 do not fit in 10 to 11"),
            (changed(12, (4).to_bytes(4, "big")), "leader epoch 4 does not fit in 5 to 5"),
            (changed(12, (6).to_bytes(4, "big")), "leader epoch 6 does not fit in 5 to 5"),
        ]:
            assert why in str(log.rewrite(damage, data))
            assert file.read_bytes() == damaged
            assert log.damaged_parts() == [damage]
        assert log.log_dir.repaired_parts == 0


def test_a_producer_whose_batch_was_hidden_is_known_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with kstore.open_log(path) as log:
        log.append(b"before")
        data = build_batch([b"idempotent"], producer_id=7, producer_epoch=0, base_sequence=0)
        log.append_batches(bytearray(data))
        log.append(b"behind")
        file = Path(log.segments[0].path)
        start = log.core.slice_at(1, 3, 0)[1]  # type: ignore[index]
    whole = file.read_bytes()
    flip_bit(file, start + RECORDS, 3)
    remove_index(path)
    with kstore.open_log(path) as log:
        [damage] = log.damaged_parts()
        assert log.rewrite(damage, whole[damage.position : damage.end_position]) is None
        again = log.append_batches(bytearray(data))
        assert (again.base_offset, log.log_end_offset) == (1, 3)  # a duplicate
