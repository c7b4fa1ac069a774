"""Compression: every type, both snappy forms, and no decompression past its bound."""

from __future__ import annotations

import contextlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.record.compression import CompressionError, compress, decompress
from tests.reference import record_batch as reference
from tests.reference.record_samples import exactly

ALL = pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
TEXT = b"the same words again and again, " * 9000


@ALL
@given(data=st.binary(max_size=3000))
def test_ours_is_read_by_others_and_theirs_by_us(codec: int, data: bytes) -> None:
    assert reference.decompress(codec, compress(codec, data)) == data
    assert decompress(codec, exactly(reference.compress(codec, data)), 3000) == data


@ALL
def test_data_larger_than_the_first_buffer(codec: int) -> None:
    assert reference.decompress(codec, compress(codec, TEXT)) == TEXT
    assert decompress(codec, reference.compress(codec, TEXT), len(TEXT)) == TEXT


def test_raw_snappy_as_some_clients_send_it() -> None:
    assert decompress(2, reference.compress(2, TEXT, framed=False), len(TEXT)) == TEXT


@ALL
def test_the_bound_holds_exactly(codec: int) -> None:
    packed = compress(codec, TEXT)

    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(CompressionError):
        decompress(codec, packed, len(TEXT) - 1)


@ALL
def test_a_bomb_costs_no_more_than_the_bound(codec: int) -> None:
    bomb = compress(codec, bytes(50_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError):
            decompress(codec, bomb, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
    finally:
        tracemalloc.stop()


def test_a_snappy_block_that_claims_gigabytes_is_refused_before_allocating() -> None:
    claim = reference.uvarint(0xFFFFFFF0) + b"\x00a"
    for data in (claim, reference.SNAPPY_MAGIC + b"\x00\x00\x00\x07" + claim):
        with pytest.raises(CompressionError, match=r"claims|bound"):
            decompress(2, data, 2**40)


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 5])
def test_a_snappy_chunk_longer_than_the_data_is_refused(length: int) -> None:
    data = reference.SNAPPY_MAGIC + length.to_bytes(4, "big", signed=True) + b"\x01"
    with pytest.raises(CompressionError, match="longer than the data"):
        decompress(2, exactly(data), 1000)


@ALL
def test_every_truncation_is_refused_or_a_prefix_of_chunks(codec: int) -> None:
    packed = compress(codec, TEXT[:500])
    for cut in range(len(packed)):
        try:
            found = decompress(codec, exactly(packed[:cut]), 500)
        except CompressionError:
            continue
        assert TEXT.startswith(bytes(found))


@ALL
@given(data=st.binary(max_size=200))
def test_noise_is_refused_or_bounded(codec: int, data: bytes) -> None:
    with contextlib.suppress(CompressionError):
        assert len(decompress(codec, exactly(data), 10_000)) <= 10_000


@pytest.mark.parametrize("codec", [0, 5, 7])
def test_unknown_types_are_named(codec: int) -> None:
    with pytest.raises(CompressionError, match=f"type {codec} is unknown"):
        decompress(codec, b"x", 10)
    with pytest.raises(CompressionError, match=f"type {codec} is unknown"):
        compress(codec, b"x")


@ALL
def test_levels_are_passed_on(codec: int) -> None:
    low, high = compress(codec, TEXT, 1), compress(codec, TEXT, 9)
    assert len(high) <= len(low)
    assert reference.decompress(codec, high) == TEXT
