"""Filters that Spark pushes down to a batch read: their effect on partitions, offsets and rows.

Filters on topic and partition select partitions, comparisons of offsets shorten ranges, a lower
bound on the timestamp moves the start. The remaining conditions are applied row by row in Arrow, so
that Spark need not apply them again. Spark applies filters on other columns.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

__all__ = ["Condition", "Conditions"]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_OPERATIONS: dict[type[Filter], str] = {
    EqualTo: "==",
    EqualNullSafe: "==",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
    StringStartsWith: "startswith",
    StringEndsWith: "endswith",
    StringContains: "contains",
}
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "in": lambda found, values: found in values,
    "startswith": lambda found, text: bool(found.startswith(text)),
    "endswith": lambda found, text: bool(found.endswith(text)),
    "contains": operator.contains,
}
_CONTRARY = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}
_KINDS: dict[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": int}
"""The columns that are never null, and the type that their values are compared as; timestamps in
us.
"""


class Condition(NamedTuple):
    """``column operation value``, or its negation."""

    column: str
    operation: str
    value: Any
    negated: bool = False

    def holds(self, found: Any) -> bool:
        """Whether a value of the column satisfies it."""
        return _TESTS[self.operation](found, self.value) != self.negated


class Conditions:
    """Conditions that must all hold. Executors receive it."""

    def __init__(self) -> None:
        self._conditions: list[Condition] = []

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take the filters that are supported; returns the others, for Spark."""
        for each in filters:
            if isinstance(each, IsNotNull) and each.attribute[0] in _KINDS:
                continue  # it always holds
            condition = _condition(each)
            if condition is None:
                yield each
            else:
                self._conditions.append(condition)

    def reads(self, topic: str, partition: int) -> bool:
        """Whether rows of a partition can satisfy them."""
        found = {"topic": topic, "partition": partition}
        return all(c.holds(found[c.column]) for c in self._conditions if c.column in found)

    def clipped(self, start: int, end: int) -> tuple[int, int]:
        """The part of the offsets ``start`` to below ``end`` that can satisfy them."""
        for lowest, highest in self._bounds("offset"):
            start = start if lowest is None else max(start, lowest)
            end = end if highest is None else min(end, highest + 1)
        return start, max(start, end)

    @property
    def earliest_ms(self) -> int | None:
        """No row with a lower timestamp, in ms, satisfies them."""
        lows = [low for low, _ in self._bounds("timestamp") if low is not None]
        return max(lows) // 1000 if lows else None

    def _bounds(self, column: str) -> Iterator[tuple[int | None, int | None]]:
        """The lowest and the highest value that each condition accepts."""
        for condition in self._conditions:
            if condition.column != column:
                continue
            operation, value = condition.operation, condition.value
            if condition.negated:
                operation = _CONTRARY.get(operation, "")
            match operation:
                case "==":
                    yield value, value
                case "in":
                    yield min(value, default=0), max(value, default=-1)
                case ">" | ">=":
                    yield value + (operation == ">"), None
                case "<" | "<=":
                    yield None, value - (operation == "<")

    def filtered(self, batch: Any) -> Any:
        """The rows of an Arrow batch that satisfy the conditions that ranges can't express."""
        mask = None
        for condition in self._conditions:
            if condition.column in ("topic", "partition") or _is_range(condition):
                continue
            found = _mask(batch, condition)
            mask = found if mask is None else _compute().and_(mask, found)
        return batch if mask is None else batch.filter(mask)


def _is_range(condition: Condition) -> bool:
    """Whether `clipped` has applied this condition completely."""
    if condition.column != "offset" or condition.operation == "in":
        return False
    return not (condition.negated and condition.operation == "==")


def _condition(found: Filter) -> Condition | None:
    """A filter as a condition, if its column and value are supported."""
    negated = isinstance(found, Not)
    inner = found.child if isinstance(found, Not) else found
    operation = _OPERATIONS.get(type(inner))
    column = ".".join(getattr(inner, "attribute", ()))
    if operation is None or column not in _KINDS:
        return None
    given = inner.value  # type: ignore[attr-defined]
    values = [_plain(column, each) for each in (given if operation == "in" else [given])]
    if not all(type(value) is _KINDS[column] for value in values):
        return None  # a null among them, or another type
    return Condition(column, operation, tuple(values) if operation == "in" else values[0], negated)


def _plain(column: str, value: Any) -> Any:
    """Timestamps as microseconds; other values as they are."""
    if column == "timestamp" and isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MICROSECOND
    return value


def _compute() -> Any:
    import pyarrow.compute

    return pyarrow.compute


def _mask(batch: Any, condition: Condition) -> Any:
    """Which rows of a batch satisfy a condition on an integer column."""
    import pyarrow as pa

    compute = _compute()
    column = batch.column(condition.column).cast(pa.int64())
    if condition.operation == "in":
        mask = compute.is_in(column, value_set=pa.array(condition.value, pa.int64()))
    else:
        names = {"==": "equal", ">": "greater", ">=": "greater_equal", "<": "less"}
        name = names.get(condition.operation, "less_equal")
        mask = getattr(compute, name)(column, pa.scalar(condition.value, pa.int64()))
    return compute.invert(mask) if condition.negated else mask
