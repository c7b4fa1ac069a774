"""The builder: what it makes, the slow reference reads, and validation accepts."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.record import batch_view
from kstore._fast.record.builder import (
    RecordBatchBuilder,
    build_batch,
    build_single_batch,
    encode_headers,
)
from tests.reference import record_batch as reference
from tests.reference.record_samples import (
    codecs,
    encoded_headers,
    many_rows,
    nullable_bytes,
    row_lists,
    timestamps,
)


@given(row_lists | many_rows, codecs)
def test_a_built_batch_reads_back(rows, codec) -> None:
    built = build_batch(rows, compression=codec, base_offset=5, leader_epoch=6)

    rows = [(k, value, timestamp, encoded_headers(pairs)) for k, value, timestamp, pairs in rows]
    expected = reference.make_batch(rows, attributes=codec, base_offset=5, leader_epoch=6)
    assert reference.decode(built) == expected
    if codec == 0:
        assert built == reference.encode(expected)
    assert len(batch_view.validate(built)) == 1


@given(row_lists)
def test_record_by_record_and_at_once_are_the_same_bytes(rows) -> None:
    builder = RecordBatchBuilder()
    for index, (key, value, timestamp, pairs) in enumerate(rows):
        assert builder.append(value, key, timestamp, pairs) == index
    assert len(builder) == len(rows)
    assert builder.build() == build_batch(rows)


@given(nullable_bytes, nullable_bytes, timestamps)
def test_the_single_record_path_makes_the_same_batch(key, value, timestamp) -> None:
    single = build_single_batch(value, key, timestamp=timestamp, base_offset=3, leader_epoch=1)
    assert single == build_batch([(key, value)], timestamp=timestamp, base_offset=3, leader_epoch=1)


def test_the_forms_of_a_record() -> None:
    forms = [
        b"v",
        None,
        bytearray(b"w"),
        memoryview(b"x"),
        (b"k", b"v"),
        (None, None),
        (b"k", b"v", 9),
    ]
    forms += [(b"k", b"v", None), (b"k", b"v", 9, [("h", b"1")]), (b"k", b"v", 9, None)]

    records = reference.decode(build_batch(forms, timestamp=5)).records

    assert [record.value for record in records[:7]] == [b"v", None, b"w", b"x", b"v", None, b"v"]
    assert [record.timestamp_delta for record in records] == [0, 0, 0, 0, 0, 0, 4, 0, 4, 4]
    assert records[8].headers == ((b"h", b"1"),)


def test_producer_fields_and_attributes() -> None:
    built = build_batch(
        [b"v"], producer_id=4, producer_epoch=2, base_sequence=17, transactional=True, control=True
    )
    batch = reference.decode(built)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4, 2, 17)
    assert batch.attributes == 0x30


def test_a_builder_is_used_again_after_reset() -> None:
    builder = RecordBatchBuilder(compression=4, level=1)
    builder.extend([b"a" * 100] * 50, timestamp=3)
    first = builder.build()
    with pytest.raises(ValueError, match="call reset"):
        builder.append(b"more")
    with pytest.raises(ValueError, match="built already"):
        builder.build()
    builder.reset()
    assert (builder.count, builder.size_bytes) == (0, 61)
    builder.compression = 0
    builder.extend([b"a" * 100] * 50, timestamp=3)
    second = builder.build()
    assert reference.decode(first).records == reference.decode(second).records
    assert len(first) < len(second)


def test_compression_that_grows_the_data_still_fits() -> None:
    noise = bytes((index * index * 2654435761 >> 13) & 0xFF for index in range(1900))
    for codec in range(1, 5):
        assert reference.decode(build_batch([noise], compression=codec)).records[0].value == noise


@pytest.mark.parametrize(
    ("record", "error", "sentence"),
    [
        ("text", TypeError, "value is str: pass bytes-like or None .encode text first."),
        (("k", b"v"), TypeError, "key is str"),
        ((b"k", 5), TypeError, "value is int"),
        ((b"k",), ValueError, "tuple has 1 parts"),
        ((b"k", b"v", 1, [], 2), ValueError, "tuple has 5 parts"),
        ((b"k", b"v", 1.5), TypeError, "timestamp is float: pass an int, in milliseconds since"),
        ((b"k", b"v", b"h"), TypeError, "timestamp is bytes"),
        ((b"k", b"v", 1, [(5, b"x")]), TypeError, "header's key is int"),
        ((b"k", b"v", 1, [("h", "x")]), TypeError, "header value is str"),
    ],
)
def test_wrong_records_are_explained_and_leave_the_batch_as_it_was(record, error, sentence) -> None:
    builder = RecordBatchBuilder()
    builder.append(b"before", timestamp=1)
    with pytest.raises(error, match=sentence):
        builder.extend([record])
    builder.append(b"after", timestamp=1)
    assert [record.value for record in reference.decode(builder.build()).records] == [
        b"before",
        b"after",
    ]


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="compression type is 9"):
        RecordBatchBuilder(compression=9)
    with pytest.raises(ValueError, match="no records"):
        build_batch([])


@given(st.binary(max_size=10))
def test_header_keys_that_are_no_utf8_survive(key) -> None:
    expected = reference.varint(len(key)) + key + reference.varint(-1)
    assert encode_headers([(key.decode("utf-8", "surrogateescape"), None)]) == expected
    assert encode_headers([(key, None)]) == expected


@pytest.mark.parametrize("headers", ["ab", b"ab", iter([("a", b"1")]), ["ab"], [("a", b"1", 2)], 7])
def test_what_is_no_headers_is_refused_with_a_sentence(headers: Any) -> None:
    with pytest.raises(TypeError, match=r"pass a list of \(key, value\) pairs, or a dict"):
        build_batch([(b"k", b"v", None, headers)])


def test_headers_may_be_a_mapping() -> None:
    pairs = [("a", b"1"), ("b", None)]
    assert build_batch([(b"k", b"v", 1, dict(pairs))]) == build_batch([(b"k", b"v", 1, pairs)])
    assert build_batch([(b"k", b"v", 1, MappingProxyType(dict(pairs)))]) == build_batch(
        [(b"k", b"v", 1, pairs)]
    )
