"""The widest possible requests, from their schemas: one array has as many elements as fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from kstore._fast.protocol.plan import FieldPlan, Plan
from kstore.protocol.registry import APIS
from kstore.protocol.schema import Message

Path = tuple[str, ...]
"""The names of the fields from a request down to one of its arrays."""
LEGAL = {
    "resource_type": 2, "resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3,
    "permission_type": 3,
}  # fmt: skip
"""What closes the connection where it has its default."""
FIXED = {
    "timeout_ms": 1, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10, "group_id": "g",
    "transactional_id": None, "generation_id_or_member_epoch": -1,
}  # fmt: skip
"""What keeps a request from waiting, or from asking for more than its rows."""
LARGEST = {0: 2, 1: 1 << 7, 2: 1 << 15}
STRING, UUID_KIND, BYTES, STRUCT, ARRAY = 9, 8, 10, 12, 13


def array_paths(api_key: int, version: int) -> list[Path]:
    """Every array of a request of this version."""
    return list(_paths(APIS[api_key].request.plan_for(version)))


def _paths(plan: Plan) -> Iterator[Path]:
    for field in (*plan.fields, *plan.tagged):
        if field.kind == ARRAY:
            yield (field.name,)
        if field.child is not None:
            for path in _paths(field.child):
                yield (field.name, *path)


def wide_request(
    api_key: int, version: int, path: Path, size: int, *, distinct: bool = True, **fixed: Any
) -> Message:
    """A request whose array at the path has about so many bytes; others have one element each."""
    cls = APIS[api_key].request
    plan = cls.plan_for(version)
    nullable = {field.name: field.nullable for field in plan.fields}

    def build(count: int) -> Message:
        request = _filled(plan, path, count, distinct)
        for name, value in fixed.items():
            known = name in nullable and name != path[0]
            if known and (value is not None or nullable[name]):
                setattr(request, name, value)
        return request  # type: ignore[no-any-return]

    sample = 100
    each = (len(build(sample).encode(version)) - len(build(1).encode(version))) / (sample - 1)
    return build(int(size / each))


def elements(message: Any) -> int:
    """Of all arrays together."""
    count = 0
    for name in type(message).SPECS:
        value = getattr(message, name)
        if isinstance(value, list):
            count += len(value) + sum(elements(e) for e in value if hasattr(type(e), "SPECS"))
        elif hasattr(type(value), "SPECS"):
            count += elements(value)
    return count


def _filled(plan: Plan, path: Path, count: int, distinct: bool, number: int = 0) -> Any:
    message = plan.cls()
    for field in plan.fields:
        if field.name == (path[0] if path else None):
            continue
        if field.name in LEGAL:
            setattr(message, field.name, LEGAL[field.name])
        elif distinct and field.kind != ARRAY:
            setattr(message, field.name, _value(field, field.kind, number))
    if path:
        field = next(one for one in (*plan.fields, *plan.tagged) if one.name == path[0])
        if field.kind == STRUCT:
            assert field.child is not None
            setattr(message, field.name, _filled(field.child, path[1:], count, distinct))
        elif len(path) > 1:
            assert field.child is not None
            setattr(message, field.name, [_filled(field.child, path[1:], count, distinct)])
        else:
            rows = [_element(field, index, distinct) for index in range(count)]
            setattr(message, field.name, rows)
    return message


def _element(field: FieldPlan, index: int, distinct: bool) -> Any:
    if field.element == STRUCT:
        assert field.child is not None
        return _filled(field.child, (), 0, distinct, index)
    return _value(field, field.element, index if distinct else 0, small=not distinct)


def _value(field: FieldPlan, kind: int, number: int, *, small: bool = False) -> Any:
    if kind == STRING:
        return "" if small else f"n{number}"
    if kind == UUID_KIND:
        return UUID(int=number)
    if kind == BYTES:
        return b""
    if kind == STRUCT:
        assert field.child is not None
        return None if field.nullable else _filled(field.child, (), 0, not small, number)
    if field.name.endswith(("index", "partition", "partitions")) or field.element:
        return number % LARGEST.get(kind, 1 << 31)
    return field.default if field.default is not None else 0
