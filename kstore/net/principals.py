"""A client's name from its certificate: the subject in the format of RFC 2253, as Java writes it,
and Kafka's mapping rules (KIP-371). It does not verify certificates: the TLS library has done so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kstore.config import ConfigError

__all__ = ["MappingRules", "subject_name"]

RULES = "ssl.principal.mapping.rules"
# The attributes with names in RFC 2253, by their DER object identifiers.
_NAMES = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("0992268993f22c640101"): "UID",
}
# DER's string types with text; other types are shown as bytes.
_ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}
_SEQUENCE, _SET, _VERSION = 0x30, 0x31, 0xA0


def subject_name(certificate: bytes) -> str:
    """The subject of a DER certificate, as ``CN=..,OU=..,O=..``. Raises ValueError if it is
    malformed.
    """
    _, fields, _ = _read(certificate, 0)
    _, fields, _ = _read(fields, 0)
    parts = list(_items(fields))
    subject = parts[5 if parts[0][0] == _VERSION else 4]
    names = []
    for _, relative in _items(subject[1]):
        names.append("+".join(_attribute(pair) for _, pair in _items(relative)))
    return ",".join(reversed(names))


def _attribute(pair: bytes) -> str:
    (_, kind), (form, value) = _items(pair)
    encoding = _ENCODINGS.get(form)
    name = _NAMES.get(kind)
    if name is None or encoding is None:
        data = bytes((form,)) + _length(len(value)) + value
        return f"{name or _dotted(kind)}=#{data.hex()}"
    return f"{name}={_escaped(value.decode(encoding))}"


def _escaped(text: str) -> str:
    """Characters with a meaning in a name (in Java # and = always do), and spaces at both ends."""
    escaped = re.sub(r'[,=+<>#;"\\]', r"\\\g<0>", text)
    return re.sub(r"^ | \Z", r"\\ ", escaped)


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag, value, at = _read(data, at)
        yield tag, value


def _read(data: bytes, at: int) -> tuple[int, bytes, int]:
    """The tag and the content at a position, and the end."""
    if at + 2 > len(data):
        raise ValueError("a certificate that is cut short")
    tag, size = data[at], data[at + 1]
    at += 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(data[at : at + count])
        at += count
    if at + size > len(data):
        raise ValueError("a certificate that is cut short")
    return tag, data[at : at + size], at + size


def _length(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    digits = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((0x80 | len(digits),)) + digits


def _dotted(identifier: bytes) -> str:
    numbers, number = [], 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(str(each) for each in (first, numbers[0] - 40 * first, *numbers[1:]))


# ---- rules ----


class _Rule(NamedTuple):
    """``pattern`` None: the whole name, unchanged."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""


_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<into>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?))\s*(?:,|\Z)",
    re.DOTALL,
)


class MappingRules:
    """Parse ssl.principal.mapping.rules. Raises ConfigError for malformed rules."""

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        at = 0
        while at < len(text.rstrip()):
            match = _RULE.match(text, at)
            if match is None:
                raise _bad(text, f"from {text[at : at + 40]!r} on it is not a rule")
            at = match.end()
            if match["default"]:
                self._rules.append(_Rule(None))
                continue
            try:
                pattern = re.compile(_python_pattern(match["pattern"]))
                into = _python_replacement(match["into"], pattern.groups)
            except re.error as problem:
                raise _bad(text, f"{match['pattern']!r} is not a pattern ({problem})") from None
            self._rules.append(_Rule(pattern, into, match["case"]))

    def apply(self, name: str) -> str | None:
        """The result of the first rule that matches a name; None if none does."""
        for rule in self._rules:
            if rule.pattern is None:
                return name
            if rule.pattern.fullmatch(name) is None:
                continue
            made = rule.pattern.sub(rule.replacement, name)
            return made.lower() if rule.case == "L" else made.upper() if rule.case else made
        return None


def _python_pattern(pattern: str) -> str:
    """Java writes named groups as (?<name>..), Python as (?P<name>..)."""
    return re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern)


def _python_replacement(text: str, groups: int) -> str:
    """``$1`` is a group if the group exists; otherwise it is literal."""
    literal = text.replace("\\", "\\\\")
    return re.sub(
        r"\$(\d)", lambda ref: rf"\g<{ref[1]}>" if int(ref[1]) <= groups else ref[0], literal
    )


def _bad(text: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{RULES} is {text!r}, where {problem}: it must be RULE:pattern/replacement/, "
        "RULE:pattern/replacement/L or .../U, or DEFAULT, comma-separated",
        key=RULES,
    )
