"""Values of a topic as one Arrow array, even if they have different schemas.

With a registry, each value starts with a zero byte and the schema's id in four bytes. With a schema
from a file, all bytes are the value.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Protocol

import pyarrow as pa

from kstore.pipeline.columns.types import check_type, merged

__all__ = ["FORMATS", "BadValueError", "Decoder", "Schema", "ValueFormat", "decoder_of"]

FORMATS = ("avro", "json", "protobuf")
_PREFIX = struct.Struct(">bI")
_NOT_OF_TYPE = (pa.ArrowException, OverflowError, TypeError, ValueError)


class BadValueError(ValueError):
    """A value that does not match its schema; the text continues from "the value"."""


class Decoder(Protocol):
    """Converts bytes to Python objects that Arrow accepts for `type`."""

    type: Any

    def decode(self, data: bytes) -> Any:
        """The value. Raises BadValueError if it does not match the schema."""


@dataclass(frozen=True)
class Schema:
    """A schema from a registry or a file. `text` is JSON for Avro and JSON Schema; for Protobuf,
    `files` are serialized FileDescriptorProtos, imported files first.
    """

    kind: str
    text: str = ""
    files: tuple[bytes, ...] = ()
    references: Mapping[str, str] = field(default_factory=dict)
    """For Avro and JSON Schema: schemas that the text refers to."""
    message: str = ""
    """For Protobuf in a file: the full name of the message."""


def decoder_of(schema: Schema) -> Decoder:
    """Raises ColumnTypeError for a schema that no column can have, and ImportError, which says what
    to install.
    """
    if schema.kind == "avro":
        from kstore.pipeline.columns.avro import AvroDecoder

        return AvroDecoder(schema)
    if schema.kind == "json":
        from kstore.pipeline.columns.json_schema import JsonDecoder

        return JsonDecoder(schema)
    from kstore.pipeline.columns.protobuf import ProtobufDecoder

    return ProtobufDecoder(schema)


@dataclass(frozen=True)
class ValueFormat:
    """How to read the values of a topic: the registry's schemas by id, or the schema of a file with
    the id None. Tasks receive it pickled.
    """

    schemas: Mapping[int | None, Schema]
    type: Any = None
    """The type of the arrays; None: the type that holds all schemas."""

    @cached_property
    def decoders(self) -> dict[int | None, Decoder]:
        """Schemas by id."""
        return {number: decoder_of(schema) for number, schema in self.schemas.items()}

    def schema_type(self) -> Any:
        """The type that holds the values of all schemas. Raises ColumnTypeError if there is
        none.
        """
        found = reduce(merged, (decoder.type for decoder in self.decoders.values()))
        check_type(found)
        return found

    def decode(self, values: Any) -> tuple[Any, list[tuple[int, str]]]:
        """An array of `type` for an array of binary values, and which values are bad (they are
        null).
        """
        found: list[Any] = []
        bad: list[tuple[int, str]] = []
        for at, value in enumerate(values.to_pylist()):
            made = None
            if value is not None:
                try:
                    made = self._decoded(value)
                except BadValueError as error:
                    bad.append((at, str(error)))
            found.append(made)
        try:
            return pa.array(found, self.type), bad
        except _NOT_OF_TYPE:  # a value does not fit, such as a decimal with too many digits
            return self._one_by_one(found, bad)

    def _one_by_one(
        self, found: list[Any], bad: list[tuple[int, str]]
    ) -> tuple[Any, list[tuple[int, str]]]:
        for at, value in enumerate(found):
            try:
                pa.array([value], self.type)
            except _NOT_OF_TYPE as error:
                bad.append((at, f"does not fit its column ({error})"))
                found[at] = None
        return pa.array(found, self.type), sorted(bad)

    def _decoded(self, value: bytes) -> Any:
        number: int | None = None
        if None not in self.schemas:
            if len(value) < _PREFIX.size or value[0]:
                raise BadValueError("has no schema id before it: its first byte is not 0")
            number = _PREFIX.unpack_from(value)[1]
            value = value[_PREFIX.size :]
        decoder = self.decoders.get(number)
        if decoder is None:
            raise BadValueError(f"has schema {number}, which is not a version of the subject")
        return decoder.decode(value)

    def __getstate__(self) -> dict[str, Any]:
        return {"schemas": self.schemas, "type": self.type}
