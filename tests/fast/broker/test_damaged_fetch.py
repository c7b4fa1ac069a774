"""Fetch from a damaged segment: records around the damage, and an error for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.errors import ErrorCode
from tests.broker.harness.plane_harness import Plane
from tests.fast.broker.test_fetch_path import append, request
from tests.record_requests import fetch_part as part
from tests.record_requests import only


def fetch(plane: Plane, offset: int, **more: int) -> tuple[int, bytes]:
    """The error code and the records of one fetch."""
    answer = only(plane.client().call(12, request(12, part(offset, **more))))
    return answer.error_code, answer.records or b""


def damage(plane: Plane, position: int, bit: int) -> None:
    """Flip a bit in the active segment's file."""
    file = Path(plane.partition().log.segments[-1].path)
    data = bytearray(file.read_bytes())
    data[position] ^= 1 << bit
    with file.open("r+b") as opened:
        opened.write(data)


# Of a batch: the highest bit of the length, the base offset in the middle and at the end, the
# magic, the leader epoch.
@pytest.mark.parametrize(("at", "bit"), [(8, 6), (4, 0), (7, 1), (0, 7), (16, 0), (15, 2)])
@pytest.mark.parametrize("number", [0, 2, 4])
def test_only_the_damaged_batch_is_not_served(plane: Plane, number: int, at: int, bit: int) -> None:
    batches = [append(plane, 3) for _ in range(5)]
    damage(plane, sum(map(len, batches[:number])) + at, bit)
    found = []
    for first in range(5):
        code, records = fetch(plane, 3 * first)
        if first == number:
            assert (code, records) == (ErrorCode.CORRUPT_MESSAGE, b"")
        else:
            stop = number if first < number else 5
            assert (code, records) == (ErrorCode.NONE, b"".join(batches[first:stop]))
        found.append(code)
    assert fetch(plane, 3 * number + 2)[0] == ErrorCode.CORRUPT_MESSAGE
    assert plane.partition().log.log_dir.damages == 1


def test_a_small_fetch_before_the_damage_does_not_reach_it(plane: Plane) -> None:
    batches = [append(plane, 3) for _ in range(5)]
    size = len(batches[0])
    damage(plane, 2 * size + 7, 2)
    assert fetch(plane, 0, max_bytes=size) == (ErrorCode.NONE, batches[0])
    assert fetch(plane, 3, max_bytes=size) == (ErrorCode.NONE, batches[1])
    assert fetch(plane, 9, max_bytes=size) == (ErrorCode.NONE, batches[3])


def test_a_replica_takes_no_batches_whose_epochs_fall(plane: Plane, tmp_path: Path) -> None:
    from kstore.log import LogError, open_log_dir
    from kstore.record import build_batch

    high = build_batch([b"x"], base_offset=0, leader_epoch=7)
    low = build_batch([b"x"], base_offset=1, leader_epoch=6)
    with open_log_dir(tmp_path / "replica") as log_dir:
        log = log_dir.log("t")
        with pytest.raises(LogError) as caught:
            log.append_batches(bytes(high) + bytes(low), origin="replica")
        assert caught.value.error_code == ErrorCode.CORRUPT_MESSAGE
        assert log.append_batches(high, origin="replica").base_offset == 0
