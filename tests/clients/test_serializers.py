"""Keys and values as objects: plain callables, and those of two schema registry clients."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from kstore.clients import (
    AIOConsumer,
    AIOProducer,
    ConfigError,
    Consumer,
    Producer,
    SerializationContext,
)
from tests.beside.topic_records import polled
from tests.clients.schema_registry import AVRO_ORDER, JSON_ORDER, SchemaRegistry, order_class
from tests.clients.schema_registry import registry as registry  # a fixture
from tests.conformance.kstore_broker import KstoreBroker

FIRST = {"auto_offset_reset": "earliest"}


def as_json(value: Any) -> bytes:
    """JSON as bytes."""
    return json.dumps(value).encode()


def records(bootstrap: str, topic: str, count: int, **settings: Any) -> list[Any]:
    """So many records of a topic."""
    with Consumer(topic, bootstrap_servers=bootstrap, **FIRST, **settings) as consumer:
        return polled(consumer, count)


def test_plain_callables_make_bytes_and_objects(broker: KstoreBroker, topic: str) -> None:
    with Producer(broker.bootstrap, key_serializer=str.encode, value_serializer=as_json) as made:
        made.send(topic, {"n": 1}, key="eins")
        made.send(topic, None, key="zwei")  # a tombstone stays one
        assert made.send_many(topic, [[2], [3]], ["a", "b"]).result(60) == 2
    raw = records(broker.bootstrap, topic, 4)
    assert [(r.key, r.value) for r in raw] == [
        (b"eins", b'{"n": 1}'), (b"zwei", None), (b"a", b"[2]"), (b"b", b"[3]"),
    ]  # fmt: skip
    settings = {"key_deserializer": bytes.decode, "value_deserializer": json.loads}
    found = records(broker.bootstrap, topic, 4, **settings)
    assert [(r.key, r.value) for r in found] == [
        ("eins", {"n": 1}), ("zwei", None), ("a", [2]), ("b", [3]),
    ]  # fmt: skip
    assert [(r.topic, r.partition, r.offset) for r in found][3] == (topic, 0, 3)
    with Consumer(topic, bootstrap_servers=broker.bootstrap, **FIRST, **settings) as consumer:
        assert [r.value for r in itertools.islice(consumer, 3)] == [{"n": 1}, None, [2]]


def test_asyncio_has_them_too(broker: KstoreBroker, topic: str) -> None:
    async def scene() -> list[Any]:
        async with AIOProducer(broker.bootstrap, value_serializer=as_json) as producer:
            await (await producer.send(topic, {"n": 1}))
        settings = {"value_deserializer": json.loads, **FIRST}
        async with AIOConsumer(topic, bootstrap_servers=broker.bootstrap, **settings) as consumer:
            return [record.value for record in await consumer.poll(60_000)]

    assert asyncio.run(scene()) == [{"n": 1}]


def test_what_cannot_be_read_loses_no_record(broker: KstoreBroker, topic: str) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_many(topic, [b"1", b"no json", b"3"]).result(60)
    one, bad, three = records(broker.bootstrap, topic, 3, value_deserializer=json.loads)
    assert (one.value, three.value) == (1, 3)
    with pytest.raises(ValueError, match="Expecting value"):
        bad.value  # noqa: B018
    assert (bad.offset, bad.record.value) == (1, b"no json")


def test_a_callable_may_ask_where_the_value_goes(broker: KstoreBroker, topic: str) -> None:
    seen: list[SerializationContext] = []

    def noted(value: Any, ctx: SerializationContext) -> bytes:
        seen.append(ctx)
        return as_json(value)

    with Producer(broker.bootstrap, key_serializer=noted, value_serializer=noted) as producer:
        producer.send(topic, 1, key=2, headers=[("h", b"x")]).result(60)
    assert [(ctx.topic, ctx.field, list(ctx.headers)) for ctx in seen] == [
        (topic, "key", [("h", b"x")]), (topic, "value", [("h", b"x")]),
    ]  # fmt: skip


def test_what_is_no_callable_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"value\.serializer is 5; it must be a callable"):
        Producer("localhost:1", value_serializer=5)


def test_avro_with_the_client_of_confluent_kafka(
    broker: KstoreBroker, registry: SchemaRegistry, topic: str
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    schemas = SchemaRegistryClient({"url": registry.url})
    serializer = AvroSerializer(schemas, json.dumps(AVRO_ORDER))
    with Producer(broker.bootstrap, value_serializer=serializer) as producer:
        producer.send(topic, {"amount": 7}).result(60)
    assert list(registry.subjects) == [f"{topic}-value"]
    (raw,) = records(broker.bootstrap, topic, 1)
    assert raw.value[:5] == b"\x00\x00\x00\x00\x01"  # the form that all clients of registries know
    (found,) = records(broker.bootstrap, topic, 1, value_deserializer=AvroDeserializer(schemas))
    assert found.value == {"amount": 7}


def test_avro_with_python_schema_registry_client(
    broker: KstoreBroker, registry: SchemaRegistry, topic: str
) -> None:
    from schema_registry.client import SchemaRegistryClient, schema
    from schema_registry.serializers import AvroMessageSerializer

    messages = AvroMessageSerializer(SchemaRegistryClient(url=registry.url))
    order = schema.AvroSchema(AVRO_ORDER)

    def encode(value: Any, ctx: SerializationContext) -> Any:
        return messages.encode_record_with_schema(f"{ctx.topic}-{ctx.field}", order, value)

    with Producer(broker.bootstrap, value_serializer=encode) as producer:
        producer.send(topic, {"amount": 8}).result(60)
    assert list(registry.subjects) == [f"{topic}-value"]
    decode = messages.decode_message
    (found,) = records(broker.bootstrap, topic, 1, value_deserializer=decode)
    assert found.value == {"amount": 8}


def test_json_schema_with_the_client_of_confluent_kafka(
    broker: KstoreBroker, registry: SchemaRegistry, topic: str
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    schemas, order = SchemaRegistryClient({"url": registry.url}), json.dumps(JSON_ORDER)
    with Producer(broker.bootstrap, value_serializer=JSONSerializer(order, schemas)) as producer:
        producer.send(topic, {"amount": 7}).result(60)
        with pytest.raises(Exception, match="'seven' is not of type 'integer'"):
            producer.send(topic, {"amount": "seven"})
    assert list(registry.subjects) == [f"{topic}-value"]
    assert registry.schemas[0]["schemaType"] == "JSON"
    (raw,) = records(broker.bootstrap, topic, 1)
    assert raw.value[:5] == b"\x00\x00\x00\x00\x01"
    assert json.loads(raw.value[5:]) == {"amount": 7}
    read = JSONDeserializer(order, schema_registry_client=schemas)
    (found,) = records(broker.bootstrap, topic, 1, value_deserializer=read)
    assert found.value == {"amount": 7}


def test_protobuf_with_the_client_of_confluent_kafka(
    broker: KstoreBroker, registry: SchemaRegistry, topic: str
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    schemas = SchemaRegistryClient({"url": registry.url})
    order, settings = order_class(), {"use.deprecated.format": False}
    write = ProtobufSerializer(order, schemas, settings)
    with Producer(broker.bootstrap, value_serializer=write) as producer:
        producer.send(topic, order(amount=7)).result(60)
    assert list(registry.subjects) == [f"{topic}-value"]
    assert registry.schemas[0]["schemaType"] == "PROTOBUF"
    (raw,) = records(broker.bootstrap, topic, 1)
    # Magic byte, schema id, index of the message in its file, and the message.
    assert raw.value == b"\x00\x00\x00\x00\x01" + b"\x00" + order(amount=7).SerializeToString()
    read = ProtobufDeserializer(order, settings, schemas)
    (found,) = records(broker.bootstrap, topic, 1, value_deserializer=read)
    assert found.value.amount == 7
