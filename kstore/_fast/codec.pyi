"""Encodes and decodes Kafka protocol messages by plan; schema.py makes the plans. No message is known by name."""

from collections.abc import Callable
from typing import Any

class FieldPlan:
    """How one field stands on the wire in one version."""

    name: str
    where: str
    kind: int
    element: int
    nullable: bool
    compact: bool
    child: Plan | None
    default: Any
    factory: Callable[[], Any] | None
    tag: int
    min_size: int

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
    def decode_prefix(
        self, buffer: bytes | bytearray | memoryview, offset: int = 0
    ) -> tuple[Any, int]:
        """Decode one message at offset; return it and the offset after it. Raises ProtocolError."""

    def encode(self, message: Any) -> bytes:
        """The message's bytes. Raises ProtocolError for values that this version cannot carry."""

    def encode_frame(self, message: Any, header_plan: Plan, header: Any) -> bytes:
        """Length prefix, header and message as one buffer, ready for a socket."""

def initialize(message: Any, fields: list[FieldPlan], values: dict[str, Any]) -> None:
    """Set every field of a new message: from values, or its default. Unknown names raise TypeError."""

def same_fields(left: Any, right: Any, names: tuple[str, ...]) -> bool:
    """Whether two messages of one class have equal fields, unknown tags included."""
