"""The options of the Spark source and sink: the names of Spark's Kafka connector in any case,
checked before a query runs. read_options.py interprets them for a read.

An unknown name, a value of the wrong type and contradictory options are errors here. The connector
ignores them or fails in an executor.
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
    """An option and its users: r batch read, s streaming read, p segments, w write."""

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
        # Spark passes its own options to a sink, too.
        ("checkpointLocation", "w"),
        ("queryName", "w"),
    )
)
"""All options except kafka.*, which clients check."""

_BY_NAME = {option.name.lower(): option for option in OPTIONS}
_TRUE, _FALSE = "true", "false"
_DURATION = re.compile(r"(\d+)\s*([a-z]*)")
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_UNITS_MS = {
    "us": 0.001, "ms": 1, "s": 1000, "m": _MINUTE_MS, "min": _MINUTE_MS, "h": _HOUR_MS,
    "d": 24 * _HOUR_MS,
}  # fmt: skip


def check_names(options: Mapping[str, str]) -> None:
    """Raise PipelineError for an unknown option; the message names the most similar one."""
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
    """The settings of clients: all kafka.* options without the prefix."""
    cut = len(BROKER_PREFIX)
    lower = {name.lower(): value for name, value in options.items()}
    return {name[cut:]: value for name, value in lower.items() if name.startswith(BROKER_PREFIX)}


def text(options: Mapping[str, str], name: str, default: str | None = None) -> str | None:
    """The value of an option, without surrounding spaces."""
    value = _given(options, name)
    return default if value is None else value.strip()


def flag(options: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """An option that is true or false."""
    value = _given(options, name)
    if value is None:
        return default
    if value.strip().lower() not in (_TRUE, _FALSE):
        raise PipelineError(f"option {name} is {value!r}", remedy="Use true or false")
    return value.strip().lower() == _TRUE


def number(
    options: Mapping[str, str], name: str, default: int | None = None, *, at_least: int = 1
) -> int | None:
    """An integer option."""
    value = _given(options, name)
    if value is None:
        return default
    try:
        found = int(value.strip())
    except ValueError:
        found = at_least - 1
    if found < at_least:
        raise PipelineError(
            f"option {name} is {value!r}", remedy=f"Use a whole number of at least {at_least}"
        )
    return found


def duration_ms(options: Mapping[str, str], name: str, default: int) -> int:
    """A duration option in Spark's format: 15m, 30s, 100ms; a number without unit is ms."""
    value = _given(options, name)
    if value is None:
        return default
    found = _DURATION.fullmatch(value.strip().lower())
    unit = _UNITS_MS.get(found[2] or "ms") if found else None
    if found is None or unit is None:
        raise PipelineError(
            f"option {name} is {value!r}", remedy="Use a time such as 15m, 30s or 100ms"
        )
    return int(int(found[1]) * unit)


def _given(options: Mapping[str, str], name: str) -> str | None:
    """The value of this name in any case."""
    lower = name.lower()
    if lower in options:  # Spark's mapping has lower-case names
        return options[lower]
    return next((value for key, value in options.items() if key.lower() == lower), None)
