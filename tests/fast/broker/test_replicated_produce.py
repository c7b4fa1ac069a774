"""acks=all on a replicated partition: answers wait for the followers, in the order of the requests,
while later requests are appended. Also every way in which such a wait ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from kstore.protocol.logs.produce import LeaderIdAndEpoch, PartitionProduceResponse, ProduceRequest
from tests.broker.harness.plane_harness import NODE_ID, TOPIC_ID, Client, Plane
from tests.plain_messages import Answer
from tests.record_requests import fetch_request, produce_request

NEAR, FAR = 6, 7
REPLICAS = (NODE_ID, NEAR, FAR)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Cluster(Plane):
    """Partition 0 of `t` is led here with two followers; partition 1 with none."""

    def __init__(self, folder: Path, **limits: object) -> None:
        super().__init__(folder, **limits)
        self.now_ms = 1_000_000
        self.table.replication.clock = lambda: self.now_ms
        self.partition(0).lead(3, 1, REPLICAS, REPLICAS)

    def advance_to(self, offset: int) -> None:
        """Both followers have fetched up to here."""
        for node_id in (NEAR, FAR):
            self.fetched(node_id, offset)
        self.loop.turn()

    def fetched(self, node_id: int, offset: int) -> None:
        """A follower asks for the records from an offset on."""
        self.client().send(16, fetch_request(TOPIC_ID, offset, node=node_id))


@pytest.fixture
def cluster(tmp_path: Path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def produce(*partitions: int, **more: Any) -> ProduceRequest:
    batch = build_batch([b"v"], timestamp=1)
    return produce_request("t", *[batch] * len(partitions), at=partitions, **({"acks": -1} | more))


def answered(client: Client) -> list[list[tuple[int, int, int]]]:
    """Per answer: (partition, error code, base offset) of its partitions."""
    return [
        [(p.index, p.error_code, p.base_offset) for p in response.responses[0].partition_responses]
        for _, response in client.answers()
    ]


@pytest.mark.parametrize("version", range(3, 13))
def test_the_answer_comes_when_all_in_sync_replicas_have_the_records(
    cluster: Cluster, version: int
) -> None:
    client = cluster.client()
    client.send(version, produce(0))
    assert client.answers() == []
    cluster.fetched(NEAR, 1)
    cluster.loop.turn()
    assert client.answers() == []
    cluster.fetched(FAR, 1)
    cluster.loop.turn()
    assert answered(client) == [[(0, 0, 0)]]


@pytest.mark.parametrize("acks", [0, 1])
def test_other_acks_wait_for_nobody(cluster: Cluster, acks: int) -> None:
    client = cluster.client()
    client.send(9, produce(0, acks=acks))
    assert answered(client) == ([[(0, 0, 0)]] if acks else [])
    assert cluster.partition().high_watermark == 0
    assert cluster.partition().log_end_offset == 1


def test_requests_behind_are_appended_and_all_are_answered_in_order(cluster: Cluster) -> None:
    client = cluster.client()
    client.feed(b"".join(client.frame(9, produce(0)) for _ in range(3)))
    client.send(9, produce(1))
    client.send(9, produce(0, acks=1))
    assert cluster.partition().log_end_offset == 4
    cluster.advance_to(2)
    assert answered(client) == [[(0, 0, 0)], [(0, 0, 1)]]
    cluster.advance_to(3)
    assert answered(client) == [[(0, 0, 2)], [(1, 0, 0)], [(0, 0, 3)]]


def test_answers_of_one_fetch_leave_in_one_write(cluster: Cluster) -> None:
    client = cluster.client()
    client.feed(b"".join(client.frame(9, produce(0)) for _ in range(3)))
    written = []
    client.transport.write = lambda data: written.append(bytes(data))  # type: ignore[method-assign]
    cluster.advance_to(3)
    assert len(written) == 1


def test_a_request_of_several_partitions_waits_for_each(cluster: Cluster) -> None:
    cluster.partition(1).lead(3, 1, (NODE_ID, NEAR), (NODE_ID, NEAR))
    client = cluster.client()
    client.send(9, produce(0, 1))
    cluster.advance_to(1)
    assert client.answers() == []
    cluster.partition(1).follow(NEAR, 4)
    cluster.loop.turn()
    assert answered(client) == [[(0, 0, 0), (1, NOT_LEADER, 0)]]


def test_the_wait_ends_with_the_requests_time(cluster: Cluster) -> None:
    client = cluster.client()
    client.send(9, produce(0, timeout_ms=500))
    client.send(9, produce(0, timeout_ms=100))
    cluster.now_ms += 499
    cluster.loop.fire_timers()
    assert client.answers() == []  # the second waits for the first
    cluster.now_ms += 1
    cluster.loop.fire_timers()
    cluster.loop.turn()
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert answered(client) == [[(0, timed_out, 0)], [(0, timed_out, 1)]]
    assert cluster.produce.waiting.parked == 0
    assert cluster.partition().replication.waiting == 0  # type: ignore[union-attr]
    cluster.advance_to(2)
    assert client.answers() == []


def test_of_many_waits_that_end_together_each_turn_answers_some(cluster: Cluster) -> None:
    for client in [cluster.client() for _ in range(6)]:
        for _ in range(200):
            client.send(9, produce(0, timeout_ms=100))
    cluster.now_ms += 100
    left = []
    for _ in range(3):
        cluster.loop.fire_timers()
        left.append(cluster.produce.waiting.parked)
    assert left == [700, 200, 0]


def test_the_timer_is_set_for_the_next_wait(cluster: Cluster) -> None:
    client = cluster.client()
    client.send(9, produce(0, timeout_ms=100))
    client.send(9, produce(0, timeout_ms=300))
    cluster.now_ms += 100
    cluster.loop.fire_timers()
    assert answered(client) == [[(0, ErrorCode.REQUEST_TIMED_OUT, 0)]]
    [timer] = [timer for timer in cluster.loop.timers if not timer.cancelled]
    assert timer.delay_s == pytest.approx(0.2)


def test_lost_leadership_is_told_with_the_new_leader(cluster: Cluster) -> None:
    client = cluster.client()
    client.send(10, produce(0))
    cluster.partition().follow(FAR, 4)
    cluster.loop.turn()
    [(_, response)] = client.answers()
    assert response == Answer.Produce(
        responses=[
            type(response.responses[0])(
                name="t",
                partition_responses=[
                    PartitionProduceResponse(
                        index=0,
                        error_code=NOT_LEADER,
                        base_offset=0,
                        log_start_offset=0,
                        current_leader=LeaderIdAndEpoch(leader_id=FAR, leader_epoch=4),
                    )
                ],
            )
        ]
    )


def test_a_deleted_topic_ends_the_wait(cluster: Cluster) -> None:
    client = cluster.client()
    client.send(9, produce(0))
    cluster.table.remove_topic(b"t")
    cluster.loop.turn()
    assert answered(client) == [[(0, NOT_LEADER, 0)]]


def test_another_epoch_of_the_same_leader_keeps_the_wait(cluster: Cluster) -> None:
    client = cluster.client()
    client.send(9, produce(0))
    cluster.partition().lead(4, 2, REPLICAS, (NODE_ID, FAR))
    cluster.loop.turn()
    assert client.answers() == []
    cluster.fetched(FAR, 1)
    cluster.fetched(NEAR, 1)
    cluster.loop.turn()
    assert answered(client) == [[(0, 0, 0)]]


def test_too_few_in_sync_replicas_refuse_before_the_append(cluster: Cluster) -> None:
    partition = cluster.partition()
    partition.configure(stored_codec=-1, stored_level=-1, min_insync_replicas=2)
    partition.isr_applied((NODE_ID,), 2, 3)
    client = cluster.client()
    client.send(9, produce(0))
    assert answered(client) == [[(0, ErrorCode.NOT_ENOUGH_REPLICAS, -1)]]
    assert partition.log_end_offset == 0


def test_too_few_after_the_append_hold_the_high_watermark(cluster: Cluster) -> None:
    partition = cluster.partition()
    partition.configure(stored_codec=-1, stored_level=-1, min_insync_replicas=2)
    client = cluster.client()
    client.send(9, produce(0, timeout_ms=100))
    partition.isr_applied((NODE_ID,), 2, 3)
    cluster.loop.turn()
    assert (client.answers(), partition.high_watermark) == ([], 0)
    cluster.now_ms += 100
    cluster.loop.fire_timers()
    assert answered(client) == [[(0, ErrorCode.REQUEST_TIMED_OUT, 0)]]


def test_a_lost_connection_waits_no_more(cluster: Cluster) -> None:
    client = cluster.client()
    client.send(9, produce(0))
    client.connection.connection_lost(None)
    assert cluster.partition().replication.waiting == 0  # type: ignore[union-attr]
    assert cluster.produce.waiting.parked == 0
    cluster.advance_to(1)
    assert cluster.partition().high_watermark == 1


def test_a_partition_that_is_left_with_one_replica_answers(cluster: Cluster) -> None:
    client = cluster.client()
    client.send(9, produce(0))
    cluster.partition().lead(4, 2, (NODE_ID,), (NODE_ID,))
    cluster.loop.turn()
    assert answered(client) == [[(0, 0, 0)]]
    assert cluster.partition().replication is None
    client.send(9, produce(0))
    assert answered(client) == [[(0, 0, 1)]]


def test_a_duplicate_waits_for_what_it_repeats(cluster: Cluster) -> None:
    batch = build_batch([b"v"], timestamp=1, producer_id=7, producer_epoch=0, base_sequence=0)
    asked = produce(0)
    asked.topic_data[0].partition_data[0].records = batch
    clients = [cluster.client(), cluster.client()]
    for client in clients:
        client.send(9, asked)
        assert client.answers() == []
    assert cluster.partition().log_end_offset == 1
    cluster.advance_to(1)
    for client in clients:
        assert answered(client) == [[(0, 0, 0)]]


def test_the_disk_is_waited_for_too(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, durable=True)
    flushed = []
    cluster.server.answer_when_durable = (  # type: ignore[attr-defined]
        lambda appended, slot, body: flushed.append(lambda: slot.complete(body))
    )
    first, second = cluster.client(), cluster.client()
    first.send(9, produce(0))
    cluster.advance_to(1)
    assert first.answers() == []
    flushed.pop()()
    assert answered(first) == [[(0, 0, 0)]]
    second.send(9, produce(0))
    flushed.pop()()
    assert second.answers() == []
    cluster.advance_to(2)
    assert answered(second) == [[(0, 0, 1)]]
    cluster.close()
