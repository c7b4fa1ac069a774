"""Hypothesis strategies for records and batches, and buffers without a spare byte for over-read
tests."""

from __future__ import annotations

from array import array
from itertools import cycle, islice

from hypothesis import strategies as st

nullable_bytes = st.none() | st.binary(max_size=80) | st.binary(min_size=100, max_size=300)
timestamps = st.integers(-1, 2**41) | st.just(1_700_000_000_000)
header_keys = st.text(st.characters(codec="utf-8"), max_size=10)
headers = st.lists(st.tuples(header_keys, st.none() | st.binary(max_size=20)), max_size=3)
rows = st.tuples(nullable_bytes, nullable_bytes, timestamps, headers)
"""(key, value, timestamp, headers)"""
row_lists = st.lists(rows, min_size=1, max_size=12)
many_rows = st.builds(
    lambda pairs, count: [(*pair, 5, []) for pair in islice(cycle(pairs), count)],
    st.lists(st.tuples(nullable_bytes, st.none() | st.just(b"v")), min_size=1, max_size=8),
    st.integers(60, 140),
)
"""Enough records for offset deltas of two bytes: a few are repeated, because drawing each of them
takes Hypothesis longer than the test.
"""
codecs = st.integers(0, 4)


def exactly(data: bytes) -> array[int]:
    """``data`` in memory without a byte after its end (bytes objects have a zero there)."""
    return array("B", list(data))


def encoded_headers(
    pairs: list[tuple[str, bytes | None]],
) -> tuple[tuple[bytes, bytes | None], ...]:
    """Header keys as UTF-8."""
    return tuple((key.encode(), value) for key, value in pairs)
