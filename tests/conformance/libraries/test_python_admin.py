"""The admin clients of confluent-kafka, kafka-python and aiokafka, unmodified, on topics, records
and groups. Their settings are in test_configs.py, their transactions in test_transactions.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conformance.libraries.python_clients import PYTHON_CLIENTS
from tests.conformance.libraries.samples import samples

pytestmark = pytest.mark.slow


@pytest.fixture
def filled(peer, topic) -> str:
    """A topic of two partitions with 30 records in the first, all read by the group g-<topic>."""
    client = PYTHON_CLIENTS["confluent-kafka"](peer.bootstrap)
    client.create_topic(topic, 2)
    client.send(topic, samples(30))
    assert len(client.read_as_group(topic, f"g-{topic}", 30)) == 30
    return topic


def test_confluent_kafka_describes_topics_and_the_cluster(peer, filled):
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    [described] = [f.result(30) for f in admin.describe_topics(TopicCollection([filled])).values()]
    assert described.name == filled
    assert not described.is_internal
    assert [(p.id, len(p.replicas), len(p.isr)) for p in described.partitions] == [
        (0, 1, 1),
        (1, 1, 1),
    ]
    cluster = admin.describe_cluster(include_authorized_operations=True).result(30)
    assert [(node.host, node.port) for node in cluster.nodes] == [(peer.host, peer.port)]
    assert cluster.controller.id == cluster.nodes[0].id
    assert cluster.authorized_operations


def test_confluent_kafka_finds_offsets_of_every_kind_and_deletes_records(peer, filled):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    first = TopicPartition(filled, 0)

    def offset(spec: Any) -> int:
        [found] = [f.result(30) for f in admin.list_offsets({first: spec}).values()]
        return int(found.offset)

    sent = samples(30)
    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 30
    assert offset(OffsetSpec.max_timestamp()) == 29
    assert offset(OffsetSpec.for_timestamp(sent[12].timestamp_ms)) == 12
    deleted = admin.delete_records([TopicPartition(filled, 0, 7)])
    assert [f.result(30).low_watermark for f in deleted.values()] == [7]
    assert offset(OffsetSpec.earliest()) == 7


def test_confluent_kafka_lists_describes_alters_and_deletes_groups(peer, filled):
    from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    group = f"g-{filled}"
    listed = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(30)
    assert group in {row.group_id for row in listed.valid}
    assert not listed.errors
    described = admin.describe_consumer_groups([group])[group].result(30)
    assert (described.state, list(described.members)) == (ConsumerGroupState.EMPTY, [])

    def committed() -> dict[int, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        [found] = [f.result(30) for f in admin.list_consumer_group_offsets(asked).values()]
        return {row.partition: row.offset for row in found.topic_partitions}

    assert committed()[0] == 30
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(filled, 0, 4)])]
    [altered] = [f.result(30) for f in admin.alter_consumer_group_offsets(wanted).values()]
    assert not altered.topic_partitions[0].error
    assert committed()[0] == 4
    admin.delete_consumer_groups([group])[group].result(30)
    with pytest.raises(Exception, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups([group])[group].result(30)


def test_confluent_kafka_adds_partitions_and_deletes_the_topic(peer, filled):
    from confluent_kafka.admin import AdminClient, NewPartitions

    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    admin.create_partitions([NewPartitions(filled, 5)])[filled].result(30)
    with pytest.raises(Exception, match="INVALID_PARTITIONS"):
        admin.create_partitions([NewPartitions(filled, 3)])[filled].result(30)
    admin.delete_topics([filled])[filled].result(30)
    with pytest.raises(Exception, match="UNKNOWN_TOPIC_OR_PART"):
        admin.delete_topics([filled])[filled].result(30)


def test_aiokafka_describes_groups_offsets_and_deletes_records(peer, filled):
    from aiokafka import TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete

    first = TopicPartition(filled, 0)

    async def run() -> dict[str, Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=peer.bootstrap)
        await admin.start()
        try:
            seen: dict[str, Any] = {}
            seen["groups"] = [row[0] for row in await admin.list_consumer_groups()]
            offsets = await admin.list_consumer_group_offsets(f"g-{filled}")
            seen["committed"] = offsets[first].offset
            low = await admin.delete_records({first: RecordsToDelete(before_offset=9)})
            seen["low"] = low[first]
            await admin.create_partitions({filled: NewPartitions(total_count=4)})
            seen["topics"] = await admin.list_topics()
            await admin.delete_topics([filled])
            return seen
        finally:
            await admin.close()

    seen = asyncio.run(run())
    assert f"g-{filled}" in seen["groups"]
    assert filled in seen["topics"]
    assert (seen["committed"], seen["low"]) == (30, 9)


def test_kafka_python_lists_groups_and_offsets_and_deletes(peer, filled):
    from kafka import TopicPartition
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=peer.bootstrap)
    try:
        group = f"g-{filled}"
        assert filled in admin.list_topics()
        offsets = admin.list_group_offsets([group])[group]
        assert offsets[TopicPartition(filled, 0)].offset == 30
        assert group in str(admin.list_groups())
        deleted = admin.delete_records({TopicPartition(filled, 0): 11})
        assert "11" in str(deleted)
        admin.delete_groups([group])
        assert group not in str(admin.list_groups())
        admin.delete_topics([filled])
    finally:
        admin.close()
