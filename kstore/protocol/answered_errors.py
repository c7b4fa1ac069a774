"""Finds the errors in a response: at its top and in its rows.

Kafka counts the same for its metric ErrorsPerSec. Only the fields to check are cached, by class and
version.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, Protocol

from kstore._fast.protocol.plan import FieldPlan, Plan
from kstore.protocol.schema import KIND_ARRAY, KINDS, Message

__all__ = ["counting", "error_counts"]

INT16 = KINDS["Int16"]
SUFFIX = "error_code"
"""Also partition_error_code, of AddPartitionsToTxn."""
ROWS_BETWEEN = 1000
"""The number of rows between two points where other tasks may run."""


class _Fields(NamedTuple):
    """Fields with error codes, and fields with structures that contain some: whether lists or
    single ones.
    """

    codes: tuple[str, ...]
    inside: tuple[tuple[str, bool, _Fields], ...]


_known: dict[Plan, _Fields | None] = {}


class Counted(Protocol):
    """A response without fields."""

    def error_counts(self) -> dict[int, int] | None:
        """What `error_counts` returns for it."""


def error_counts(response: Message | Counted, version: int) -> dict[int, int] | None:
    """The number of occurrences of each error code other than 0; None if there is none."""
    if isinstance(response, Message):
        fields = _fields(response, version)
        if fields is None:
            return None
        if not fields.inside:
            if not any(getattr(response, name) for name in fields.codes):
                return None
            found: dict[int, int] = {}
            _count_codes(response, fields.codes, found)
            return found
    steps = counting(response, version)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            counts: dict[int, int] | None = done.value
            return counts


def counting(
    response: Message | Counted, version: int
) -> Generator[None, None, dict[int, int] | None]:
    """As `error_counts`, in steps: a response may have a row for each of 100,000 partitions."""
    if not isinstance(response, Message):
        return response.error_counts()
    fields = _fields(response, version)
    if fields is None:
        return None
    found: dict[int, int] = {}
    _count_codes(response, fields.codes, found)
    yield from _count_inside(response, fields, found)
    return found or None


def _fields(response: Message, version: int) -> _Fields | None:
    plan = response.plan_for(version)
    try:
        return _known[plan]
    except KeyError:
        fields = _known[plan] = _fields_of(plan)
        return fields


def _count_codes(struct: Any, codes: tuple[str, ...], found: dict[int, int]) -> None:
    for name in codes:
        if code := getattr(struct, name):
            found[code] = found.get(code, 0) + 1


def _count_inside(
    struct: Any, fields: _Fields, found: dict[int, int]
) -> Generator[None, None, None]:
    for name, is_array, inner in fields.inside:
        value = getattr(struct, name)
        rows = () if value is None else value if is_array else (value,)
        for number, row in enumerate(rows, 1):
            _count_codes(row, inner.codes, found)
            if inner.inside:
                yield from _count_inside(row, inner, found)
            if number % ROWS_BETWEEN == 0:
                yield
    if fields.inside:
        yield


def _fields_of(plan: Plan) -> _Fields | None:
    """The error fields of a structure; None if it has none."""
    all_fields: list[FieldPlan] = [*plan.fields, *plan.tagged]
    codes = tuple(
        each.name for each in all_fields if each.kind == INT16 and each.name.endswith(SUFFIX)
    )
    inside = tuple(
        (each.name, each.kind == KIND_ARRAY, fields)
        for each in all_fields
        if each.child is not None and (fields := _fields_of(each.child)) is not None
    )
    return _Fields(codes, inside) if codes or inside else None
