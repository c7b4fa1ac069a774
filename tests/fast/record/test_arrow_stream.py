"""Arrow's C stream interface: what importers get, and that everything is given back."""

from __future__ import annotations

import gc
import signal
import sys
import weakref
from array import array
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kstore._fast.record.arrow_stream import Array, Field, schema_capsule, stream_capsule

PAIR = Field("item", "+s", [Field("name", "u"), Field("data", "z")])
FIELDS = [Field("number", "i", nullable=False), Field("key", "z"), Field("pairs", "+l", [PAIR])]


def batch(number: int) -> Array:
    """Two rows: the second key is null, and the first row has the only pair."""
    names = Array(1, [None, array("i", [0, 1]), b"n"])
    data = Array(1, [None, array("i", [0, 2]), b"dd"])
    pairs = Array(2, [None, array("i", [0, 1, 1])], [Array(1, [None], [names, data])])
    keys = Array(2, [b"\x01", array("i", [0, 1, 1]), b"k"], nulls=1)
    numbers = Array(2, [None, array("i", [number, -number])])
    return Array(2, [None], [numbers, keys, pairs])


class Source:
    """A stream of this number of batches, then an error if there is one."""

    def __init__(self, count: int, error: BaseException | None = None) -> None:
        self.count = count
        self.error = error
        self.closed = 0

    def batches(self) -> Iterator[Array]:
        try:
            for number in range(self.count):
                yield batch(number)
            if self.error is not None:
                raise self.error
        finally:
            self.closed += 1

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        return stream_capsule(FIELDS, self.batches())

    def __arrow_c_schema__(self) -> Any:
        return schema_capsule(FIELDS)


def test_an_importer_gets_every_batch_and_the_schema() -> None:
    source = Source(2)
    found = pa.RecordBatchReader.from_stream(source).read_all()
    found.validate(full=True)
    expected = pa.schema(
        [
            pa.field("number", pa.int32(), nullable=False),
            ("key", pa.binary()),
            ("pairs", pa.list_(pa.struct([("name", pa.string()), ("data", pa.binary())]))),
        ]
    )
    assert found.schema == pa.schema(source) == expected
    pair = [{"name": "n", "data": b"dd"}]
    assert found.to_pylist() == [
        {"number": number, "key": key, "pairs": pairs}
        for each in (0, 1)
        for number, key, pairs in ((each, b"k", pair), (-each, None, []))
    ]
    assert source.closed == 1


def test_what_went_wrong_is_the_streams_error_after_the_batches_before() -> None:
    source = Source(1, ValueError("broken at offset 5"))
    reader = pa.RecordBatchReader.from_stream(source)
    assert reader.read_next_batch().num_rows == 2
    with pytest.raises(OSError, match="broken at offset 5"):
        reader.read_next_batch()
    with pytest.raises(OSError, match="broken"):
        pa.table(Source(0, ValueError("broken")))


class UnsayableError(Exception):
    """There is no memory left, not even for what the error says."""

    def __str__(self) -> str:
        raise MemoryError


def test_an_error_that_cannot_be_shown_does_not_look_like_the_end() -> None:
    reader = pa.RecordBatchReader.from_stream(Source(1, UnsayableError()))
    with pytest.raises(OSError, match="cannot be shown"):
        reader.read_all()


def test_ctrl_c_while_a_batch_is_made_interrupts_the_reader_too() -> None:
    """Ctrl-C is raised again after Arrow, which only passes errors on."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        reader = pa.RecordBatchReader.from_stream(Source(1, KeyboardInterrupt()))
        with pytest.raises(OSError, match="KeyboardInterrupt"):
            reader.read_all()
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed == [signal.SIGINT]


class Unclosable:
    """Batches whose end fails."""

    def __iter__(self) -> Iterator[Array]:
        return self

    def __next__(self) -> Array:
        return batch(0)

    def close(self) -> None:
        raise OSError("the connection is gone")


def test_a_stream_that_cannot_be_closed_is_given_back_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda seen: told.append(str(seen.exc_value)))
    batches = Unclosable()
    kept = weakref.ref(batches)
    capsule = stream_capsule(FIELDS, batches)
    del batches, capsule
    assert kept() is None
    assert told == ["the connection is gone"]


def test_a_stream_that_is_left_is_closed() -> None:
    source = Source(3)
    reader = pa.RecordBatchReader.from_stream(source)
    reader.read_next_batch()
    assert source.closed == 0
    del reader
    assert source.closed == 1
    source.__arrow_c_stream__()  # the stream was not used
    gc.collect()
    assert source.closed == 1, "a generator that has not begun has nothing to close"


def test_memory_is_held_until_the_last_batch_is_released() -> None:
    held = bytearray(array("q", [7, 8]).tobytes())
    fields = [Field("n", "l")]

    class One:
        def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
            return stream_capsule(fields, [Array(2, [None], [Array(2, [None, held])])])

    (found,) = pa.RecordBatchReader.from_stream(One())
    with pytest.raises(BufferError):
        held.clear()
    assert found.column("n").to_pylist() == [7, 8]
    del found
    held.clear()


def test_a_buffer_that_is_none_fails_the_stream_and_gives_back_the_others() -> None:
    held = bytearray(8)

    class Bad:
        def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
            columns = [Array(1, [None, held]), Array(1, [None, 5])]  # type: ignore[list-item]
            return stream_capsule([Field("a", "l"), Field("b", "l")], [Array(1, [None], columns)])

    with pytest.raises(OSError, match="bytes-like"):
        pa.table(Bad())
    held.clear()
