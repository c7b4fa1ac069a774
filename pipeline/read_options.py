"""Interprets the options of a read: which topics, from where to where, and how much at a time.

The order of precedence is that of Spark's Kafka connector: a timestamp for all partitions,
timestamps by partition, offsets. No requests are sent from here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kstore.config.client.configs import client_settings
from kstore.config.definition import ConfigError
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.options import check_names, client_options, duration_ms, flag, number, text
from kstore.types import TopicPartition

__all__ = ["EARLIEST", "LATEST", "OffsetLimit", "ReadOptions", "Selection", "read_options"]

LATEST, EARLIEST = -1, -2
"""Special offsets: the partition's end, or its start."""
_STRATEGIES = ("assign", "subscribe", "subscribePattern")
_DEFAULT_POLL_MS = 120_000
_DEFAULT_DELAY_MS = 15 * 60_000
# Settings that a Spark source can't support.
_REFUSED = {
    "auto.offset.reset": "set startingOffsets to earliest or latest instead: Spark keeps positions",
    "key.deserializer": "keys come as bytes; cast them in the query",
    "value.deserializer": "values come as bytes; cast them in the query",
    "enable.auto.commit": "Spark keeps positions in its checkpoint, and commits none to a group",
    "interceptor.classes": "Spark gets records unchanged",
}


@dataclass(frozen=True)
class Selection:
    """The partitions of a query: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()

    def names(self) -> list[str] | None:
        """The topics, if they are known without a request; None for a pattern."""
        if self.pattern:
            return None
        return list(self.topics) or sorted({tp.topic for tp in self.partitions})

    def matches(self, topic: str) -> bool:
        """Whether the pattern matches the whole name."""
        return re.fullmatch(self.pattern, topic) is not None

    def __str__(self) -> str:
        if self.pattern:
            return f"subscribePattern {self.pattern}"
        return ", ".join(self.topics) or ", ".join(str(tp) for tp in self.partitions)


@dataclass(frozen=True)
class OffsetLimit:
    """The start or end of a query. ``everywhere`` is an offset or a timestamp for all partitions,
    ``by_partition`` one for each. ``option`` is the name of the option.
    """

    option: str
    is_time: bool = False
    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True)
class ReadOptions:
    """The options of one read; plain values, which are sent to executors."""

    selection: Selection
    starting: OffsetLimit
    ending: OffsetLimit
    client: Mapping[str, Any] = field(repr=False)
    """Settings of a consumer, as text; they may contain secrets."""
    latest_without_match: bool = False
    """startingOffsetsByTimestampStrategy: what to do if no record is that late."""
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = _DEFAULT_POLL_MS
    retries: int = 3
    retry_interval_ms: int = 1000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = _DEFAULT_DELAY_MS
    include_headers: bool = False
    restarts_recreated: bool = False
    ordered_expansion: bool = True

    @property
    def servers(self) -> str:
        """kafka.bootstrap.servers, for messages."""
        return str(self.client["bootstrap.servers"])


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse the options of a read through brokers. Raises PipelineError for invalid ones."""
    check_names(options)
    by_name = _numbers(options)
    if streaming:
        _refuse_endings(options)
    most, least = by_name["max_offsets"], by_name["min_offsets"]
    if most is not None and least is not None and least > most:
        raise PipelineError(
            f"minOffsetsPerTrigger is {least}, which is more than maxOffsetsPerTrigger, {most}",
            remedy="Lower minOffsetsPerTrigger or raise maxOffsetsPerTrigger",
        )
    starting = offset_limit(options, "starting", "latest" if streaming else "earliest")
    ending = offset_limit(options, "ending", "latest")
    if not streaming:
        _check_batch(starting, ending)
    return ReadOptions(
        selection=selection(options),
        starting=starting,
        ending=ending,
        client=_client(options),
        latest_without_match=_one_of(
            options, "startingOffsetsByTimestampStrategy", ("error", "latest")
        )
        == "latest",
        fail_on_data_loss=flag(options, "failOnDataLoss", default=True),
        max_delay_ms=duration_ms(options, "maxTriggerDelay", _DEFAULT_DELAY_MS),
        include_headers=flag(options, "includeHeaders"),
        restarts_recreated=_one_of(options, "kstore.recreatedTopics", ("fail", "restart"))
        == "restart",
        ordered_expansion=flag(options, "kstore.orderedExpansion", default=True),
        **by_name,
    )


def _numbers(options: Mapping[str, str]) -> dict[str, Any]:
    """The integer options."""
    return {
        "poll_timeout_ms": number(options, "kafkaConsumer.pollTimeoutMs", _DEFAULT_POLL_MS),
        "retries": number(options, "fetchOffset.numRetries", 3),
        "retry_interval_ms": number(options, "fetchOffset.retryIntervalMs", 1000, at_least=0),
        "min_partitions": number(options, "minPartitions"),
        "max_records_per_partition": number(options, "maxRecordsPerPartition"),
        "max_offsets": number(options, "maxOffsetsPerTrigger"),
        "min_offsets": number(options, "minOffsetsPerTrigger"),
    }


def _one_of(options: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """An option with a few possible values; the first is the default."""
    given = text(options, name, values[0]) or ""
    if given.lower() not in values:
        raise PipelineError(f"option {name} is {given!r}", remedy=f"Give {' or '.join(values)}")
    return given.lower()


def _refuse_endings(options: Mapping[str, str]) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if text(options, name) is not None:
            raise PipelineError(
                f"option {name} is for batch queries; a stream has no end",
                remedy="Remove it, or use spark.read, or trigger(availableNow=True)",
            )


def _client(options: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a consumer, checked."""
    given = client_options(options)
    if not str(given.get("bootstrap.servers", "")).strip():
        raise PipelineError(
            "option kafka.bootstrap.servers is missing", remedy="Give brokers as host:port,..."
        )
    for name, reason in _REFUSED.items():
        if name in given:
            raise PipelineError(f"option kafka.{name} is not supported", remedy=_sentence(reason))
    try:
        client_settings("consumer", given)
    except ConfigError as error:
        raise PipelineError(f"a kafka.* option can't be used: {error}") from None
    return given


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]


# ---- which topics ----


def selection(options: Mapping[str, str]) -> Selection:
    """Parse assign, subscribe or subscribePattern; exactly one of them is required."""
    given = {name: value for name in _STRATEGIES if (value := text(options, name)) is not None}
    if len(given) != 1:
        found = "none of them was given" if not given else f"{' and '.join(given)} were given"
        raise PipelineError(
            f"one of the options {', '.join(_STRATEGIES)} says what to read, but {found}",
            remedy="Give exactly one",
        )
    name, value = next(iter(given.items()))
    if name == "assign":
        return Selection(partitions=_assigned(value))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if not topics:
            raise PipelineError(
                "option subscribe has no topics", remedy="Give names separated by commas"
            )
        return Selection(topics=topics)
    try:
        re.compile(value)
    except re.error as error:
        raise PipelineError(
            f"option subscribePattern is {value!r}, which is not a pattern: {error}",
            remedy="Give a regular expression that matches whole names",
        ) from None
    if not value:
        raise PipelineError("option subscribePattern is empty", remedy="Give a pattern")
    return Selection(pattern=value)


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    """Parse {"topic": [0, 1]} as partitions."""
    example = 'Give JSON such as {"topic-a": [0, 1], "topic-b": [2]}'
    rows = _json("assign", value, example)
    found = []
    for topic, indexes in rows.items():
        if not isinstance(indexes, list) or not all(_is_index(index) for index in indexes):
            raise PipelineError(
                f"option assign has {indexes!r}, which is not a list of partitions",
                topic=topic,
                remedy=example,
            )
        found += [TopicPartition(topic, index) for index in indexes]
    if not found:
        raise PipelineError("option assign has no partitions", remedy=example)
    return tuple(dict.fromkeys(found))


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _json(name: str, value: str, example: str) -> dict[str, Any]:
    """The JSON object in an option."""
    try:
        found = json.loads(value)
    except ValueError as error:
        raise PipelineError(f"option {name} is {value!r}: {error}", remedy=example) from None
    if not isinstance(found, dict):
        raise PipelineError(
            f"option {name} is {value!r}, which is not a JSON object", remedy=example
        )
    return found


# ---- from where to where ----


def offset_limit(
    options: Mapping[str, str], side: Literal["starting", "ending"], default: str
) -> OffsetLimit:
    """Parse the options about one end of the read."""
    everywhere = number(options, f"{side}Timestamp", at_least=0)
    if everywhere is not None:
        return OffsetLimit(f"{side}Timestamp", is_time=True, everywhere=everywhere)
    name = f"{side}OffsetsByTimestamp"
    if (value := text(options, name)) is not None:
        return OffsetLimit(name, is_time=True, by_partition=_by_partition(name, value, 0))
    name = f"{side}Offsets"
    value = text(options, name, default) or default
    words = {"earliest": EARLIEST, "latest": LATEST}
    if value.lower() in words:
        return OffsetLimit(name, everywhere=words[value.lower()])
    return OffsetLimit(name, by_partition=_by_partition(name, value, EARLIEST))


def _by_partition(name: str, value: str, least: int) -> dict[TopicPartition, int]:
    """Parse {"topic": {"0": 23}} as numbers by partition."""
    words = "earliest, latest or " if least < 0 else ""
    example = f'Give {words}JSON such as {{"topic-a": {{"0": 23, "1": {max(least, -2)}}}}}'
    found = {}
    for topic, rows in _json(name, value, example).items():
        if not isinstance(rows, dict):
            raise PipelineError(f"option {name} has {rows!r} here", topic=topic, remedy=example)
        for index, offset in rows.items():
            is_whole = isinstance(offset, int) and not isinstance(offset, bool)
            if not index.isdecimal() or not is_whole or offset < least:
                raise PipelineError(
                    f"option {name} has {index!r}: {offset!r} here", topic=topic, remedy=example
                )
            found[TopicPartition(topic, int(index))] = offset
    return found


def _check_batch(starting: OffsetLimit, ending: OffsetLimit) -> None:
    """A batch can't start at the end, or end at the start."""
    for limit, wrong, word in ((starting, LATEST, "latest"), (ending, EARLIEST, "earliest")):
        if limit.is_time:
            continue
        rows = limit.by_partition or {}
        if limit.everywhere == wrong or wrong in rows.values():
            raise PipelineError(
                f"option {limit.option} is {word} ({wrong}), which leaves a batch nothing to read",
                remedy="Use another value, or spark.readStream",
            )
    first, last = starting.by_partition, ending.by_partition
    if first is None or last is None or starting.is_time != ending.is_time:
        return
    for tp in first.keys() & last.keys():
        if 0 <= last[tp] < first[tp]:
            raise PipelineError(
                f"{starting.option} says {first[tp]}, {ending.option} {last[tp]}, which is less",
                topic=tp.topic,
                partition=tp.partition,
                remedy="Swap them",
            )
