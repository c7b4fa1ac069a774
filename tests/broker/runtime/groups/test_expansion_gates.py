"""How the coordinator finds out what must be read before a new partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from kstore.broker.coordination import znodes
from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.store import StoreUnavailableError
from kstore.broker.runtime.groups import expansion_gates
from kstore.broker.runtime.groups.expansion_gates import ExpansionGates
from kstore.broker.runtime.metadata.cache import MetadataCache
from kstore.broker.state.groups.consumer.ordered_expansion import UNKNOWN
from kstore.broker.state.metadata.image import MetadataImage, PartitionImage, TopicImage
from kstore.errors import ErrorCode, NetworkError
from tests.plain_messages import Answer

ME, OTHER = 1, 2
LED_HERE = PartitionImage(ME, 0, (ME,), (ME,))
LED_THERE = PartitionImage(OTHER, 0, (OTHER,), (OTHER,))
ON = {"kstore.ordered.expansion": "true"}


class OwnPartition:
    """A partition that this broker leads. The epochs before its own ended at offset 7."""

    online = True

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.appends_queued = 0

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        assert epoch < self.leader_epoch
        return epoch, 7


class Host:
    """What the gates need: the node, the partitions that it leads, and the other brokers."""

    def __init__(self) -> None:
        self.node_id = ME
        self.store = MemoryStore()
        znodes.prepare(self.store)
        self.metadata = MetadataCache(MetadataImage("cluster"), lambda: None)
        self.own: dict[int, OwnPartition] = {}
        self.answers: dict[int, int] = {}
        """Partition to the end offset that its leader tells; a missing one is not led there."""
        self.reachable = True
        self.asked = 0
        self.reports: list[str] = []
        self.broken = False

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def publish(self, image: MetadataImage) -> None:
        self.metadata.publish(image)

    def partition(self, name: bytes, index: int) -> OwnPartition | None:
        return self.own.get(index)

    async def run_blocking(self, call: Callable[[], Any]) -> Any:
        if self.broken:
            raise StoreUnavailableError("it is away")
        return call()

    def report(self, sentence: str, about: str = "") -> None:
        self.reports.append(sentence)

    async def ask(self, node: int, request: Any, timeout_s: float) -> Any:
        assert node == OTHER
        self.asked += 1
        if not self.reachable:
            raise NetworkError("it is away")
        rows = []
        for row in request.topics[0].partitions:
            end = self.answers.get(row.partition)
            code = ErrorCode.NONE if end is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER
            end_offset = -1 if end is None else end
            rows.append({"partition": row.partition, "error_code": code, "end_offset": end_offset})
        topic = {"topic": request.topics[0].topic, "partitions": rows}
        return Answer.OffsetForLeaderEpoch(topics=[topic])

    def thresholds(self) -> dict[int, dict[int, int]]:
        return {index: dict(row) for index, row in self.image.gates["t"].thresholds.items()}


def grown(host: Host, *partitions: PartitionImage) -> None:
    """A topic with these partitions, and one that was added later."""
    made = znodes.create_topic(host.store, TopicImage("t", uuid4(), partitions, ON))
    bumped = znodes.begin_expansion(host.store, made, [(ME,)])
    topic = bumped._replace(partitions=(*bumped.partitions, LED_HERE))
    host.publish(host.image.with_topics(znodes.add_partitions(host.store, topic, len(partitions))))


def on_a_loop(test: Callable[[Host, ExpansionGates], Awaitable[None]]) -> Callable[[], None]:
    async def main() -> None:
        host = Host()
        given: Any = host
        spawn = asyncio.get_running_loop().create_task
        gates = ExpansionGates(given, host.store, host.metadata, given, lambda: given, spawn)
        await test(host, gates)

    return lambda: asyncio.run(main())


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion_gates, "RETRY_S", 0)


async def known(host: Host, gates: ExpansionGates) -> None:
    """Wait until nothing is unknown."""

    def unknown() -> bool:
        return any(UNKNOWN in row.values() for row in host.thresholds().values())

    while unknown():
        await gates.refresh()
        await asyncio.sleep(0)


@on_a_loop
async def test_what_waits_for_the_disk_is_before_the_end(host: Host, gates: ExpansionGates) -> None:
    """It was admitted under the old count."""
    grown(host, LED_HERE)
    host.own[0] = OwnPartition(1)
    host.own[0].appends_queued = 1
    await gates.refresh()
    assert host.thresholds() == {1: {0: UNKNOWN}}
    host.own[0].appends_queued = 0
    await known(host, gates)
    assert host.thresholds() == {1: {0: 7}}


@on_a_loop
async def test_what_is_led_here_is_known_at_once(host: Host, gates: ExpansionGates) -> None:
    host.own[0] = OwnPartition(1)
    grown(host, LED_HERE)
    await gates.refresh()
    assert host.thresholds() == {1: {0: 7}}
    assert host.asked == 0


@on_a_loop
async def test_other_leaders_are_asked_until_they_answer(host: Host, gates: ExpansionGates) -> None:
    host.own[0] = OwnPartition(1)
    host.reachable = False
    grown(host, LED_HERE, LED_THERE, LED_THERE)
    await gates.refresh()
    assert host.thresholds() == {3: {0: 7, 1: UNKNOWN, 2: UNKNOWN}}
    while host.asked < 3:
        await asyncio.sleep(0)
    assert host.thresholds()[3][1] == UNKNOWN
    host.reachable = True
    host.answers = {1: 4}
    while host.thresholds()[3][1] == UNKNOWN:
        await asyncio.sleep(0)
    assert host.thresholds() == {3: {0: 7, 1: 4, 2: UNKNOWN}}, "2 is not led there any more"
    host.answers = {2: 5}
    await known(host, gates)
    assert host.thresholds() == {3: {0: 7, 1: 4, 2: 5}}


@on_a_loop
async def test_a_leader_that_has_not_heard_yet_is_not_believed(
    host: Host, gates: ExpansionGates
) -> None:
    """In its old epoch, its log may still grow."""
    host.own[0] = OwnPartition(0)
    grown(host, LED_HERE)
    await gates.refresh()
    assert host.thresholds() == {1: {0: UNKNOWN}}
    host.own[0] = OwnPartition(1)
    await known(host, gates)
    assert host.thresholds() == {1: {0: 7}}


@on_a_loop
async def test_a_topic_that_is_made_anew_is_looked_at_anew(
    host: Host, gates: ExpansionGates
) -> None:
    host.own[0] = OwnPartition(1)
    grown(host, LED_HERE)
    await gates.refresh()
    znodes.delete_topic(host.store, host.image.topics["t"])
    host.publish(host.image.without_topics("t"))
    made = znodes.create_topic(host.store, TopicImage("t", uuid4(), (LED_HERE,) * 2, ON))
    host.publish(host.image.with_topics(made))
    await gates.refresh()
    assert host.image.gates["t"].topic_id == made.topic_id
    assert host.thresholds() == {}


@on_a_loop
async def test_who_is_deleted_is_not_asked_for_any_more(host: Host, gates: ExpansionGates) -> None:
    host.reachable = False
    grown(host, LED_THERE)
    await gates.refresh()
    while not host.asked:
        await asyncio.sleep(0)
    host.publish(host.image.without_topics("t"))
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others)  # the requests end


@on_a_loop
async def test_a_store_that_is_away_is_asked_again(host: Host, gates: ExpansionGates) -> None:
    host.own[0] = OwnPartition(1)
    grown(host, LED_HERE)
    host.broken = True
    await gates.refresh()
    assert host.image.gates == {}
    assert len(host.reports) == 1
    host.broken = False
    await gates.refresh()
    assert host.thresholds() == {1: {0: 7}}


@on_a_loop
async def test_two_expansions_are_two_gates(host: Host, gates: ExpansionGates) -> None:
    host.own = {0: OwnPartition(2), 1: OwnPartition(1)}
    grown(host, LED_HERE)
    once = host.image.topics["t"]
    bumped = znodes.begin_expansion(host.store, once, [(ME,)])
    topic = bumped._replace(partitions=(*bumped.partitions, LED_HERE))
    host.publish(host.image.with_topics(znodes.add_partitions(host.store, topic, 2)))
    await gates.refresh()
    assert host.thresholds() == {1: {0: 7}, 2: {0: 7, 1: 7}}
