"""``kstore logdirs``: the replicas in each log dir, and moves between log dirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli import completion
from kstore.cli.admin_command import admin_command
from kstore.cli.arguments import parse_partition
from kstore.cli.failure import FAILED, fail
from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.clients import AdminClient

__all__ = ["app"]

app = typer.Typer(help="Show log dirs with their replicas; move replicas.", no_args_is_help=True)


@admin_command(app, "describe", "kstore logdirs describe --broker 1 --replicas")
def describe(
    admin: AdminClient,
    out: Output,
    broker: Annotated[
        list[int] | None,
        typer.Option(
            "--broker",
            autocompletion=completion.brokers,
            help="Show only this broker; may be repeated.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            autocompletion=completion.topics,
            help="Show only replicas of this topic; may be repeated.",
        ),
    ] = None,
    replicas: Annotated[
        bool,
        typer.Option(
            "--replicas",
            help="Show a row for each replica.",
        ),
    ] = False,
) -> None:
    """Show log dirs: their size, their volume's free bytes, and their partitions."""
    found = admin.describe_log_dirs(broker)
    errors = []
    rows = []
    for node_id, dirs in found.items():
        for path, each in dirs.items():
            errors += [each.error] if each.error else []
            kept = {tp: r for tp, r in each.replicas.items() if not topic or tp.topic in topic}
            where = {"broker": node_id, "log_dir": path}
            if replicas or topic:
                rows += [
                    where | {"topic": tp.topic, "partition": tp.partition} | size._asdict()
                    for tp, size in kept.items()
                ]
                continue
            volume = {
                "replicas": len(kept),
                "size_bytes": sum(r.size_bytes for r in kept.values()),
                "usable_bytes": None if each.usable_bytes < 0 else each.usable_bytes,
                "total_bytes": None if each.total_bytes < 0 else each.total_bytes,
            }
            rows.append(where | volume | {"error": str(each.error) if each.error else None})
    one_each = ["topic", "partition", "size_bytes", "offset_lag", "is_future"]
    volumes = ["replicas", "size_bytes", "usable_bytes", "total_bytes"]
    out.table(rows, ["broker", "log_dir", *(one_each if replicas or topic else volumes)])
    for error in errors:
        fail(str(error))
    if errors:
        raise SystemExit(FAILED)


@admin_command(app, "move", "kstore logdirs move orders:0 --broker 1 --to /data2/kstore")
def move(
    admin: AdminClient,
    out: Output,
    partitions: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC:PARTITION",
            autocompletion=completion.topic_partitions,
            help="The replicas to move.",
        ),
    ],
    broker: Annotated[
        int,
        typer.Option(
            "--broker",
            autocompletion=completion.brokers,
            help="The broker whose replicas are moved.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PATH",
            help="The log dir of that broker to move them to.",
        ),
    ],
) -> None:
    """Move replicas to another log dir of their broker; the move continues after the command
    exits.
    """
    from kstore.clients.admin import ReplicaOnBroker

    wanted = [ReplicaOnBroker(*parse_partition(text), broker) for text in partitions]
    out.report(
        admin.alter_replica_log_dirs(dict.fromkeys(wanted, to), raise_errors=False),
        lambda each, _: (each._asdict() | {"to": to}, f"moving {each.topic}:{each.partition}"),
    )
