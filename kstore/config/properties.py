"""Parses Java's .properties format: comments, continuation lines, separators and escapes.

The rules are in the documentation of java.util.Properties.load. Files are read as UTF-8, while Java
uses Latin-1; a file in plain ASCII with Unicode escapes is the same in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kstore.config.definition import ConfigError

__all__ = ["Property", "parse_properties"]

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"


class Property(NamedTuple):
    """One entry of a properties file; ``line`` is where it begins, counted from 1."""

    key: str
    value: str
    line: int


def parse_properties(text: str, source: str) -> list[Property]:
    """Return the entries of ``text`` in order; a key given twice appears twice.

    Raises ConfigError for a malformed Unicode escape, with ``source`` and the line.
    """
    entries = []
    for number, line in _logical_lines(text):
        where = f"{source} line {number}"
        key, value = _split(line)
        entries.append(Property(_unescape(key, where), _unescape(value, where), number))
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (first line number, line) with continuations joined, without comments and blank
    lines.
    """
    joined, first = "", 0
    natural = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, raw in enumerate(natural, start=1):
        line = raw.lstrip(_BLANK)
        if not first:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield first, joined + line
        joined, first = "", 0
    if first:
        yield first, joined


def _split(line: str) -> tuple[str, str]:
    """Split a logical line at its first unescaped ``=``, ``:`` or blank."""
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(_BLANK)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_BLANK)
    return line[:at], rest


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    out, at = [], 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char if char != "\\" else "")
            continue
        char = text[at]
        at += 1
        if char == "u":
            digits = text[at : at + 4]
            if len(digits) < 4 or any(d not in "0123456789abcdefABCDEF" for d in digits):
                raise ConfigError(
                    f"{where} has the Unicode escape \\u{digits}; it needs four hexadecimal digits"
                )
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # Two escapes can be one character outside the basic plane, as in Java's UTF-16.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
