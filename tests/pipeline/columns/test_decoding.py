"""Values in Avro, JSON Schema and Protobuf as arrays, and the errors for values that cannot be
decoded.
"""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given
from hypothesis import strategies as st

from kstore.pipeline.columns.decoding import Schema, ValueFormat
from kstore.pipeline.columns.protobuf import descriptor_files
from kstore.pipeline.columns.types import ColumnTypeError
from tests.pipeline.columns.avro_values import avro, record

Bad = list[tuple[int, str]]


def opened(schemas: dict[int | None, Schema]) -> ValueFormat:
    """An array with the type that all values share."""
    values = ValueFormat(schemas)
    return replace(values, type=values.schema_type())


def decoded(values: ValueFormat, *raw: bytes | None) -> tuple[list[Any], Bad]:
    array, bad = values.decode(pa.array(list(raw), pa.binary()))
    assert array.type == values.type
    return array.to_pylist(), bad


# ---- Avro ----


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name} | more


ORDER = record(
    "Order", id="long", at=logical("long", "timestamp-micros"), on=logical("int", "date"),
    price=logical("bytes", "decimal", precision=10, scale=2), time=logical("int", "time-millis"),
    note=["null", "string"], tags={"type": "map", "values": "int"},
    lines={"type": "array", "items": record("Line", sku="string", state={
        "type": "enum", "name": "State", "symbols": ["NEW", "SENT"]})},
    local=logical("long", "local-timestamp-millis"),
)  # fmt: skip


def order(n: int) -> dict[str, Any]:
    return {
        "id": n, "at": datetime(2026, 1, 2, tzinfo=UTC) + timedelta(microseconds=n),
        "on": date(2026, 1, 2), "price": Decimal(n).scaleb(-2), "time": n,
        "note": None if n % 2 else "x", "tags": {"a": n} if n % 3 else {},
        "lines": [{"sku": "s", "state": "SENT"}] * (n % 4), "local": datetime(2026, 1, 2, 3),
    }  # fmt: skip


def as_row(datum: dict[str, Any]) -> dict[str, Any]:
    return datum | {"tags": list(datum["tags"].items())}


@given(st.lists(st.none() | st.integers(0, 10_000), max_size=5))
def test_avro_records_are_structs(numbers: list[int | None]) -> None:
    values = opened({7: Schema("avro", json.dumps(ORDER))})
    plain = json.loads(json.dumps(ORDER))
    plain["fields"][4]["type"] = "int"  # a time has the type that it is stored as
    raw = [None if n is None else avro(plain, order(n), 7) for n in numbers]
    rows, bad = decoded(values, *raw)
    assert rows == [None if n is None else as_row(order(n)) for n in numbers]
    assert not bad


def test_each_value_is_read_by_the_schema_that_it_was_written_with() -> None:
    old, new = record("V", a="int", b="string"), record("V", c="boolean", a="long")
    values = opened({1: Schema("avro", json.dumps(old)), 2: Schema("avro", json.dumps(new))})
    rows, bad = decoded(
        values, avro(old, {"a": 1, "b": "x"}, 1), avro(new, {"a": 2**40, "c": True}, 2)
    )
    assert rows == [{"a": 1, "b": "x", "c": None}, {"a": 2**40, "b": None, "c": True}]
    assert not bad


def test_avro_values_that_are_none() -> None:
    schema = record("V", a="string", p=logical("bytes", "decimal", precision=4, scale=0))
    values = opened({1: Schema("avro", json.dumps(schema))})
    good = avro(schema, {"a": "x", "p": Decimal(1)}, 1)
    too_long = good[:-2] + b"\x06\x7f\xff\xff"  # 8,388,607 has seven digits
    other = struct.pack(">bI", 0, 9) + good[5:]
    rows, bad = decoded(values, good, b"{}", other, good[:-1], good + b"x", too_long, b"")
    assert rows == [{"a": "x", "p": Decimal(1)}] + [None] * 6
    assert [at for at, _ in bad] == [1, 2, 3, 4, 5, 6]
    assert "has no schema id before it" in bad[0][1]
    assert "has schema 9, which is not a version of the subject" in bad[1][1]
    assert "does not match its Avro schema" in bad[2][1]
    assert "has 1 bytes after its Avro datum" in bad[3][1]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (record("V", a=["int", "string"]), "value.a is a union of 2 types"),
        (record("V", a=["null", "V"]), r"value.a is recursive \(V\)"),
        (record("V", a="null"), "value.a has the Avro type null"),
        (record("V", a=logical("bytes", "decimal", precision=50)), "has 38 digits at most"),
        (record("V", a="Unknown"), "not a valid Avro schema"),
        (record("V", a=record("W")), "value.a is a record without fields"),
    ],
)
def test_avro_schemas_without_a_column(schema: Any, said: str) -> None:
    with pytest.raises(ColumnTypeError, match=said):
        opened({1: Schema("avro", json.dumps(schema))})


def test_a_logical_type_of_another_base_is_ignored_and_types_may_be_nested() -> None:
    schema = record(
        "V", a=logical("int", "timestamp-millis"), b=logical("long", "date"),
        c={"type": {"type": "string"}},
    )  # fmt: skip
    values = opened({1: Schema("avro", json.dumps(schema))})
    assert values.type == pa.struct([("a", pa.int32()), ("b", pa.int64()), ("c", pa.string())])


def test_avro_schemas_that_others_name() -> None:
    line = json.dumps(record("Line", sku="string"))
    values = opened(
        {1: Schema("avro", json.dumps(record("V", l="Line")), references={"Line": line})}
    )
    assert values.type == pa.struct([("l", pa.struct([("sku", pa.string())]))])


# ---- JSON Schema ----

DOCUMENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "x": {"type": ["number", "null"]},
        "ok": {"type": "boolean"},
        "kind": {"enum": ["a", "b"]},
        "at": {"type": "string", "format": "date-time"},
        "on": {"anyOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
        "any": {},
        "free": {"type": "object"},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}},
    },
    "$defs": {
        "part": {
            "type": "object",
            "properties": {"n": {"type": "integer"}, "of": {"$ref": "#/$defs/part"}},
        }
    },
}
NAMES = st.sampled_from(list(DOCUMENT["properties"]))
JSON: dict[int | None, Schema] = {None: Schema("json", json.dumps(DOCUMENT))}


def test_json_documents_are_structs() -> None:
    datum = {
        "id": 2**62, "x": 1, "ok": True, "kind": "a", "at": "2026-01-02T03:04:05.000006+01:00",
        "on": "2026-01-02", "any": [1, {"é": None}], "free": {"b": 1}, "counts": {"a": 1},
        "parts": [{"n": 1, "of": {"n": 2}}, None], "unknown": 1,
    }  # fmt: skip
    rows, bad = decoded(opened(JSON), json.dumps(datum).encode(), b"{}", b"null")
    assert not bad
    del datum["unknown"]
    assert rows[0] == datum | {
        "at": datetime(2026, 1, 2, 2, 4, 5, 6, tzinfo=UTC), "on": date(2026, 1, 2),
        "any": '[1,{"é":null}]', "free": '{"b":1}', "counts": [("a", 1)],
        "parts": [{"n": 1, "of": '{"n":2}'}, None],
    }  # fmt: skip
    assert rows[1] == dict.fromkeys(DOCUMENT["properties"])
    assert rows[2] is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 200_000, "nested too deeply|not JSON"),
        ("[]", r"value is \[\], not an object"),
        ('{"id": "1"}', 'value.id is "1", not an integer of 64 bits'),
        ('{"id": true}', "value.id is true, not an integer"),
        ('{"id": 9223372036854775808}', "not an integer of 64 bits"),
        ('{"x": "1"}', "not a number"),
        ('{"ok": 1}', "not true or false"),
        ('{"kind": 1}', "not a string"),
        (r'{"kind": "\ud800"}', "not a string in UTF-8"),
        ('{"at": "yesterday"}', "not a date-time"),
        ('{"on": "2026-13-01"}', "not a date "),
        ('{"counts": {"a": "x"}}', 'value.counts.a is "x"'),
        ('{"parts": [{}, {"n": 0.5}]}', r"value.parts\[1\].n is 0.5"),
    ],
)
def test_json_that_is_not_of_its_schema(text: str, said: str) -> None:
    rows, bad = decoded(opened(JSON), b"{}", text.encode())
    assert rows[1] is None
    assert [at for at, _ in bad] == [1]
    assert re.search(said, bad[0][1])


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner),
))  # fmt: skip
def test_any_json_is_a_row_or_is_named(datum: Any) -> None:
    rows, bad = decoded(opened(JSON), json.dumps(datum).encode(), b'{"id": 5}')
    assert rows[1]["id"] == 5
    assert len(bad) == (rows[0] is None and datum is not None)


def test_schemas_of_json_that_refer_to_others() -> None:
    main = {"type": "array", "items": {"$ref": "part.json#/properties/n"}}
    part = json.dumps({"properties": {"n": {"type": "number"}}})
    values = opened({None: Schema("json", json.dumps(main), references={"part.json": part})})
    assert decoded(values, b"[1, 2.5]") == ([[1.0, 2.5]], [])
    with pytest.raises(ColumnTypeError, match=r"refers to part.json#/properties/n, which does not"):
        opened({None: Schema("json", json.dumps(main))})
    with pytest.raises(ColumnTypeError, match="not a JSON schema"):
        opened({None: Schema("json", "{")})


@pytest.mark.parametrize("key", ["allOf", "anyOf", "oneOf"])
def test_fields_beside_properties_are_not_lost(key: str) -> None:
    more = {"properties": {"b": {"type": "integer"}}}
    base: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for part in (more, {"$ref": "#/$defs/more"}):
        schema = base | {key: [part], "$defs": {"more": more}}
        values = opened({None: Schema("json", json.dumps(schema))})
        assert decoded(values, b'{"a":1,"b":2}') == (['{"a":1,"b":2}'], [])
    alike = base | {key: [{"required": ["a"]}]}
    values = opened({None: Schema("json", json.dumps(alike))})
    assert decoded(values, b'{"a":1}') == ([{"a": 1}], [])


@pytest.mark.parametrize("depth", range(900, 1000, 4))
def test_json_of_any_depth_is_text_or_is_named(depth: int) -> None:
    values = opened({None: Schema("json", "{}")})
    rows, bad = decoded(values, b"[" * depth + b"]" * depth)
    assert (rows == ["[" * depth + "]" * depth]) == (not bad)


# ---- Protobuf ----

F = descriptor_pb2.FieldDescriptorProto


def protobuf_file() -> descriptor_pb2.FileDescriptorProto:
    """Messages Order and Other, with each type of field."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    for name in ("struct", "timestamp", "wrappers"):
        file.dependency.append(f"google/protobuf/{name}.proto")
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=F.TYPE_UINT64, label=F.LABEL_OPTIONAL)
    order.oneof_decl.add(name="_note")
    rows: list[tuple[Any, ...]] = [
        ("id", F.TYPE_INT64), ("big", F.TYPE_UINT64), ("small", F.TYPE_FIXED32),
        ("raw", F.TYPE_BYTES), ("ratio", F.TYPE_DOUBLE), ("state", F.TYPE_ENUM, ".shop.State"),
        ("at", F.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
        ("name", F.TYPE_MESSAGE, ".google.protobuf.StringValue"),
        ("more", F.TYPE_MESSAGE, ".google.protobuf.Struct"),
        ("inner", F.TYPE_MESSAGE, ".shop.Order"),
        ("other", F.TYPE_MESSAGE, ".shop.Other"),
    ]  # fmt: skip
    for number, (name, kind, *types) in enumerate(rows, 1):
        order.field.add(
            name=name, number=number, type=kind, label=F.LABEL_OPTIONAL,
            type_name=types[0] if types else None,
        )  # fmt: skip
    order.field.add(name="tags", number=20, type=F.TYPE_STRING, label=F.LABEL_REPEATED)
    order.field.add(
        name="counts", number=21, type=F.TYPE_MESSAGE, label=F.LABEL_REPEATED,
        type_name=".shop.Order.CountsEntry",
    )  # fmt: skip
    order.field.add(
        name="note", number=22, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL, proto3_optional=True,
        oneof_index=0,
    )  # fmt: skip
    file.message_type.add(name="Other").field.add(
        name="ok", number=1, type=F.TYPE_BOOL, label=F.LABEL_OPTIONAL
    )
    return file


def order_message() -> Any:
    pool = DescriptorPool()
    for module in (struct_pb2, timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(protobuf_file())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))()
    made.id, made.big, made.small, made.raw, made.ratio = -5, 2**64 - 1, 2**32 - 1, b"\xff", 0.5
    made.at.FromDatetime(datetime(2026, 1, 2, microsecond=7, tzinfo=UTC))
    made.name.value = ""
    made.more["a"] = 1
    made.inner.id = 6
    made.other.ok = True
    made.tags.extend(["x", "y"])
    made.counts["k"] = 3
    return made


ORDER_ROW = {
    "id": -5, "big": Decimal(2**64 - 1), "small": 2**32 - 1, "raw": b"\xff", "ratio": 0.5,
    "state": "NEW", "at": datetime(2026, 1, 2, microsecond=7, tzinfo=UTC), "name": "",
    "more": '{"a": 1.0}', "inner": '{"id": "6"}', "other": {"ok": True}, "tags": ["x", "y"],
    "counts": [("k", Decimal(3))], "note": None,
}  # fmt: skip


def test_protobuf_messages_of_a_registry_are_structs() -> None:
    values = opened({3: Schema("protobuf", files=(protobuf_file().SerializeToString(),))})
    prefix, data = struct.pack(">bI", 0, 3), order_message().SerializeToString()
    second = prefix + b"\x02\x02" + data
    rows, bad = decoded(
        values, prefix + b"\0" + data, prefix + b"\x02\x00" + data, second, prefix + b"\0\xff"
    )
    assert rows == [ORDER_ROW, ORDER_ROW, None, None]
    assert "is not the first message of its Protobuf schema, shop.Order" in bad[0][1]
    assert "is not a shop.Order of Protobuf" in bad[1][1]


def test_protobuf_messages_by_a_descriptor_set() -> None:
    found = descriptor_pb2.FileDescriptorSet(file=[protobuf_file()])
    files = descriptor_files(found.SerializeToString())
    values = opened({None: Schema("protobuf", files=files, message="shop.Order")})
    rows, bad = decoded(values, order_message().SerializeToString(), b"")
    assert rows[0] == ORDER_ROW
    empty = {"at", "name", "more", "inner", "other", "note"}
    assert {name for name, value in rows[1].items() if value is None} == empty
    assert not bad
    with pytest.raises(ColumnTypeError, match="incomplete"):
        opened({None: Schema("protobuf", files=files, message="shop.Missing")})
    for data in (b"\xff", b""):
        with pytest.raises(ColumnTypeError, match="descriptor set"):
            descriptor_files(data)


def test_numbers_that_json_has_and_a_column_too() -> None:
    values = opened({None: Schema("json", '{"type": "number"}')})
    rows, bad = decoded(values, b"1e400", b"NaN", b"1" + b"0" * 400)
    assert rows[0] == math.inf
    assert math.isnan(rows[1])
    assert [at for at, _ in bad] == [2]


def protobuf_of(message: descriptor_pb2.DescriptorProto, *enums: Any) -> ValueFormat:
    file = descriptor_pb2.FileDescriptorProto(name="v.proto", package="v", syntax="proto3")
    file.dependency.append("google/protobuf/any.proto")
    file.message_type.append(message)
    file.enum_type.extend(enums)
    return opened({3: Schema("protobuf", files=(file.SerializeToString(),))})


def test_any_is_text_if_its_type_is_known_and_else_named() -> None:
    message = descriptor_pb2.DescriptorProto(name="V")
    message.field.add(
        name="a", number=1, type=F.TYPE_MESSAGE, label=F.LABEL_OPTIONAL,
        type_name=".google.protobuf.Any",
    )  # fmt: skip
    message.field.add(name="n", number=2, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    values = protobuf_of(message)

    def packed(kind: bytes) -> bytes:
        url = b"type.googleapis.com/" + kind
        inner = bytes([0x0A, len(url)]) + url + b"\x12\x02\x10\x05"  # n = 5
        return struct.pack(">bI", 0, 3) + b"\0\x0a" + bytes([len(inner)]) + inner

    rows, bad = decoded(values, packed(b"v.V"), packed(b"v.Unknown"))
    assert json.loads(rows[0]["a"]) == {"@type": "type.googleapis.com/v.V", "n": 5}
    assert [at for at, _ in bad] == [1]


def test_the_first_name_of_an_enums_number_stays_when_it_gets_another() -> None:
    enum = descriptor_pb2.EnumDescriptorProto(name="E")
    enum.options.allow_alias = True
    for name in ("ONE", "UNO"):
        enum.value.add(name=name, number=0)
    message = descriptor_pb2.DescriptorProto(name="V")
    message.field.add(
        name="e", number=1, type=F.TYPE_ENUM, label=F.LABEL_OPTIONAL, type_name=".v.E"
    )
    rows, _ = decoded(protobuf_of(message, enum), struct.pack(">bI", 0, 3) + b"\0")
    assert rows == [{"e": "ONE"}]
