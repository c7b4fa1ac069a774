"""``kstore produce``: lines of stdin become records. What a line may hold is in record_text.py.

Records leave as soon as stdin pauses, so the command can stand at the end of a pipe that never
ends.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli.client_options import ProfileName, Properties, Servers, client_config
from kstore.cli.failure import fail
from kstore.cli.options import TIMEOUT_MS, Header, Topic
from kstore.cli.records.record_text import InputRecord, RecordFormatError, parse_json, parse_line

if TYPE_CHECKING:
    from kstore.clients import Producer

__all__ = ["EXAMPLE", "produce", "read_lines"]

EXAMPLE = "Example: echo 'order-1:paid' | kstore produce orders --key-separator :"
_READ_BYTES = 1 << 18
_MAX_LINE_BYTES = 1 << 24


def produce(
    topic: Topic,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", help="Text between key and value; without it, no key."
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="By default chosen by key.")
    ] = None,
    header: Header = None,
    timestamp: Annotated[
        int | None, typer.Option(help="Milliseconds since 1970; by default the present.")
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Each line is an object, as `kstore consume --json` writes it."
        ),
    ] = False,
    compression: Annotated[
        str | None,
        typer.Option("--compression", "-z", help="none (the default), gzip, snappy, lz4 or zstd"),
    ] = None,
    acks: Annotated[str | None, typer.Option(help="all (the default), 1 or 0")] = None,
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
) -> None:
    """Send each line of stdin as a record."""
    from kstore.clients import Producer

    separator = None if key_separator is None else key_separator.encode()
    headers = tuple(parse_header(item) for item in header or [])
    config = client_config("producer", bootstrap, properties, profile, {"max.block.ms": TIMEOUT_MS})
    try:
        producer = Producer(config, compression_type=compression, acks=acks)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    count = 0
    with producer:
        for line in read_lines(producer):
            try:
                record = parse_json(line) if json else parse_line(line, separator)
            except RecordFormatError as error:
                producer.flush()
                sentence = f"stdin line {count + 1}: {error}; the {count} before it were sent"
                raise SystemExit(fail(sentence)) from None
            _send(producer, topic, record, partition, timestamp, headers)
            count += 1


def parse_header(item: str) -> tuple[str, bytes | None]:
    """Read NAME=VALUE; typer.BadParameter if there is no equals sign."""
    name, equals, value = item.partition("=")
    if not equals:
        raise typer.BadParameter(f"{item!r} is not NAME=VALUE")
    return name, value.encode()


def _send(
    producer: Producer, topic: str, record: InputRecord, partition: int | None,
    timestamp: int | None, headers: tuple[tuple[str, bytes | None], ...],
) -> None:  # fmt: skip
    producer.send(
        topic,
        record.value,
        record.key,
        partition=record.partition if partition is None else partition,
        timestamp=record.timestamp if timestamp is None else timestamp,
        headers=record.headers + headers,
    )


def read_lines(producer: Producer) -> Iterator[bytes]:
    """Yield stdin's lines without their ends; flush the producer whenever stdin has nothing more
    yet.
    """
    descriptor = sys.stdin.fileno()
    rest = b""
    while chunk := os.read(descriptor, _READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            raise SystemExit(fail(f"stdin has a line of more than {_MAX_LINE_BYTES:,} bytes"))
        yield from lines
        if not select.select([descriptor], [], [], 0)[0]:
            producer.flush()
    if rest:
        yield rest
