"""``kstore consume``: records of a topic to stdout, as text or JSON. How they are written is in
record_text.py.

It reads partitions by itself, without a consumer group, and commits nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli.client_options import ProfileName, Properties, Servers, client_config, key_values
from kstore.cli.options import Json, Topic
from kstore.cli.records.record_text import OutputRecord, RecordFormatError, template, to_json
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients import Consumer, ConsumerRecord

__all__ = ["EXAMPLE", "consume", "parse_start", "place"]

EXAMPLE = r"Example: kstore consume orders --offset -10 --format '{key} {value}\n' --exit"
_POLL_MS = 1000
_DEFAULTS = {"auto.offset.reset": "earliest", "allow.auto.create.topics": False}


def consume(
    topic: Topic,
    offset: Annotated[
        str,
        typer.Option(
            "--offset", "-o",
            help="Where to start: beginning, end, an offset, -N for the last N of each partition, "
            "or @MS for a time in milliseconds since 1970.",
        ),
    ] = "beginning",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this one; may be repeated.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=1, help="Stop after this many records.")
    ] = None,
    leave: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at what is the end when the command starts.")
    ] = False,
    form: Annotated[
        str,
        typer.Option(
            "--format", "-f",
            help="Fields topic, partition, offset, timestamp, key, value, headers in braces.",
        ),
    ] = r"{value}\n",
    json: Json = False,
    isolation: Annotated[
        str | None, typer.Option(help="read_uncommitted (the default) or read_committed")
    ] = None,
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
) -> None:  # fmt: skip
    """Write a topic's records to stdout, and wait for more until Ctrl-C."""
    from kstore.clients import Consumer

    try:
        write = to_json if json else template(form)
        start = parse_start(offset)
        if "group.id" in key_values(properties, "client.id=me"):
            raise ValueError("consume reads without a group, so it takes no group.id")
        config = client_config("consumer", bootstrap, properties, profile, _DEFAULTS)
        config.pop("group.id", None)  # a profile's is for other commands
        consumer = Consumer(config, isolation_level=isolation)
    except (RecordFormatError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    with consumer:
        if partition:
            consumer.assign([TopicPartition(topic, number) for number in partition])
        else:
            consumer.subscribe([topic])
        place(consumer, *start)
        ends = consumer.end_offsets(consumer.assignment()) if leave else None
        _copy(consumer, write, count, ends)


def parse_start(text: str) -> tuple[str, int]:
    """Read --offset: (beginning, end, offset, last or time; its number). ValueError if it is
    none.
    """
    if text in {"beginning", "earliest"}:
        return "beginning", 0
    if text in {"end", "latest"}:
        return "end", 0
    kind = {"-": "last", "@": "time"}.get(text[:1], "offset")
    digits = text if kind == "offset" else text[1:]
    if not digits.isascii() or not digits.isdigit():
        raise ValueError(f"--offset {text!r} is not beginning, end, a number, -N or @MS")
    return kind, int(digits)


def place(consumer: Consumer, kind: str, number: int) -> None:
    """Put the consumer at the start that parse_start read."""
    assigned = consumer.assignment()
    if kind == "beginning":
        consumer.seek_to_beginning()
    elif kind == "end":
        consumer.seek_to_end()
    elif kind == "offset":
        for tp in assigned:
            consumer.seek(tp, number)
    elif kind == "last":
        first = consumer.beginning_offsets(assigned)
        for tp, end in consumer.end_offsets(assigned).items():
            consumer.seek(tp, max(end - number, first[tp]))
    else:
        ends = consumer.end_offsets(assigned)
        for tp, found in consumer.offsets_for_times(dict.fromkeys(assigned, number)).items():
            consumer.seek(tp, ends[tp] if found is None else found.offset)


def _copy(
    consumer: Consumer, write: Callable[[OutputRecord], bytes], count: int | None,
    ends: dict[TopicPartition, int] | None,
) -> None:  # fmt: skip
    """Write records until there were ``count``, or every partition is at its end."""
    left = count
    while left is None or left > 0:
        if ends is not None and all(consumer.position(tp) >= end for tp, end in ends.items()):
            return
        records = consumer.poll(_POLL_MS, max_records=500 if left is None else min(left, 500))
        wanted = [r for r in records if ends is None or r.offset < _end(ends, r)]
        if wanted:
            sys.stdout.buffer.write(b"".join(map(write, _plain(wanted))))
            sys.stdout.buffer.flush()
        if left is not None:
            left -= len(wanted)


def _end(ends: dict[TopicPartition, int], record: ConsumerRecord) -> int:
    return ends[TopicPartition(record.topic, record.partition)]


def _plain(records: Iterable[ConsumerRecord]) -> Iterable[OutputRecord]:
    for record in records:
        yield OutputRecord(
            record.topic, record.partition, record.offset, record.timestamp,
            record.key, record.value, tuple((h.key, h.value) for h in record.headers),
        )  # fmt: skip
