"""Tables with typed values: schemas that change, and values that do not match their schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore.clients import Producer
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.tables.typed import ColumnOptions
from kstore.testing.brokers import Broker
from tests.clients.schema_registry import SchemaRegistry
from tests.clients.schema_registry import registry as registry  # a fixture
from tests.pipeline.columns.avro_values import avro, record
from tests.pipeline.conftest import KEEP
from tests.pipeline.jobs.tables.lake import Lake
from tests.pipeline.jobs.tables.readers import metadata_of, read

MakeTopic = Callable[..., str]

pytestmark = [pytest.mark.slow, pytest.mark.java]


def register(registry: SchemaRegistry, topic: str, schema: Any) -> int:
    """Register a new version of TOPIC-value and return its id."""
    body = {"schema": json.dumps(schema), "schemaType": "AVRO"}
    answer = registry.find("POST", ["subjects", f"{topic}-value", "versions"], body)
    return int(answer[1]["id"])


def send(broker: Broker, topic: str, *values: bytes | None) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n, value in enumerate(values):
            producer.send(topic, value, b"k%d" % n, partition=0)


def typed(lake: Lake, topic: str) -> list[tuple[Any, Any]]:
    return [(row["value"], row["undecoded"]) for row in lake.rows(topic)]


def test_a_table_follows_the_schemas_of_its_topic(
    lake: Lake, broker: Broker, make_topic: MakeTopic, registry: SchemaRegistry
) -> None:
    topic = make_topic(2, **KEEP)
    columns = ColumnOptions("avro", registry.url)
    with pytest.raises(JobError, match=f"{topic}-value/versions answers 404"):
        lake.keep(broker, topic, columns=columns)
    old = record("Order", id="int", inner=record("Inner", a="string"))
    first = register(registry, topic, old)
    send(broker, topic, avro(old, {"id": 1, "inner": {"a": "x"}}, first), None)
    assert lake.keep(broker, topic, columns=columns).records == 2

    new = record(
        "Order", more=["null", {"type": "array", "items": "double"}], id="long",
        inner=record("Inner", b="boolean"),
    )  # fmt: skip
    second = register(registry, topic, new)
    send(
        broker, topic, avro(new, {"id": 2**40, "more": [0.5], "inner": {"b": True}}, second),
        avro(old, {"id": 3, "inner": {"a": "z"}}, first),
    )  # fmt: skip
    assert lake.keep(broker, topic, columns=columns).records == 2
    assert [value for value, _ in typed(lake, topic)][1:] == [
        None,
        {"id": 2**40, "inner": {"a": None, "b": True}, "more": [0.5]},
        {"id": 3, "inner": {"a": "z", "b": None}, "more": None},
    ]
    value = lake.java_table(topic).schema().findField("value").type()
    assert [str(value.field(name).type()) for name in ("id", "more")] == ["long", "list<double>"]
    # Other programs find the fields of these files by name.
    mapping = lake.java_table(topic).properties().get("schema.name-mapping.default")
    assert '"more"' in mapping

    third = register(registry, topic, record("Order", id="string"))
    send(broker, topic, avro(record("Order", id="string"), {"id": "x"}, third))
    with pytest.raises(JobError, match=r"value.id is long in the table, and string"):
        lake.keep(broker, topic, columns=columns)
    assert len(lake.rows(topic)) == 4
    with pytest.raises(JobError, match="has typed values"):
        lake.keep(broker, topic, columns=None)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_other_programs_read_the_fields_of_a_table_that_grew(
    lake: Lake, broker: Broker, make_topic: MakeTopic, registry: SchemaRegistry
) -> None:
    topic = make_topic(2, **KEEP)
    columns = ColumnOptions("avro", registry.url)
    old, new = (
        record("Order", id="int", s="string"),
        record("Order", id="long", more=["null", "double"]),
    )
    for schema, datum in ((old, {"id": 1, "s": "x"}), (new, {"id": 2**40, "more": 0.5})):
        number = register(registry, topic, schema)
        send(broker, topic, avro(schema, datum, number))
        lake.keep(broker, topic, columns=columns)
    expected = [
        [0, {"id": 1, "s": "x", "more": None}], [1, {"id": 2**40, "s": None, "more": 0.5}],
    ]  # fmt: skip
    found = read(metadata_of(lake.file), "read_typed.py")
    assert found == dict.fromkeys(("duckdb", "polars", "pyiceberg"), expected)


def test_values_that_are_not_of_their_schema_end_the_job_or_stay_as_bytes(
    lake: Lake, broker: Broker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2, **KEEP)
    schema = tmp_path / "order.json"
    schema.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    columns = ColumnOptions("json", schema_file=str(schema))
    send(broker, topic, b'{"n": 1}', b'{"n": "x"}', None, b"null")
    with pytest.raises(
        Exception,
        match=rf"topic {topic}, partition 0, offset 1: the value does not match "
        'its JSON schema: value.n is "x", not an integer',
    ):
        lake.keep(broker, topic, columns=columns)
    assert not lake.rows(topic)
    kept = lake.keep(
        broker, topic, columns=ColumnOptions("json", schema_file=str(schema), keep_bad=True)
    )
    assert kept.records == 4
    assert typed(lake, topic) == [
        ({"n": 1}, None), (None, b'{"n": "x"}'), (None, None), (None, b"null"),
    ]  # fmt: skip


def test_the_latest_typed_value_of_each_key(
    lake: Lake, broker: Broker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, **{"cleanup.policy": "compact"})
    schema = tmp_path / "s.json"
    schema.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    columns = ColumnOptions("json", schema_file=str(schema), keep_bad=True)
    send(broker, topic, b'{"n": 1}', b'{"n": 2}', b"null")
    lake.keep(broker, topic, columns=columns)
    send(broker, topic, b'{"n": 3}', None)
    lake.keep(broker, topic, columns=columns)
    assert [(row["key"], row["value"], row["undecoded"]) for row in lake.rows(topic)] == [
        (b"k2", None, b"null"), (b"k0", {"n": 3}, None),
    ]  # fmt: skip
