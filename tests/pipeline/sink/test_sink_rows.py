"""Rows in Arrow become batches: columns are checked, rows go to the partitions that the producer
would choose, and no row is lost or changed, however small the batches and the memory.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from kstore.clients.core.producer.partitioner import partition_for_key
from kstore.config.client.configs import client_settings
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.sink.rows import Encoded, RowEncoder, check_schema, groups
from kstore.record import batches, decode

PARTITIONS = 3


def encode(rows: list[dict[str, Any]], topic: str | None = "t", **settings: Any) -> list[Encoded]:
    columns = {
        "topic": pa.string(), "key": pa.binary(), "value": pa.binary(), "partition": pa.int32(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }  # fmt: skip
    schema = pa.schema({n: t for n, t in columns.items() if any(n in row for row in rows)})
    made = client_settings("producer", {"bootstrap.servers": "nowhere:1"} | settings)
    encoder = RowEncoder(made, lambda name: PARTITIONS)
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    found = [each for group in groups(batch, topic) for each in encoder.add(group)]
    return found + list(encoder.finish())


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["a", "b"]),
            "key": st.none() | st.binary(max_size=5),
            "value": st.none() | st.binary(max_size=40),
            "partition": st.none() | st.integers(0, PARTITIONS - 1),
        },
        optional={
            "headers": st.lists(
                st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.binary(max_size=3)}),
                max_size=2,
            )
        },
    ),
    min_size=1,
)


@given(ROWS, st.sampled_from(["none", "lz4", "zstd"]), st.sampled_from([1, 100, 5000]))
def test_every_row_is_in_one_batch_of_the_partition_that_is_its(
    rows: list[dict[str, Any]], codec: str, size: int
) -> None:
    settings = {"compression.type": codec, "batch.size": size, "buffer.memory": 9000}
    wanted: Counter[Any] = Counter()
    for row in rows:
        headers = tuple((each["key"], each["value"]) for each in row.get("headers") or ())
        wanted[row["topic"], row["key"], row["value"], headers] += 1
    found: Counter[Any] = Counter()
    for each in encode(rows, None, **settings):
        (view,) = batches(each.data, verify=True)
        assert (view.base_offset, view.producer_id, view.records_count) == (0, -1, each.records)
        for record in decode(each.data):
            headers = tuple((header.key, header.value) for header in record.headers)
            found[each.topic, record.key, record.value, headers] += 1
            given_ = {row["partition"] for row in rows if row["key"] == record.key}
            if record.key is not None and given_ == {None}:
                assert each.partition == partition_for_key(record.key, PARTITIONS)
            elif None not in given_:
                assert each.partition in given_
    assert found == wanted


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=200))
def test_rows_of_a_partition_keep_their_order(values: list[bytes]) -> None:
    made = encode([{"value": value, "partition": 1} for value in values], **{"batch.size": 200})
    assert [record.value for each in made for record in decode(each.data)] == values


def test_text_is_encoded_and_the_option_topic_wins() -> None:
    made = client_settings("producer", {"bootstrap.servers": "nowhere:1"})
    encoder = RowEncoder(made, lambda name: 1)
    batch = pa.RecordBatch.from_pydict({"topic": ["x"], "Value": pa.array(["é"], pa.string())})
    (group,) = groups(batch, "t")
    assert list(encoder.add(group)) == []
    (only,) = encoder.finish()
    assert (only.topic, [record.value for record in decode(only.data)]) == ("t", ["é".encode()])


@pytest.mark.parametrize(
    ("row", "settings", "said"),
    [
        ({"value": b"", "partition": 3}, {}, "topic t, partition 3: .* 0 to 2, not 3"),
        ({"value": b"", "partition": -2}, {}, "a row's partition is -2"),
        ({"value": b"x" * 2000}, {"max.request.size": 1000}, "topic t: a row is too large"),
    ],
)
def test_a_row_that_has_no_place_is_named(
    row: dict[str, Any], settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(PipelineError, match=said):
        encode([row], **settings)


@pytest.mark.parametrize(
    ("schema", "topic", "said"),
    [
        ("value string", None, "Set the option topic"),
        ("key string", "t", "columns key, but no value"),
        ("value int", "t", "column value is int"),
        ("value string, topic binary", None, "column topic is binary; it must be string"),
        ("value string, partition long", "t", "column partition is bigint; it must be int"),
        ("value string, headers map<string,binary>", "t", "column headers is map"),
    ],
)
def test_columns_are_those_of_sparks_connector(schema: str, topic: str | None, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        check_schema(_schema(schema), topic)


def test_other_columns_are_left_alone() -> None:
    check_schema(_schema("value binary, KEY string, offset long, partition int"), "t")


def _schema(text: str) -> StructType:
    """A schema without Java, which pyspark's parser would start."""
    from pyspark.sql import types

    kinds: dict[str, types.DataType] = {
        "string": types.StringType(), "binary": types.BinaryType(), "int": types.IntegerType(),
        "long": types.LongType(),
        "map<string,binary>": types.MapType(types.StringType(), types.BinaryType()),
    }  # fmt: skip
    fields = [part.split(" ") for part in text.split(", ")]
    return StructType([types.StructField(name, kinds[kind]) for name, kind in fields])
