"""Arrow batches for Spark have the same content as the lazy decoder, in the schema of Spark's
connector.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.pipeline.arrow import ArrowDecoder, to_arrow
from kstore.pipeline.schema import COLUMNS, arrow_schema
from kstore.record import InvalidBatchError, build_batch, decode
from tests.reference.record_samples import codecs, exactly, many_rows, row_lists

ALL = tuple(COLUMNS)


def _rows(data: bytes, start: int = 0, end: int | None = None) -> list[dict[str, object]]:
    """The rows that Spark's connector would return for the records."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "t",
            "partition": 3,
            "offset": record.offset,
            "timestamp": record.timestamp * 1000,
            "timestampType": int(record.timestamp_type),
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for record in decode(data, start_offset=start, end_offset=end)
    ]


def _shown(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(ALL)
        moment = batch.schema.get_field_index("timestamp")
        micros = batch.column("timestamp").cast(pa.int64())
        found += batch.set_column(moment, "timestamp", micros).to_pylist()
    return found


def _log(batches: list[tuple[list[tuple[object, ...]], str | None]]) -> bytes:
    data, offset = b"", 0
    for rows, codec in batches:
        data += build_batch(rows, compression=codec, base_offset=offset)
        offset += len(rows)
    return data


@given(
    st.lists(st.tuples(row_lists | many_rows, codecs), max_size=3),
    st.integers(0, 20),
    st.integers(0, 40),
    st.integers(1, 7),
    st.integers(1, 300),
)
def test_any_cut_into_batches_holds_the_same_records(batches, start, length, rows, size) -> None:
    data = _log(batches)
    decoder = ArrowDecoder("t", 3, ALL, max_rows=rows, max_bytes=size)

    found = list(decoder.batches(exactly(data), start, start + length))

    assert all(0 < batch.num_rows <= rows for batch in found)
    assert _shown(found) == _rows(data, start, start + length)
    whole = to_arrow(data, "t", 3, start, start + length, include_headers=True)
    assert _shown([whole]) == _rows(data, start, start + length)


@pytest.mark.parametrize("column", ALL)
def test_one_column_alone(column: str) -> None:
    data = build_batch([(b"k", b"v", 1, [("h", b"x")]), (None, None, 2)], base_offset=7)
    batch = to_arrow(data, "t", 3, 0, columns=[column])
    assert batch.schema == arrow_schema((column,))
    assert batch.column(0) == to_arrow(data, "t", 3, 0, include_headers=True).column(column)


def test_nothing_to_show_is_an_empty_batch_with_the_schema() -> None:
    assert to_arrow(b"", "t", 0, 0).schema == arrow_schema(ALL[:-1])
    assert list(ArrowDecoder("t", 0, ALL).batches(build_batch([b"v"]), 5)) == []


def test_log_append_time_is_timestamp_type_one() -> None:
    batch = bytearray(build_batch([b"v"]))
    batch[22] |= 0x08
    found = next(ArrowDecoder("t", 0, ALL, verify=False).batches(batch, 0))
    assert found.column("timestampType").to_pylist() == [1]


def test_a_timestamp_beyond_sparks_range_names_its_offset() -> None:
    data = build_batch([(None, b"v", 2**62)], base_offset=41)
    with pytest.raises(OverflowError, match=r"4611686018427387904 of offset 41 .*timestamp"):
        to_arrow(data, "t", 0, 0)
    assert to_arrow(data, "t", 0, 0, columns=["value"]).num_rows == 1


def test_a_changed_byte_is_found() -> None:
    data = bytearray(build_batch([b"value"]))
    data[-2] ^= 1
    with pytest.raises(InvalidBatchError):
        to_arrow(data, "t", 0, 0)
