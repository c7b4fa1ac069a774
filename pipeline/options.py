"""The options of the Spark source and sink: the names of Spark's own Kafka connector in any case,
checked before a query runs. What a read makes of them is in read_options.py.

A name that nobody knows, a value of the wrong kind and options that contradict each other are
errors here, where the connector takes them in silence or fails in an executor.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from kstore.pipeline.errors import PipelineError

__all__ = [
    "BROKER_PREFIX",
    "PATH",
    "check_names",
    "client_options",
    "duration_ms",
    "flag",
    "number",
    "text",
]

BROKER_PREFIX = "kafka."
PATH = "path"


class Option(NamedTuple):
    """One option and who looks at it: r batch read, s streaming read, p segments, w write."""

    name: str
    used_by: str


OPTIONS = tuple(
    Option(name, used_by)
    for name, used_by in (
        ("assign", "rsp"),
        ("subscribe", "rsp"),
        ("subscribePattern", "rsp"),
        ("startingOffsets", "rsp"),
        ("startingOffsetsByTimestamp", "rsp"),
        ("startingTimestamp", "rsp"),
        ("startingOffsetsByTimestampStrategy", "rsp"),
        ("endingOffsets", "rp"),
        ("endingOffsetsByTimestamp", "rp"),
        ("endingTimestamp", "rp"),
        ("failOnDataLoss", "rsp"),
        ("kafkaConsumer.pollTimeoutMs", "rs"),
        ("fetchOffset.numRetries", "rs"),
        ("fetchOffset.retryIntervalMs", "rs"),
        ("maxOffsetsPerTrigger", "s"),
        ("minOffsetsPerTrigger", "s"),
        ("maxTriggerDelay", "s"),
        ("minPartitions", "rsp"),
        ("maxRecordsPerPartition", "rsp"),
        ("groupIdPrefix", "rs"),
        ("includeHeaders", "rspw"),
        (PATH, "p"),
        ("topic", "w"),
        ("kstore.delivery", "w"),
        ("kstore.writeId", "w"),
        ("kstore.writeVersion", "w"),
        ("kstore.recreatedTopics", "s"),
        ("kstore.orderedExpansion", "s"),
        # Spark hands a sink its own options, too.
        ("checkpointLocation", "w"),
        ("queryName", "w"),
    )
)
"""Every option but kafka.*, which clients check."""

_BY_NAME = {option.name.lower(): option for option in OPTIONS}
_TRUE, _FALSE = "true", "false"
_DURATION = re.compile(r"(\d+)\s*([a-z]*)")
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_UNITS_MS = {
    "us": 0.001, "ms": 1, "s": 1000, "m": _MINUTE_MS, "min": _MINUTE_MS, "h": _HOUR_MS,
    "d": 24 * _HOUR_MS,
}  # fmt: skip


def check_names(options: Mapping[str, str]) -> None:
    """Raises PipelineError for an option that does not exist, with the name that comes closest."""
    for name in options:
        lower = name.lower()
        if lower.startswith(BROKER_PREFIX) or lower in _BY_NAME:
            continue
        near = difflib.get_close_matches(lower, _BY_NAME, n=1)
        hint = f"; the nearest is {_BY_NAME[near[0]].name}" if near else ""
        raise PipelineError(
            f"there is no option {name!r}{hint}",
            remedy="Options are those of Spark's Kafka connector, and kafka.* for clients",
        )


def client_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The settings of clients: every kafka.* option without its prefix."""
    cut = len(BROKER_PREFIX)
    lower = {name.lower(): value for name, value in options.items()}
    return {name[cut:]: value for name, value in lower.items() if name.startswith(BROKER_PREFIX)}


def text(options: Mapping[str, str], name: str, default: str | None = None) -> str | None:
    """The value of an option, without spaces around it."""
    value = _given(options, name)
    return default if value is None else value.strip()


def flag(options: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """An option that is true or false."""
    value = _given(options, name)
    if value is None:
        return default
    if value.strip().lower() not in (_TRUE, _FALSE):
        raise PipelineError(f"option {name} is {value!r}", remedy="Give true or false")
    return value.strip().lower() == _TRUE


def number(
    options: Mapping[str, str], name: str, default: int | None = None, *, at_least: int = 1
) -> int | None:
    """An option that is a whole number."""
    value = _given(options, name)
    if value is None:
        return default
    try:
        found = int(value.strip())
    except ValueError:
        found = at_least - 1
    if found < at_least:
        raise PipelineError(
            f"option {name} is {value!r}", remedy=f"Give a whole number of at least {at_least}"
        )
    return found


def duration_ms(options: Mapping[str, str], name: str, default: int) -> int:
    """An option that is a time as Spark writes it: 15m, 30s, 100ms; a bare number is ms."""
    value = _given(options, name)
    if value is None:
        return default
    found = _DURATION.fullmatch(value.strip().lower())
    unit = _UNITS_MS.get(found[2] or "ms") if found else None
    if found is None or unit is None:
        raise PipelineError(
            f"option {name} is {value!r}", remedy="Give a time such as 15m, 30s or 100ms"
        )
    return int(int(found[1]) * unit)


def _given(options: Mapping[str, str], name: str) -> str | None:
    """The value under this name in any case."""
    lower = name.lower()
    if lower in options:  # Spark's own mapping has lower-case names
        return options[lower]
    return next((value for key, value in options.items() if key.lower() == lower), None)
