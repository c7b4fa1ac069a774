"""The formats of keys and values: --key-format and --value-format of produce and consume.

Without a format they are bytes. avro_format.py has the Avro format.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from kstore.cli.records.record_text import Coder, Decoded, RecordFormatError

__all__ = ["FieldFormat", "KeyFormat", "Registry", "ValueFormat", "coder"]


class FieldFormat(StrEnum):
    """The names of the formats on the command line."""

    STRING = "string"
    JSON = "json"
    HEX = "hex"
    AVRO = "avro"


_HELP = (
    "string (UTF-8), json, hex, or avro with a schema registry; by default bytes are written as "
    "they are. The command fails at a record that does not have this format."
)
KeyFormat = Annotated[
    FieldFormat | None, typer.Option("--key-format", help=f"The format of keys: {_HELP}")
]
ValueFormat = Annotated[
    FieldFormat | None,
    typer.Option(
        "--value-format",
        help="The format of values; see --key-format.",
    ),
]
Registry = Annotated[
    str | None,
    typer.Option(
        "--schema-registry", metavar="URL", envvar="KSTORE_SCHEMA_REGISTRY",
        help=
        "The schema registry for avro; produce uses the latest schemas of TOPIC-key and "
        "TOPIC-value. Text is Avro's JSON: {\"name\": {\"string\": \"Ada\"}} in a union.",
    ),
]  # fmt: skip


def coder(
    form: FieldFormat | None, field: str, registry: str | None, topic: str | None = None
) -> Coder | None:
    """The codec of a field, ``key`` or ``value``; None for bytes. Encoding Avro needs a topic.

    Raises ValueError for Avro without a registry, ImportError without its libraries.
    """
    if form is None:
        return None
    if form is FieldFormat.AVRO:
        from kstore.cli.records.avro_format import avro_coder

        if registry is None:
            raise ValueError("avro needs --schema-registry URL")
        return avro_coder(registry, f"{topic}-{field}")
    return _CODERS[form]


def compact(data: Any) -> bytes:
    """JSON on one line."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def _decode_string(data: bytes) -> Decoded:
    try:
        return Decoded(data, data.decode(), len(data))
    except UnicodeDecodeError as error:
        raise RecordFormatError(f"is not UTF-8: {error.reason} at byte {error.start}") from None


def _string_text(text: bytes) -> bytes:
    return _decode_string(text).text


def _string_data(data: Any) -> bytes:
    if not isinstance(data, str):
        raise RecordFormatError(f"must be a string, not {data!r}")
    return data.encode()


def _decode_json(data: bytes) -> Decoded:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise RecordFormatError(f"is not JSON: {error}") from None
    return Decoded(compact(found), found, len(data))


def _json_text(text: bytes) -> bytes:
    _decode_json(text)
    return text


def _decode_hex(data: bytes) -> Decoded:
    return Decoded(data.hex().encode(), data.hex(), len(data))


def _hex_text(text: bytes) -> bytes:
    return _hex_data(text.decode(errors="replace"))


def _hex_data(data: Any) -> bytes:
    try:
        return bytes.fromhex(_string_data(data).decode())
    except ValueError as error:
        raise RecordFormatError(f"{data!r} is not hexadecimal: {error}") from None


_CODERS = {
    FieldFormat.STRING: Coder(_decode_string, _string_text, _string_data),
    FieldFormat.JSON: Coder(_decode_json, _json_text, compact),
    FieldFormat.HEX: Coder(_decode_hex, _hex_text, _hex_data),
}
