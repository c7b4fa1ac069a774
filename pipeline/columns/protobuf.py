"""Protobuf's types as columns: a message is a struct, an enum the name of its value, `Timestamp` a
timestamp, a wrapper (`StringValue` and so on) its value, or null. Unsigned 64-bit numbers are
decimals. A recursive message is a string with JSON, and so are `Struct` and `Any`.

A field with presence is null if it is not set; other fields have their default.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from kstore.pipeline.columns.decoding import BadValueError, Schema
from kstore.pipeline.columns.types import TIMESTAMP, ColumnTypeError

__all__ = ["ProtobufDecoder", "descriptor_files"]

_Convert = Callable[[Any], Any]
_TEXT = frozenset({"google.protobuf." + name for name in ("Any", "ListValue", "Struct", "Value")})
_WRAPPERS = frozenset(
    {
        f"google.protobuf.{name}Value"
        for name in (
            "Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64",
        )
    }
)  # fmt: skip


def _installed() -> None:
    try:
        from google.protobuf import message  # noqa: F401
    except ImportError:
        raise ImportError(
            "Protobuf columns need its library: pip install protobuf", name="google.protobuf"
        ) from None


def descriptor_files(data: bytes) -> tuple[bytes, ...]:
    """The files of a descriptor set (`protoc --include_imports --descriptor_set_out`)."""
    _installed()
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorSet.FromString(data)
    except DecodeError as error:
        raise ColumnTypeError(f"it is not a Protobuf descriptor set: {error}") from None
    if not found.file:
        raise ColumnTypeError("it is a Protobuf descriptor set without files")
    return tuple(file.SerializeToString() for file in found.file)


class ProtobufDecoder:
    """Reads messages of one schema. With a registry's schema, the bytes start with the index of a
    message type; values of a type other than the first are bad.
    """

    def __init__(self, schema: Schema) -> None:
        _installed()
        from google.protobuf.message_factory import GetMessageClass

        self._registered = not schema.message
        descriptor = _message(schema)
        self._class = GetMessageClass(descriptor)
        self._name = descriptor.full_name
        self.type, self._convert = _message_column(descriptor, "value", ())

    def decode(self, data: bytes) -> Any:
        """The message."""
        from google.protobuf.json_format import Error as FormatError
        from google.protobuf.message import DecodeError

        if self._registered:
            data = self._of_first(data)
        try:
            message = self._class.FromString(data)
            return self._convert(message)
        except (DecodeError, ValueError, OverflowError, TypeError, FormatError) as error:
            raise BadValueError(f"is not a {self._name} of Protobuf ({error})") from None

    def _of_first(self, data: bytes) -> bytes:
        if data[:1] == b"\x00":
            return data[1:]
        if data[:2] == b"\x02\x00":  # one index, zero
            return data[2:]
        raise BadValueError(f"is not the first message of its Protobuf schema, {self._name}")


def _message(schema: Schema) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, last = DescriptorPool(), ""
    try:
        for data in schema.files:
            file = FileDescriptorProto.FromString(data)
            for name in file.dependency:
                _add_known(pool, name)
            _add(pool, file)
            last = file.name
        if schema.message:
            return pool.FindMessageTypeByName(schema.message)
        messages = FileDescriptorProto.FromString(schema.files[-1]).message_type
        if not messages:
            raise ColumnTypeError("the Protobuf schema has no message")
        return pool.FindFileByName(last).message_types_by_name[messages[0].name]
    except (KeyError, TypeError) as error:
        raise ColumnTypeError(f"the Protobuf schema is incomplete: {error}") from None


def _add(pool: Any, file: Any) -> None:
    try:
        pool.FindFileByName(file.name)
    except KeyError:
        pool.Add(file)


def _add_known(pool: Any, name: str) -> None:
    """A file that Protobuf's library contains, such as google/protobuf/timestamp.proto."""
    import importlib

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if not name.startswith("google/"):
        return
    try:
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    for other in file.dependency:
        _add_known(pool, other)
    _add(pool, file)


# ---- columns ----


def _message_column(descriptor: Any, where: str, inside: tuple[str, ...]) -> tuple[Any, _Convert]:
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return TIMESTAMP, _moment
    if name in _WRAPPERS:
        kind, convert = _field(descriptor.fields_by_name["value"], where, inside)
        return kind, lambda message: convert(message.value)
    if name in _TEXT or name in inside:
        return pa.string(), _text
    inside = (*inside, name)
    columns = {
        field.name: (*_column(field, f"{where}.{field.name}", inside), field.has_presence)
        for field in descriptor.fields
    }

    def struct(message: Any) -> Any:
        return {
            field: convert(getattr(message, field))
            for field, (_, convert, presence) in columns.items()
            if not presence or message.HasField(field)
        }

    return pa.struct([(field, column[0]) for field, column in columns.items()]), struct


def _column(field: Any, where: str, inside: tuple[str, ...]) -> tuple[Any, _Convert]:
    if not _is_repeated(field):
        return _field(field, where, inside)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key_kind, key = _field(entry.fields_by_name["key"], where, inside)
        kind, convert = _field(entry.fields_by_name["value"], where, inside)
        return pa.map_(key_kind, kind), lambda found: [
            (key(each), convert(found[each])) for each in sorted(found)
        ]
    kind, convert = _field(field, f"{where}[]", inside)
    return pa.list_(kind), lambda found: [convert(each) for each in found]


def _is_repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def _field(field: Any, where: str, inside: tuple[str, ...]) -> tuple[Any, _Convert]:
    """One value of a field."""
    if field.message_type is not None:
        return _message_column(field.message_type, where, inside)
    if field.enum_type is not None:
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return pa.string(), lambda number: names.get(number, str(number))
    kinds = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20, 0),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_BOOL: pa.bool_(),
    }
    kind = kinds.get(field.cpp_type)
    if kind is None:
        kind = pa.binary() if field.type == field.TYPE_BYTES else pa.string()
    return kind, _same


def _same(value: Any) -> Any:
    return value


def _moment(message: Any) -> Any:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        seconds=message.seconds, microseconds=message.nanos // 1000
    )


def _text(message: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    pool = message.DESCRIPTOR.file.pool
    return str(MessageToJson(message, indent=None, descriptor_pool=pool))
