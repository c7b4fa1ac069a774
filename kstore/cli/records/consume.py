"""``kstore consume``: records of topics to stdout, as text or JSON. record_text.py and templates.py
format records, start.py finds where to start, reading.py reads.

It reads partitions without a group and commits nothing, or as a member of a group.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer

from kstore.cli.arguments import key_values
from kstore.cli.client_config import client_config
from kstore.cli.options import Json, ProfileName, Properties, Servers
from kstore.cli.records import read_options as options
from kstore.cli.records.field_formats import KeyFormat, Registry, ValueFormat, coder
from kstore.cli.records.reading import Committing, NewPartitionListener, copy, decoded
from kstore.cli.records.record_text import to_json
from kstore.cli.records.start import Start, check_place, parse_start, place
from kstore.cli.records.templates import template
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients import Consumer

__all__ = ["EXAMPLE", "consume"]

EXAMPLE = r"Example: kstore consume orders --offset -10 --format '{key} {value}\n' --exit"
_DEFAULTS = {"auto.offset.reset": "earliest", "allow.auto.create.topics": False}


def consume(
    topic: options.SomeTopic = None,
    topic_regex: options.TopicRegex = None,
    group: options.Group = None,
    offset: options.Offset = None,
    from_timestamp: options.FromTimestamp = None,
    partition: options.Partitions = None,
    count: options.Count = None,
    leave: options.Exit = False,
    form: options.Format = r"{value}\n",
    json: Json = False,
    key_format: KeyFormat = None,
    value_format: ValueFormat = None,
    schema_registry: Registry = None,
    isolation: options.IsolationLevel = None,
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
) -> None:
    """Write records of a topic, or of several, to stdout, and wait for more until Ctrl-C."""
    from kstore.clients import Consumer

    try:
        write = to_json if json else template(form)
        decode = decoded(
            coder(key_format, "key", schema_registry), coder(value_format, "value", schema_registry)
        )
        start = parse_start(offset, from_timestamp)
        wanted = _wanted(topic, topic_regex)
        if partition and (group or topic_regex):
            raise ValueError("--partition is for one TOPIC, without --group and --topic-regex")
        config = client_config("consumer", bootstrap, properties, profile, _DEFAULTS)
        _settle_group(config, group, properties, start)
        consumer = Consumer(config, isolation_level=isolation)
    except (ImportError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    with consumer:
        if topic is not None:
            check_place(consumer, topic, partition)
        commits = Committing(consumer, wanted=group is not None and _commits(properties))
        if group is not None:
            consumer.subscribe(wanted, NewPartitionListener(consumer, start, commits))
        else:
            _begin(consumer, wanted, partition, start or Start("beginning"))
        source = topic or f"topics that match {topic_regex}"
        with commits:
            copy(
                consumer, write, decode, commits,
                count=count, leave=leave, in_group=group is not None, source=source,
            )  # fmt: skip


def _wanted(topic: str | None, regex: str | None) -> list[str] | re.Pattern[str]:
    """What to subscribe to. Raises ValueError for no topic, or for both a topic and an
    expression.
    """
    if (topic is None) == (regex is None):
        raise ValueError("use either TOPIC or --topic-regex")
    if regex is None:
        return [topic or ""]
    try:
        return re.compile(regex)
    except re.error as error:
        raise ValueError(f"--topic-regex {regex!r} is not a regular expression: {error}") from None


def _settle_group(
    config: dict[str, Any], group: str | None, properties: list[str] | None, start: Start | None
) -> None:
    """Set the group in the settings, or remove it: a group.id of a profile is for other
    commands.
    """
    if "group.id" in key_values(properties, "client.id=me"):
        raise ValueError("use --group, not group.id")
    config.pop("group.id", None)
    if group is not None:
        config["group.id"] = group
        if start is not None and start.reset is not None:
            config["auto.offset.reset"] = start.reset
    config["enable.auto.commit"] = False  # commit what was written, not what was polled


def _commits(properties: list[str] | None) -> bool:
    own = key_values(properties, "client.id=me")
    return own.get("enable.auto.commit", "true").lower() != "false"


def _begin(
    consumer: Consumer, wanted: list[str] | re.Pattern[str], partitions: list[int] | None,
    start: Start,
) -> None:  # fmt: skip
    """Assign the partitions, all or those that are named, without a group."""
    if partitions and not isinstance(wanted, re.Pattern):
        consumer.assign([TopicPartition(wanted[0], number) for number in partitions])
    else:
        consumer.subscribe(wanted)
    place(consumer, consumer.assignment(), start)
