"""Pauses between tries, and the age at which metadata is fetched again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kstore.clients.core.backoff import pause_ms, refresh_age_ms

CHANCE = st.floats(0, 1, exclude_max=True)


@given(st.integers(1, 10_000), st.integers(0, 5_000), st.integers(0, 60_000), CHANCE)
def test_pauses_double_up_to_the_limit_within_a_fifth(
    failures: int, first: int, most: int, chance: float
) -> None:
    middle = pause_ms(failures, first, most, 0.5)
    assert middle == min(first * 2 ** min(failures - 1, 30), max(first, most))
    assert 0.8 * middle <= pause_ms(failures, first, most, chance) <= 1.2 * middle
    assert pause_ms(failures, first, most, 0) == 0.8 * middle


def test_kafkas_defaults() -> None:
    assert [pause_ms(n, 100, 1000, 0.5) for n in range(1, 7)] == [100, 200, 400, 800, 1000, 1000]


@given(st.integers(0, 10**9), CHANCE)
def test_metadata_is_never_older_than_its_greatest_age(max_age: int, chance: float) -> None:
    """KIP-359: and clients that began together don't go on together."""
    assert 0.8 * max_age <= refresh_age_ms(max_age, chance) <= max_age
    if max_age:
        assert refresh_age_ms(max_age, 0.1) != refresh_age_ms(max_age, 0.9)
