"""Schema registries that keep their schemas in a kstore broker: Apicurio Registry, from its package
registry, and Karapace where its command is on the PATH. Each is asked by two registry clients, with
serializers in kstore's producers and consumers.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kstore.clients import Consumer, Producer, SerializationContext
from kstore.pipeline.columns.decoding import ValueFormat
from kstore.pipeline.columns.registry import subject_schemas
from tests.beside.waiting import until
from tests.clients.schema_registry import AVRO_ORDER, JSON_ORDER, order_class
from tests.conformance.broker_process import free_port
from tests.conformance.kafka_jars import java_program
from tests.conformance.kstore_broker import KstoreBroker
from tests.works_with.environments import unpacked

pytestmark = [pytest.mark.nightly, pytest.mark.java, pytest.mark.slow]

APICURIO = "io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all"
_names = itertools.count(1)


class Registry:
    """A registry's process; `url` has Confluent's interface."""

    def __init__(self, log: Path, bootstrap: str) -> None:
        self.port = free_port()
        command, env, self.url, self._ready = self.launch(bootstrap)
        self.log = log
        with open(log, "ab") as written:
            self._process = subprocess.Popen(
                command, env=os.environ | env, stdout=written, stderr=written
            )

    def launch(self, bootstrap: str) -> tuple[list[str], Mapping[str, str], str, str]:
        """Command, environment, address, and the path that shows whether it accepts schemas."""
        raise NotImplementedError

    def takes_schemas(self, answer: Any) -> bool:
        """Whether what it answers under that path says so."""
        return answer is not None

    def wait(self) -> None:
        """Until it takes schemas."""

        def ready() -> bool:
            assert self._process.poll() is None, self.log.read_text()[-4000:]
            try:
                with urllib.request.urlopen(self._ready, timeout=10) as answer:
                    return self.takes_schemas(json.loads(answer.read()))
            except OSError:
                return False

        until(ready, "the registry takes schemas", 120)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Apicurio(Registry):
    """Apicurio Registry with its storage in topics, through Kafka's Java clients."""

    def launch(self, bootstrap: str) -> tuple[list[str], Mapping[str, str], str, str]:
        (jar,) = unpacked(APICURIO).glob("*-runner.jar")
        settings = {
            "quarkus.http.host": "127.0.0.1", "quarkus.http.port": str(self.port),
            "apicurio.storage.kind": "kafkasql", "apicurio.kafkasql.bootstrap.servers": bootstrap,
        }  # fmt: skip
        flags = [f"-D{name}={value}" for name, value in settings.items()]
        command = [java_program(), "-Xmx512m", "-XX:TieredStopAtLevel=1", *flags, "-jar", str(jar)]
        url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        return command, {}, url, f"http://127.0.0.1:{self.port}/health/ready"


class Karapace(Registry):
    """Karapace, which keeps schemas in a compacted topic, through aiokafka and librdkafka."""

    def launch(self, bootstrap: str) -> tuple[list[str], Mapping[str, str], str, str]:
        program = shutil.which("karapace")
        if program is None:
            pytest.skip("the command karapace is not on the PATH: see docs/clients/coming-from.md")
        settings = {
            "BOOTSTRAP_URI": bootstrap, "KARAPACE_REGISTRY": "true", "HOST": "127.0.0.1",
            "PORT": str(self.port), "LOG_LEVEL": "WARNING",
            "WAITING_TIME_BEFORE_ACTING_AS_MASTER_MS": "0",
        }  # fmt: skip
        env = {f"KARAPACE_{name}": value for name, value in settings.items()}
        url = f"http://127.0.0.1:{self.port}"
        return [program], env, url, f"{url}/_health"

    def takes_schemas(self, answer: Any) -> bool:
        """It answers before it has read its topic, and before it is the primary."""
        status = answer["status"]
        return bool(status["schema_registry_ready"] and status["schema_registry_is_primary"])


Start = Callable[[], Registry]


@pytest.fixture(scope="module", params=[Apicurio, Karapace])
def start(
    request: pytest.FixtureRequest, broker: KstoreBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Start]:
    """Starts a process of the registry, on the same topics each time."""
    running: list[Registry] = []
    log = tmp_path_factory.mktemp("registry") / "log"

    def one() -> Registry:
        running.append(request.param(log, broker.bootstrap))
        running[-1].wait()
        return running[-1]

    try:
        yield one
    finally:
        for registry in running:
            registry.kill()


@pytest.fixture(scope="module")
def registry(start: Start) -> Registry:
    return start()


def sent_and_read(
    broker: KstoreBroker, value: Any, write: Any, read: Any
) -> tuple[str, bytes, Any]:
    """The subject under which the value's schema should be, its bytes, and what is read."""
    topic = f"registry-{os.getpid()}-{next(_names)}"
    with Producer(broker.bootstrap, value_serializer=write) as producer:
        producer.send(topic, value).result(60)
    settings = {"auto_offset_reset": "earliest", "value_deserializer": read}
    with Consumer(topic, bootstrap_servers=broker.bootstrap, **settings) as consumer:
        found: list[Any] = []
        until(lambda: bool(found.extend(consumer.poll(5000)) or found), "the record is read", 60)
    return f"{topic}-value", found[0].record.value, found[0].value


def client(registry: Registry) -> Any:
    """confluent-kafka's client of registries."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient({"url": registry.url})


def column(registry: Registry, kind: str, subject: str, raw: bytes) -> Any:
    """What `kstore pipeline table --columns` returns for a value."""
    schemas = ValueFormat(subject_schemas(registry.url, subject, kind))
    values = replace(schemas, type=schemas.schema_type())
    found, bad = values.decode(pa.array([raw]))
    assert not bad
    return found.to_pylist()[0]


def test_avro(broker: KstoreBroker, registry: Registry) -> None:
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    schemas = client(registry)
    write = AvroSerializer(schemas, json.dumps(AVRO_ORDER))
    read = AvroDeserializer(schemas)
    subject, raw, value = sent_and_read(broker, {"amount": 7}, write, read)
    assert value == {"amount": 7}
    number = schemas.get_latest_version(subject).schema_id
    assert raw == b"\x00" + number.to_bytes(4) + b"\x0e", "7 as Avro's zigzag"
    assert column(registry, "avro", subject, raw) == {"amount": 7}


def test_json_schema(broker: KstoreBroker, registry: Registry) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    schemas, order = client(registry), json.dumps(JSON_ORDER)
    write = JSONSerializer(order, schemas)
    read = JSONDeserializer(order, schema_registry_client=schemas)
    subject, raw, value = sent_and_read(broker, {"amount": 7}, write, read)
    assert value == {"amount": 7}
    assert json.loads(raw[5:]) == {"amount": 7}
    assert schemas.get_latest_version(subject).schema.schema_type == "JSON"
    assert column(registry, "json", subject, raw) == {"amount": 7}


def test_protobuf(broker: KstoreBroker, registry: Registry) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    schemas, order, settings = client(registry), order_class(), {"use.deprecated.format": False}
    write = ProtobufSerializer(order, schemas, settings)
    read = ProtobufDeserializer(order, settings, schemas)
    subject, raw, value = sent_and_read(broker, order(amount=7), write, read)
    assert value == order(amount=7)
    assert raw[5:] == b"\x00" + order(amount=7).SerializeToString()
    assert schemas.get_latest_version(subject).schema.schema_type == "PROTOBUF"
    assert column(registry, "protobuf", subject, raw) == {"amount": 7}


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_python_schema_registry_client(broker: KstoreBroker, registry: Registry, kind: str) -> None:
    from schema_registry.client import SchemaRegistryClient, schema
    from schema_registry.serializers import AvroMessageSerializer, JsonMessageSerializer

    asked = SchemaRegistryClient(url=registry.url)
    messages: Any = AvroMessageSerializer(asked) if kind == "avro" else JsonMessageSerializer(asked)
    order = schema.AvroSchema(AVRO_ORDER) if kind == "avro" else schema.JsonSchema(JSON_ORDER)

    def encode(value: Any, ctx: SerializationContext) -> Any:
        return messages.encode_record_with_schema(f"{ctx.topic}-{ctx.field}", order, value)

    subject, _, value = sent_and_read(broker, {"amount": 8}, encode, messages.decode_message)
    assert value == {"amount": 8}
    assert subject in asked.get_subjects()


def test_schemas_are_there_after_kill_9_of_registry_and_broker(
    broker: KstoreBroker, registry: Registry, start: Start
) -> None:
    from confluent_kafka.schema_registry import Schema

    order = Schema(json.dumps(AVRO_ORDER), "AVRO")
    number = client(registry).register_schema("kept", order)
    registry.kill()
    broker.kill()
    broker.start()
    later = client(start())
    assert later.get_latest_version("kept").schema_id == number
    assert json.loads(later.get_schema(number).schema_str) == AVRO_ORDER
