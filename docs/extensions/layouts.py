"""How a message looks on the wire: its layout in words, and a message in bytes with the meaning of
each. Only flexible versions, since only they have tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from kstore.protocol.headers import RequestHeader
from kstore.protocol.schema import FieldSpec, Message, Struct, field_type, parse_versions

__all__ = ["Line", "header_lines", "hex_lines", "layout", "lines"]

NUMBERS = {0: ("bool", 1), 1: ("int8", 1), 2: ("int16", 2), 4: ("int32", 4), 6: ("int64", 8)}
"""A field's kind to the page's name of it and its size; kinds as in kstore.protocol.schema."""
OTHERS = {8: "uuid", 9: "string", 10: "bytes", 11: "records", 12: "struct", 13: "array"}
STRUCT, ARRAY = 12, 13
BYTES_OF_A_LINE = 16
INDENT = "  "


class Line(NamedTuple):
    """Some bytes and what they are."""

    data: bytes
    depth: int
    text: str


def _wire_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _has(versions: str, version: int) -> bool:
    low, high = parse_versions(versions)
    return low <= version <= high


def _fields(
    cls: type[Struct], version: int
) -> tuple[list[tuple[str, FieldSpec]], list[tuple[str, FieldSpec]]]:
    """The untagged fields in order, and the tagged ones by tag."""
    plain, tagged = [], []
    for name, spec in cls.SPECS.items():
        if not _has(spec.versions, version):
            continue
        is_tagged = spec.tag >= 0 and _has(spec.tagged or spec.versions, version)
        (tagged if is_tagged else plain).append((name, spec))
    return plain, sorted(tagged, key=lambda row: row[1].tag)


def _type(cls: type[Struct], name: str, version: int) -> tuple[str, type[Struct] | None]:
    """The page's name of a field's type, and the struct that stands below it."""
    spec = cls.SPECS[name]
    kind, element, struct = field_type(cls, name)
    words = NUMBERS[kind][0] if kind in NUMBERS else OTHERS[kind]
    if kind == ARRAY and struct is None:
        words += f" of {NUMBERS[element][0] if element in NUMBERS else OTHERS[element]}"
    if not spec.flexible:
        words = "int16 " + words
    if _has(spec.nullable, version):
        words = "nullable " + words
    return words, struct


def layout(cls: type[Message], version: int) -> str:
    """The layout of a version, one line for each field; what belongs to a field is below it."""
    rows = [f"{cls.__name__}, version {version}", *_layout(cls, version, 1)]
    return "\n".join(rows)


def _layout(cls: type[Struct], version: int, depth: int) -> Iterator[str]:
    plain, tagged = _fields(cls, version)
    for name, _ in plain:
        words, struct = _type(cls, name, version)
        yield f"{INDENT * depth + _wire_name(name):<40}{words}"
        if struct is not None:
            yield from _layout(struct, version, depth + 1)
    yield f"{INDENT * depth}tags"
    for name, spec in tagged:
        words, struct = _type(cls, name, version)
        yield f"{INDENT * (depth + 1) + f'{spec.tag} {_wire_name(name)}':<40}{words}"
        if struct is not None:
            yield from _layout(struct, version, depth + 2)


def lines(message: Struct, version: int) -> Iterator[Line]:
    """A message, or the header of a request, in bytes."""
    yield from _lines(message, version, 0)


def _lines(message: Struct, version: int, depth: int) -> Iterator[Line]:
    plain, tagged = _fields(type(message), version)
    for name, _ in plain:
        yield from _field(message, name, version, depth)
    present = [(name, spec) for name, spec in tagged if _is_set(message, name, spec)]
    yield Line(_varint(len(present)), depth, f"tags {len(present)}")
    for name, spec in present:
        value = list(_field(message, name, version, depth + 1))
        yield Line(_varint(spec.tag), depth + 1, f"tag {spec.tag}")
        size = sum(len(line.data) for line in value)
        yield Line(_varint(size), depth + 1, f"size {size}")
        yield from value


def _is_set(message: Struct, name: str, spec: FieldSpec) -> bool:
    default = spec.factory() if spec.factory is not None else spec.default
    return bool(getattr(message, name) != default)


def _field(message: Struct, name: str, version: int, depth: int) -> Iterator[Line]:
    cls, value = type(message), getattr(message, name)
    words, struct = _type(cls, name, version)
    label = f"{_wire_name(name)}: {words}"
    kind, element, _ = field_type(cls, name)
    if kind == STRUCT and not words.startswith("nullable"):
        yield from _lines(value, version, depth)
    elif kind == STRUCT:
        yield Line(b"\xff" if value is None else b"\x01", depth, f"{label} {_there(value)}")
        yield from () if value is None else _lines(value, version, depth + 1)
    elif kind == ARRAY:
        count = 0 if value is None else len(value) + 1
        yield Line(_varint(count), depth, f"{label} {'null' if value is None else count - 1}")
        for each in value or ():
            if struct is not None:
                yield from _lines(each, version, depth + 1)
                continue
            data, shown = _value(element, each)
            kind_of = NUMBERS[element][0] if element in NUMBERS else OTHERS[element]
            yield Line(data, depth + 1, f"{kind_of} {shown}")
    else:
        data, shown = _value(kind, value, is_compact=cls.SPECS[name].flexible)
        yield Line(data, depth, f"{label} {shown}")


def _there(value: object) -> str:
    return "null" if value is None else "present"


def _value(kind: int, value: Any, *, is_compact: bool = True) -> tuple[bytes, str]:
    if kind in NUMBERS:
        shown = str(value).lower()
        return int(value).to_bytes(NUMBERS[kind][1], signed=kind != 0), shown
    if value is None:
        return (b"\x00" if is_compact else b"\xff\xff"), "null"
    if isinstance(value, UUID):
        return value.bytes, str(value)
    if isinstance(value, str):
        data, shown = value.encode(), f'"{value}"'
    else:
        data, shown = bytes(value), f"{len(value)} bytes"
    return (_varint(len(data) + 1) if is_compact else len(data).to_bytes(2)) + data, shown


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes(found) + bytes([value])


def header_lines(api_key: int, version: int, correlation_id: int) -> Iterator[Line]:
    """A request's header of version 2."""
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id,
        client_id="t",
    )  # fmt: skip
    yield from lines(header, 2)


def hex_lines(found: Iterable[Line]) -> str:
    """Sixteen bytes a line, and behind the last ones what they all are."""
    rows = []
    for line in found:
        for at in range(0, len(line.data), BYTES_OF_A_LINE):
            part = line.data[at : at + BYTES_OF_A_LINE]
            is_last = at + BYTES_OF_A_LINE >= len(line.data)
            text = INDENT * line.depth + line.text if is_last else ""
            rows.append(f"{part.hex(' '):<50}{text}".rstrip())
    return "\n".join(rows)
