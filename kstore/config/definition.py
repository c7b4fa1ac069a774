"""The definition of a config: its name, type, default, allowed values, and documentation.

The tables are in broker_configs.py and topic_configs.py; this file has the type of a row, Kafka's
types of settings, and how a value is parsed and formatted. It reads no file and knows no particular
setting.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

__all__ = [
    "MAX_DOUBLE",
    "MAX_INT",
    "MAX_LONG",
    "ConfigDef",
    "ConfigError",
    "ConfigType",
    "Importance",
    "UpdateMode",
    "Validator",
    "at_least",
    "between",
    "between_or",
    "each_one_of",
    "matching",
    "non_empty",
    "one_of",
    "replica_list",
]

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MAX_DOUBLE = 1.7976931348623157e308


class ConfigType(IntEnum):
    """The types of Kafka's settings; the numbers are those of the DescribeConfigs response."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(StrEnum):
    """Whether a broker config can be changed while the broker runs, with Kafka's terms
    (KIP-226).
    """

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    """For one broker only, because brokers differ in it."""
    CLUSTER_WIDE = "cluster-wide"
    """For all brokers, or for one."""


class Importance(StrEnum):
    """How important a setting is to users."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class ConfigError(ValueError):
    """A setting is invalid. The message has its name, its value, what is allowed, and where it
    comes from.

    ``key`` is the name; None if the whole source is invalid, such as a file that cannot be read.
    """

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class Validator(NamedTuple):
    """A check of a parsed value, and a description of what it allows."""

    check: Callable[[Any], object]
    allowed: str
    items_once: bool = False
    """A list: duplicate items are ignored, and no item may be empty."""
    choices: tuple[str, ...] = ()
    """The allowed words, if only these are allowed."""


def at_least(low: float) -> Validator:
    """Allow numbers of at least ``low``."""
    return Validator(lambda value: value >= low, f"at least {low}")


def between(low: float, high: float) -> Validator:
    """Allow numbers from ``low`` to ``high``, both included."""
    return Validator(lambda value: low <= value <= high, f"from {low} to {high}")


def between_or(low: float, high: float, other: float) -> Validator:
    """Allow numbers from ``low`` to ``high``, and one more."""
    return Validator(
        lambda value: low <= value <= high or value == other, f"from {low} to {high}, or {other}"
    )


def one_of(*choices: str, any_case: bool = False) -> Validator:
    """Allow exactly these words."""
    words = ", ".join(choices)
    known = {choice.lower() for choice in choices} if any_case else set(choices)
    return Validator(
        lambda value: (value.lower() if any_case else value) in known,
        f"one of {words}",
        choices=choices,
    )


def each_one_of(*choices: str) -> Validator:
    """Allow lists, including empty ones, of these words."""
    words = ", ".join(choices)
    return Validator(
        lambda value: all(item in choices for item in value),
        f"with any of {words}",
        items_once=True,
        choices=choices,
    )


def replica_list() -> Validator:
    """Allow ``*`` or a list of partition:broker, both numbers."""

    def check(value: tuple[str, ...]) -> bool:
        pairs = (item.partition(":") for item in value)
        return value in {(), ("*",)} or all(a.isdigit() and b.isdigit() for a, _, b in pairs)

    return Validator(check, "* or partition:broker,partition:broker and so on")


def matching(pattern: str, words: str) -> Validator:
    """Allow text that a regular expression matches completely."""
    return Validator(re.compile(pattern).fullmatch, words)


def non_empty() -> Validator:
    """Allow any string or list that is not empty."""
    return Validator(bool, "not empty")


_INTEGER_RANGE = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), MAX_INT),
    ConfigType.LONG: (-(2**63), MAX_LONG),
}
_TYPE_WORDS = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.SHORT: "a 16-bit integer",
    ConfigType.INT: "a 32-bit integer",
    ConfigType.LONG: "a 64-bit integer",
    ConfigType.DOUBLE: "a number",
    ConfigType.STRING: "text",
    ConfigType.LIST: "a comma-separated list",
    ConfigType.CLASS: "a class name",
    ConfigType.PASSWORD: "text",
}


class ConfigDef(NamedTuple):
    """One row of a settings table.

    ``synonyms`` is only for topic and group configs: the broker configs that give the default, most
    specific first, each with the factor from its unit to the topic config's. ``update`` is only for
    broker configs. A ``default`` of None means "not set".
    """

    name: str
    type: ConfigType
    default: Any
    documentation: str
    importance: Importance = Importance.LOW
    validator: Validator | None = None
    synonyms: tuple[tuple[str, int], ...] = ()
    update: UpdateMode = UpdateMode.READ_ONLY

    @property
    def allowed(self) -> str:
        """Describe the allowed values."""
        words = _TYPE_WORDS[self.type]
        return words if self.validator is None else f"{words}, {self.validator.allowed}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed words, if they can be listed."""
        if self.type is ConfigType.BOOLEAN:
            return ("true", "false")
        return () if self.validator is None else self.validator.choices

    def parse(self, text: str, source: str) -> Any:
        """Return the typed value of ``text``; a ConfigError for an invalid value names
        ``source``.
        """
        value, problem = self._read(text)
        if problem:
            where = "" if source == self.name else f" ({source})"
            raise ConfigError(
                f"{self.name}{where} is {self.format(text)!r}; {problem}", key=self.name
            )
        return value

    def complaint(self, text: str) -> str | None:
        """The error for a client that sets ``text``; None if the value is allowed."""
        _, problem = self._read(text)
        if not problem:
            return None
        return f"{self.name} is {self.format(text)!r}; {problem}."

    def _read(self, text: str) -> tuple[Any, str]:
        """The typed value, or what the text must be like."""
        try:
            value = _PARSERS[self.type](text.strip())
            low, high = _INTEGER_RANGE.get(self.type, (0, 0))
            if high and not low <= value <= high:
                raise ValueError(text)
        except ValueError:
            return None, f"it must be {self.allowed}"
        if self.validator is not None and self.validator.items_once:
            value = tuple(dict.fromkeys(value))
            if text.strip() and not all(item.strip() for item in text.split(",")):
                return None, "no item of the list may be empty"
        if self.validator is None or self.validator.check(value):
            return value, ""
        return None, f"it must be {self.allowed}"

    def format(self, value: Any) -> str:
        """Format a value as Kafka does: ``true``, ``a,b``, a hidden password, nothing for None."""
        if self.type is ConfigType.PASSWORD and value is not None:
            return "[hidden]"
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return _double_text(value)
        return str(value)


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in {"true", "false"}:
        raise ValueError(text)
    return lowered == "true"


def _integer(text: str) -> int:
    if not text.removeprefix("-").removeprefix("+").isdecimal():
        raise ValueError(text)
    return int(text)


# Texts that Java parses as a double.
_DOUBLE = re.compile(
    r"[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|0[xX][\da-fA-F.]+[pP][+-]?\d+)[dDfF]?)"
)


def _double(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise ValueError(text)
    if "x" in text.lower():
        return float.fromhex(text.rstrip("dDfF") if "p" in text.lower() else text)
    return float(text if text[-1] in "Ny" else text.rstrip("dDfF"))


def _double_text(value: float) -> str:
    """In Java's format: 0.5, and 1.0E-5 for small or large numbers."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text
    sign, text = ("-", text[1:]) if value < 0 else ("", text)
    digits, _, exponent = text.partition("e")
    whole, _, part = digits.partition(".")
    if whole == "0":  # 0.00012 is 1.2E-4
        digits = part.lstrip("0")
        shift = len(digits) - len(part) - 1
    else:
        digits = (whole + part).rstrip("0")
        shift = len(whole) - 1
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{shift + int(exponent or 0)}"


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


_PARSERS: dict[ConfigType, Callable[[str], Any]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.SHORT: _integer,
    ConfigType.INT: _integer,
    ConfigType.LONG: _integer,
    ConfigType.DOUBLE: _double,
    ConfigType.STRING: str,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
    ConfigType.LIST: _items,
}
