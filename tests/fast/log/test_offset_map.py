"""The cleaner's map: what it stores, its bound, and the hash under it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.log.offset_map import OffsetMap

SEED = bytes(range(16))

# Input 00, 01, .. of this length under the key 00..0f; from OpenSSL's SIPHASH with size 16.
SIPHASH_128 = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
}


def test_a_stored_key_is_found_with_its_last_offset() -> None:
    found = OffsetMap(4096, SEED)
    assert found.put(b"a", 1)
    assert found.put(b"a", 7)
    assert (found.get(b"a"), found.get(b"b"), len(found)) == (7, -1, 1)


def test_an_empty_key_is_a_key() -> None:
    found = OffsetMap(4096, SEED)
    assert found.put(b"", 3)
    assert found.get(b"") == 3


def test_a_full_map_refuses_new_keys_and_still_moves_known_ones() -> None:
    found = OffsetMap(24 * 100, SEED)
    stored = [i for i in range(200) if found.put(b"%d" % i, i)]
    assert stored == list(range(90))
    assert found.put(b"5", 1000)
    assert (found.get(b"5"), found.get(b"150"), found.size_bytes) == (1000, -1, 2400)


def test_a_map_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="give the map room for at least 16"):
        OffsetMap(100, SEED)


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 2**62))))
def test_it_is_a_dict_from_key_to_offset(entries: list[tuple[bytes, int]]) -> None:
    found = OffsetMap(1 << 20, SEED)
    expected: dict[bytes, int] = {}
    for key, offset in entries:
        assert found.put(key, offset)
        expected[key] = offset
    assert {key: found.get(key) for key in expected} == expected
    assert len(found) == len(expected)


def test_growth_keeps_every_key() -> None:
    found = OffsetMap(10 << 20, SEED)
    for i in range(50_000):
        found.put(b"key-%d" % i, i)
    assert found.capacity < found.max_capacity
    assert all(found.get(b"key-%d" % i) == i for i in range(50_000))


@pytest.mark.parametrize("size", SIPHASH_128)
def test_the_hash_is_siphash_2_4_128(size: int) -> None:
    assert OffsetMap(4096, SEED).hash(bytes(range(size))).hex() == SIPHASH_128[size]
