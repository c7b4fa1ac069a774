"""Plans: the wire format of a message class in one version; only schema.py creates them."""

from collections.abc import Callable
from typing import Any

class FieldPlan:
    """The wire format of one field in one version."""

    name: str
    where: str
    kind: int
    element: int
    nullable: bool
    compact: bool
    child: Plan | None
    default: Any
    factory: Callable[[], Any] | None
    tagged: bool
    tag: int
    min_size: int
    element_min_size: int

    def __init__(
        self,
        name: str,
        where: str,
        kind: int,
        element: int,
        nullable: bool,
        compact: bool,
        child: Plan | None,
        default: Any,
        factory: Callable[[], Any] | None,
        tag: int,
    ) -> None: ...

class Plan:
    """One message class in one version."""

    cls: type
    version: int
    flexible: bool
    fields: list[FieldPlan]
    tagged: list[FieldPlan]
    absent: list[FieldPlan]
    strict: list[FieldPlan]
    min_size: int
    has_arrays: bool
    tagged_arrays: bool

    def __init__(
        self,
        cls: type,
        version: int,
        flexible: bool,
        fields: list[FieldPlan],
        tagged: list[FieldPlan],
        absent: list[FieldPlan],
        strict: list[FieldPlan],
    ) -> None: ...

def initialize(message: Any, fields: list[FieldPlan], values: dict[str, Any]) -> None:
    """Set every field of a new message to its value in values, or to its default.

    Unknown names raise TypeError.
    """

def same_fields(left: Any, right: Any, names: tuple[str, ...]) -> bool:
    """Whether two messages of one class have equal fields, including unknown tags."""
