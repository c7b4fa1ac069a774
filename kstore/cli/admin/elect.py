"""``kstore elect``: leader elections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli import completion
from kstore.cli.admin_command import with_admin
from kstore.cli.arguments import parse_partition
from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.clients import AdminClient

__all__ = ["EXAMPLE", "elect"]

EXAMPLE = "Example: kstore elect orders:0 orders:1"


@with_admin
def elect(
    admin: AdminClient,
    out: Output,
    partitions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC:PARTITION",
            autocompletion=completion.topic_partitions,
            help="The partitions.",
        ),
    ] = None,
    everywhere: Annotated[
        bool,
        typer.Option("--all", help="All partitions that are not led by their preferred leader."),
    ] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="If no replica is in sync, elect any live replica. Records can be lost.",
        ),
    ] = False,
) -> None:
    """Elect the preferred leaders of partitions."""
    if bool(partitions) == everywhere:
        raise typer.BadParameter("specify partitions, or use --all")
    results = admin.elect_leaders(
        None if everywhere else map(parse_partition, partitions or []),
        election="unclean" if unclean else "preferred",
        raise_errors=False,
    )
    out.report(
        results,
        lambda tp, _: (
            {"topic": tp.topic, "partition": tp.partition, "elected": True},
            f"elected the leader of {tp.topic}:{tp.partition}",
        ),
    )
