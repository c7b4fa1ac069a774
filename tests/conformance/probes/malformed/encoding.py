"""A message on the wire as a tree of its parts, so that a probe can change one part and knows every
boundary between parts. The tree follows kstore's declarations, which other tests compare with
Kafka's schemas. The bytes are written here, including those that no encoder would write.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any

from kstore._fast.protocol.plan import FieldPlan, Plan
from kstore.protocol.schema import KIND_ARRAY, KIND_STRUCT, KINDS, Message
from tests.reference.record_batch import uvarint

_NAMES = {number: name for name, number in KINDS.items()}
_FORMATS = {
    "Bool": ">?", "Int8": ">b", "Int16": ">h", "UInt16": ">H", "Int32": ">i", "UInt32": ">I",
    "Int64": ">q", "Float64": ">d",
}  # fmt: skip
# kstore's own tagged fields begin at this number; Kafka does not know them.
_OWN_TAGS = 10_000


class Part:
    """A field, its length prefix, or an element: its own bytes, then its children."""

    def __init__(self, path: str, kind: str, data: bytes = b"") -> None:
        self.path = path
        self.kind = kind  # Kafka's type; Array, Struct, Tags, Tag; for a length: Size
        self.data = data
        self.children: list[Part] = []
        self.compact = False

    def to_bytes(self) -> bytes:
        """The bytes of the part; the size of a tagged field is that of its content."""
        content = b"".join(child.to_bytes() for child in self.children)
        if self.kind == "Tag":
            return self.data + uvarint(len(content)) + content
        return self.data + content

    def walk(self) -> Iterator[Part]:
        """This part and all its descendants, in wire order."""
        yield self
        for child in self.children:
            yield from child.walk()


def size_of(length: int, *, compact: bool, wide: bool) -> bytes:
    """A length (-1: null) as an unsigned varint of length + 1, or as an int16 or int32."""
    if compact:
        return uvarint(length + 1)
    return struct.pack(">i" if wide else ">h", length)


def tree(message: Message, version: int) -> Part:
    """The body of a message. All tagged fields of Kafka are written, also those with default
    values.
    """
    plan = message.plan_for(version)
    root = Part("", "Struct")
    root.children = _fields(plan, message, "")
    return root


def _fields(plan: Plan, value: Any, path: str) -> list[Part]:
    parts = [_field(field, getattr(value, field.name), path) for field in plan.fields]
    if plan.flexible:
        tags = Part(f"{path}.tags".lstrip("."), "Tags")
        known = [field for field in plan.tagged if field.tag < _OWN_TAGS]
        tags.data = uvarint(len(known))
        for field in known:
            tag = Part(f"{path}.{field.name}:tag".lstrip("."), "Tag", uvarint(field.tag))
            tag.children = [_field(field, getattr(value, field.name), path)]
            tags.children.append(tag)
        parts.append(tags)
    return parts


def _field(field: FieldPlan, value: Any, path: str) -> Part:
    here = f"{path}.{field.name}".lstrip(".")
    if field.kind != KIND_ARRAY:
        return _value(field.kind, field, value, here)
    part = Part(here, "Array")
    part.compact = field.compact
    part.data = size_of(-1 if value is None else len(value), compact=field.compact, wide=True)
    for index, item in enumerate(value or ()):
        part.children.append(_value(field.element, field, item, f"{here}[{index}]"))
    return part


def _value(kind: int, field: FieldPlan, value: Any, path: str) -> Part:
    if kind == KIND_STRUCT:
        part = Part(path, "Struct")
        if field.nullable and field.kind == KIND_STRUCT:  # a nullable struct has a presence byte
            part.data = b"\xff" if value is None else b"\x01"
        if value is not None:
            assert field.child is not None
            part.children = _fields(field.child, value, path)
        return part
    name = _NAMES[kind]
    part = Part(path, name)
    if name in _FORMATS:
        part.data = struct.pack(_FORMATS[name], value)
    elif name == "Uuid":
        assert isinstance(value, uuid.UUID)
        part.data = value.bytes
    else:
        part.compact = field.compact
        data = value.encode() if isinstance(value, str) else value
        length = -1 if data is None else len(data)
        part.data = size_of(length, compact=field.compact, wide=name != "String")
        if data:
            part.children = [Part(f"{path}:content", "Content", bytes(data))]
    return part


def borders(root: Part) -> dict[int, str]:
    """The parts by their offset in the body: offset to path, the last part at each."""
    found: dict[int, str] = {}
    offset = 0
    for part in root.walk():
        found[offset] = part.path
        offset += len(part.data)
        if part.kind == "Tag":
            offset += len(uvarint(len(part.children[0].to_bytes())))
    found.pop(0, None)
    return found
