"""Avro with a schema registry, for --key-format and --value-format.

A field is a zero byte, the schema's id in four bytes, and the datum. Its text is Avro's JSON, which
keeps all types, so that the output of consume can be produced again.
"""

from __future__ import annotations

import io
import json
import struct
from typing import Any

from kstore.cli.records.record_text import Coder, Decoded, RecordFormatError

__all__ = ["avro_coder"]

_PREFIX = struct.Struct(">bI")
_NOT_AVRO = (ArithmeticError, AttributeError, EOFError, LookupError, TypeError, ValueError)
"""What fastavro raises for data that does not match the schema."""


def avro_coder(url: str, subject: str) -> Coder:
    """The codec of fields whose schemas are in a registry. Encoding uses the subject's latest
    schema.

    Raises ImportError without the libraries; the message names the extra to install.
    """
    registry = _Registry(url)
    return Coder(
        registry.decode,
        lambda text: registry.encode(subject, text),
        lambda data: registry.encode(subject, json.dumps(data).encode()),
    )


class _Registry:
    """The schemas of a registry; each is requested once."""

    def __init__(self, url: str) -> None:
        try:
            import fastavro
            from httpx import HTTPError
            from schema_registry.client import SchemaRegistryClient
            from schema_registry.client.errors import ClientError
        except ImportError as error:
            raise ImportError(
                f"avro needs libraries, and {error.name} can't be imported: "
                "pip install 'kstore[avro]'",
                name=error.name,
            ) from None
        self._avro = fastavro
        self._url = url
        self._client = SchemaRegistryClient(url=url)
        self._errors = (HTTPError, ClientError)
        self._latest: dict[str, tuple[int, Any]] = {}

    def decode(self, data: bytes) -> Decoded:
        """A field as JSON."""
        if len(data) < _PREFIX.size or data[0] != 0:
            raise RecordFormatError(
                "is not Avro with a schema's id before it: its first byte is not 0"
            )
        number = _PREFIX.unpack_from(data)[1]
        found = self._asked(self._client.get_by_id, number)
        if found is None:
            raise RecordFormatError(f"has schema {number}, which {self._url} does not have")
        text = io.StringIO()
        try:
            datum = self._avro.schemaless_reader(io.BytesIO(data[_PREFIX.size :]), found.schema)
            self._avro.json_writer(text, found.schema, [datum])
        except _NOT_AVRO as error:
            raise RecordFormatError(f"does not match its schema {number}: {error}") from None
        parsed = json.loads(text.getvalue())
        line = json.dumps(parsed, ensure_ascii=False, separators=(",", ":"))
        return Decoded(line.encode(), parsed, len(data))

    def encode(self, subject: str, text: bytes) -> bytes:
        """Avro's JSON as a field of the subject's latest schema."""
        number, schema = self._schema(subject)
        out = io.BytesIO()
        out.write(_PREFIX.pack(0, number))
        try:
            (datum,) = self._avro.json_reader(io.StringIO(text.decode()), schema)
            self._avro.schemaless_writer(out, schema, datum)
        except _NOT_AVRO as error:
            raise RecordFormatError(
                f"does not match schema {number}, the latest of {subject}: {error}"
            ) from None
        return out.getvalue()

    def _schema(self, subject: str) -> tuple[int, Any]:
        if subject not in self._latest:
            found = self._asked(self._client.get_schema, subject)
            if found is None:
                raise RecordFormatError(f"has no schema: {self._url} has no subject {subject}")
            self._latest[subject] = (found.schema_id, found.schema.schema)
        return self._latest[subject]

    def _asked(self, method: Any, what: Any) -> Any:
        try:
            return method(what)
        except self._errors as error:
            raise RecordFormatError(
                f"needs the schema registry {self._url}, which does not answer: {error}"
            ) from None
