"""Distributions: what they count, and what of it is of the last minutes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.distribution import Distribution, quantile_of


@given(st.lists(st.integers(0, 2**50), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_in_the_bucket_of_the_value_that_it_stands_for(
    values: list[int], quantile: float
) -> None:
    seen = Distribution()
    for value in values:
        seen.record(value)
    assert (seen.count, seen.total) == (len(values), sum(values))
    exact = sorted(values)[math.ceil(quantile * len(values)) - 1]
    low, high = (1 << exact.bit_length() >> 1 if exact else 0), 1 << exact.bit_length()
    if exact.bit_length() < len(seen.buckets) - 1:
        assert low <= quantile_of(seen.buckets, quantile) <= high


def test_nothing_has_no_quantile() -> None:
    lately = Distribution().lately(1.0)
    assert math.isnan(quantile_of(lately.buckets, 0.5))
    assert (lately.seen, lately.mean, lately.largest) == (0, 0.0, 0)


def test_lately_is_the_window_before_and_this_one() -> None:
    seen = Distribution()
    seen.record(1000)
    assert seen.lately(0.0).seen == 1  # the first look shows all that was before it
    seen.record(8)
    assert seen.lately(59.0)[:3] == (2, 1008, 1000)
    seen.lately(60.0)
    seen.record(4)
    assert seen.lately(61.0)[:3] == (3, 1012, 1000)
    seen.lately(120.0)
    lately = seen.lately(121.0)
    assert (lately.seen, lately.total, lately.largest) == (1, 4, 4)
    assert lately.seconds == pytest.approx(61.0)
    seen.lately(200.0)
    assert seen.lately(300.0).seen == 0
    assert seen.count == 3


def test_what_came_before_the_first_look_makes_no_rate() -> None:
    seen = Distribution()
    for _ in range(1000):
        seen.record(1)
    assert seen.lately(0.0).per_second == 0.0
    seen.record(1)
    assert seen.lately(10.0).per_second == pytest.approx(0.1)
    seen.record(1)
    assert seen.lately(70.0).per_second == pytest.approx(2 / 70)
    assert seen.lately(140.0).per_second == 0.0
