"""Coordinators in a cluster, on real logs whose followers the test plays: what was answered is not
lost by any change of leaders.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kstore
from kstore.broker.api import RequestContext
from kstore.broker.runtime.coordinators.runtime import watch_leadership
from kstore.broker.runtime.groups.group_coordinator import OFFSETS_TOPIC, GroupCoordinator
from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.topics.topics import TRANSACTION_TOPIC
from kstore.broker.runtime.transactions.transaction_coordinator import TransactionCoordinator
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage
from kstore.broker.state.metadata.image import TopicImage as Topic
from kstore.broker.state.transactions.state import COMPLETE_COMMIT, PREPARE_COMMIT, TV_2
from kstore.broker.state.transactions.steps import Claim, Decision
from kstore.errors import CoordinatorNotAvailableError, ErrorCode, KafkaError, NetworkError
from kstore.log import LogConfig
from kstore.protocol.groups.classic import JoinGroupRequest, JoinGroupRequestProtocol
from kstore.protocol.groups.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kstore.protocol.transactions.transactions import WritableTxnMarkerPartitionResult as Written
from kstore.protocol.transactions.transactions import (
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kstore.types import TopicPartition

ASKED = RequestContext(0, 3, 0, "client", "127.0.0.1", "c", "PLAINTEXT", "User:ANONYMOUS")
HERE, THERE = 1, 2
GROUPS = TopicPartition(OFFSETS_TOPIC, 0)
STATE = TopicPartition(TRANSACTION_TOPIC, 0)
DATA = TopicPartition("t", 0)
SETTINGS: dict[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1,
    "group.max.session.timeout.ms": 1_800_000,
    "group.max.size": 100,
    "kstore.check.invariants": True,
    "kstore.flush.policy": "interval",
    "group.consumer.max.size": 100,
    "group.streams.max.size": 100,
    "group.consumer.assignors": ("uniform", "range"),
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.regex.refresh.interval.ms": 600_000,
    "offset.metadata.max.bytes": 4096,
    "offsets.commit.timeout.ms": 5000,
    "offsets.retention.minutes": 10_080,
    "offsets.retention.check.interval.ms": 600_000,
    "transaction.max.timeout.ms": 900_000,
    "transactional.id.expiration.ms": 604_800_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 600_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 600_000,
}


class Outcome(NamedTuple):
    error_code: int
    base_offset: int


class Replicated:
    """A partition led here, whose high watermark the test moves."""

    replication = True

    def __init__(self, log: Any) -> None:
        self.log = log
        self.online = False
        self.index = 0
        self.leader_epoch = 0
        self.high_watermark = 0
        self.waits: list[tuple[int, Callable[[int], object]]] = []

    @property
    def log_end_offset(self) -> int:
        return int(self.log.log_end_offset)

    def when_committed(self, end_offset: int, callback: Callable[[int], object]) -> None:
        self.waits.append((end_offset, callback))

    def advance(self, to: int | None = None) -> None:
        self.high_watermark = max(self.high_watermark, self.log_end_offset if to is None else to)
        reached = [wait for wait in self.waits if wait[0] <= self.high_watermark]
        self.waits = [wait for wait in self.waits if wait not in reached]
        for _, callback in reached:
            callback(ErrorCode.NONE)

    def stop(self) -> None:
        self.online = False
        waits, self.waits = self.waits, []
        for _, callback in waits:
            callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Host:
    """A broker of a cluster, as far as coordinators see it; the test is the controller, and the
    other broker.
    """

    def __init__(self, path: Path) -> None:
        self.loop = asyncio.get_running_loop()
        self.node_id = HERE
        self.config = SETTINGS
        self.membership = SimpleNamespace(alone=False, may_answer_alone=lambda: True)
        self.log_dir = kstore.open_log_dir(path)
        self.groups: Lazy[GroupCoordinator] = Lazy(
            lambda: GroupCoordinator(self),  # type: ignore[arg-type]
            lambda made: made.start(),
        )
        self.transactions: Lazy[TransactionCoordinator] = Lazy(
            lambda: TransactionCoordinator(self),  # type: ignore[arg-type]
            lambda made: made.start(),
        )
        self.producer_ids: Any = Lazy(lambda: SimpleNamespace(is_ready=True, take=lambda: 7))
        self.image = MetadataImage("cluster")
        for node_id in (HERE, THERE):
            broker = BrokerImage(node_id, (Endpoint("PLAINTEXT", "h", node_id),))
            self.image = self.image.with_broker(broker)
        self.places = {place: self._replicated(place) for place in (GROUPS, STATE, DATA)}
        self.table = SimpleNamespace(topic=self._entry)
        images = SimpleNamespace(on_topic_deleted=[])
        self.replica_manager = SimpleNamespace(on_leadership=[], images=images)
        self.asked: list[WriteTxnMarkersRequest] = []
        self.answers: list[int | KafkaError] = []
        self.peers = SimpleNamespace(ask=self._ask)
        self.store = SimpleNamespace(exists=lambda _: False)
        self.configs = SimpleNamespace(group=lambda _: {})
        watch_leadership(self)  # type: ignore[arg-type]

    def _replicated(self, place: TopicPartition) -> Replicated:
        config = LogConfig.from_topic_configs({"cleanup.policy": "compact"})
        self.tell(place, THERE)
        return Replicated(self.log_dir.log(*place, config=config))

    def _entry(self, name: bytes) -> Any:
        found = [item for place, item in self.places.items() if place.topic.encode() == name]
        return SimpleNamespace(partitions=found)

    def tell(self, place: TopicPartition, leader: int) -> None:
        """What UpdateMetadata says."""
        partition = PartitionImage(leader, 0, (HERE, THERE), (HERE, THERE))
        self.image = self.image.with_topics(
            Topic(place.topic, UUID(bytes=place.topic[:16].ljust(16).encode()), (partition,), {})
        )

    def lead(self, place: TopicPartition) -> None:
        """What LeaderAndIsr does."""
        partition = self.places[place]
        partition.leader_epoch += 1
        partition.online = True
        self.tell(place, HERE)
        for note in self.replica_manager.on_leadership:
            note(place, True, partition.leader_epoch)

    def follow(self, place: TopicPartition, keeps: int | None = None) -> None:
        """Another leader, which has the records below ``keeps``."""
        partition = self.places[place]
        partition.stop()
        self.tell(place, THERE)
        for note in self.replica_manager.on_leadership:
            note(place, False, partition.leader_epoch)
        if keeps is not None:
            partition.log.truncate(keeps)

    def partition(self, place: TopicPartition) -> Replicated | None:
        found = self.places[place]
        return found if found.online else None

    def append(self, place: TopicPartition, batch: bytes) -> Outcome:
        if self.partition(place) is None:
            return Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        info = self.places[place].log.append_batches(batch, leader_epoch=0, origin="coordinator")
        return Outcome(0, info.base_offset)

    async def _ask(self, node_id: int, request: Any, timeout_s: float) -> Any:
        assert node_id == THERE
        await asyncio.sleep(0)
        self.asked.append(request)
        code = self.answers.pop(0)
        if isinstance(code, KafkaError):
            raise code
        results = []
        for marker in request.markers:
            topics = [
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        Written(partition_index=index, error_code=code)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ]
            results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        return WriteTxnMarkersResponse(markers=results)

    async def run_blocking(self, call: Callable[[], Any]) -> Any:
        return call()

    def now_ms(self) -> int:
        return 1_000_000


def run(path: Path, story: Callable[[Host], Awaitable[None]]) -> None:
    """Tell a story to a broker whose logs are in ``path``."""

    async def told() -> None:
        host = Host(path)
        try:
            await asyncio.wait_for(story(host), 60)
        finally:
            for coordinator in (host.transactions.made, host.groups.made):
                if coordinator is not None:
                    await coordinator.close()
            host.log_dir.close()

    asyncio.run(told())


async def turns(count: int = 20) -> None:
    """Let everything happen that can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def commit(offset: int) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[row])]
    )


def join() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )


async def served(host: Host) -> GroupCoordinator:
    """The group coordinator, once it serves."""
    host.lead(GROUPS)
    host.places[GROUPS].advance()
    coordinator = host.groups()
    await coordinator.wait_loaded()
    return coordinator


async def code_of(answer: Awaitable[Any]) -> int:
    """The error that an answer is, or has."""
    try:
        found = await answer
    except KafkaError as error:
        return error.code
    return int(found.topics[0].partitions[0].error_code)


async def committed_offset(coordinator: GroupCoordinator) -> int:
    found = await coordinator.read("g", lambda shard: shard.offsets.get("g", "t", 0))
    return -1 if found is None else int(found.offset)


# ---- groups ----


def test_who_does_not_lead_is_no_coordinator(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await served(host)
        assert await coordinator.leader_of("g") == HERE
        host.follow(GROUPS)
        assert await coordinator.leader_of("g") == THERE
        assert await code_of(coordinator.handle("g", commit(1), ASKED)) == (
            ErrorCode.NOT_COORDINATOR
        )
        host.tell(GROUPS, -1)
        with pytest.raises(KafkaError) as refused:
            await coordinator.leader_of("g")
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(tmp_path, story)


def test_an_answer_waits_for_the_followers(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await served(host)
        first = asyncio.create_task(code_of(coordinator.handle("g", commit(1), ASKED)))
        second = asyncio.create_task(code_of(coordinator.handle("g", commit(2), ASKED)))
        reading = asyncio.create_task(committed_offset(coordinator))
        await turns()
        assert host.places[GROUPS].log_end_offset == 2
        assert not first.done()
        assert not reading.done(), "what it shows may still be lost"
        host.places[GROUPS].advance(1)
        assert await first == ErrorCode.NONE
        await turns()
        assert not second.done()
        host.places[GROUPS].advance()
        assert (await second, await reading) == (ErrorCode.NONE, 2)

    run(tmp_path, story)


def test_who_may_have_been_replaced_answers_nothing_by_what_it_alone_knows(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await served(host)
        host.membership.may_answer_alone = lambda: False
        refused = coordinator.handle("g", commit(1), ASKED)
        assert await code_of(refused) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(CoordinatorNotAvailableError):
            await committed_offset(coordinator)
        assert host.places[GROUPS].log_end_offset == 0

    run(tmp_path, story)


def test_a_join_is_answered_once_the_followers_know_the_generation(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await served(host)
        joining = asyncio.create_task(coordinator.handle("g", join(), ASKED))
        await until(lambda: host.places[GROUPS].log_end_offset or joining.done())
        host.places[GROUPS].advance()
        joined: Any = await joining
        assert joined.error_code == ErrorCode.NONE

    run(tmp_path, story)


def test_who_waits_when_the_leader_changes_looks_elsewhere(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await served(host)
        waiting = asyncio.create_task(code_of(coordinator.handle("g", commit(1), ASKED)))
        await turns()
        host.follow(GROUPS, keeps=0)
        assert await waiting == ErrorCode.NOT_COORDINATOR
        host.lead(GROUPS)
        assert await coordinator.leader_of("g") == HERE
        assert await committed_offset(coordinator) == -1

    run(tmp_path, story)


def test_what_the_leader_before_left_is_served_once_the_followers_have_it(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await served(host)
        waiting = asyncio.create_task(code_of(coordinator.handle("g", commit(5), ASKED)))
        await turns()
        host.follow(GROUPS)
        assert await waiting == ErrorCode.NOT_COORDINATOR
        host.lead(GROUPS)
        await turns()
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await code_of(coordinator.handle("g", commit(6), ASKED)) == loading
        host.places[GROUPS].advance()
        await coordinator.wait_loaded()
        assert await committed_offset(coordinator) == 5

    run(tmp_path, story)


class Step(NamedTuple):
    kind: str
    number: int = 0


STEPS = st.lists(
    st.one_of(
        st.just(Step("commit")),
        st.builds(Step, st.just("advance"), st.integers(0, 3)),
        st.builds(Step, st.just("change leader"), st.integers(0, 3)),
    ),
    max_size=25,
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_what_was_answered_is_never_lost(steps: list[Step]) -> None:
    """Commits, followers that come after, and leaders that have any part of what is not committed
    yet.
    """

    async def story(host: Host) -> None:
        coordinator = await served(host)
        place = host.places[GROUPS]
        number, answered = 0, -1
        asked: dict[asyncio.Task[int], int] = {}
        for step in steps:
            if step.kind == "commit":
                number += 1
                task = asyncio.create_task(code_of(coordinator.handle("g", commit(number), ASKED)))
                asked[task] = number
            elif step.kind == "advance":
                place.advance(min(place.high_watermark + step.number, place.log_end_offset))
            else:
                keeps = min(place.high_watermark + step.number, place.log_end_offset)
                host.follow(GROUPS, keeps=keeps)
                await turns()
                assert all(task.done() for task in asked)
                host.lead(GROUPS)
                place.advance()
                await coordinator.wait_loaded()
                assert await committed_offset(coordinator) >= answered
            await turns()
            for task, offset in asked.items():
                if task.done() and task.result() == ErrorCode.NONE:
                    answered = max(answered, offset)
                    assert place.high_watermark >= 1
        place.advance()

    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), story)


# ---- transactions ----


async def coordinating(host: Host) -> TransactionCoordinator:
    """The transaction coordinator, once it serves."""
    host.lead(STATE)
    host.places[STATE].advance()
    coordinator = host.transactions()
    await coordinator.wait_loaded()
    return coordinator


async def ended(host: Host, coordinator: TransactionCoordinator) -> asyncio.Task[Decision]:
    """A transaction on t-0, whose commit is asked for."""
    init = asyncio.ensure_future(_decided(coordinator.init_producer_id("tx", 60_000, None)))
    await turns()
    assert not init.done(), "the producer's epoch may still be lost"
    host.places[STATE].advance()
    claim = (await init).producer
    code = coordinator.add_partitions("tx", claim, frozenset({DATA}), TV_2)
    assert code == ErrorCode.NONE
    host.places[STATE].advance()
    ending = coordinator.end_transaction("tx", claim, TV_2, committed=True)
    return asyncio.ensure_future(_decided(ending))


async def _decided(decision: Any) -> Decision:
    if isinstance(decision, Decision):
        return decision
    found: Decision = await decision
    return found


def state_of(coordinator: TransactionCoordinator) -> int:
    return coordinator.partition("tx").shard.transactions["tx"].state


def test_markers_are_written_once_the_decision_can_not_be_lost(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await coordinating(host)
        host.lead(DATA)
        ending = await ended(host, coordinator)
        await turns()
        assert host.places[DATA].log_end_offset == 0
        host.places[STATE].advance()
        await until(lambda: host.places[DATA].log_end_offset)
        await turns()
        assert state_of(coordinator) == PREPARE_COMMIT, "the marker may still be lost"
        host.places[DATA].advance()
        await until(lambda: state_of(coordinator) == COMPLETE_COMMIT)
        assert (await ending).error_code == ErrorCode.NONE

    run(tmp_path, story)


def test_markers_go_to_the_leader_until_one_takes_them(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await coordinating(host)
        host.answers = [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            NetworkError("gone"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
        ]
        ending = await ended(host, coordinator)
        host.places[STATE].advance()
        await until(lambda: state_of(coordinator) == COMPLETE_COMMIT)
        assert (await ending).error_code == ErrorCode.NONE
        assert len(host.asked) == 4
        (marker,) = host.asked[-1].markers
        assert (marker.transaction_result, marker.coordinator_epoch) == (True, 1)

    run(tmp_path, story)


def test_a_partition_that_is_gone_needs_no_marker(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await coordinating(host)
        known = {True}
        host.store.exists = lambda _: bool(known)
        await ended(host, coordinator)
        host.image = host.image.without_topics(DATA.topic)
        host.places[STATE].advance()
        await asyncio.sleep(0.15)
        assert state_of(coordinator) == PREPARE_COMMIT, "it is only not known here"
        known.clear()
        await until(lambda: state_of(coordinator) == COMPLETE_COMMIT)

    run(tmp_path, story)


def test_the_next_coordinator_completes_what_is_prepared(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await coordinating(host)
        ending = await ended(host, coordinator)
        await turns()
        host.follow(STATE)
        with pytest.raises(KafkaError) as refused:
            await ending
        assert refused.value.code == ErrorCode.NOT_COORDINATOR
        assert host.asked == [], "the decision could still have been lost"
        host.answers = [ErrorCode.NONE]
        host.lead(STATE)
        host.places[STATE].advance()
        await coordinator.wait_loaded()
        await until(lambda: state_of(coordinator) == COMPLETE_COMMIT)
        assert host.asked[0].markers[0].coordinator_epoch == 2
        host.places[STATE].advance()
        again = coordinator.end_transaction("tx", Claim(7, 0), TV_2, committed=True)
        assert await _decided(again) == Decision(ErrorCode.NONE, None, Claim(7, 1))

    run(tmp_path, story)
