"""``kstore reassign``: move partitions to other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli import completion
from kstore.cli.admin_command import admin_command
from kstore.cli.arguments import key_values, parse_ids, parse_partition
from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.clients import AdminClient

__all__ = ["app"]

app = typer.Typer(
    help="Move partitions to other brokers; list and cancel moves in progress.",
    no_args_is_help=True,
)


@admin_command(app, "start", "kstore reassign start orders:0=2,3 orders:1=3,1")
def start(
    admin: AdminClient,
    out: Output,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC:PARTITION=IDS",
            help="The new brokers, the preferred leader first.",
        ),
    ],
) -> None:
    """Start to move partitions; the moves continue after the command exits."""
    wanted = {
        parse_partition(text): parse_ids(ids)
        for text, ids in key_values(targets, "orders:0=1,2,3").items()
    }
    out.report(
        admin.alter_partition_reassignments(wanted, raise_errors=False),
        lambda tp, _: (
            {"topic": tp.topic, "partition": tp.partition, "replicas": wanted[tp]},
            f"moving {tp.topic}:{tp.partition} to {','.join(map(str, wanted[tp]))}",
        ),
    )


@admin_command(app, "list", "kstore reassign list")
def list_moves(admin: AdminClient, out: Output) -> None:
    """List the moves in progress."""
    rows = [
        {"topic": tp.topic, "partition": tp.partition} | move._asdict()
        for tp, move in admin.list_partition_reassignments().items()
    ]
    out.table(rows, ["topic", "partition", "replicas", "adding", "removing"])


@admin_command(app, "cancel", "kstore reassign cancel orders:0")
def cancel(
    admin: AdminClient,
    out: Output,
    partitions: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC:PARTITION",
            autocompletion=completion.topic_partitions,
            help="The partitions whose moves to cancel.",
        ),
    ],
) -> None:
    """Cancel moves: the partitions stay where they were."""
    wanted = dict.fromkeys(map(parse_partition, partitions))
    out.report(
        admin.alter_partition_reassignments(wanted, raise_errors=False),
        lambda tp, _: (
            {"topic": tp.topic, "partition": tp.partition, "cancelled": True},
            f"cancelled the move of {tp.topic}:{tp.partition}",
        ),
    )
