"""A running cluster upgrades to KIP-232 and KIP-253 as the documents require: brokers with new code
and the older inter.broker.protocol.version are restarted one by one with the newer one, under load.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.protocol.metadata.api_versions import ApiVersionsRequest
from tests.beside.waiting import until
from tests.broker.harness.topic_client import TopicClient
from tests.conformance.kstore_cluster import PARTITIONS, THREE_REPLICAS, KstoreCluster
from tests.faults.histories import Traffic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROTOCOL = "inter.broker.protocol.version"
EXTENSIONS = {"kstore.kip232", "kstore.kip253"}


def extensions(cluster: KstoreCluster, node_id: int) -> set[str]:
    """Which of the two features a broker lists."""
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    found = TopicClient(cluster.brokers[node_id]).call(request, 4)
    return {feature.name for feature in found.supported_features} & EXTENSIONS


def partition_epochs(cluster: KstoreCluster, node_id: int) -> list[int]:
    """Those of the topic's partitions, by a broker's Metadata."""
    return TopicClient(cluster.brokers[node_id]).epochs("orders")


@pytest.mark.thorough
def test_two_bounces_take_the_documents_up_and_nothing_is_lost(tmp_path: Path):
    with KstoreCluster(tmp_path, overrides=THREE_REPLICAS | {PROTOCOL: "4.2"}) as cluster:
        traffic = Traffic(cluster)
        for node_id in cluster.brokers:
            assert extensions(cluster, node_id) == set()
            assert partition_epochs(cluster, node_id) == [-1] * PARTITIONS

        for protocol in ("4.2", "4.3"):
            for node_id, broker in cluster.brokers.items():
                broker.overrides[PROTOCOL] = protocol
                cluster.restart(node_id)
                until(lambda: cluster.all_in_sync("orders"), f"{node_id} is back", 120)

        epochs = list(range(1, PARTITIONS + 1))
        for node_id in cluster.brokers:
            assert extensions(cluster, node_id) == EXTENSIONS
            until(lambda n=node_id: partition_epochs(cluster, n) == epochs, "epochs are told")
        traffic.check()
        assert not any(producer.failed for producer in traffic.producers)
