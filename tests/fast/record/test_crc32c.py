"""CRC-32C: the CPU's instructions, the table fallback and crcmod agree."""

from __future__ import annotations

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.record import crc32c
from tests.reference.record_samples import exactly

reference = crcmod.predefined.mkPredefinedCrcFun("crc-32c")


def test_the_check_value_of_the_polynomial() -> None:
    assert crc32c.checksum(b"123456789") == 0xE3069283
    assert crc32c.checksum_portable(b"123456789") == 0xE3069283
    assert crc32c.checksum(b"") == 0


def test_every_length_around_the_lane_widths() -> None:
    for size in (*range(260), 767, 768, 769, 3071, 3072, 3073, 12287, 12288, 12289, 40001):
        data = bytes((index * 131 + index // 251) & 0xFF for index in range(size))

        assert crc32c.checksum(exactly(data)) == reference(data), size
        assert crc32c.checksum_portable(exactly(data)) == reference(data), size


@given(st.binary(max_size=5000), st.integers(0, 5000), st.integers(0, 7))
def test_a_checksum_continues_where_another_ended(data: bytes, cut: int, skip: int) -> None:
    data = data[skip:]

    assert crc32c.checksum(data[cut:], crc32c.checksum(data[:cut])) == reference(data)
    assert crc32c.checksum_portable(data[cut:], crc32c.checksum(data[:cut])) == reference(data)


def test_the_choice_has_a_name() -> None:
    assert crc32c.IMPLEMENTATION in {"sse4.2+pclmul", "armv8-crc", "portable"}


def test_timing_needs_bytes_to_sum() -> None:
    assert crc32c.seconds_for(b"abc", 2) >= 0
    with pytest.raises(ValueError, match="at least one byte"):
        crc32c.seconds_for(b"", 1)
