"""``kstore produce``: lines of stdin become records. record_text.py parses a line.

Records are sent as soon as stdin pauses, so the command can be the end of a pipe that never closes.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli import completion
from kstore.cli.client_config import TIMEOUT_MS, client_config
from kstore.cli.failure import fail
from kstore.cli.options import Header, ProfileName, Properties, Servers, Topic
from kstore.cli.records.field_formats import KeyFormat, Registry, ValueFormat, coder
from kstore.cli.records.record_text import (
    Coder,
    InputRecord,
    RecordFormatError,
    parse_json,
    parse_line,
)

if TYPE_CHECKING:
    from kstore.clients import Producer

__all__ = ["EXAMPLE", "produce", "read_lines"]

EXAMPLE = "Example: echo 'order-1:paid' | kstore produce orders --key-separator :"
_READ_BYTES = 1 << 18
_MAX_LINE_BYTES = 1 << 24

Compression = Annotated[
    str | None,
    typer.Option(
        "--compression", "-z", help="none (the default), gzip, snappy, lz4 or zstd",
        autocompletion=completion.words("none", "gzip", "snappy", "lz4", "zstd"),
    ),
]  # fmt: skip
Acks = Annotated[
    str | None,
    typer.Option(
        help="all (the default), 1 or 0", autocompletion=completion.words("all", "1", "0")
    ),
]


def produce(
    topic: Topic,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            help="The text between key and value. Without it, records have no key.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", help="The partition; by default the key determines it."),
    ] = None,
    header: Header = None,
    timestamp: Annotated[
        int | None, typer.Option(help="Milliseconds since 1970; by default the current time.")
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Each line is an object, as `kstore consume --json` writes it."
        ),
    ] = False,
    key_format: KeyFormat = None,
    value_format: ValueFormat = None,
    schema_registry: Registry = None,
    compression: Compression = None,
    acks: Acks = None,
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
) -> None:
    """Send each line of stdin as a record."""
    from kstore.clients import Producer
    from kstore.errors import MessageTooLargeError

    headers = tuple(parse_header(item) for item in header or [])
    config = client_config("producer", bootstrap, properties, profile, {"max.block.ms": TIMEOUT_MS})
    try:
        parse = _parser(
            None if key_separator is None else key_separator.encode(),
            coder(key_format, "key", schema_registry, topic),
            coder(value_format, "value", schema_registry, topic), json=json,
        )  # fmt: skip
        producer = Producer(config, compression_type=compression, acks=acks)
    except (ImportError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    count = 0
    if sys.stdin.isatty():
        print("kstore: one record per line; Ctrl-D to stop", file=sys.stderr)
    with producer:
        for line in read_lines(producer):
            try:
                record = parse(line)
                _send(producer, topic, record, partition, timestamp, headers)
            except (RecordFormatError, MessageTooLargeError) as error:
                producer.flush()
                sentence = f"stdin line {count + 1}: {error}; the {count} lines before it were sent"
                raise SystemExit(fail(sentence)) from None
            count += 1
    sent = "1 record" if count == 1 else f"{count:,} records"
    print(f"kstore: {sent} sent to {topic}", file=sys.stderr)


def _parser(
    separator: bytes | None, key: Coder | None, value: Coder | None, *, json: bool
) -> Callable[[bytes], InputRecord]:
    """The function that makes a line a record."""
    if json:
        encode_key, encode_value = key and key.encode_data, value and value.encode_data
        return lambda line: parse_json(line, encode_key, encode_value)
    from_text = key and key.encode_text, value and value.encode_text
    return lambda line: parse_line(line, separator, *from_text)


def parse_header(item: str) -> tuple[str, bytes | None]:
    """Parse NAME=VALUE; raises typer.BadParameter if there is no equals sign."""
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
    """Yield stdin's lines without their line ends; flush the producer whenever no more input is
    available yet.
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
