"""The cache for clients' keys: never too many bytes; the least recently used go first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.bounded_cache import BoundedCache, text_bytes

KEYS = st.integers(0, 9)


@given(st.lists(st.tuples(KEYS, st.integers(0, 60))))
def test_it_is_the_last_entries_that_have_room(steps: list[tuple[int, int]]) -> None:
    cache: BoundedCache[int, int] = BoundedCache(100)
    model: list[tuple[int, int]] = []  # by use, oldest first
    for key, size in steps:
        if size < 10:
            found = [row for row in model if row[0] == key]
            assert cache.get(key) == (found[0][1] if found else None)
            model = [row for row in model if row[0] != key] + found
        else:
            cache.put(key, size, size)
            model = [*(row for row in model if row[0] != key), (key, size)]
            while sum(row[1] for row in model) > 100:
                model.pop(0)
        assert cache.bytes == sum(row[1] for row in model) <= 100
        assert len(cache) == len(model)
        assert all(key in cache for key, _ in model)
    cache.clear()
    assert (len(cache), cache.bytes) == (0, 0)


def test_what_is_larger_than_all_is_not_remembered() -> None:
    cache: BoundedCache[str, int] = BoundedCache(100)
    cache.put("a", 1, 100)
    cache.put("b", 2, 101)
    assert (cache.get("a"), cache.get("b")) == (1, None)
    cache.put("a", 3, 101)
    assert (len(cache), cache.bytes) == (0, 0)


def test_a_text_with_one_wide_character_is_wide_as_a_whole() -> None:
    assert text_bytes("a" * 1000) == 1064
    assert text_bytes("a" * 999 + "\U0001f600") == 4064
    assert text_bytes(None) == 0
