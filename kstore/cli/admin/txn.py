"""``kstore txn``: transactions, and hanging transactions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli import completion
from kstore.cli.admin_command import admin_command
from kstore.cli.arguments import each_of, parse_duration_ms, parse_partition
from kstore.cli.failure import FAILED, fail
from kstore.cli.output import Output
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients import AdminClient
    from kstore.clients.admin import ProducerState

__all__ = ["app"]

app = typer.Typer(
    help="List and describe transactions; find and abort hanging ones.", no_args_is_help=True
)


STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip


@admin_command(app, "list", "kstore txn list --state Ongoing --longer-than 5m")
def list_transactions(
    admin: AdminClient,
    out: Output,
    state: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=completion.words(*STATES),
            help="Show only ids in this state, such as Ongoing; may be repeated.",
        ),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Show only transactions that have been open for longer than this: 90s, 5m, 2h.",
        ),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Show only transactional ids that match this regular expression.",
        ),
    ] = None,
) -> None:
    """List the transactional ids of all coordinators."""
    duration_ms = -1 if longer_than is None else parse_duration_ms(longer_than)
    rows = [
        row._asdict()
        for row in admin.list_transactions(
            states=each_of("--state", state, STATES), min_duration_ms=duration_ms, id_pattern=match
        )
    ]
    out.table(rows, ["transactional_id", "producer_id", "state"])


@admin_command(app, "describe", "kstore txn describe billing-1")
def describe(
    admin: AdminClient,
    out: Output,
    ids: Annotated[
        list[str], typer.Argument(metavar="TRANSACTIONAL_ID", help="The transactional ids.")
    ],
) -> None:
    """Show a transactional id's state, producer, age and partitions."""
    found = admin.describe_transactions(ids, raise_errors=False)
    now_ms = round(time.time() * 1000)
    rows = [
        {
            "transactional_id": each.transactional_id,
            "state": each.state,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "timeout_ms": each.timeout_ms,
            "open_for_ms": None if each.start_time_ms < 0 else now_ms - each.start_time_ms,
            "coordinator": each.coordinator,
            "partitions": [f"{tp.topic}:{tp.partition}" for tp in each.partitions],
        }
        for each in found.values()
    ]
    columns = ["transactional_id", "state", "producer_id", "producer_epoch", "open_for_ms",
               "coordinator", "partitions"]  # fmt: skip
    out.table(rows, columns)
    for error in found.errors.values():
        fail(str(error))
    if found.errors:
        raise SystemExit(FAILED)


def _producer_row(tp: TopicPartition, producer: ProducerState) -> dict[str, Any]:
    row = producer._asdict()
    row = {key: None if value < 0 else value for key, value in row.items()}
    return {"topic": tp.topic, "partition": tp.partition} | row


_PRODUCER_COLUMNS = [
    "topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "last_timestamp_ms",
    "txn_start_offset",
]  # fmt: skip


@admin_command(app, "producers", "kstore txn producers orders:0")
def producers(
    admin: AdminClient,
    out: Output,
    partitions: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC:PARTITION",
            autocompletion=completion.topic_partitions,
            help="The partitions to show.",
        ),
    ],
) -> None:
    """Show the producers that a partition knows, and where their open transactions begin."""
    found = admin.describe_producers(map(parse_partition, partitions))
    rows = [_producer_row(tp, producer) for tp, each in found.items() for producer in each]
    out.table(rows, _PRODUCER_COLUMNS)


@admin_command(app, "hanging", "kstore txn hanging --topic orders")
def hanging(
    admin: AdminClient,
    out: Output,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            autocompletion=completion.topics,
            help="Search this topic; by default all partitions.",
        ),
    ] = None,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Transactions open for longer than this; at least "
            "transaction.max.timeout.ms of the "
            "broker.",
        ),
    ] = "15m",
) -> None:
    """Find transactions that are open on a partition and that no coordinator will end."""
    topics = admin.describe_topics(topic or None)
    partitions = [
        TopicPartition(each.name, row.partition) for each in topics for row in each.partitions
    ]
    found = admin.find_hanging_transactions(
        partitions,
        now_ms=round(time.time() * 1000),
        max_timeout_ms=parse_duration_ms(older_than),
    )
    out.table([_producer_row(each.partition, each.producer) for each in found], _PRODUCER_COLUMNS)


@admin_command(app, "abort", "kstore txn abort orders:0 --start-offset 1234")
def abort(
    admin: AdminClient,
    out: Output,
    partition: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC:PARTITION",
            autocompletion=completion.topic_partitions,
            help="The partition of a hanging transaction.",
        ),
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="Its first offset, as `kstore txn hanging` prints it.")
    ] = None,
    transactional_id: Annotated[
        str | None,
        typer.Option(
            help="Instead of a partition: abort this id's open transaction, and fence it.",
        ),
    ] = None,
) -> None:
    """Abort a hanging transaction on a partition, or the one of a transactional id."""
    if (transactional_id is None) == (partition is None):
        raise typer.BadParameter("use either TOPIC:PARTITION or --transactional-id")
    if transactional_id is not None:
        results = admin.fence_producers([transactional_id], raise_errors=False)
        out.report(
            results,
            lambda each, _: ({"fenced": each}, f"fenced {each}: its open transaction is aborted"),
        )
        return
    if start_offset is None or partition is None:
        raise typer.BadParameter("a transaction on a partition needs --start-offset")
    _abort_on_partition(admin, out, parse_partition(partition), start_offset)


def _abort_on_partition(
    admin: AdminClient, out: Output, tp: TopicPartition, start_offset: int
) -> None:
    from kstore.clients.admin import AbortSpec

    rows = admin.describe_producers([tp])[tp]
    found = [row for row in rows if row.txn_start_offset == start_offset]
    if not found:
        sentence = f"no transaction on {tp.topic}:{tp.partition} begins at {start_offset}"
        raise SystemExit(fail(sentence))
    (row,) = found
    coordinator_epoch = max(
        row.coordinator_epoch, 0
    )  # -1: the coordinator has never written a marker there
    admin.abort_transaction(AbortSpec(tp, row.producer_id, row.producer_epoch, coordinator_epoch))
    out.print(
        {"aborted": start_offset} | _producer_row(tp, row),
        f"aborted the transaction of producer {row.producer_id} on {tp.topic}:{tp.partition}",
    )
