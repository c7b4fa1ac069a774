"""``kstore share consume``: records of topics to stdout as a member of a share group. cli/records
formats them.

A record is acknowledged after it was flushed to stdout: records that did not reach the reader of
the pipe are delivered again.
"""

from __future__ import annotations

import json as json_module
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli import completion
from kstore.cli.arguments import key_values
from kstore.cli.client_config import client_config
from kstore.cli.failure import fail, guarded
from kstore.cli.options import Json, ProfileName, Properties, Servers
from kstore.cli.records.field_formats import KeyFormat, Registry, ValueFormat, coder
from kstore.cli.records.read_options import Format
from kstore.cli.records.reading import decoded
from kstore.cli.records.record_text import to_json
from kstore.cli.records.templates import template
from kstore.config.client.configs import CLIENT_CONFIGS
from kstore.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from kstore.clients import ShareConsumer, ShareRecord

__all__ = ["app", "consume"]

app = typer.Typer(help="Read topics as a member of a share group.", no_args_is_help=True)
ACKS = ("accept", "release", "reject")
_POLL_MS = 500
_POLL_RECORDS = 500

Topics = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="The topics to read.", autocompletion=completion.topics),
]
Group = Annotated[
    str,
    typer.Option(
        "--group", "-G", metavar="NAME", help="The share group.",
        autocompletion=completion.share_groups,
    ),
]  # fmt: skip
Ack = Annotated[
    str,
    typer.Option(
        "--ack", autocompletion=completion.words(*ACKS),
        help=
        "How to acknowledge each written record: accept, release (it is delivered again, "
        "also to this command) or reject.",
    ),
]  # fmt: skip
Count = Annotated[
    int | None,
    typer.Option("--count", "-c", min=1, help="Stop after this many records."),
]
Idle = Annotated[
    float | None,
    typer.Option(
        "--idle", metavar="SECONDS", min=0,
        help="Stop when this member has its partitions and no record has arrived for this long.",
    ),
]  # fmt: skip


@app.command("consume", epilog="Example: kstore share consume orders -G billing --ack accept")
@guarded
def consume(
    topics: Topics,
    group: Group,
    ack: Ack = "accept",
    count: Count = None,
    idle: Idle = None,
    form: Format = r"{value}\n",
    json: Json = False,
    key_format: KeyFormat = None,
    value_format: ValueFormat = None,
    schema_registry: Registry = None,
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
) -> None:
    """Write records to stdout, and acknowledge them, until Ctrl-C; --json adds the delivery count.

    A new share group starts at the end of its topics; `kstore config set group NAME
    share.auto.offset.reset=earliest` makes it start at the beginning.
    """
    from kstore.clients import ShareConsumer

    try:
        if ack not in ACKS:
            raise ValueError(f"--ack is {ack!r}; it must be one of {', '.join(ACKS)}")
        if "group.id" in key_values(properties, "client.id=me"):
            raise ValueError("use --group, not group.id")
        decode = decoded(
            coder(key_format, "key", schema_registry), coder(value_format, "value", schema_registry)
        )
        write = template(form)
        config = client_config("share", bootstrap, properties, profile)
        own = {"group.id": group, "share.acknowledgement.mode": "explicit"}
        if count is not None:
            own["share.acquire.mode"] = (
                "record_limit"  # do not acquire records that are not written
            )
        consumer = ShareConsumer(config | own)
    except (ImportError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None

    def line(record: ShareRecord) -> bytes:
        found: Any = decode(record)  # type: ignore[arg-type]  # it has all that is read of one
        return _with_count(to_json(found), record.delivery_count) if json else write(found)

    with consumer:
        _check_topics(config, topics)
        consumer.subscribe(topics)
        _copy(consumer, line, ack, count, idle)


def _check_topics(config: dict[str, Any], topics: list[str]) -> None:
    """Fail soon if a topic does not exist: the group would wait for it."""
    from kstore.clients import AdminClient

    known = {name: value for name, value in config.items() if name in CLIENT_CONFIGS["admin"]}
    with AdminClient(known) as admin:
        for topic in topics:
            try:
                admin.describe_topics([topic])
            except UnknownTopicOrPartitionError:
                sentence = f"there is no topic {topic!r}: `kstore topic list` shows the topics"
                raise SystemExit(fail(sentence)) from None


def _copy(
    consumer: ShareConsumer, line: Any, ack: str, count: int | None, idle_s: float | None
) -> None:
    left = count
    quiet_since = time.monotonic()
    while left is None or left > 0:
        most = _POLL_RECORDS if left is None else min(left, _POLL_RECORDS)
        records = consumer.poll(_POLL_MS, max_records=most)
        now = time.monotonic()
        if records:
            sys.stdout.buffer.write(b"".join(map(line, records)))
            sys.stdout.buffer.flush()
            for record in records:
                consumer.acknowledge(record, ack)
        if records or not consumer.assignment():
            quiet_since = now
        if idle_s is not None and now - quiet_since >= idle_s:
            break
        if left is not None:
            left -= len(records)
    for error in consumer.commit().values():
        if error is not None:
            raise error


def _with_count(line: bytes, delivery_count: int) -> bytes:
    row = json_module.loads(line)
    row["delivery_count"] = delivery_count
    return json_module.dumps(row, ensure_ascii=False).encode() + b"\n"
