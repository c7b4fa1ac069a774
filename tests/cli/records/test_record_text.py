"""Records as text: what produce reads is what consume writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.cli.records.record_text import (
    InputRecord,
    OutputRecord,
    RecordFormatError,
    parse_json,
    parse_line,
    to_json,
)

RECORD = OutputRecord("t", 1, 22, 333, b"k\xff", b"v\n", (("h", b"1"), ("n", None)))


def test_a_line_is_a_value_or_a_key_and_a_value() -> None:
    assert parse_line(b"a:b:c", None) == InputRecord(b"a:b:c")
    assert parse_line(b"a:b:c", b":") == InputRecord(b"b:c", b"a")
    with pytest.raises(RecordFormatError, match="no key separator ':'"):
        parse_line(b"abc", b":")


def test_json_carries_everything() -> None:
    line = b'{"key":"k","value":{"a":1},"partition":2,"timestamp":3,"headers":{"h":"x","n":null}}'
    assert parse_json(line) == InputRecord(b'{"a":1}', b"k", 2, 3, (("h", b"x"), ("n", None)))
    assert parse_json(b"{}") == InputRecord(None)
    assert parse_json(b'{"value_base64":"/w=="}') == InputRecord(b"\xff")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"x", "is not JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"val":1}', "unknown field 'val'; the fields are"),
        (b'{"partition":"1"}', "partition must be an integer"),
        (b'{"timestamp":true}', "timestamp must be an integer"),
        (b'{"value_base64":"?"}', "value_base64 is not base64"),
        (b'{"headers":[1]}', "headers must be"),
        (b"\xff", "is not JSON"),
    ],
)
def test_what_is_wrong_with_json_is_said(line: bytes, sentence: str) -> None:
    with pytest.raises(RecordFormatError, match=sentence):
        parse_json(line)


data = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)


@given(key=data, value=data, headers=st.lists(st.tuples(st.text(max_size=5), data), max_size=3))
def test_what_consume_writes_as_json_can_be_produced_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = to_json(OutputRecord("t", 5, 6, 7, key, value, tuple(headers)))
    assert line.count(b"\n") == 1
    assert parse_json(line) == InputRecord(value, key, 5, 7, tuple(headers))
