"""KIP-232 on three real brokers, one of which is cut off from the controller: nobody takes its old
view of the cluster for a new one, and an offset of a deleted topic is never taken for one of the
topic that has its name now. Each time the failure comes back when kstore.kip232.enable is false.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kstore.clients.io.cluster import ClusterClient
from kstore.config.client_configs import client_settings
from tests.conformance.kstore_cluster import until
from tests.documents.cut_off import CutOffCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ON_AND_OFF = pytest.mark.parametrize("enabled", [True, False], ids=["on", "off"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutOffCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with CutOffCluster(folder, overrides={"replica.lag.time.max.ms": "60000"}) as running:
        yield running


async def only_connected_to(client: ClusterClient, node_id: int) -> None:
    """Close the client's other connections, so that this broker is the one it asks first."""
    for other in list(client.view.brokers):
        if other != node_id:
            (await client.connection(other)).close()
    await client.connection(node_id)


@ON_AND_OFF
def test_a_client_does_not_go_back_to_what_a_lagging_broker_knows(
    cluster: CutOffCluster, enabled: bool
) -> None:
    lagging, first, second = cluster.victim()
    topic = cluster.new_topic(first, second)

    async def look() -> list[int]:
        settings = client_settings(
            "consumer", cluster.brokers[first].bootstrap, {"kstore_kip232_enable": enabled}
        )
        client = ClusterClient(settings)
        await client.refresh([topic])
        counts = [client.view.partition_count(topic)]
        await only_connected_to(client, lagging)
        for _ in range(5):
            await client.refresh([topic])
            counts.append(client.view.partition_count(topic))
        await client.close()
        return counts

    with cluster.cut_off(lagging):
        with cluster.admin(first) as admin:
            admin.create_partitions(topic, 3, replicas=[[first, second]] * 2)
        counts = asyncio.run(look())
    assert counts[0] == 3
    if enabled:
        assert counts == [3] * 6
    else:
        assert 1 in counts  # two partitions are gone again


@ON_AND_OFF
def test_a_topic_that_was_deleted_does_not_come_back(cluster: CutOffCluster, enabled: bool) -> None:
    lagging, first, second = cluster.victim()
    topic = cluster.new_topic(first, second)

    async def look() -> list[bool]:
        settings = client_settings(
            "consumer", cluster.brokers[first].bootstrap, {"kstore_kip232_enable": enabled}
        )
        client = ClusterClient(settings)
        await client.refresh([topic])
        seen = [topic in client.view.topics]
        await only_connected_to(client, lagging)
        for _ in range(5):
            await client.refresh([topic])
            seen.append(topic in client.view.topics)
        await client.close()
        return seen

    with cluster.cut_off(lagging):
        delete(cluster, topic, first)
        seen = asyncio.run(look())
    assert not seen[0]
    assert any(seen) is not enabled


def delete(cluster: CutOffCluster, topic: str, asked: int) -> None:
    """Delete a topic though a broker can't be told: that is not waited for."""
    from kstore.clients import AdminClient

    bootstrap = cluster.brokers[asked].bootstrap
    with AdminClient(bootstrap, request_timeout_ms=1000) as admin:
        admin.delete_topics([topic], raise_errors=False)
    with cluster.admin(asked) as admin:
        until(lambda: topic not in admin.list_topics(), f"{topic} is deleted")
