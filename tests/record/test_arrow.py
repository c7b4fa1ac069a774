"""Arrow columns hold what the lazy decoder gives."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.record.columns import decode_columns
from kstore.record import InvalidBatchError, build_batch, decode, to_arrow
from tests.reference.record_samples import codecs, exactly, many_rows, row_lists


@given(st.lists(st.tuples(row_lists | many_rows, codecs), max_size=3), st.integers(0, 20))
def test_columns_equal_records(batches, start) -> None:
    data, offset = b"", 0
    for rows, codec in batches:
        data += build_batch(rows, compression=codec, base_offset=offset)
        offset += len(rows)

    table = to_arrow(exactly(data), start_offset=start)

    table.validate(full=True)
    assert table.to_pylist() == [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
        }
        for record in decode(data, start_offset=start)
    ]


def test_the_schema() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    fields = [("offset", pa.int64()), ("timestamp", pa.int64()), ("key", pa.binary())]
    fields += [("value", pa.binary()), ("headers", pa.list_(header))]
    assert to_arrow(b"").schema == pa.schema(fields)
    assert to_arrow(b"").num_rows == 0


@pytest.mark.parametrize("period", [1, 2, 7, 8, 9, 100])
def test_nulls_anywhere_in_the_bitmap(period: int) -> None:
    values = [None if index % period == period - 1 else b"v" for index in range(5000)]
    table = to_arrow(build_batch(values))
    assert table.column("value").to_pylist() == values
    assert table.column("key").null_count == 5000


def test_header_keys_that_are_no_utf8_are_replaced() -> None:
    table = to_arrow(build_batch([(None, b"v", 1, [(b"\xff", b"x")])]))
    table.validate(full=True)
    assert table.column("headers").to_pylist() == [[{"key": "�", "value": b"x"}]]


def test_columns_outlive_what_they_were_made_of() -> None:
    table = to_arrow(build_batch([b"v" * 100] * 1000, compression=3))
    assert set(table.column("value").to_pylist()) == {b"v" * 100}


def test_a_number_of_records_at_most() -> None:
    columns = decode_columns(build_batch([b"a", b"b", b"c"]), max_records=2)
    assert (len(columns), bytes(columns.value.data)) == (2, b"ab")
    assert memoryview(columns.offset).readonly


def test_a_damaged_batch_is_reported() -> None:
    data = bytearray(build_batch([(b"k", b"v", 1, [("h", b"x")])]))
    data[-1] ^= 1
    with pytest.raises(InvalidBatchError, match="BAD_CRC"):
        to_arrow(data)
    data = bytearray(build_batch([(b"k", b"v", 1, [("h", b"x")])]))
    data[-2] = 60
    with pytest.raises(InvalidBatchError, match="BAD_RECORD"):
        to_arrow(data, verify=False)


def test_pyarrow_is_not_imported_with_the_package() -> None:
    code = (
        "import sys, kstore.record;"
        "print([name for name in ('pyarrow', 'numpy', 'cramjam') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
