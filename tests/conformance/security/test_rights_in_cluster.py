"""Rights in a cluster: the controller judges a forwarded request by who sent it, what brokers say
to each other needs CLUSTER_ACTION, and a rule holds at every broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kstore.broker.api import API_TABLE
from kstore.errors import ErrorCode
from kstore.protocol.registry import APIS, encode_request
from tests.beside.waiting import until
from tests.broker.runtime.security import token_harness
from tests.conformance.kstore_cluster import KstoreCluster
from tests.conformance.probes.secured import SecuredPeer, secure
from tests.conformance.probes.topics import create
from tests.plain_messages import Ask

EVE, BOB = "nobody", "half"
TOPIC, CLUSTER = 2, 4
READ, CREATE, DELETE, CLUSTER_ACTION = 3, 5, 6, 9


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, SecuredPeer]]:
    """Two brokers; they know each other by a plain listener, whose clients are super users."""
    cluster = KstoreCluster(tmp_path_factory.mktemp("rights"), 2)
    ports = {node_id: secure(broker) for node_id, broker in cluster.brokers.items()}
    for broker in cluster.brokers.values():
        broker.overrides["inter.broker.listener.name"] = "PLAINTEXT"
        broker.overrides["offsets.topic.replication.factor"] = "1"
    with cluster:
        found = {
            node_id: SecuredPeer("kstore", broker.host, broker.port, ports[node_id])
            for node_id, broker in cluster.brokers.items()
        }
        yield found
        for peer in found.values():
            peer.reset()


def others(peers: dict[int, SecuredPeer]) -> SecuredPeer:
    """A broker that is not the controller."""
    from kstore.protocol.metadata.describe_cluster import DescribeClusterRequest

    answer: Any = peers[1].ask(DescribeClusterRequest(), 0)
    return next(peer for node_id, peer in peers.items() if node_id != answer.controller_id)


def allow(peer: SecuredPeer, user: str, kind: int, name: str, operation: int) -> None:
    answer: Any = peer.ask(token_harness.allow(user, kind, name, operation), 3)
    assert answer.results[0].error_code == 0


def create_as(peer: SecuredPeer, user: str, topic: str) -> int:
    answer: Any = peer.ask(create(topic), 7, user)
    return int(answer.topics[0].error_code)


def topics_of(peer: SecuredPeer) -> set[str]:
    answer: Any = peer.ask(Ask.Metadata(topics=None), 12)
    return {topic.name for topic in answer.topics}


def test_a_forwarded_request_is_judged_by_who_sent_it(peers: dict[int, SecuredPeer]) -> None:
    peer = others(peers)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert create_as(peer, EVE, "a") == denied
    allow(peer, BOB, TOPIC, "a", CREATE)
    until(lambda: create_as(peer, BOB, "a") != denied, "Bob may create a")
    assert create_as(peer, BOB, "b") == denied
    assert create_as(peer, EVE, "c") == denied
    for each in peers.values():
        until(lambda each=each: "a" in topics_of(each), "the topic is known")
        assert not {"b", "c"} & topics_of(each)
    delete = Ask.DeleteTopics(topic_names=["a"], timeout_ms=10_000)
    answer: Any = peer.ask(delete, 5, EVE)
    assert [row.error_code for row in answer.responses] == [denied]
    row = {"resource_type": TOPIC, "resource_name": "a", "configs": []}
    altered: Any = peer.ask(Ask.AlterConfigs(resources=[row]), 2, EVE)
    assert [row.error_code for row in altered.responses] == [denied]


def test_what_brokers_ask_ends_the_connection_at_the_clients_listener(
    peers: dict[int, SecuredPeer],
) -> None:
    forged = Ask.Envelope(
        request_data=encode_request(create("forged"), 7, 0, "x")[4:],
        request_principal=b"User:ANONYMOUS",
        client_host_address=b"127.0.0.1",
    )
    asked: list[tuple[Any, int]] = [(forged, 0)]
    asked += [
        (APIS[key].request(), row.max_version) for key, row in API_TABLE.items() if row.internal
    ]
    allow(peers[1], BOB, CLUSTER, "kafka-cluster", CLUSTER_ACTION)
    for peer in peers.values():
        for user in (EVE, BOB):
            for request, version in asked:
                with pytest.raises(ConnectionError):
                    peer.ask(request, version, user)
                peer.reset()
        assert "forged" not in topics_of(peer)


def test_what_brokers_ask_each_other_needs_cluster_action(peers: dict[int, SecuredPeer]) -> None:
    request = Ask.AddPartitionsToTxn(transactions=[])
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for peer in peers.values():
        assert peer.ask(request, 4, EVE).error_code == refused  # type: ignore[attr-defined]
    allow(peers[1], EVE, CLUSTER, "kafka-cluster", CLUSTER_ACTION)
    for peer in peers.values():
        until(
            lambda peer=peer: peer.ask(request, 4, EVE).error_code != refused,
            "the rule holds at every broker",
        )
