"""Acknowledgements in ranges: each offset gets its own type, and no other offset does."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.clients.core.share.acknowledgements import (
    GAP,
    AcknowledgementRange,
    AcknowledgeType,
    acknowledge_type,
    ranges,
    spans,
)

TYPES = st.sampled_from([GAP, *AcknowledgeType])


def expanded(found: list[AcknowledgementRange]) -> list[tuple[int, int]]:
    """How a broker reads ranges: a single type is for all offsets of a range."""
    rows = []
    for each in found:
        count = each.last_offset - each.first_offset + 1
        types = each.types * count if len(each.types) == 1 else each.types
        assert len(types) == count
        rows += list(zip(range(each.first_offset, each.last_offset + 1), types, strict=True))
    return rows


@given(st.dictionaries(st.integers(0, 60), TYPES))
def test_ranges_say_of_each_offset_its_type_once_and_in_order(types: dict[int, int]) -> None:
    found = ranges(types)
    assert expanded(found) == sorted(types.items())
    for one, other in itertools.pairwise(found):
        assert one.last_offset + 1 < other.first_offset, "neighbours belong to one range"


def test_a_run_of_one_type_names_it_once() -> None:
    accept, reject = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT
    types = {5: accept, 6: accept, 7: accept, 9: accept, 10: GAP, 11: reject}
    assert ranges(types) == [
        AcknowledgementRange(5, 7, (1,)),
        AcknowledgementRange(9, 11, (1, 0, 3)),
    ]


@given(st.sets(st.integers(0, 60)))
def test_spans_are_the_offsets(offsets: set[int]) -> None:
    found = list(spans(offsets))
    assert [o for first, last in found for o in range(first, last + 1)] == sorted(offsets)


def test_a_type_is_named_or_given() -> None:
    assert acknowledge_type("Release") is AcknowledgeType.RELEASE
    assert acknowledge_type(AcknowledgeType.RENEW) is AcknowledgeType.RENEW
    with pytest.raises(ValueError, match="'skip' is not an acknowledgement: use one of accept,"):
        acknowledge_type("skip")
