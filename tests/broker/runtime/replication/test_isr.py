"""Proposals of in-sync replicas, repeated until decided, and the effects of each answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.broker.partition_table import PartitionTable
from kstore._fast.record.builder import build_batch
from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.replication import isr as isr_module
from kstore.broker.runtime.replication.isr import IsrChanges
from kstore.errors import ErrorCode, NetworkError, RequestTimedOutError
from kstore.log import open_log_dir
from tests.beside.waiting import reached
from tests.plain_messages import Answer, Ask

ME, NEAR, FAR = 5, 6, 7
REPLICAS = (ME, NEAR, FAR)
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
BROKER_EPOCH = 900
LAG_MS = 100_000
Reply = Callable[[Any], Any]


class Controller:
    """Gives these answers to proposals in turn, and accepts all later ones."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: list[Reply | Exception] = []
        self.versions: dict[int, int] = {}
        self.hold = asyncio.Event()
        self.hold.set()

    async def ask(self, node_id: int, request: Any, timeout_s: float) -> Any:
        self.asked.append(request)
        await self.hold.wait()
        answer = self.answers.pop(0) if self.answers else self.granted
        if isinstance(answer, Exception):
            raise answer
        return answer(request)

    def granted(self, request: Any) -> Any:
        """Accept every proposal, with the next version."""
        ids = lambda row: [member.broker_id for member in row.new_isr_with_epochs]  # noqa: E731
        return answer(request, lambda row: (0, ids(row), row.partition_epoch + 1))


def answer(request: Any, decide: Callable[[Any], tuple[int, list[int], int]]) -> Any:
    """An answer with (error code, ISR, version) for each partition, in the leader's epoch."""
    topics = []
    for topic in request.topics:
        rows = []
        for row in topic.partitions:
            code, isr, version = decide(row)
            rows.append({
                "partition_index": row.partition_index, "error_code": code, "leader_id": ME,
                "leader_epoch": row.leader_epoch, "isr": isr, "partition_epoch": version,
            })  # fmt: skip
        topics.append({"topic_id": topic.topic_id, "partitions": rows})
    return Answer.AlterPartition(topics=topics)


def refused(code: int) -> Reply:
    return lambda request: answer(request, lambda row: (code, [ME], row.partition_epoch))


class Leader:
    """Two partitions of `t` that this broker leads alone, and the object that proposes ISRs."""

    def __init__(self, folder: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.dir = open_log_dir(str(folder))
        self.table = PartitionTable(ME, loop.call_soon)
        self.controller = Controller()
        self.membership = SimpleNamespace(
            controller_id=1, broker_epoch=BROKER_EPOCH, controller=None
        )
        node: Any = SimpleNamespace(
            node_id=ME, loop=loop, config={"replica.lag.time.max.ms": LAG_MS}
        )
        membership: Any = self.membership
        peers: Any = Lazy(lambda: self.controller)
        self.changes = IsrChanges(node, self.table, membership, peers)
        self.changes.start()
        entry = TopicEntry(b"t", TOPIC_ID.bytes)
        self.table.add_topic(entry)
        self.partitions = []
        for index in range(2):
            partition = Partition(entry, index, self.dir.log("t", index), leader_id=ME)
            self.table.add_partition(partition)
            partition.lead(3, 10, REPLICAS, (ME,))
            self.partitions.append(partition)

    def close(self) -> None:
        self.changes.close()
        self.dir.close()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.fixture
def run(tmp_path: Path, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a scenario with a Leader."""
    monkeypatch.setattr(isr_module, "RETRY_S", 0.001)
    monkeypatch.setattr(isr_module, "REFUSED_S", 0.001)

    def run(story: Any) -> None:
        async def main() -> None:
            leader = Leader(tmp_path, loop)
            try:
                await asyncio.wait_for(story(leader), 30)
            finally:
                leader.close()

        loop.run_until_complete(main())

    return run


def test_proposals_of_one_turn_go_together(run: Any) -> None:
    async def story(leader: Leader) -> None:
        first, second = leader.partitions
        first.propose_isr((ME, NEAR))
        second.propose_isr((ME, FAR))
        await reached(lambda: (first.isr, second.isr) == ((ME, NEAR), (ME, FAR)))
        assert (first.isr_version, first.proposed_isr) == (11, None)
        rows = [
            {"partition_index": index, "leader_epoch": 3, "partition_epoch": 10,
             "new_isr_with_epochs": [
                 {"broker_id": ME, "broker_epoch": BROKER_EPOCH},
                 {"broker_id": node, "broker_epoch": -1},
             ]}
            for index, node in ((0, NEAR), (1, FAR))
        ]  # fmt: skip
        assert leader.controller.asked == [
            Ask.AlterPartition(
                broker_id=ME,
                broker_epoch=BROKER_EPOCH,
                topics=[{"topic_id": TOPIC_ID, "partitions": rows}],
            )
        ]

    run(story)


def test_what_is_proposed_while_one_is_under_way_comes_next(run: Any) -> None:
    async def story(leader: Leader) -> None:
        first, second = leader.partitions
        leader.controller.hold.clear()
        first.propose_isr((ME, NEAR))
        await reached(lambda: len(leader.controller.asked) == 1)
        second.propose_isr((ME, FAR))
        assert not first.propose_isr((ME, NEAR, FAR))
        leader.controller.hold.set()
        await reached(lambda: second.isr == (ME, FAR))
        assert [len(asked.topics[0].partitions) for asked in leader.controller.asked] == [1, 1]

    run(story)


@pytest.mark.parametrize(
    "problem",
    [
        NetworkError("gone"),
        RequestTimedOutError("it stands still"),
        RuntimeError("a defect"),
        lambda request: Answer.AlterPartition(error_code=ErrorCode.NOT_CONTROLLER),
        lambda request: Answer.AlterPartition(error_code=ErrorCode.STALE_BROKER_EPOCH),
        refused(ErrorCode.NOT_CONTROLLER),
        lambda request: Answer.AlterPartition(),
    ],
)
def test_an_undecided_proposal_is_asked_again(run: Any, problem: Any) -> None:
    async def story(leader: Leader) -> None:
        partition = leader.partitions[0]
        leader.controller.answers = [problem, problem]
        partition.propose_isr((ME, NEAR))
        await reached(lambda: partition.isr == (ME, NEAR))
        assert len(leader.controller.asked) == 3

    run(story)


def test_without_a_controller_it_waits_for_one(run: Any) -> None:
    async def story(leader: Leader) -> None:
        partition = leader.partitions[0]
        leader.membership.controller_id = -1
        partition.propose_isr((ME, NEAR))
        await asyncio.sleep(0.005)
        assert (leader.controller.asked, partition.proposed_isr) == ([], (ME, NEAR))
        leader.membership.controller_id = 2
        await reached(lambda: partition.isr == (ME, NEAR))

    run(story)


def test_the_controllers_own_broker_asks_without_a_connection(run: Any) -> None:
    async def story(leader: Leader) -> None:
        asked = []

        async def alter_partition(request: Any) -> Any:
            asked.append(request)
            return leader.controller.granted(request)

        leader.membership.controller = SimpleNamespace(alter_partition=alter_partition)
        leader.partitions[0].propose_isr((ME, NEAR))
        await reached(lambda: leader.partitions[0].isr == (ME, NEAR))
        assert (len(asked), leader.controller.asked) == (1, [])

    run(story)


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_replica_that_is_not_taken_leaves_the_isr_as_it_was(run: Any, code: int) -> None:
    async def story(leader: Leader) -> None:
        partition = leader.partitions[0]
        leader.controller.answers = [refused(code)]
        partition.propose_isr((ME, NEAR))
        await reached(lambda: partition.proposed_isr is None)
        assert (partition.isr, partition.isr_version) == ((ME,), 10)
        assert len(leader.controller.asked) == 1

    run(story)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NEW_LEADER_ELECTED, ErrorCode.UNKNOWN_TOPIC_ID],
)
def test_who_is_fenced_waits_for_the_controllers_word(run: Any, code: int) -> None:
    """The proposal may have been accepted: it counts until LeaderAndIsr arrives."""

    async def story(leader: Leader) -> None:
        partition = leader.partitions[0]
        leader.controller.answers = [refused(code)]
        partition.propose_isr((ME, NEAR))
        await reached(lambda: len(leader.controller.asked) == 1)
        await asyncio.sleep(0.01)
        assert (partition.proposed_isr, len(leader.controller.asked)) == ((ME, NEAR), 1)
        partition.lead(4, 11, REPLICAS, (ME, NEAR))
        assert partition.proposed_isr is None

    run(story)


def test_beside_an_old_version_comes_what_holds_now(run: Any) -> None:
    async def story(leader: Leader) -> None:
        partition = leader.partitions[0]
        code = ErrorCode.INVALID_UPDATE_VERSION
        leader.controller.answers = [
            lambda request: answer(request, lambda row: (code, [ME, FAR], 17))
        ]
        partition.propose_isr((ME, NEAR))
        await reached(lambda: partition.proposed_isr is None)
        assert (partition.isr, partition.isr_version) == ((ME, FAR), 17)

    run(story)


def test_an_answer_to_what_was_given_up_changes_nothing(run: Any) -> None:
    async def story(leader: Leader) -> None:
        partition = leader.partitions[0]
        leader.controller.hold.clear()
        partition.propose_isr((ME, NEAR))
        await reached(lambda: len(leader.controller.asked) == 1)
        partition.follow(NEAR, 4)
        leader.controller.hold.set()
        await asyncio.sleep(0.01)
        assert (partition.isr, partition.proposed_isr) == ((ME,), None)

    run(story)


def test_followers_that_lag_are_taken_out(run: Any) -> None:
    async def story(leader: Leader) -> None:
        now = leader.table.replication.now_ms()
        partition: Partition = leader.partitions[0]
        partition.lead(4, 11, REPLICAS, REPLICAS)
        assert partition.append_batches(build_batch([b"v"]))[0] == 0
        leader.changes._tick()
        await asyncio.sleep(0.005)
        assert leader.controller.asked == []
        leader.table.replication.clock = lambda: now + 2 * LAG_MS
        leader.changes._tick()
        await reached(lambda: partition.isr == (ME,))
        assert partition.high_watermark == 1

    run(story)
