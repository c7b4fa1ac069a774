"""Pushed down filters return exactly the rows that match them."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kstore.pipeline.filters import Conditions

COMPARED = [EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
UTC = datetime.UTC
TESTS: dict[type[Filter], Any] = {
    EqualTo: lambda found, value: found == value,
    GreaterThan: lambda found, value: found > value,
    GreaterThanOrEqual: lambda found, value: found >= value,
    LessThan: lambda found, value: found < value,
    LessThanOrEqual: lambda found, value: found <= value,
    In: lambda found, value: found in value,
}


def moment(seconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, UTC)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column, values = draw(
        st.sampled_from(
            [
                ("partition", st.integers(-1, 3)),
                ("offset", st.integers(-1, 12)),
                ("timestamp", st.integers(0, 12).map(moment)),
            ]
        )
    )
    if draw(st.booleans()):
        found = In((column,), tuple(draw(st.lists(values, min_size=1, max_size=3))))
    else:
        found = draw(st.sampled_from(COMPARED))((column,), draw(values))
    return Not(found) if draw(st.booleans()) else found


def lets_through(each: Filter, row: dict[str, Any]) -> bool:
    if isinstance(each, Not):
        return not lets_through(each.child, row)
    return TESTS[type(each)](row[each.attribute[0]], each.value)  # type: ignore[attr-defined]


@given(st.lists(filters(), max_size=4))
def test_what_is_read_is_what_the_filters_let_through(given_filters: list[Filter]) -> None:
    conditions = Conditions()
    assert list(conditions.push(given_filters)) == []
    # The timestamps sometimes go backwards, as the clocks of producers do.
    rows = [
        {"partition": partition, "offset": offset, "timestamp": moment((offset * 7) % 11)}
        for partition in range(3)
        for offset in range(10)
    ]
    expected = [row for row in rows if all(lets_through(each, row) for each in given_filters)]
    found: list[dict[str, Any]] = []
    for partition in range(3):
        if not conditions.reads("t", partition):
            continue
        start, end = conditions.clipped(0, 10)
        kept = [row for row in rows if row["partition"] == partition][start:end]
        earliest = conditions.earliest_ms
        if earliest is not None:  # as ListOffsets finds it
            late = [row["timestamp"].timestamp() * 1000 >= earliest for row in kept]
            kept = kept[late.index(True) :] if True in late else []
        schema = pa.schema(
            [
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("us", "UTC")),
            ]
        )
        found += conditions.filtered(pa.RecordBatch.from_pylist(kept, schema=schema)).to_pylist()
    assert found == expected


def test_filters_on_other_columns_and_with_nulls_stay_with_spark() -> None:
    kept = [
        EqualTo(("value",), b"x"),
        IsNull(("key",)),
        EqualTo(("offset",), None),
        In(("partition",), (1, None)),
        IsNotNull(("value",)),
    ]
    assert list(Conditions().push([*kept, IsNotNull(("offset",))])) == kept


def test_topics_are_chosen_by_name() -> None:
    conditions = Conditions()
    assert list(conditions.push([StringStartsWith(("topic",), "a")])) == []
    assert conditions.reads("ab", 0)
    assert not conditions.reads("ba", 0)
