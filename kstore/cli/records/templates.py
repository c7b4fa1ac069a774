"""The formats of ``kstore consume --format``: kstore's own {fields}, or kcat's %letters.

A format with one of kstore's {fields} is kstore's, and % has no meaning in it. Any other format
with a % is kcat's. So formats of both tools work unchanged.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable

from kstore.cli.records.record_text import Decoded, OutputRecord, RecordFormatError

__all__ = ["FIELDS", "LETTERS", "template"]

FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_ESCAPES = {"\\n": b"\n", "\\t": b"\t", "\\r": b"\r", "\\0": b"\0", "\\\\": b"\\"}
_FIELD = re.compile(r"\{(\w*)\}")

Part = bytes | Callable[[OutputRecord], bytes]


def template(text: str) -> Callable[[OutputRecord], bytes]:
    r"""Compile an output format such as ``{key}\t{value}\n``, or kcat's ``%k\t%s\n``, to a function
    from record to bytes. Raises RecordFormatError for an unknown field or letter.

    ``\n \t \r \0 \xHH \\`` are escapes. A null key or value is written as nothing. Keys and values
    are written byte for byte.
    """
    is_own = any(name in FIELDS for name in _FIELD.findall(text))
    if "%" in text and not is_own:
        parts = _parts(text, r"%.?", _kcat_part)
    else:
        parts = _parts(text, r"\{\w*\}", _own_part)

    def write(record: OutputRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return write


def _parts(text: str, field: str, part: Callable[[str], Part]) -> list[Part]:
    """The format in pieces: fields, escapes and literal text."""
    found: list[Part] = []
    for piece in re.split(rf"({field}|\\x[0-9a-fA-F]{{2}}|\\[ntr0\\])", text, flags=re.DOTALL):
        if re.fullmatch(field, piece, flags=re.DOTALL):
            found.append(part(piece))
        elif piece.startswith("\\x") and len(piece) == 4:
            found.append(bytes([int(piece[2:], 16)]))
        elif piece:
            found.append(_ESCAPES.get(piece) or piece.encode())
    return found


def _own_part(piece: str) -> Part:
    name = piece[1:-1]
    if name not in FIELDS:
        raise RecordFormatError(
            f"the format has {piece}; the fields are {', '.join(FIELDS)}, or kcat's %-letters"
        )
    return lambda record: _field(record, name)


def _kcat_part(piece: str) -> Part:
    part = LETTERS.get(piece[1:])
    if part is None:
        raise RecordFormatError(
            f"the format has {piece!r}; kcat's letters are "
            f"{' '.join(f'%{letter}' for letter in LETTERS)}"
        )
    return part


def _field(record: OutputRecord, name: str) -> bytes:
    value = getattr(record, name)
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    if isinstance(value, Decoded):
        return value.text
    if name == "headers":
        return _headers_text(value, b"")
    return str(value).encode()


def _headers_text(headers: Iterable[tuple[str, bytes | None]], null: bytes) -> bytes:
    return b",".join(
        name.encode() + b"=" + (null if value is None else value) for name, value in headers
    )


def _size(data: bytes | Decoded | None) -> int:
    """The size of the record's key or value in bytes; -1 for null."""
    if data is None:
        return -1
    return data.size if isinstance(data, Decoded) else len(data)


LETTERS: dict[str, Part] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: _field(record, "key"),
    "s": lambda record: _field(record, "value"),
    "T": lambda record: b"%d" % record.timestamp,
    "h": lambda record: _headers_text(record.headers, b"NULL"),
    "S": lambda record: b"%d" % _size(record.value),
    "K": lambda record: b"%d" % _size(record.key),
    "R": lambda record: struct.pack(">i", _size(record.value)),
    "%": b"%",
}
"""kcat's letters: sizes are -1 for null; R is the value's size as four bytes."""
