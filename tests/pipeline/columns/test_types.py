"""Types of columns: their types in Iceberg, the way back, and how a column grows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.pipeline.columns.types import (
    ColumnTypeError,
    arrow_type,
    check_type,
    iceberg_type,
    merged,
)

SIMPLE = [
    pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.decimal128(10, 2),
]  # fmt: skip
WIDER = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}


def of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "b", "c", "d"])
    return st.one_of(
        st.dictionaries(names, inner, min_size=1).map(lambda found: pa.struct(list(found.items()))),
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    )


types = st.recursive(st.sampled_from(SIMPLE), of, max_leaves=8)


@given(types)
def test_a_type_survives_iceberg_and_does_not_grow_by_itself(kind: Any) -> None:
    assert arrow_type(iceberg_type(kind)) == kind
    assert merged(kind, kind) == kind
    check_type(kind)


@given(types, types, types)
def test_growth_keeps_every_field_and_ends(first: Any, second: Any, third: Any) -> None:
    try:
        grown = merged(merged(first, second), third)
    except ColumnTypeError:
        return
    for each in (first, second, third):
        assert merged(grown, each) == grown  # it already has all of this type
        assert holds(grown, each)


def holds(grown: Any, kind: Any) -> bool:
    """Whether each field of `kind` is in `grown`, in a type that takes its values."""
    if pa.types.is_struct(kind):
        fields = {field.name: field.type for field in grown}
        return all(holds(fields[field.name], field.type) for field in kind)
    if pa.types.is_list(kind):
        return holds(grown.value_type, kind.value_type)
    if pa.types.is_map(kind):
        return holds(grown.item_type, kind.item_type)
    return bool(grown in (kind, WIDER.get(kind)))


def test_fields_are_added_at_the_end_and_numbers_become_wider() -> None:
    old = pa.struct([("id", pa.int32()), ("gone", pa.string())])
    new = pa.struct([("more", pa.bool_()), ("id", pa.int64())])
    wanted = pa.struct([("id", pa.int64()), ("gone", pa.string()), ("more", pa.bool_())])
    assert merged(old, new) == wanted
    assert merged(pa.decimal128(5, 2), pa.decimal128(9, 2)) == pa.decimal128(9, 2)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (pa.string(), pa.int64(), "value.x is string in the table, and long in a schema"),
        (pa.int64(), pa.float64(), "value.x is long in the table, and double in a schema"),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), r"value.x is decimal\(5, 2\) in the table"),
        (pa.list_(pa.int32()), pa.int32(), "value.x is a list in the table, and int in a schema"),
        (
            pa.list_(pa.struct([("y", pa.date32())])), pa.list_(pa.struct([("y", pa.string())])),
            r"value.x\[\].y is date in the table",
        ),
    ],
)  # fmt: skip
def test_another_type_is_refused_with_its_place(old: Any, new: Any, said: str) -> None:
    with pytest.raises(ColumnTypeError, match=said):
        merged(pa.struct([("x", old)]), pa.struct([("x", new)]))


def test_what_a_file_cannot_hold() -> None:
    with pytest.raises(ColumnTypeError, match=r"value.a is a record without fields"):
        check_type(pa.struct([("a", pa.struct([]))]))
    with pytest.raises(ColumnTypeError, match="Id and id, which differ"):
        check_type(pa.list_(pa.struct([("Id", pa.int32()), ("id", pa.int32())])))
    with pytest.raises(ColumnTypeError, match="type uuid is not a type that kstore writes"):
        arrow_type("uuid")
