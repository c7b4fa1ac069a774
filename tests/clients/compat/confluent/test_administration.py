"""Administration, serializers and settings: the same with confluent-kafka and kstore's module."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.clients.compat.confluent.conftest import Library

PATIENCE_S = 60


def results(futures: dict[Any, Any]) -> dict[Any, Any]:
    return {key: future.result(PATIENCE_S) for key, future in futures.items()}


def test_topics_are_created_described_and_deleted(library: Library) -> None:
    admin, client, name = library.admin, library.client(), library.new_name()
    new = admin.NewTopic(name, num_partitions=2, replication_factor=1, config={"retention.ms": "9"})
    assert results(client.create_topics([new])) == {name: None}
    error = client.create_topics([new])[name].exception(PATIENCE_S).args[0]
    assert error.code() == library.root.KafkaError.TOPIC_ALREADY_EXISTS
    assert results(client.create_partitions([admin.NewPartitions(name, 3)])) == {name: None}
    found = client.list_topics(name, timeout=PATIENCE_S)
    assert {p: row.leader for p, row in found.topics[name].partitions.items()} == dict.fromkeys(
        range(3), 1
    )
    assert found.brokers[1].id == found.controller_id == 1
    (described,) = results(client.describe_topics(library.root.TopicCollection([name]))).values()
    assert (described.name, described.is_internal) == (name, False)
    assert [(row.id, row.leader.id) for row in described.partitions] == [(0, 1), (1, 1), (2, 1)]
    assert len(str(described.topic_id)) == 22
    assert results(client.delete_topics([name])) == {name: None}
    with pytest.raises(ValueError, match="non-empty"):
        client.create_topics([])
    gone = client.delete_topics([name])[name].exception(PATIENCE_S).args[0]
    assert gone.code() == library.root.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_configs_are_read_and_changed(library: Library) -> None:
    admin, client, name = library.admin, library.client(), library.new_topic()

    def value() -> tuple[str | None, bool]:
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, name)
        (entries,) = results(client.describe_configs([resource])).values()
        return entries["retention.ms"].value, entries["retention.ms"].is_default

    assert value()[1] is True
    change = admin.ConfigEntry(
        "retention.ms", "1234", incremental_operation=admin.AlterConfigOpType.SET
    )
    resource = admin.ConfigResource("topic", name, incremental_configs=[change])
    assert results(client.incremental_alter_configs([resource])) == {resource: None}
    assert value() == ("1234", False)
    change.incremental_operation = admin.AlterConfigOpType.DELETE
    results(client.incremental_alter_configs([resource]))
    assert value()[1] is True


def test_groups_are_listed_described_and_moved(library: Library) -> None:
    topic, group, client = library.filled([b"a", b"b"]), library.new_name(), library.client()
    tp, partitions = library.root.TopicPartition, library.root.ConsumerGroupTopicPartitions
    with library.consumer(group, client_id="me") as consumer:
        consumer.subscribe([topic])
        while consumer.poll(1) is None:
            pass
        consumer.commit(offsets=[tp(topic, 0, 1)], asynchronous=False)
        listed = client.list_consumer_groups().result(PATIENCE_S)
        assert group in [row.group_id for row in listed.valid]
        (described,) = results(client.describe_consumer_groups([group])).values()
        assert described.state == library.root.ConsumerGroupState.STABLE
        (member,) = described.members
        assert member.client_id == "me"
        assert [(row.topic, row.partition) for row in member.assignment.topic_partitions] == [
            (topic, 0)
        ]
    asked = [partitions(group, [tp(topic, 0)])]
    found = results(client.list_consumer_group_offsets(asked))[group]
    assert [(row.topic, row.offset) for row in found.topic_partitions] == [(topic, 1)] or (
        [row.offset for row in found.topic_partitions] == [2]  # the automatic commit
    )
    moved = results(client.alter_consumer_group_offsets([partitions(group, [tp(topic, 0, 0)])]))
    assert [row.error for row in moved[group].topic_partitions] == [None]
    found = results(client.list_consumer_group_offsets([partitions(group)]))[group]
    assert [row.offset for row in found.topic_partitions] == [0]
    assert results(client.delete_consumer_groups([group])) == {group: None}


def test_records_and_offsets(library: Library) -> None:
    topic, client = library.filled([b"a", b"b", b"c"]), library.client()
    tp, spec = library.root.TopicPartition, library.admin.OffsetSpec
    for wanted, offset in (
        (spec.earliest(), 0), (spec.latest(), 3), (spec.for_timestamp(1), 0),
    ):  # fmt: skip
        (found,) = results(client.list_offsets({tp(topic, 0): wanted})).values()
        assert found.offset == offset
    (deleted,) = results(client.delete_records([tp(topic, 0, 2)])).values()
    assert deleted.low_watermark == 2
    cluster = client.describe_cluster().result(PATIENCE_S)
    assert [row.id for row in cluster.nodes] == [cluster.controller.id] == [1]


def test_credentials_are_set(library: Library) -> None:
    admin, client, user = library.admin, library.client(), library.new_name()
    info = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_256, 5000)
    change = admin.UserScramCredentialUpsertion(user, info, b"secret")
    assert results(client.alter_user_scram_credentials([change])) == {user: None}
    (found,) = results(client.describe_user_scram_credentials([user])).values()
    (row,) = found.scram_credential_infos
    assert (row.mechanism, row.iterations) == (info.mechanism, 5000)


def test_objects_are_serialized(library: Library) -> None:
    topic, kinds = library.new_topic(), library.serialization
    producer = library.root.SerializingProducer(
        library.config()
        | {
            "key.serializer": kinds.IntegerSerializer(),
            "value.serializer": kinds.StringSerializer(),
        }
    )
    producer.produce(topic, key=7, value="grün")
    with pytest.raises(library.error.ValueSerializationError):
        producer.produce(topic, key=7, value=5)
    assert producer.flush(PATIENCE_S) == 0
    settings = library.config(group_id=library.new_name(), auto_offset_reset="earliest")
    settings["key.deserializer"] = kinds.IntegerDeserializer()
    settings["value.deserializer"] = kinds.StringDeserializer()
    with library.root.DeserializingConsumer(settings) as consumer:
        consumer.subscribe([topic])
        message, deadline = None, time.monotonic() + PATIENCE_S
        while message is None and time.monotonic() < deadline:
            message = consumer.poll(0.5)
    assert message is not None
    assert (message.key(), message.value()) == (7, "grün")


def test_settings_are_checked(library: Library, tmp_path: Path) -> None:
    root = library.root
    for make in (root.Producer, root.Consumer):
        with pytest.raises(TypeError, match="expected configuration dict"):
            make("localhost:9092")
    with pytest.raises(root.KafkaException) as refused:
        root.Producer({"bogus.setting": 1})
    assert refused.value.args[0].code() == root.KafkaError._INVALID_ARG
    assert 'No such configuration property: "bogus.setting"' in str(refused.value)
    with pytest.raises(ValueError, match=r"group\.id must be set"):
        root.Consumer(library.config())
    old_names = {
        "metadata.broker.list": library.bootstrap, "queue.buffering.max.ms": "1",
        "compression.codec": "gzip", "request.required.acks": -1, "message.timeout.ms": 5000,
        "socket.keepalive.enable": True, "queue.buffering.max.kbytes": 10_000,
    }  # fmt: skip
    topic = library.new_topic()
    producer = root.Producer(old_names)
    producer.produce(topic, b"x")
    assert producer.flush(PATIENCE_S) == 0
