"""--key-format and --value-format: what is produced is what is consumed, also with Avro and a
registry.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator

import pytest

from kstore.cli.records.field_formats import FieldFormat, coder
from kstore.cli.records.record_text import Decoded, RecordFormatError
from tests.cli.shell import Shell
from tests.clients.schema_registry import SchemaRegistry

_names = itertools.count(1)
FIELDS = [
    {"name": "name", "type": ["null", "string"]},
    {"name": "raw", "type": "bytes"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]
ORDER = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
LINE = b'{"name":{"string":"Ada"},"raw":"\xc3\xbf","at":5}'


@pytest.fixture
def topic() -> str:
    """A unique name."""
    return f"formats-{next(_names)}"


@pytest.fixture
def registry(topic: str) -> Iterator[SchemaRegistry]:
    """A registry that has a schema of the topic's values."""
    with SchemaRegistry() as running:
        path = ["subjects", f"{topic}-value", "versions"]
        assert running.find("POST", path, {"schema": ORDER})[0] == 200
        yield running


@pytest.mark.parametrize(
    ("form", "data", "shown"),
    [
        ("string", "ü".encode(), Decoded("ü".encode(), "ü", 2)),
        ("json", b'{"a": [1, null]}', Decoded(b'{"a":[1,null]}', {"a": [1, None]}, 16)),
        ("json", b"null", Decoded(b"null", None, 4)),
        ("hex", b"\x00\xff", Decoded(b"00ff", "00ff", 2)),
    ],
)
def test_a_field_is_shown_and_comes_back(form: str, data: bytes, shown: Decoded) -> None:
    found = coder(FieldFormat(form), "value", None)
    assert found is not None
    assert found.decode(data) == shown
    assert found.decode(found.encode_text(shown.text)) == shown._replace(
        size=len(found.encode_text(shown.text))
    )
    assert found.decode(found.encode_data(shown.data)).data == shown.data


@pytest.mark.parametrize(
    ("form", "data", "sentence"),
    [
        ("string", b"a\xff", "is not UTF-8: invalid start byte at byte 1"),
        ("json", b"{", "is not JSON: "),
    ],
)
def test_a_field_of_another_format_is_told(form: str, data: bytes, sentence: str) -> None:
    found = coder(FieldFormat(form), "value", None)
    assert found is not None
    with pytest.raises(RecordFormatError, match=sentence):
        found.decode(data)


def test_avro_without_its_libraries_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ImportError, match=r"fastavro can't be imported: pip install 'kstore\[avro"):
        coder(FieldFormat.AVRO, "value", "http://127.0.0.1:1", "t")


def test_avro_without_a_registry_is_refused() -> None:
    with pytest.raises(ValueError, match="avro needs --schema-registry URL"):
        coder(FieldFormat.AVRO, "value", None, "t")


@pytest.mark.slow
def test_hex_keys_and_json_values_go_in_and_come_out(kstore: Shell, topic: str) -> None:
    formats = ("--key-format", "hex", "--value-format", "json")
    kstore("produce", topic, "-K", ":", *formats, stdin=b'00ff:{"a": 1}\n')
    assert kstore("consume", topic, "-e", "-f", r"{key}={value}\n", *formats) == b'00ff={"a":1}\n'
    row = json.loads(kstore("consume", topic, "-e", "--json", *formats))
    assert (row["key"], row["value"]) == ("00ff", {"a": 1})
    assert json.loads(kstore("consume", topic, "-e", "--json"))["key_base64"] == "AP8="
    kstore("produce", f"{topic}-copy", "--json", *formats, stdin=json.dumps(row).encode())
    again = json.loads(kstore("consume", f"{topic}-copy", "-e", "--json", *formats))
    assert again == row | {"topic": f"{topic}-copy"}


@pytest.mark.slow
def test_a_record_of_another_format_is_named(kstore: Shell, topic: str) -> None:
    errors = kstore("produce", topic, "--value-format", "hex", stdin=b"00\nxy\n", code=1)
    assert b"stdin line 2: the value 'xy' is not hexadecimal" in errors
    kstore("produce", topic, stdin=b"\xff\n")
    errors = kstore("consume", topic, "-e", "--value-format", "json", "-o", "1", code=1)
    assert f"kstore: {topic}:0 offset 1: the value is not JSON".encode() in errors


@pytest.mark.slow
def test_avro_goes_in_and_comes_out_as_avros_json(
    kstore: Shell, topic: str, registry: SchemaRegistry
) -> None:
    formats = ("--value-format", "avro", "--schema-registry", registry.url)
    kstore("produce", topic, *formats, stdin=LINE + b"\n")
    raw = kstore("consume", topic, "-e", "--value-format", "hex")
    assert raw.startswith(b"0000000001")  # what all clients of registries know
    assert kstore("consume", topic, "-e", *formats) == LINE + b"\n"
    row = json.loads(kstore("consume", topic, "-e", "--json", *formats))
    assert row["value"] == {"name": {"string": "Ada"}, "raw": "\xff", "at": 5}
    kstore("produce", topic, "--json", *formats, stdin=json.dumps(row).encode())
    assert kstore("consume", topic, "-e", *formats) == 2 * (LINE + b"\n")


@pytest.mark.slow
def test_what_is_wrong_with_avro_is_told(
    kstore: Shell, topic: str, registry: SchemaRegistry
) -> None:
    formats = ("--value-format", "avro", "--schema-registry", registry.url)
    errors = kstore("produce", topic, *formats, stdin=b'{"name":"Ada"}\n', code=1)
    assert f"does not match schema 1, the latest of {topic}-value".encode() in errors
    errors = kstore("produce", f"{topic}-x", *formats, stdin=b"{}\n", code=1)
    assert f"has no subject {topic}-x-value".encode() in errors
    kstore("produce", topic, stdin=b"plain\n")
    errors = kstore("consume", topic, "-e", *formats, code=1)
    assert f"{topic}:0 offset 0: the value is not Avro".encode() in errors
    away = ("--value-format", "avro", "--schema-registry", "http://127.0.0.1:1")
    errors = kstore("produce", topic, *away, stdin=LINE, code=1)
    assert b"needs the schema registry http://127.0.0.1:1, which does not answer" in errors
