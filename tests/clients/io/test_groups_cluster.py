"""Groups on three brokers: the coordinator stops, and no member loses a partition."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kstore.clients.io.cluster import GROUP
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.beside.waiting import reached
from tests.clients.io.group_driver import Poller
from tests.clients.io.test_groups import PROTOCOLS, SETTINGS
from tests.conformance.kstore_cluster import KstoreCluster

pytestmark = pytest.mark.slow

CLUSTER = SETTINGS | {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "broker.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "20000",
}


async def outlive_the_coordinator(cluster: KstoreCluster, protocol: str, *, hangs: bool) -> None:
    """Both members own one partition all the time, and commit through it."""
    settings = dict(PROTOCOLS[protocol]) | {"request_timeout_ms": 2_000}
    if protocol != "consumer":
        settings |= {"session_timeout_ms": 20_000}
    name = f"t-{protocol}-{hangs}"
    await asyncio.to_thread(cluster.create_topic, name, partitions=2, replication_factor=3)
    bootstrap, group_id = cluster.bootstrap, f"g-{name}"
    async with (
        Poller(bootstrap, group_id, **settings) as first,
        Poller(bootstrap, group_id, **settings) as second,
    ):
        for member in (first, second):
            await member.subscribe(name)
        await reached(lambda: len(first.owned) == len(second.owned) == 1)
        events = [list(member.events) for member in (first, second)]
        old = await first.cluster.coordinator(GROUP, group_id)
        await asyncio.to_thread(cluster.pause if hangs else cluster.kill, old)
        for number, member in enumerate((first, second)):
            (tp,) = member.owned
            await member.group.commit({tp: OffsetAndMetadata(number)})
        new = await first.cluster.coordinator(GROUP, group_id)
        assert new != old
        beats = first.group.heartbeats, second.group.heartbeats
        await reached(lambda: first.group.heartbeats > beats[0] + 2)
        await reached(lambda: second.group.heartbeats > beats[1] + 2)
        assert [member.events for member in (first, second)] == events
        found = await second.group.committed([TopicPartition(name, 0), TopicPartition(name, 1)])
        assert sorted(row.offset for row in found.values() if row is not None) == [0, 1]
        if hangs:
            await asyncio.to_thread(cluster.resume, old)
        else:
            await asyncio.to_thread(cluster.start, old)


def test_groups_outlive_their_coordinators(tmp_path: Path) -> None:
    async def scene(cluster: KstoreCluster) -> None:
        await outlive_the_coordinator(cluster, "range", hangs=False)
        await outlive_the_coordinator(cluster, "consumer", hangs=False)
        await outlive_the_coordinator(cluster, "cooperative", hangs=True)

    with KstoreCluster(tmp_path, overrides=CLUSTER) as cluster:
        asyncio.run(asyncio.wait_for(scene(cluster), 240))
