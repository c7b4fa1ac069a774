"""The contract of every Persister: in memory, and with a real coordinator elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from kstore.broker.runtime.shares.coordinator_persister import CoordinatorPersister
from kstore.broker.runtime.shares.persister import Persister
from kstore.broker.state.shares.persisted import (
    NO_COUNT,
    NO_EPOCH,
    NO_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareSummary,
    ShareWrite,
    StateBatch,
)
from kstore.errors import ErrorCode, KafkaError, NetworkError, error_for
from kstore.protocol.registry import APIS, decode_response, encode_request
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.reference.memory_persister import MemoryPersister

PARTITIONS = 40
SETTINGS = {"share.coordinator.state.topic.num.partitions": "5"}
BROKER = 1


class Wire:
    """The Peers of a broker that has one other: a connection to it, and its answers changed."""

    def __init__(self, broker: KstoreBroker) -> None:
        self._broker = broker
        self._line = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.asked: list[Any] = []
        self.failures: list[KafkaError] = []

    async def ask(self, node_id: int, request: Any, timeout_s: float = 30.0) -> Any:
        assert node_id == BROKER
        self.asked.append(request)
        if self.failures:
            raise self.failures.pop(0)
        async with self._line:
            if self._streams is None:
                self._streams = await asyncio.open_connection(self._broker.host, self._broker.port)
            reader, writer = self._streams
            api = APIS[request.API_KEY]
            writer.write(encode_request(request, api.max_version, 1, "broker-0"))
            size = int.from_bytes(await reader.readexactly(4), "big")
            answer = await reader.readexactly(size)
        return decode_response(answer, api.response, api.max_version)[1]

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


class Elsewhere:
    """The ShareCoordinator of a broker that leads nothing."""

    def __init__(self) -> None:
        self.looked = 0
        self.failures: list[KafkaError] = []

    async def leader_of(self, name: str) -> int:
        self.looked += 1
        if self.failures:
            raise self.failures.pop(0)
        return BROKER

    def begin_write(self, key: SharePartitionKey, change: ShareWrite) -> None:
        raise error_for(ErrorCode.NOT_COORDINATOR)


class FakeNode:
    """The Node of another broker."""

    node_id = 0

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()


class Far:
    """A CoordinatorPersister whose coordinator is a real broker."""

    def __init__(self, broker: KstoreBroker) -> None:
        self.wire = Wire(broker)
        self.elsewhere = Elsewhere()
        self.persister = CoordinatorPersister(FakeNode(), lambda: self.elsewhere, lambda: self.wire)  # type: ignore[arg-type]
        self.topic_id = UUID(int=0)

    async def prepare(self) -> None:
        """Make a topic, and __share_group_state."""
        topic = {"name": f"t-{uuid4()}", "num_partitions": PARTITIONS, "replication_factor": 1}
        made = await self.wire.ask(BROKER, Ask.CreateTopics(topics=[topic], timeout_ms=30_000))
        self.topic_id = made.topics[0].topic_id
        key = str(SharePartitionKey("g", self.topic_id, 0))
        found = await self.wire.ask(BROKER, Ask.FindCoordinator(key_type=2, coordinator_keys=[key]))
        assert found.coordinators[0].node_id == BROKER
        self.wire.asked.clear()


Case = Callable[[Persister, SharePartitionKey], Any]


async def each_call(persister: Persister, key: SharePartitionKey) -> None:
    """A life, from the beginning to the end."""
    await persister.initialize(key, 2, NO_OFFSET)
    assert await persister.read(key, 1) == ShareState(2, NO_OFFSET, ())
    acknowledged, available = StateBatch(10, 19, 2, 1), StateBatch(20, 25, 0, 1)
    await persister.write(key, ShareWrite(2, 1, 10, 10, (available, acknowledged)))
    assert await persister.read(key, 1) == ShareState(2, 10, (acknowledged, available))
    await persister.write(key, ShareWrite(2, 1, 20, 0))
    assert await persister.read(key, 2) == ShareState(2, 20, (available,))
    assert await persister.read_summary(key, NO_EPOCH) == ShareSummary(2, 2, 20, 0)
    await persister.delete(key)
    await persister.delete(key)
    assert await persister.read_summary(key, 5) == ShareSummary(0, 0, NO_OFFSET, NO_COUNT)


async def fences(persister: Persister, key: SharePartitionKey) -> None:
    """Older epochs, and what is not there."""
    with pytest.raises(KafkaError) as refused:
        await persister.read(key, 0)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    await persister.initialize(key, 2, 0)
    await persister.read(key, 4)
    for refusal, code in (
        (persister.initialize(key, 1, 0), ErrorCode.FENCED_STATE_EPOCH),
        (persister.read(key, 3), ErrorCode.FENCED_LEADER_EPOCH),
        (persister.write(key, ShareWrite(2, 3)), ErrorCode.FENCED_LEADER_EPOCH),
        (persister.write(key, ShareWrite(1, 4)), ErrorCode.FENCED_STATE_EPOCH),
    ):
        with pytest.raises(KafkaError) as refused:
            await refusal
        assert refused.value.code == code


async def many(persister: Persister, key: SharePartitionKey) -> None:
    """All share-partitions of a group, and of another one, at once."""
    keys = [key._replace(partition=index) for index in range(PARTITIONS)]
    keys += [key._replace(group_id=key.group_id + "-2", partition=index) for index in range(3)]
    await asyncio.gather(*(persister.initialize(each, 1, 7) for each in keys))
    batch = (StateBatch(7, 7, 2, 1),)
    await asyncio.gather(
        *(persister.write(each, ShareWrite(1, 0, 7, 1, batch)) for each in keys),
        *(persister.write(each, ShareWrite(1, 0, 8, 0)) for each in keys),
    )
    states = await asyncio.gather(*(persister.read(each, 3) for each in keys))
    assert states == [ShareState(1, 8, ())] * len(keys)


async def begun(persister: Persister, key: SharePartitionKey) -> None:
    """Writes that are under way when they are begun."""

    async def write(change: ShareWrite) -> None:
        later = persister.begin_write(key, change)
        if later is not None:
            await later

    await persister.initialize(key, 2, 0)
    await write(ShareWrite(2, 1, 10, 0))
    assert await persister.read(key, 1) == ShareState(2, 10, ())
    with pytest.raises(KafkaError) as refused:
        await write(ShareWrite(1, 1, 11, 0))
    assert refused.value.code == ErrorCode.FENCED_STATE_EPOCH
    assert await persister.read(key, 1) == ShareState(2, 10, ())


CASES = [each_call, fences, many, begun]


@pytest.mark.parametrize("case", CASES)
def test_a_persister_in_memory(case: Case) -> None:
    asyncio.run(case(MemoryPersister(), SharePartitionKey(f"g-{uuid4()}", uuid4(), 1)))


class Here(MemoryPersister):
    """The ShareCoordinator of the broker that asks."""

    def __init__(self) -> None:
        super().__init__()
        self.later: list[asyncio.Future[int]] = []
        """What tells of the next writes that are begun."""

    def begin_write(  # type: ignore[override]
        self, key: SharePartitionKey, change: ShareWrite
    ) -> asyncio.Future[int] | None:
        self.write_now(key, change)
        return self.later.pop(0) if self.later else None

    async def leader_of(self, name: str) -> int:
        """As ShareCoordinator: this broker."""
        return FakeNode.node_id


@pytest.mark.parametrize("case", CASES)
def test_a_persister_whose_coordinator_is_its_own_broker(case: Case) -> None:
    async def run() -> None:
        here = Here()
        persister = CoordinatorPersister(FakeNode(), lambda: here, lambda: None)  # type: ignore[arg-type]
        await case(persister, SharePartitionKey(f"g-{uuid4()}", uuid4(), 1))

    asyncio.run(run())


APPENDS = [
    (ErrorCode.NONE, None, 1),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, None, 2),
    (ErrorCode.REQUEST_TIMED_OUT, None, 2),
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR, 1),
]


@pytest.mark.parametrize(("told", "refusal", "writes"), APPENDS)
def test_a_write_that_is_begun_ends_when_it_lasts_and_is_written_again_where_that_helps(
    told: int, refusal: int | None, writes: int
) -> None:
    async def run() -> None:
        here, key = Here(), SharePartitionKey("g", uuid4(), 1)
        persister = CoordinatorPersister(FakeNode(), lambda: here, lambda: None)  # type: ignore[arg-type]
        await persister.initialize(key, 1, 0)
        before = len(here.records)
        later = asyncio.get_running_loop().create_future()
        here.later.append(later)
        begun = persister.begin_write(key, ShareWrite(1, 0, 5, 0))
        assert begun is not None
        assert len(here.records) == before + 1
        ending = asyncio.ensure_future(begun)
        await asyncio.sleep(0)
        assert not ending.done()
        later.set_result(told)
        (found,) = await asyncio.gather(ending, return_exceptions=True)
        assert getattr(found, "code", None) == refusal
        assert len(here.records) == before + writes

    asyncio.run(run())


def with_far(broker: KstoreBroker, test: Callable[[Far], Awaitable[None]]) -> None:
    """Run a test with a persister whose coordinator is that broker."""

    async def run() -> None:
        far = Far(broker)
        try:
            await far.prepare()
            await test(far)
        finally:
            await far.persister.close()
            far.wire.close()

    asyncio.run(run())


@pytest.mark.parametrize("case", CASES)
def test_a_persister_whose_coordinator_is_another_broker(running: KstoreBroker, case: Case) -> None:
    with_far(
        running, lambda far: case(far.persister, SharePartitionKey(f"g-{uuid4()}", far.topic_id, 1))
    )


def test_what_is_asked_at_once_goes_in_one_request_of_each_group(running: KstoreBroker) -> None:
    async def test(far: Far) -> None:
        keys = [SharePartitionKey(f"g-{uuid4()}", far.topic_id, index) for index in range(2)]
        await asyncio.gather(
            *(
                far.persister.initialize(key._replace(partition=index), 1, 0)
                for index in range(PARTITIONS)
                for key in keys
            )
        )
        assert len(far.wire.asked) == 2
        for request in far.wire.asked:
            rows = [row.partition for topic in request.topics for row in topic.partitions]
            assert rows == list(range(PARTITIONS))

    with_far(running, test)


def test_a_coordinator_that_is_away_is_looked_for_and_asked_again(running: KstoreBroker) -> None:
    async def test(far: Far) -> None:
        key = SharePartitionKey(f"g-{uuid4()}", far.topic_id, 0)
        far.elsewhere.failures = [error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        far.wire.failures = [NetworkError("gone"), error_for(ErrorCode.NOT_COORDINATOR)]
        await far.persister.initialize(key, 1, 0)
        assert far.elsewhere.looked == 4
        unknown = key._replace(partition=PARTITIONS)
        with pytest.raises(KafkaError) as refused:
            await far.persister.initialize(unknown, 1, 0)
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert far.elsewhere.looked == 5

    with_far(running, test)
