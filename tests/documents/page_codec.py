"""A slow codec of messages from the layouts on docs/protocol-bytes.md. It uses nothing of kstore:
for what it reads and writes, the page's text is enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

SIZES = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8}
BLOCK = re.compile(r"```text\n(.*?)\n```", re.DOTALL)
TITLE = re.compile(r"(\w+), version (\d+)$")
FIELD = re.compile(r" *(?:(\d+) )?(\w+) +(\w.*)$")


@dataclass
class Layout:
    """One field and its children."""

    name: str
    type: str = "struct"
    tag: int = -1
    version: int = -1
    fields: list[Layout] = field(default_factory=list)
    tagged: list[Layout] = field(default_factory=list)


def layouts_and_examples(
    page: str,
) -> tuple[dict[tuple[str, int], Layout], list[tuple[Layout, str]]]:
    """The layouts by message and version, and each example's text with its layout: the last one
    before it.
    """
    layouts: dict[tuple[str, int], Layout] = {}
    examples: list[tuple[Layout, str]] = []
    for match in BLOCK.finditer(page):
        first, *rows = match[1].splitlines()
        if title := TITLE.match(first):
            name, version = title[1], int(title[2])
            layouts[name, version] = _layout(name, version, rows)
        else:
            examples.append((layouts[next(reversed(layouts))], match[1]))
    return layouts, examples


def _layout(name: str, version: int, rows: list[str]) -> Layout:
    """Nest the rows by their indentation. A struct that has no row for its tags is an error."""
    whole = Layout(name, version=version)
    above: list[tuple[int, Layout, bool]] = [(0, whole, False)]  # depth, struct, below its tags
    ended = []
    for row in rows:
        depth = (len(row) - len(row.lstrip())) // 2
        while above[-1][0] >= depth:
            above.pop()
        _, parent, in_tags = above[-1]
        if row.strip() == "tags":
            ended.append(id(parent))
            above.append((depth, parent, True))
            continue
        match = FIELD.match(row)
        assert match, row
        assert bool(match[1]) is in_tags, f"{row!r} in {name}"
        found = Layout(match[2], match[3], int(match[1] or -1))
        (parent.tagged if in_tags else parent.fields).append(found)
        above.append((depth, found, False))
    _check_ends(whole, set(ended))
    return whole


def _check_ends(layout: Layout, ended: set[int]) -> None:
    if layout.fields or layout.tagged:
        assert id(layout) in ended, f"{layout.name} does not end with its tags"
    for each in (*layout.fields, *layout.tagged):
        _check_ends(each, ended)


class Reader:
    """Reads bytes by layouts. ``rows`` are what a page should say: bytes, depth, and words."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.rows: list[tuple[bytes, int, str]] = []

    @property
    def rest(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._at

    def number(self, name: str, kind: str, depth: int = 0) -> int:
        """A number that is there before any layout."""
        begin = self._at
        value = int.from_bytes(self._take(SIZES[kind]), signed=True)
        self._row(begin, depth, f"{name}: {kind} {value}")
        return value

    def struct(self, layout: Layout, depth: int = 0) -> dict[str, Any]:
        """The fields of a struct, and its tags."""
        found = {each.name: self._field(each, depth) for each in layout.fields}
        known = {each.tag: each for each in layout.tagged}
        begin = self._at
        count = self._varint()
        self._row(begin, depth, f"tags {count}")
        last = -1
        for _ in range(count):
            begin = self._at
            tag = self._varint()
            self._row(begin, depth + 1, f"tag {tag}")
            begin = self._at
            size = self._varint()
            self._row(begin, depth + 1, f"size {size}")
            end = self._at + size
            assert tag > last, "tags are in ascending order"
            found[known[tag].name] = self._field(known[tag], depth + 1)
            assert self._at == end, f"tag {tag} does not end where it says"
            last = tag
        return found

    def _field(self, layout: Layout, depth: int) -> Any:
        begin, kind = self._at, layout.type.removeprefix("nullable ")
        if layout.type == "struct":
            return self.struct(layout, depth)
        value, words, below = self._value(kind)
        assert value is not None or layout.type != kind, f"{layout.name} is not nullable"
        self._row(begin, depth, f"{layout.name}: {layout.type} {words}")
        if kind == "struct":
            return None if value is None else self.struct(layout, depth + 1)
        if not below:
            return value
        if layout.fields or layout.tagged:
            return [self.struct(layout, depth + 1) for _ in range(value)]
        return [self._element(kind.removeprefix("array of "), depth + 1) for _ in range(value)]

    def _element(self, kind: str, depth: int) -> Any:
        begin = self._at
        value, words, _ = self._value(kind)
        self._row(begin, depth, f"{kind} {words}")
        return value

    def _value(self, kind: str) -> tuple[Any, str, bool]:
        """A value, the page's words for it, and whether it is the number of what follows."""
        if kind in SIZES:
            value = int.from_bytes(self._take(SIZES[kind]), signed=kind != "bool")
            words = ("false", "true")[value] if kind == "bool" else str(value)
            return value, words, False
        if kind == "uuid":
            found = str(UUID(bytes=self._take(16)))
            return found, found, False
        if kind == "struct":
            there = int.from_bytes(self._take(1), signed=True) >= 0
            return (True, "present", False) if there else (None, "null", False)
        is_old = kind.startswith("int16 ")
        size = int.from_bytes(self._take(2), signed=True) if is_old else self._varint() - 1
        if size < 0:
            return None, "null", False
        if kind.startswith("array"):
            return size, str(size), True
        data = self._take(size)
        if kind in {"string", "int16 string"}:
            return data.decode(), f'"{data.decode()}"', False
        assert kind in {"bytes", "records"}, kind
        return data, f"{size} bytes", False

    def _varint(self) -> int:
        value = shift = 0
        while True:
            [byte] = self._take(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _take(self, size: int) -> bytes:
        assert size <= self.rest, "the bytes end too early"
        self._at += size
        return self._data[self._at - size : self._at]

    def _row(self, begin: int, depth: int, words: str) -> None:
        self.rows.append((self._data[begin : self._at], depth, words))


def encode(layout: Layout, values: dict[str, Any]) -> bytes:
    """A struct in bytes, from what `Reader.struct` has returned."""
    out = b"".join(_encode_field(each, values[each.name]) for each in layout.fields)
    told = sorted((each for each in layout.tagged if each.name in values), key=lambda e: e.tag)
    out += _varint(len(told))
    for each in told:
        data = _encode_field(each, values[each.name])
        out += _varint(each.tag) + _varint(len(data)) + data
    return out


def _encode_field(layout: Layout, value: Any) -> bytes:
    kind = layout.type.removeprefix("nullable ")
    if kind == "struct" and layout.type != kind:
        return b"\xff" if value is None else b"\x01" + encode(layout, value)
    if kind == "struct":
        return encode(layout, value)
    if kind.startswith("array") and value is not None:
        element = kind.removeprefix("array of ")
        is_plain = not layout.fields and not layout.tagged
        each = [_encode(element, row) if is_plain else encode(layout, row) for row in value]
        return _varint(len(value) + 1) + b"".join(each)
    return _encode(kind, value)


def _encode(kind: str, value: Any) -> bytes:
    if kind in SIZES:
        return int(value).to_bytes(SIZES[kind], signed=kind != "bool")
    if kind == "uuid":
        return UUID(value).bytes
    is_old = kind.startswith("int16 ")
    if value is None:
        return b"\xff\xff" if is_old else b"\x00"
    data = value.encode() if isinstance(value, str) else value
    return (len(data).to_bytes(2) if is_old else _varint(len(data) + 1)) + data


def _varint(value: int) -> bytes:
    low, high = value & 127, value >> 7
    return bytes([low | 128]) + _varint(high) if high else bytes([low])
