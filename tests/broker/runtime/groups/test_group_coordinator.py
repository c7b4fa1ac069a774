"""The group coordinator on real logs: loading, delayed answers, timers, failures."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

import kstore
from kstore.broker.runtime.coordinators.partition_writer import PartitionWriter
from kstore.broker.runtime.coordinators.partitions import partition_of
from kstore.broker.runtime.coordinators.topic import StandaloneTopic
from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.timers import TimerTable
from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC
from kstore.broker.state.groups.timers import heartbeat_key
from kstore.broker.state.metadata.topic_rules import NewTopic
from kstore.broker.state.work import each
from kstore.config import BrokerConfig
from kstore.errors import ErrorCode, KafkaError
from kstore.log import LogConfig
from kstore.types import TopicPartition
from tests.beside.waiting import reached
from tests.broker.runtime.coordinators.cluster_host import SMALL_GROUPS, Replicated
from tests.broker.runtime.groups.group_requests import ASKED, commit, committed, join, stable_member
from tests.plain_messages import Answer, Ask

SETTINGS = BrokerConfig.load(
    overrides={
        **SMALL_GROUPS, "kstore.flush.policy": "os", "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "1",
    }
)  # fmt: skip


class Topic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: tuple[None, ...]


class Host:
    """What the coordinator needs from a single broker."""

    def __init__(self, path: Path) -> None:
        self.config = SETTINGS
        self.node_id = 1
        self.log_dir = kstore.open_log_dir(path)
        self.image = self
        self.ordered: set[str] = set()
        self.topics = _Topics(self)
        self.logs: dict[TopicPartition, Any] = {}
        self.failure: OSError | int | None = None
        for place in self.log_dir.partitions():
            self.open_partition(place)

    def open_partition(self, place: TopicPartition) -> None:
        config = LogConfig.from_topic_configs({"cleanup.policy": "compact"})
        self.logs[place] = self.log_dir.log(*place, config=config)
        count = 1 + max(other.partition for other in self.logs)
        self.topics[place.topic] = Topic(place.topic, UUID(int=1), (None,) * count)

    def group(self, group_id: str) -> dict[str, Any]:
        return {}

    def partition(self, topic: bytes | str, index: int) -> Any:
        if isinstance(topic, str):
            return None  # the image, which knows topics but no partitions
        log = self.logs.get(TopicPartition(topic.decode(), index))
        return None if log is None else OwnPartition(self, log)

    def now_ms(self) -> int:
        return 1_000_000

    def coordinator(self) -> GroupCoordinator:
        topic = StandaloneTopic(OFFSETS_TOPIC, self, self, self.topics)
        writer = PartitionWriter(self, self, self)
        return GroupCoordinator(self, topic, writer, self, self, None)


class OwnPartition(Replicated):
    """A partition without followers. Its log cannot be written while the host has a failure."""

    replication = None

    def __init__(self, host: Host, log: Any) -> None:
        super().__init__(log)
        self.host, self.online = host, True

    def append_batches(self, batch: bytes) -> tuple[int, int, int, int]:
        failure = self.host.failure
        if isinstance(failure, OSError):
            raise failure
        if failure is not None:
            return failure, -1, -1, -1
        return super().append_batches(batch)


class _Topics(dict[str, Topic]):
    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host
        self.made: list[NewTopic] = []

    async def ensure(self, new: NewTopic) -> None:
        await asyncio.sleep(0)
        if new.name not in self:
            self.made.append(new)
            for index in range(new.num_partitions):
                self.host.open_partition(TopicPartition(new.name, index))


def run(path: Path, story: Callable[[Host, GroupCoordinator], Awaitable[None]]) -> None:
    """Run a scenario with a coordinator on the logs in ``path``."""

    async def told() -> None:
        host = Host(path)
        coordinator = host.coordinator()
        coordinator.start()
        try:
            await coordinator.wait_loaded()
            await asyncio.wait_for(story(host, coordinator), 30)
        finally:
            await coordinator.close()
            host.log_dir.close()

    asyncio.run(told())


@pytest.mark.parametrize(
    ("group", "partition"),
    [("", 0), ("a", 47), ("my-group", 12), ("polygenelubricants", 0), ("grüße", 23), ("🙂", 15)],
)
def test_a_group_lies_where_kafka_puts_it(group: str, partition: int) -> None:
    # Computed with Java: Utils.abs(group.hashCode()) % 50; the fourth's hash is Integer.MIN_VALUE.
    assert partition_of(group, 50) == partition


def test_the_first_group_makes_the_offsets_topic_once(tmp_path: Path) -> None:
    async def story(host: Host, coordinator: GroupCoordinator) -> None:
        assert coordinator.partitions == []
        await asyncio.gather(*(coordinator.partition(name) for name in "abc"))
        (made,) = host.topics.made
        assert (made.name, made.num_partitions, made.replication_factor) == (OFFSETS_TOPIC, 3, 1)
        assert made.configs["cleanup.policy"] == "compact"
        assert len(coordinator.partitions) == 3

    run(tmp_path, story)


def test_groups_and_offsets_are_loaded_from_the_log(tmp_path: Path) -> None:
    async def write(host: Host, coordinator: GroupCoordinator) -> None:
        await coordinator.partition("g")
        await stable_member(coordinator)
        for offset in range(1000):
            for group in ("h", "i"):
                await coordinator.handle(group, commit(offset, group), ASKED)

    async def read(host: Host, coordinator: GroupCoordinator) -> None:
        partition = await coordinator.loaded_partition("g")
        group = partition.shard.groups["g"]
        assert (group.state, group.generation_id) == ("Stable", 1)
        assert [member.assignment for member in group.members.values()] == [b"mine"]
        for name in ("h", "i"):
            loaded = (await coordinator.loaded_partition(name)).shard.offsets.get(name, "t", 0)
            assert loaded is not None
            assert loaded.offset == 999

    run(tmp_path, write)
    run(tmp_path, read)


def test_a_join_waits_and_a_session_that_ends_lets_it_go_on(tmp_path: Path) -> None:
    async def story(host: Host, coordinator: GroupCoordinator) -> None:
        await coordinator.partition("g")
        await stable_member(coordinator, session_ms=50)
        second: Any = await coordinator.handle("g", join(), ASKED)
        assert second.generation_id in (2, 3)  # with or without emptying the group in between
        assert [member.member_id for member in second.members] == [second.member_id]

    run(tmp_path, story)


def test_until_it_is_loaded_a_partition_refuses(tmp_path: Path) -> None:
    async def story(host: Host, coordinator: GroupCoordinator) -> None:
        await coordinator.partition("g")
        fresh = host.coordinator()
        fresh.start()
        with pytest.raises(KafkaError) as refused:
            await fresh.handle("g", commit(1), ASKED)
        assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await fresh.wait_loaded()
        await fresh.handle("g", commit(1), ASKED)
        await fresh.close()

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("failure", "error_code"),
    [
        (OSError(errno.ENOSPC, "full"), ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_can_not_be_appended_did_not_happen(
    tmp_path: Path, failure: OSError | int, error_code: int
) -> None:
    async def story(host: Host, coordinator: GroupCoordinator) -> None:
        await coordinator.handle("g", commit(1), ASKED)
        host.failure = failure
        with pytest.raises(KafkaError) as refused:
            await coordinator.handle("g", commit(2), ASKED)
        assert refused.value.code == error_code
        shard = (await coordinator.loaded_partition("g")).shard
        committed = shard.offsets.get("g", "t", 0)
        assert committed is not None
        assert committed.offset == 1
        host.failure = None
        await coordinator.handle("g", commit(3), ASKED)

    run(tmp_path, story)


class SlowGates:
    """Gates whose first refresh takes eight turns of the loop, and later ones none."""

    def __init__(self, host: Host, *, topic_stays: bool) -> None:
        self.host = host
        self.topic_stays = topic_stays
        self.turns = 8
        host.ordered = {"t"}

    async def refresh(self) -> None:
        turns, self.turns = self.turns, 0
        for turn in range(turns):
            if turn == 2 and not self.topic_stays:
                self.host.ordered = set()
            await asyncio.sleep(0)


async def commit_in_a_row(coordinator: GroupCoordinator, turns: int) -> None:
    """Send two commits and a fetch without waiting, with so many turns between: the group has 9."""
    answers: list[asyncio.Future[Any]] = []
    for offset in (5, 9):
        answer: Any = coordinator.answer("g", commit(offset), ASKED)
        if isinstance(answer, Awaitable):
            answers.append(asyncio.ensure_future(answer))
        for _ in range(turns):
            await asyncio.sleep(0)
    stored = await asyncio.ensure_future(committed(coordinator))
    assert stored == 9, f"with {turns} turns between the two"
    await asyncio.gather(*answers)


def test_a_commit_is_not_overtaken_while_the_topic_is_made(tmp_path: Path) -> None:
    async def story(host: Host, coordinator: GroupCoordinator) -> None:
        await commit_in_a_row(coordinator, turns)

    for turns in range(30):
        run(tmp_path / str(turns), story)


@pytest.mark.parametrize("stays", [True, False])
def test_a_commit_is_not_overtaken_while_gates_are_read(tmp_path: Path, stays: bool) -> None:
    """Also if the topic that has gates is deleted meanwhile."""

    async def story(host: Host, coordinator: GroupCoordinator) -> None:
        await coordinator.partition("g")
        for turns in range(12):
            gates: Any = SlowGates(host, topic_stays=stays)
            coordinator._gates = Lazy(lambda gates=gates: gates)
            await commit_in_a_row(coordinator, turns)

    run(tmp_path, story)


def test_a_deleted_topic_takes_its_offsets_along_for_good(tmp_path: Path) -> None:
    async def write(host: Host, coordinator: GroupCoordinator) -> None:
        await coordinator.handle("g", commit(1), ASKED)
        await coordinator.forget_topic("t")

    async def read(host: Host, coordinator: GroupCoordinator) -> None:
        shard = (await coordinator.loaded_partition("g")).shard
        assert shard.offsets.topics("g") == {}

    run(tmp_path, write)
    run(tmp_path, read)


def test_who_waits_when_the_broker_stops_is_sent_elsewhere(tmp_path: Path) -> None:
    async def story(host: Host, coordinator: GroupCoordinator) -> None:
        await coordinator.partition("g")
        await stable_member(coordinator)
        shard = (await coordinator.loaded_partition("g")).shard
        waiting = asyncio.create_task(coordinator.handle("g", join(), ASKED))
        await reached(lambda: shard.groups["g"].joined == 1, "it waits for the other member")
        await coordinator.close()
        answer: Any = await waiting
        assert answer.error_code == ErrorCode.NOT_COORDINATOR

    run(tmp_path, story)


def test_a_heartbeat_without_news_is_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(host: Host, coordinator: GroupCoordinator) -> None:
        partition = await coordinator.partition("g")
        member_id = await stable_member(coordinator, session_ms=500)
        beat = Ask.Heartbeat(group_id="g", member_id=member_id, generation_id=1)
        ghost = Ask.Heartbeat(group_id="g", member_id="ghost", generation_id=1)
        begun: list[object] = []
        begin = partition._line.begin
        monkeypatch.setattr(
            partition._line, "begin", lambda work: begun.append(work) or begin(work)
        )
        assert (await coordinator.handle("g", beat, ASKED)) == Answer.Heartbeat()
        assert not begun
        refused: Any = await coordinator.handle("g", ghost, ASKED)
        assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert len(begun) == 1
        # Behind steps that wait, it is one of them: it must not overtake what they decide.
        waiting = partition._line.begin_soon(each(str, "g"))
        tasks = asyncio.all_tasks()
        answer: Any = coordinator.answer("g", beat, ASKED)
        received: list[object] = []
        answer.when_given(received.append)
        assert not waiting.done
        await waiting.wait()
        assert asyncio.all_tasks() == tasks, "to wait for earlier steps needs no task"
        await reached(lambda: received == [Answer.Heartbeat()], "the answer")

    run(tmp_path, story)


def test_heartbeats_keep_the_session(tmp_path: Path) -> None:
    async def story(host: Host, coordinator: GroupCoordinator) -> None:
        partition = await coordinator.partition("g")
        member_id = await stable_member(coordinator, session_ms=60_000)
        key = heartbeat_key("g", member_id)
        before = partition._timers._timers[key].deadline
        await asyncio.sleep(0.01)
        beat = Ask.Heartbeat(group_id="g", member_id=member_id, generation_id=1)
        await coordinator.handle("g", beat, ASKED)
        assert partition._timers._timers[key].deadline > before

    run(tmp_path, story)


def test_an_answer_for_a_connection_that_is_gone_is_dropped(tmp_path: Path) -> None:
    async def story(host: Host, coordinator: GroupCoordinator) -> None:
        await coordinator.partition("g")
        await stable_member(coordinator, session_ms=50)
        shard = (await coordinator.loaded_partition("g")).shard
        waiting = asyncio.create_task(coordinator.handle("g", join(), ASKED))
        await asyncio.sleep(0)
        waiting.cancel()
        await reached(lambda: shard.groups["g"].generation_id >= 2, "the next generation")

    run(tmp_path, story)


def test_a_broken_partition_refuses_and_the_others_serve(tmp_path: Path) -> None:
    async def write(host: Host, coordinator: GroupCoordinator) -> None:
        await coordinator.partition("g")
        place = TopicPartition(OFFSETS_TOPIC, partition_of("g", 3))
        host.logs[place].append(b"", key=b"\x00\x01garbage")

    async def read(host: Host, coordinator: GroupCoordinator) -> None:
        with pytest.raises(KafkaError) as refused:
            await coordinator.handle("g", commit(1), ASKED)
        assert refused.value.code == ErrorCode.NOT_COORDINATOR
        other = next(name for name in "hijkl" if partition_of(name, 3) != partition_of("g", 3))
        await coordinator.handle(other, commit(1, other), ASKED)

    run(tmp_path, write)
    run(tmp_path, read)


def test_records_of_other_kinds_are_left_alone(tmp_path: Path) -> None:
    async def write(host: Host, coordinator: GroupCoordinator) -> None:
        await coordinator.handle("g", commit(7), ASKED)
        place = TopicPartition(OFFSETS_TOPIC, partition_of("g", 3))
        host.logs[place].append(b"\x00\x00x", key=b"\x7f\xf0of a later version")

    async def read(host: Host, coordinator: GroupCoordinator) -> None:
        shard = (await coordinator.loaded_partition("g")).shard
        committed = shard.offsets.get("g", "t", 0)
        assert committed is not None
        assert committed.offset == 7

    run(tmp_path, write)
    run(tmp_path, read)


class TestTimerTable:
    def test_a_timer_fires_its_last_event_at_its_last_deadline(self) -> None:
        async def story() -> None:
            fired: list[str] = []
            loop = asyncio.get_running_loop()
            timers: TimerTable[str, str] = TimerTable(loop, fired.append)
            timers.set("much later", 5, "never")
            timers.set("much later", 600_000, "never")
            timers.set("cancelled", 1, "never")
            timers.cancel("cancelled")
            timers.cancel("cancelled")
            timers.set("sooner", 600_000, "never")
            timers.set("sooner", 1, "sooner")
            timers.set("later", 5, "never")
            timers.set("later", 40, "later")
            while len(timers) > 1:
                await asyncio.sleep(0.005)
            assert fired == ["sooner", "later"]
            timers.cancel("much later")
            assert len(timers) == 0

        asyncio.run(story())

    def test_a_timer_may_be_set_again_by_its_event(self) -> None:
        async def story() -> None:
            fired: list[int] = []
            loop = asyncio.get_running_loop()

            def again(event: int) -> None:
                fired.append(event)
                if event:
                    timers.set("k", 0, event - 1)

            timers: TimerTable[str, int] = TimerTable(loop, again)
            timers.set("k", 0, 3)
            await asyncio.sleep(0.05)
            assert fired == [3, 2, 1, 0]
            timers.set("k", 0, 1)
            timers.clear()
            await asyncio.sleep(0.01)
            assert len(fired) == 4

        asyncio.run(story())
