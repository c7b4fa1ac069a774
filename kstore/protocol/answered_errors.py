"""Which errors a response has, wherever its fields say so: at its top and in its rows.

Kafka counts the same for its metric ErrorsPerSec. Nothing is kept here but, by class and version,
which fields to look at.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, Protocol

from kstore._fast.protocol.plan import FieldPlan, Plan
from kstore.protocol.schema import KIND_ARRAY, KIND_STRUCT, KINDS, Message

__all__ = ["counting", "error_counts"]

INT16 = KINDS["Int16"]
SUFFIX = "error_code"
"""Also partition_error_code, of AddPartitionsToTxn."""
ROWS_BETWEEN = 1000
"""Rows between two places where others may have their turn."""


class _Fields(NamedTuple):
    """Fields with errors, or with structures that have some."""

    codes: tuple[str, ...]
    structs: tuple[tuple[str, _Fields], ...]
    rows: tuple[tuple[str, _Fields], ...]


_known: dict[Plan, _Fields | None] = {}


class Counted(Protocol):
    """A response that is not made of fields."""

    def error_counts(self) -> dict[int, int] | None:
        """What `error_counts` returns for it."""


def error_counts(response: Message | Counted, version: int) -> dict[int, int] | None:
    """How often a response has which error code other than 0; None where it has none."""
    if not isinstance(response, Message):
        return response.error_counts()
    fields = _fields(response, version)
    if fields is None:
        return None
    found: dict[int, int] = {}
    _count(response, fields, found)
    return found or None


def counting(
    response: Message | Counted, version: int
) -> Generator[None, None, dict[int, int] | None]:
    """As `error_counts`, in steps: an answer may have a row for each of 100,000 partitions."""
    if not isinstance(response, Message):
        return response.error_counts()
    fields = _fields(response, version)
    if fields is None:
        return None
    found: dict[int, int] = {}
    yield from _counting(response, fields, found)
    return found or None


def _fields(response: Message, version: int) -> _Fields | None:
    plan = response.plan_for(version)
    try:
        return _known[plan]
    except KeyError:
        fields = _known[plan] = _fields_of(plan)
        return fields


def _count(struct: Any, fields: _Fields, found: dict[int, int]) -> None:
    _count_own(struct, fields, found)
    for name, inner in fields.rows:
        for row in getattr(struct, name) or ():
            _count(row, inner, found)


def _count_own(struct: Any, fields: _Fields, found: dict[int, int]) -> None:
    """All but its rows."""
    for name in fields.codes:
        if code := getattr(struct, name):
            found[code] = found.get(code, 0) + 1
    for name, inner in fields.structs:
        if (value := getattr(struct, name)) is not None:
            _count(value, inner, found)


def _counting(struct: Any, fields: _Fields, found: dict[int, int]) -> Generator[None, None, None]:
    _count_own(struct, fields, found)
    for name, inner in fields.rows:
        for number, row in enumerate(getattr(struct, name) or (), 1):
            if inner.rows:
                yield from _counting(row, inner, found)
            else:
                _count(row, inner, found)
            if number % ROWS_BETWEEN == 0:
                yield
    if fields.rows:
        yield


def _fields_of(plan: Plan) -> _Fields | None:
    """Where errors are in a structure; None: nowhere."""
    all_fields: list[FieldPlan] = [*plan.fields, *plan.tagged]
    codes = tuple(
        each.name for each in all_fields if each.kind == INT16 and each.name.endswith(SUFFIX)
    )
    inside: dict[int, list[tuple[str, _Fields]]] = {KIND_STRUCT: [], KIND_ARRAY: []}
    for each in all_fields:
        if each.child is not None and (fields := _fields_of(each.child)) is not None:
            inside[each.kind].append((each.name, fields))
    if not codes and not any(inside.values()):
        return None
    return _Fields(codes, tuple(inside[KIND_STRUCT]), tuple(inside[KIND_ARRAY]))
