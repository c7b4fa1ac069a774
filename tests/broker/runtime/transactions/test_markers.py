"""A thread appends markers: the transaction ends when its marker is queued, and no later one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC
from kstore.broker.runtime.transactions.markers import Markers
from kstore.broker.runtime.transactions.produce import has_transaction
from kstore.broker.state.transactions.state import TV_2
from kstore.broker.state.transactions.steps import Claim
from kstore.errors import ErrorCode
from kstore.types import TopicPartition
from tests.broker.runtime.coordinators.test_partition_writer import PLACE, Host, play

PRODUCER, EPOCH = 7, 3
CLAIM = Claim(PRODUCER, EPOCH)


def markers(host: Host) -> Markers:
    node: Any = SimpleNamespace(now_ms=lambda: 1)
    return Markers(node, SimpleNamespace(), host.writer, lambda *ended: None)  # type: ignore[arg-type]


def end(host: Host, epoch: int, version: int = 0) -> int:
    return markers(host).write(
        PLACE, (PRODUCER, epoch), 0, committed=False, transaction_version=version
    )


def write(host: Host, epoch: int, sequence: int = 0) -> None:
    batch = build_batch(
        [b"v"], timestamp=1, producer_id=PRODUCER, producer_epoch=epoch,
        base_sequence=sequence, transactional=True,
    )  # fmt: skip
    assert host.writer.write(PLACE, batch, host.told.append)[0] == ErrorCode.NONE


def test_a_transaction_ends_when_its_marker_is_on_the_way_to_the_log(tmp_path: Path) -> None:
    """A batch after the marker would begin a transaction that never ends."""

    async def story(host: Host) -> None:
        write(host, EPOCH)
        assert has_transaction(host.partition, CLAIM)
        host.calm.over_budget = True
        assert end(host, EPOCH) == ErrorCode.NONE
        assert not has_transaction(host.partition, CLAIM)
        assert set(host.partition.ending) == {PRODUCER}
        await host.run()
        assert not has_transaction(host.partition, CLAIM)
        assert not host.partition.ending
        host.calm.over_budget = False
        write(host, EPOCH, 1)
        assert has_transaction(host.partition, CLAIM)

    play(tmp_path, story)


def test_of_two_markers_on_the_way_the_last_one_counts(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        write(host, EPOCH)
        host.calm.over_budget = True
        of = markers(host)
        for _ in range(2):
            assert of.write(PLACE, (PRODUCER, EPOCH), 0, committed=False) == ErrorCode.NONE
        await host.run()
        assert set(host.partition.ending) == {PRODUCER}
        await host.run()
        assert not host.partition.ending

    play(tmp_path, story)


def test_a_marker_behind_others_writes_is_written(tmp_path: Path) -> None:
    """Its offset is not known when it is queued: an earlier batch of a client may be refused."""

    async def story(host: Host) -> None:
        write(host, EPOCH)
        host.calm.over_budget = True
        write(host, EPOCH - 1)
        codes: list[int] = []
        place = TopicPartition(OFFSETS_TOPIC, 0)
        partitions: Any = SimpleNamespace(
            partition=lambda _: host.partition,
            write=lambda _, batch, ended: host.writer.write(PLACE, batch, ended),
        )
        node: Any = SimpleNamespace(now_ms=lambda: 1)
        of = Markers(node, SimpleNamespace(), partitions, lambda index, *_: codes.append(index))  # type: ignore[arg-type]
        assert of.write(place, (PRODUCER, EPOCH), 0, committed=True) == ErrorCode.NONE
        while host.runs:
            await host.run()
        assert (codes, host.told) == ([0], [0, ErrorCode.INVALID_PRODUCER_EPOCH])
        assert not has_transaction(host.partition, CLAIM)

    play(tmp_path, story)


@pytest.mark.parametrize("queued", [False, True], ids=["at once", "in a thread"])
def test_a_marker_that_was_refused_ends_nothing(tmp_path: Path, queued: bool) -> None:
    async def story(host: Host) -> None:
        write(host, EPOCH)
        host.calm.over_budget = queued
        assert end(host, EPOCH - 1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert has_transaction(host.partition, CLAIM)
        assert host.runs == []

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("late", "code"),
    [
        ((EPOCH, 5), ErrorCode.INVALID_PRODUCER_EPOCH),
        ((EPOCH + 1, 4), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ],
)
@pytest.mark.parametrize("queued", [False, True], ids=["in the log", "on the way"])
def test_a_refused_marker_does_not_move_a_coordinators_batches(
    tmp_path: Path, late: tuple[int, int], code: int, queued: bool
) -> None:
    """A coordinator knows the offsets of its batches when they are queued. The marker comes late,
    after another one of a later epoch.
    """

    async def story(host: Host) -> None:
        write(host, EPOCH)
        of = markers(host)
        host.calm.over_budget = queued
        assert of.write(PLACE, (PRODUCER, EPOCH + 1), 5, committed=False) == ErrorCode.NONE
        host.calm.over_budget = True
        producer = PRODUCER, late[0]
        assert of.write(PLACE, producer, late[1], committed=True) == code
        host.told.clear()
        assert host.append(b"a decision") == 2
        while host.runs:
            await host.run()
        assert host.told == [ErrorCode.NONE]

    play(tmp_path, story)


def test_a_marker_that_could_not_be_queued_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*what: Any) -> tuple[int, int]:
        raise MemoryError

    async def story(host: Host) -> None:
        write(host, EPOCH)
        monkeypatch.setattr(host.writer, "write", refuse)
        with pytest.raises(MemoryError):
            end(host, EPOCH)
        assert not host.partition.ending
        assert has_transaction(host.partition, CLAIM)

    play(tmp_path, story)


def test_a_marker_sent_again_does_not_end_a_transaction_on_the_way(tmp_path: Path) -> None:
    """From TV 2 on, the next transaction has the epoch of the marker: its first batch waits for a
    thread when the marker arrives again.
    """

    async def story(host: Host) -> None:
        write(host, EPOCH)
        assert end(host, EPOCH + 1, TV_2) == ErrorCode.NONE
        host.calm.over_budget = True
        write(host, EPOCH + 1)
        assert end(host, EPOCH + 1, TV_2) == ErrorCode.NONE, "the log has it"
        while host.runs:
            await host.run()
        assert has_transaction(host.partition, Claim(PRODUCER, EPOCH + 1))
        assert end(host, EPOCH + 1, TV_2) == ErrorCode.INVALID_PRODUCER_EPOCH

    play(tmp_path, story)
