"""Idempotent and transactional appends, through a log: duplicates, sequences, epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

import kstore
from kstore._fast.log.producer_table import ProducerTable
from kstore.log import Log, ProducerStateError
from kstore.record import ControlType
from tests.record.producer_batches import marker, produced

LAST = 2**31 - 1


@pytest.fixture
def log(tmp_path: Path):
    with kstore.open_log(tmp_path) as opened:
        yield opened


def send(log: Log, sequence: int, count: int = 1, *, pid: int = 7, epoch: int = 0, txn=False):
    """Append one batch of a producer."""
    batch = produced(
        *[b"x"] * count, producer=pid, epoch=epoch, sequence=sequence, transactional=txn,
        timestamp=1000,
    )  # fmt: skip
    return log.append_batches(batch)


def end(log: Log, *, commit: bool, pid: int = 7, **epochs: int):
    """Append a transaction's marker."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return log.append_batches(marker(kind, pid, timestamp=1000, **epochs), origin="coordinator")


def code(error: pytest.ExceptionInfo[ProducerStateError]) -> int:
    return error.value.error_code


def test_a_duplicate_of_the_last_five_is_answered_with_its_offsets(log: Log) -> None:
    for at in range(6):
        send(log, at * 2, 2)
    info = send(log, 2, 2)
    assert (info.duplicate, info.base_offset, info.last_offset) == (True, 2, 3)
    assert log.log_end_offset == 12
    with pytest.raises(ProducerStateError) as error:
        send(log, 0, 2)
    assert code(error) == 45


def test_a_gap_in_the_sequence_is_refused_and_the_log_goes_on(log: Log) -> None:
    send(log, 0)
    with pytest.raises(ProducerStateError) as error:
        send(log, 2)
    assert code(error) == 45
    assert send(log, 1).base_offset == 1


def test_a_producer_that_is_not_known_may_begin_anywhere(log: Log) -> None:
    assert send(log, 4711).base_offset == 0
    assert send(log, 4712).base_offset == 1


def test_a_new_epoch_begins_at_sequence_zero_and_fences_the_old_one(log: Log) -> None:
    send(log, 0)
    with pytest.raises(ProducerStateError) as error:
        send(log, 1, epoch=1)
    assert code(error) == 45
    send(log, 0, epoch=1)
    with pytest.raises(ProducerStateError) as error:
        send(log, 1)
    assert code(error) == 47


def test_sequences_wrap_at_the_largest_int32(log: Log) -> None:
    send(log, LAST - 1, 3)
    assert log.core.producers.entries[7].last_sequence == 0
    assert send(log, LAST - 1, 3).duplicate
    assert send(log, 1).base_offset == 3


def test_an_open_transaction_holds_the_last_stable_offset(log: Log) -> None:
    log.append(b"before")
    send(log, 0, txn=True)
    log.append(b"after")
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    assert [r.value for r in log.read(0, isolation="read_committed")] == [b"before"]
    end(log, commit=True)
    assert log.last_stable_offset == 4
    assert [r.value for r in log.read(0, isolation="read_committed")] == [b"before", b"x", b"after"]


def test_aborted_records_are_only_read_uncommitted(log: Log) -> None:
    send(log, 0, txn=True)
    send(log, 0, pid=8, txn=True)
    end(log, commit=False)
    end(log, commit=True, pid=8)
    assert log.aborted_transactions(0, 4) == [(7, 0)]
    assert [r.offset for r in log.read(0, isolation="read_committed")] == [1]
    assert [r.offset for r in log.read(0)] == [0, 1]


def test_a_record_outside_the_open_transaction_is_refused(log: Log) -> None:
    send(log, 0, txn=True)
    with pytest.raises(ProducerStateError) as error:
        send(log, 1)
    assert code(error) == 48


def test_a_marker_of_a_deposed_coordinator_is_refused(log: Log) -> None:
    send(log, 0, txn=True)
    end(log, commit=True, coordinator_epoch=3)
    send(log, 1, txn=True)
    with pytest.raises(ProducerStateError) as error:
        end(log, commit=True, coordinator_epoch=2)
    assert code(error) == 52


@pytest.mark.parametrize("index", ["kept", "gone"])
def test_all_of_it_is_there_after_reopening(tmp_path: Path, index: str) -> None:
    with kstore.open_log(tmp_path, segment_bytes=300) as log:
        for at in range(8):
            send(log, at)
        send(log, 0, pid=8, txn=True)
        end(log, commit=False, pid=8)
        send(log, 1, pid=8, txn=True)
        stable = log.last_stable_offset
        aborted = log.aborted_transactions(0, 100)
    if index == "gone":
        (tmp_path / ".kstore.mdb").unlink()
    with kstore.open_log(tmp_path, segment_bytes=300) as log:
        assert log.last_stable_offset == stable == 10
        assert log.aborted_transactions(0, 100) == aborted == [(8, 8)]
        assert send(log, 7).duplicate
        assert not send(log, 8).duplicate
        end(log, commit=True, pid=8)
        assert log.last_stable_offset == log.log_end_offset


def test_truncation_takes_producers_back(log: Log) -> None:
    send(log, 0)
    send(log, 1)
    log.truncate(1)
    assert not send(log, 1).duplicate
    assert send(log, 1).duplicate


def test_idle_producers_are_forgotten_but_not_those_with_a_transaction(log: Log) -> None:
    send(log, 0)
    send(log, 0, pid=8, txn=True)
    assert log.core.producers.expire(5000, 3000) == 1
    assert list(log.core.producers.entries) == [8]


def test_a_producer_that_was_forgotten_may_begin_anywhere(log: Log) -> None:
    send(log, 0)
    log.core.producers.expire(5000, 3000)
    assert send(log, 4711).base_offset == 1
    assert send(log, 4711).duplicate


def test_one_append_may_have_batches_of_several_producers(log: Log, tmp_path: Path) -> None:
    with kstore.open_log(tmp_path / "leader") as leader:
        for pid, at in [(7, 0), (8, 0), (7, 1), (8, 1), (9, 0)]:
            send(leader, at, pid=pid)
        log.append_batches(leader.read_batches(0), origin="replica")
    known = log.core.producers.entries
    assert {pid: known[pid].last_sequence for pid in known} == {7: 1, 8: 1, 9: 0}
    assert send(log, 1, pid=8).duplicate
    assert send(log, 2).base_offset == 5


def test_a_snapshot_of_another_version_is_refused() -> None:
    packed = bytearray(ProducerTable().pack())
    packed[0] = 99
    with pytest.raises(ValueError, match="version 99"):
        ProducerTable().unpack(bytes(packed))
