"""A slow decoder of Kafka's messages from Kafka's own JSON schemas. It uses nothing of kstore, and
refuses what a schema does not have: unknown tagged fields, and bytes after the end.
"""

from __future__ import annotations

import struct
from typing import Any

NUMBERS = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q",
           "uint32": "I", "float64": "d"}  # fmt: skip


class NotKafkasError(ValueError):
    """The bytes are not what the schema says."""


def decode_message(schema: dict[str, Any], version: int, data: bytes) -> dict[str, Any]:
    """The fields of a message's body by name."""
    reader = _Reader(schema, version, data)
    found = reader.struct(schema["fields"])
    if reader.at != len(data):
        raise NotKafkasError(f"{len(data) - reader.at} bytes are left of {schema['name']}")
    return found


def has(versions: str | None, version: int) -> bool:
    """Whether a range of Kafka's schema language ("3+", "0-4", "none") has a version."""
    if versions in (None, "none", ""):
        return False
    low, _, high = versions.removesuffix("+").partition("-")
    return int(low) <= version and (versions.endswith("+") or version <= int(high or low))


class _Reader:
    def __init__(self, schema: dict[str, Any], version: int, data: bytes) -> None:
        self.at = 0
        self._data = data
        self._version = version
        self._flexible = has(schema["flexibleVersions"], version)
        self._commons = {each["name"]: each["fields"] for each in schema.get("commonStructs", ())}

    def struct(self, fields: list[dict[str, Any]]) -> dict[str, Any]:
        found, tagged = {}, {}
        for field in fields:
            if "tag" in field and has(field["taggedVersions"], self._version):
                tagged[field["tag"]] = field
            elif has(field["versions"], self._version):
                found[field["name"]] = self._value(field, self._kind(field))
        for _ in range(self._varint() if self._flexible else 0):
            tag, end = self._varint(), self._varint() + self.at
            if tag not in tagged:
                raise NotKafkasError(f"tag {tag} is unknown")
            found[tagged[tag]["name"]] = self._value(tagged[tag], self._kind(tagged[tag]))
            if self.at != end:
                raise NotKafkasError(f"tag {tag} does not end where it says")
        return found

    @staticmethod
    def _kind(field: dict[str, Any]) -> str:
        return field["type"]

    def _value(self, field: dict[str, Any], kind: str) -> Any:
        if kind in NUMBERS:
            layout = ">" + NUMBERS[kind]
            return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]
        if kind == "uuid":
            return self._take(16)
        if kind in {"string", "bytes", "records"}:
            size = self._varint() - 1 if self._flexible else self._size(kind == "string")
            return self._none(field) if size < 0 else self._take(size)
        if kind.startswith("[]"):
            count = self._varint() - 1 if self._flexible else self._size(False)
            if count < 0:
                return self._none(field)
            return [self._value(field, kind[2:]) for _ in range(count)]
        nullable = has(field.get("nullableVersions"), self._version)
        if nullable and not field["type"].startswith("[]") and self._take(1) == b"\xff":
            return None
        return self.struct(field.get("fields") or self._commons[kind])

    def _none(self, field: dict[str, Any]) -> None:
        if not has(field.get("nullableVersions"), self._version):
            raise NotKafkasError(f"{field['name']} is null")

    def _size(self, short: bool) -> int:
        return struct.unpack(">h" if short else ">i", self._take(2 if short else 4))[0]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _take(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self._data):
            raise NotKafkasError("it is cut short")
        return self._data[self.at - size : self.at]
