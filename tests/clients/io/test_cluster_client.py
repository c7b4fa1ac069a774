"""The clients' shell over a real broker: connections, metadata, coordinators, trying again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kstore.clients.io.cluster import ANY, GROUP
from kstore.clients.io.loop_thread import LoopThread
from kstore.errors import NetworkError, RequestTimedOutError, UnknownTopicOrPartitionError
from kstore.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kstore.types import TopicPartition
from tests.clients.io.quick_client import client
from tests.conformance.broker_process import free_port
from tests.conformance.kstore_broker import KstoreBroker


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


def test_metadata_requests_and_coordinators(broker: KstoreBroker, thread: LoopThread) -> None:
    async def run() -> None:
        cluster = client(broker.bootstrap)
        await cluster.refresh(["made"], create=True)
        await cluster.retrying(lambda: cluster.refresh(["made"]), 60_000)
        (node_id,) = cluster.view.brokers
        connection = await cluster.connection(node_id)
        assert connection.versions.has("kstore.kip232")
        assert connection is await cluster.connection(ANY)
        assert connection is not await cluster.connection(node_id, lane="fetch")
        coordinator = await cluster.retrying(lambda: cluster.coordinator(GROUP, "g"), 60_000)
        assert coordinator == node_id
        answers = await asyncio.gather(
            *(cluster.ask(node_id, MetadataRequest(topics=[])) for _ in range(100))
        )
        assert all(isinstance(answer, MetadataResponse) for answer in answers)
        await cluster.close()
        assert connection.is_lost
        with pytest.raises(RuntimeError, match="closed"):
            await cluster.refresh(None)

    thread.run(run())


def test_watched_topics_are_kept_fresh(broker: KstoreBroker, thread: LoopThread) -> None:
    async def run() -> None:
        watching, making = (
            client(broker.bootstrap, metadata_max_age_ms=20),
            client(broker.bootstrap),
        )
        updated = asyncio.Event()
        watching.on_update.append(updated.set)
        watching.watch_topics({"fresh"})
        await updated.wait()
        with pytest.raises(UnknownTopicOrPartitionError):
            watching.view.topic("fresh")
        await making.refresh(["fresh"], create=True)
        async with asyncio.timeout(60):
            while "fresh" not in watching.view.topics:
                updated.clear()
                await updated.wait()
        assert watching.view.partition_epoch(TopicPartition("fresh", 0)) >= 0
        await watching.close()
        await making.close()

    thread.run(run())


def test_a_port_where_nobody_listens_is_named(thread: LoopThread) -> None:
    port = free_port()

    async def run() -> None:
        cluster = client(f"127.0.0.1:{port}")
        try:
            await cluster.retrying(lambda: cluster.refresh(None), 200)
        finally:
            await cluster.close()

    with pytest.raises(NetworkError, match=f"127.0.0.1:{port}.*is a broker running there"):
        thread.run(run())


def test_time_limits_hold_though_the_action_never_ends(thread: LoopThread) -> None:
    async def run() -> None:
        await client("127.0.0.1:1").retrying(asyncio.Event().wait, 50)

    with pytest.raises(RequestTimedOutError, match="no answer within 50 ms"):
        thread.run(run())


def test_a_closed_loop_thread_says_so() -> None:
    thread = LoopThread()
    assert not thread.is_current
    thread.close()
    thread.close()
    assert thread.is_closed

    async def never() -> None:
        raise AssertionError

    with pytest.raises(RuntimeError, match="the client is closed"):
        thread.run(never())
