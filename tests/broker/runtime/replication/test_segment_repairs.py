"""broker/runtime/replication/segment_repairs.py: a leader with damage in uncommitted records, and
real followers with real sockets. The tests in tests/conformance repair damage from other replicas.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.replication import segment_repairs
from kstore.broker.runtime.replication.replicas import Hosted, Replicas
from kstore.broker.runtime.replication.segment_repairs import SegmentRepairs
from kstore.errors import ErrorCode
from kstore.log import CorruptLogError
from kstore.record import batches
from kstore.types import TopicPartition
from tests.beside.waiting import reached
from tests.broker.runtime.replication.replication_harness import TOPIC, Ids, Node, new_image, run

PLACE = TopicPartition(TOPIC, 0)
REPLICAS = (1, 2, 3)
RECORDS = 65
COMMITTED, END = 3, 7

Story = Callable[["Leader", Node, Node], Awaitable[None]]


class Leader(Node):
    """A node that leads, with a broker's handling of damage."""

    replicas: Replicas
    repairs: SegmentRepairs

    def lead(self, epoch: int, version: int, replicas: Ids, isr: Ids, index: int = 0) -> None:
        super().lead(epoch, version, replicas, isr, index)
        opens_nothing: Any = None
        self.replicas = Replicas(
            self.as_node, self.table, opens_nothing, opens_nothing, Lazy(lambda: self.fetchers)
        )
        self.replicas.hosted[PLACE] = Hosted(self.node_id, epoch, replicas, isr, version)
        self.repairs = SegmentRepairs(
            self.as_node, self.table, self.metadata, self.replicas, self.peers
        )
        self.dir.when_damaged(self.repairs.note)
        self.replicas.on_leadership.append(lambda place, *_: self.repairs.note_role(place))

    def damage(self, number: int) -> None:
        """Flip a bit in the records of a batch, and let a reader find it."""
        meet(self, turn_a_bit(self, number))


def turn_a_bit(node: Node, number: int) -> int:
    """Flip a bit in the records of a batch and return its offset."""
    segment = node.partition().log.segments[-1]
    file = Path(segment.path)
    data = bytearray(file.read_bytes())
    found = list(batches(data[: segment.size_bytes]))[number]
    data[found.position + RECORDS] ^= 1
    with file.open("r+b") as target:
        target.write(data)
    return found.base_offset


def meet(node: Node, offset: int) -> None:
    """Read the damaged records."""
    log = node.partition().log
    with pytest.raises(CorruptLogError):
        log.core.read(offset, log.log_end_offset, 1 << 20)


def commit_alone(leader: Leader) -> None:
    """The leader alone commits what it has."""
    partition = leader.partition()
    partition.configure(stored_codec=-1, stored_level=-1, min_insync_replicas=1)
    partition.advance()
    assert partition.high_watermark == END


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_repairs, "LOOK_PAUSE_S", 0.02)


def run_leader(story: Story, folder: Path) -> None:
    """Run a scenario with a leader alone in sync: COMMITTED records, and only its own up to END."""

    async def told() -> None:
        image = new_image()
        leader = Leader(1, folder / "1", image)
        nodes = leader, Node(2, folder / "2", image), Node(3, folder / "3", image)
        for node in nodes:
            await node.start()
        partition = leader.partition()
        partition.configure(stored_codec=-1, stored_level=-1, min_insync_replicas=2)
        leader.lead(0, 0, REPLICAS, REPLICAS)
        for _ in range(COMMITTED):
            leader.append(b"committed")
        for node in nodes[1:]:
            node.follow(1, 0)
        await reached(lambda: partition.high_watermark == COMMITTED)
        for node in nodes[1:]:
            node.fetchers.stop_all()
        await reached(lambda: not leader.plane.open_connections())
        leader.table.replication.max_lag_ms = -1  # a replica that is not in sync holds nothing back
        partition.isr_applied((1,), 1, 0)
        for number in range(COMMITTED, END):
            leader.append(b"only here %d" % number)
        try:
            await story(*nodes)
        finally:
            leader.repairs.close()
            for node in nodes:
                node.stop()

    run(told)


async def blocked(leader: Node, follower: Node) -> None:
    """Wait until a follower learns that the next records are damaged."""
    await reached(lambda: any("has damage at offset" in row for row in follower.reports))


@pytest.mark.parametrize("number", [COMMITTED, COMMITTED + 1, END - 1])
def test_a_leader_drops_damage_that_is_not_committed_and_that_nobody_else_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    async def story(leader: Leader, b: Node, c: Node) -> None:
        partition, roles, answers = leader.partition(), [], []
        leader.replicas.on_leadership.append(lambda *what: roles.append(what))
        partition.when_committed(END, answers.append)
        leader.damage(number)
        b.follow(1, 0)
        await blocked(leader, b)
        await looked(leader, 2)
        assert partition.log.damaged_parts(), "the third may have got it before it was damaged"
        c.follow(1, 0)
        await reached(lambda: not partition.log.damaged_parts())
        # Waiters for lost records get an error; the partition is still led.
        await reached(lambda: answers and partition.online)
        assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert roles == [(PLACE, False, 0), (PLACE, True, 0)]
        assert (partition.online, partition.isr, partition.isr_version) == (True, (1,), 1)
        assert leader.append(b"next") == END, "no offset is given again"
        for node in (b, c):
            await reached(lambda node=node: node.partition().log_end_offset == END + 1)
            assert node.contents() == leader.contents()
        assert [view.base_offset for view in batches(leader.contents())] == [*range(number), END]
        partition.isr_applied(REPLICAS, 2, 0)
        await reached(lambda: partition.high_watermark == END + 1)
        [row] = [row for row in caplog.records if "no other replica has" in row.getMessage()]
        assert row.levelno == logging.ERROR
        assert f"offsets {number} to {END - 1}" in row.getMessage()
        assert leader.dir.lost_offsets == END - number

    run_leader(story, tmp_path)


def test_damage_that_a_follower_has_whole_stays_until_that_is_committed(tmp_path: Path) -> None:
    async def story(leader: Leader, b: Node, c: Node) -> None:
        partition = leader.partition()
        b.follow(1, 0)
        await reached(lambda: b.partition().log_end_offset == END)
        whole = leader.contents()
        leader.damage(COMMITTED)
        c.follow(1, 0)
        await blocked(leader, c)
        await looked(leader, 2)
        assert len(partition.log.damaged_parts()) == 1
        partition.isr_applied((1, 2), 2, 0)
        await reached(lambda: partition.high_watermark == END)
        await reached(lambda: not partition.log.damaged_parts())
        await reached(lambda: c.partition().log_end_offset == END)
        assert leader.contents() == c.contents() == whole

    run_leader(story, tmp_path)


def test_committed_damage_is_never_dropped(tmp_path: Path) -> None:
    async def story(leader: Leader, b: Node, c: Node) -> None:
        partition = leader.partition()
        commit_alone(leader)
        leader.damage(COMMITTED + 1)
        b.follow(1, 0)
        c.follow(1, 0)
        await blocked(leader, b)
        await blocked(leader, c)
        await looked(leader, 2)
        [committed] = partition.log.damaged_parts()
        assert partition.log_end_offset == END
        partition.configure(stored_codec=-1, stored_level=-1, min_insync_replicas=2)
        leader.append(b"not committed")
        leader.damage(END)
        await reached(lambda: leader.dir.lost_offsets == 2)
        assert partition.log.damaged_parts() == [committed]

    run_leader(story, tmp_path)


def test_damage_that_no_reader_of_the_leader_met_is_dropped(tmp_path: Path) -> None:
    """Simulation seed 310002933: followers received a wrong checksum again and again."""

    async def story(leader: Leader, b: Node, c: Node) -> None:
        turn_a_bit(leader, COMMITTED + 1)
        b.follow(1, 0)
        c.follow(1, 0)
        await reached(lambda: leader.dir.lost_offsets)
        assert leader.dir.lost_offsets == END - COMMITTED - 1
        assert leader.append(b"next") == END
        for node in (b, c):
            await reached(lambda node=node: node.partition().log_end_offset == END + 1)

    run_leader(story, tmp_path)


@pytest.mark.parametrize("number", [COMMITTED, END - 1])
def test_followers_copy_on_behind_committed_damage_that_nobody_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    async def story(leader: Leader, b: Node, c: Node) -> None:
        partition = leader.partition()
        commit_alone(leader)
        leader.damage(number)
        b.follow(1, 0)
        await blocked(leader, b)
        await looked(leader, 2)
        assert b.partition().log_end_offset == number, "the third may have it"
        c.follow(1, 0)
        for node in (b, c):
            await reached(lambda node=node: node.partition().log_end_offset == END)
            found = list(batches(node.contents()))
            assert [view.base_offset for view in found] == [*range(END)]
            assert [view.base_offset for view in found if not view.records_count] == [number]
        # The leader keeps the rest, and continues with as many in-sync replicas as required.
        [kept] = partition.log.damaged_parts()
        assert (kept.first_offset, kept.next_offset) == (number, number + 1)
        partition.configure(stored_codec=-1, stored_level=-1, min_insync_replicas=3)
        partition.isr_applied(REPLICAS, 2, 0)
        assert leader.append(b"next") == END
        await reached(lambda: partition.high_watermark == END + 1)
        [row] = [row for row in caplog.records if "no other replica has" in row.getMessage()]
        assert row.levelno == logging.ERROR
        assert f"offsets {number} to {number} are lost" in row.getMessage()
        assert leader.dir.lost_offsets == 1

    run_leader(story, tmp_path)


def test_a_leader_that_starts_anew_learns_that_nobody_has_its_damage(tmp_path: Path) -> None:
    async def story(leader: Leader, b: Node, c: Node) -> None:
        commit_alone(leader)
        leader.damage(COMMITTED)
        b.follow(1, 0)
        await blocked(leader, b)
        replication = leader.partition().replication
        assert replication is not None
        replication.lost_parts = ((COMMITTED, COMMITTED + 1),)
        await reached(lambda: b.partition().log_end_offset == END)
        replication.lost_parts = ()
        c.follow(1, 0)
        await reached(lambda: c.partition().log_end_offset == END)
        assert c.contents() == b.contents()

    run_leader(story, tmp_path)


def test_followers_copy_on_behind_what_is_damaged_on_both_others(tmp_path: Path) -> None:
    async def story(leader: Leader, b: Node, c: Node) -> None:
        b.follow(1, 0)
        await reached(lambda: b.partition().log_end_offset == END)
        commit_alone(leader)
        await reached(lambda: b.partition().high_watermark == END)
        meet(b, turn_a_bit(b, COMMITTED))
        leader.damage(COMMITTED)
        c.follow(1, 0)
        await reached(lambda: c.partition().log_end_offset == END)
        assert [view.records_count for view in batches(c.contents())][COMMITTED] == 0

    run_leader(story, tmp_path)


def test_nothing_is_dropped_while_an_isr_is_asked_for(tmp_path: Path) -> None:
    async def story(leader: Leader, b: Node, c: Node) -> None:
        partition = leader.partition()
        leader.table.on_isr_change = lambda *what: None
        assert partition.propose_isr((1, 2))
        leader.damage(COMMITTED + 1)
        b.follow(1, 0)
        c.follow(1, 0)
        await blocked(leader, b)
        await blocked(leader, c)
        await looked(leader, 2)
        assert len(partition.log.damaged_parts()) == 1
        leader.table.on_isr_change = None
        partition.isr_refused()
        await reached(lambda: not partition.log.damaged_parts())

    run_leader(story, tmp_path)


async def looked(leader: Leader, times: int) -> None:
    """Wait until the damage was checked this number of times more."""
    seen: list[Any] = []
    repair = leader.repairs._repair

    async def count(*what: Any, asks: bool) -> bool:
        found = await repair(*what, asks=asks)
        seen.append(what)
        return found

    leader.repairs._repair = count  # type: ignore[method-assign]
    await reached(lambda: len(seen) >= times)
