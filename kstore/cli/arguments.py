"""Parses enumerations, settings, partitions, times and durations of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import typer

from kstore.types import TopicPartition

__all__ = [
    "each_of",
    "key_values",
    "one_of",
    "parse_datetime_ms",
    "parse_duration_ms",
    "parse_ids",
    "parse_partition",
    "parse_partitions",
]

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SHORT = re.compile(r"(\d+)(ms|s|m|h|d|w)")
_ISO = re.compile(
    r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def key_values(items: Sequence[str] | None, example: str) -> dict[str, str]:
    """Parse KEY=VALUE items; raises typer.BadParameter for an item that is not one."""
    found: dict[str, str] = {}
    for item in items or ():
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{item!r} is not KEY=VALUE, such as {example}")
        found[key.strip()] = value.strip()
    return found


def one_of(name: str, value: str, *known: str) -> str:
    """The value, if it is one of these; otherwise raises typer.BadParameter."""
    if value not in known:
        raise typer.BadParameter(f"{name} is {' or '.join(known)}, not {value!r}")
    return value


def each_of(name: str, values: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """The values as Kafka spells them, whatever their case; raises typer.BadParameter for one that
    is not known.
    """
    spelled = {each.lower(): each for each in known}
    return [one_of(name, spelled.get(value.lower(), value), *known) for value in values or ()]


def parse_partition(text: str) -> TopicPartition:
    """Parse TOPIC:PARTITION; raises typer.BadParameter if it is not."""
    topic, colon, number = text.rpartition(":")
    if not colon or not topic or not number.isascii() or not number.isdigit():
        raise typer.BadParameter(f"{text!r} is not TOPIC:PARTITION, such as orders:0")
    return TopicPartition(topic, int(number))


def parse_partitions(text: str) -> tuple[str, list[int] | None]:
    """Parse TOPIC or TOPIC:0,1,2: a topic and some of its partitions (None: all)."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    return topic, parse_ids(numbers)


def parse_ids(text: str) -> list[int]:
    """Parse numbers separated by commas; raises typer.BadParameter if they are not."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise typer.BadParameter(f"{text!r} is not a list of numbers, such as 0,1,2")
    return [int(part) for part in parts]


def parse_duration_ms(text: str) -> int:
    """Parse 90s, 15m, 2h, 7d (or several, 1h30m) or ISO 8601 (P1DT2H); in milliseconds."""
    parts = _SHORT.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
    match = _ISO.fullmatch(text)
    if match is None or not any(match.groups()):
        raise typer.BadParameter(f"{text!r} is not a duration, such as 90s, 2h or P1DT2H")
    units = ("w", "d", "h", "m", "s")
    return int(_sum_ms(zip(match.groups(), units, strict=True)))


def _sum_ms(parts: Iterable[tuple[str | None, str]]) -> float:
    return sum(float(number) * _UNITS_MS[unit] for number, unit in parts if number)


def parse_datetime_ms(text: str) -> int:
    """Parse an ISO 8601 time (UTC if it has no zone) or ms since 1970."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time, such as 2026-03-01T12:00:00+01:00 or 1770000000000"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
