"""kstore's share consumer on three brokers, whose leader and coordinator are killed."""

from __future__ import annotations

import uuid

import pytest

from kstore.clients import NewTopic, Producer, ShareConsumer, TopicPartition
from kstore.clients.admin import ConfigResource
from tests.conformance.kstore_cluster import THREE_REPLICAS, KstoreCluster

pytestmark = pytest.mark.slow
LONG_MS = 60_000
COUNT = 200
SETTINGS = THREE_REPLICAS | {
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


def test_the_lag_is_known_of_partitions_that_other_brokers_lead(cluster: KstoreCluster) -> None:
    topic = group = f"s-{uuid.uuid4().hex[:10]}"
    with cluster.admin() as admin, Producer(cluster.bootstrap) as producer:
        admin.create_topics([NewTopic(topic, 3, 1)])
        assert {cluster.leader(topic, index) for index in range(3)} == {1, 2, 3}
        configs = {"share.auto.offset.reset": "earliest"}
        admin.alter_resource_configs({ConfigResource("group", group): configs})
        for n in range(9):
            producer.send(topic, b"%d" % n, partition=n % 3)
        producer.flush()
        with ShareConsumer(cluster.bootstrap, topic, group_id=group) as consumer:
            read = 0
            while read < 9:
                read += len(consumer.poll(LONG_MS))
                consumer.commit()
        for n in range(9):
            producer.send(topic, b"%d" % n, partition=n % 3)
        producer.flush()
        found = admin.list_share_group_offsets(group)
        assert {(place.partition, each.lag) for place, each in found.items()} == {
            (0, 3), (1, 3), (2, 3),
        }  # fmt: skip
        # For a partition whose only replica is on a dead broker, the rest is still shown.
        coordinator = admin.describe_share_groups([group])[group].coordinator
        gone = next(index for index in range(3) if cluster.leader(topic, index) != coordinator)
        killed = cluster.leader(topic, gone)
        cluster.kill(killed)
        found = admin.list_share_group_offsets(group)
        assert {each.start_offset for each in found.values()} == {3}
        assert found[TopicPartition(topic, gone)].lag is None
    cluster.restart(killed)


@pytest.mark.parametrize("victim", ["leader", "coordinator"])
def test_each_record_is_accepted_while_a_broker_is_killed_and_none_comes_again(
    cluster: KstoreCluster, victim: str
) -> None:
    topic = group = f"s-{uuid.uuid4().hex[:10]}"
    with cluster.admin() as admin, Producer(cluster.bootstrap) as producer:
        admin.create_topics([NewTopic(topic, 2, 3)])
        configs = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "2000"}
        admin.alter_resource_configs({ConfigResource("group", group): configs})
        for n in range(COUNT):
            producer.send(topic, b"%d" % n, partition=n % 2)
    accepted: set[tuple[int, int]] = set()
    killed = -1
    with ShareConsumer(
        cluster.bootstrap, topic, group_id=group, max_poll_records=10,
        share_acknowledgement_mode="explicit", share_acquire_mode="record_limit",
    ) as consumer:  # fmt: skip
        while len(accepted) < COUNT:
            records = consumer.poll(LONG_MS)
            assert records, cluster.output()
            assert not {(each.partition, each.offset) for each in records} & accepted
            if killed < 0 and len(accepted) > COUNT // 4:
                with cluster.admin() as admin:
                    found = admin.describe_share_groups([group])[group]
                place = cluster.leader(topic, records[0].partition)
                killed = place if victim == "leader" else found.coordinator
                cluster.kill(killed)
            for record in records:
                consumer.acknowledge(record)
            results = consumer.commit()
            for record in records:
                tp = TopicPartition(record.topic, record.partition)
                if results[tp] is None:
                    accepted.add((record.partition, record.offset))
    assert accepted == {(n % 2, n // 2) for n in range(COUNT)}
    cluster.restart(killed)
    cluster.wait_for_isr(topic, {1, 2, 3})
