"""KIP-359 on three real brokers: a replaced leader that does not know it accepts no records from a
producer that knows the new epoch, and a producer with an older epoch learns the new one. The
failures reappear if kstore.kip359.enable is false.
"""

from __future__ import annotations

import asyncio

import pytest

from kstore.clients import Producer
from kstore.clients.io.connection import BrokerConnection
from kstore.errors import ErrorCode
from kstore.protocol.logs.produce import ProduceRequest, ProduceResponse
from kstore.protocol.schema import Message
from tests.beside.topic_records import records_of
from tests.beside.waiting import until
from tests.documents.cut_off import CutOffCluster
from tests.documents.cut_off import cluster as cluster  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ON_AND_OFF = pytest.mark.parametrize("enabled", [True, False], ids=["on", "off"])


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(broker id, error code) of every Produce answer that a client of this process gets."""
    seen: list[tuple[int, int]] = []
    send = BrokerConnection.send

    def watched(
        self: BrokerConnection, request: Message, version: int, **options: bool
    ) -> asyncio.Future[Message]:
        future = send(self, request, version, **options)
        if isinstance(request, ProduceRequest):
            future.add_done_callback(lambda done: note(self.node_id, done))
        return future

    def note(node_id: int, done: asyncio.Future[Message]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        answer = done.result()
        assert isinstance(answer, ProduceResponse)
        for topic in answer.responses:
            seen.extend((node_id, row.error_code) for row in topic.partition_responses)

    monkeypatch.setattr(BrokerConnection, "send", watched)
    return seen


def producer(cluster: CutOffCluster, node_id: int, enabled: bool) -> Producer:
    """A producer whose records count as delivered once their leader has them."""
    return Producer(
        cluster.brokers[node_id].bootstrap, acks=1, enable_idempotence=False, retry_backoff_ms=10,
        kstore_kip359_enable=enabled,
    )  # fmt: skip


def values(cluster: CutOffCluster, topic: str, node_id: int) -> list[tuple[bytes | None, int]]:
    """All records of partition 0, each with the epoch of the leader that took it."""
    found = records_of(cluster.brokers[node_id].bootstrap, topic)
    return [(row.value, row.leader_epoch) for row in found]


@ON_AND_OFF
def test_a_leader_that_was_replaced_takes_nothing_from_a_producer_that_knows_it(
    cluster: CutOffCluster, answers: list[tuple[int, int]], enabled: bool
) -> None:
    """Two elections that the leader, which is cut off, does not know about. With the extension the
    record waits until there is a leader that knows its epoch. Without it the old leader appends the
    record in its old epoch and acknowledges it, and the next election loses it.
    """
    old, first, second = cluster.victim()
    topic = cluster.new_topic(old, first, second)
    with cluster.cut_off(old):
        cluster.lead(topic, first, asked=first)
        cluster.lead(topic, old, asked=first)
        elected = cluster.topic(topic, first).partitions[0].leader_epoch
        sending = producer(cluster, first, enabled)
        delivery = sending.send(topic, b"record", partition=0)
        if enabled:
            until(lambda: (old, ErrorCode.UNKNOWN_LEADER_EPOCH) in answers, "it was refused")
            assert not delivery.done
        else:
            assert delivery.result() == 0
            assert answers == [(old, ErrorCode.NONE)]
        cluster.lead(topic, first, asked=first)
    sending.flush()
    assert delivery.result() == 0
    sending.close()
    with Producer(cluster.brokers[first].bootstrap, acks="all") as later:
        later.send(topic, b"later", partition=0).result()
    kept = values(cluster, topic, first)
    if enabled:
        assert [value for value, _ in kept] == [b"record", b"later"]
        assert all(epoch >= elected for _, epoch in kept)
    else:
        assert [value for value, _ in kept] == [b"later"]  # acknowledged, and gone


@ON_AND_OFF
def test_a_producer_that_missed_an_election_is_told(
    cluster: CutOffCluster, answers: list[tuple[int, int]], enabled: bool
) -> None:
    """The leader is the same as before, but of a later epoch: the producer is fenced, fetches
    metadata and sends again, once.
    """
    leader, first, second = cluster.victim()
    topic = cluster.new_topic(leader, first, second)
    with producer(cluster, first, enabled) as sending:
        assert sending.send(topic, b"before", partition=0).result() == 0
        cluster.lead(topic, first, asked=first)
        cluster.lead(topic, leader, asked=first)
        until(cluster.is_same_everywhere, "all brokers know the leader")
        assert sending.send(topic, b"after", partition=0).result() == 1
    with Producer(cluster.brokers[first].bootstrap, acks="all") as later:
        later.send(topic, b"later", partition=0).result()
    codes = [code for _, code in answers]
    assert (ErrorCode.FENCED_LEADER_EPOCH in codes) is enabled
    assert codes.count(ErrorCode.NONE) == 3
    wanted = [b"before", b"after", b"later"]
    assert [value for value, _ in values(cluster, topic, first)] == wanted
