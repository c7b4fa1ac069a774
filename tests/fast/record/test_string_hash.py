"""Java's String.hashCode, against its definition; UTF-16 units count, surrogates too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.record.murmur2 import string_hash


def plain(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (code * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


@given(st.text(st.characters(), max_size=300))
def test_it_is_javas(text: str) -> None:
    assert string_hash(text) == plain(text)


def test_known_ones_and_what_is_no_text() -> None:
    assert string_hash("") == 0
    assert string_hash("hello") == 99162322
    assert string_hash("polygenelubricants") == -(1 << 31)
    wrong: list[Any] = [None, b"a"]
    for each in wrong:
        with pytest.raises(TypeError):
            string_hash(each)
