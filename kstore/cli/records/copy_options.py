"""Options of the commands that copy topics from one cluster to another, with Spark or without."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "FromProfile",
    "Groups",
    "Isolation",
    "NoConfigs",
    "NoGroups",
    "Rate",
    "Regex",
    "Replicas",
    "SourceProperty",
    "TargetProperty",
    "ToProfile",
    "Topics",
]

Topics = Annotated[list[str], typer.Argument(help="Names of topics; with --regex, patterns.")]
Regex = Annotated[bool, typer.Option("--regex", help="TOPICS are regular expressions.")]
Isolation = Annotated[
    str, typer.Option(help="read_committed, or read_uncommitted to include aborted records.")
]
Groups = Annotated[
    str, typer.Option(help="A regular expression: copy the offsets of the groups that match.")
]
NoGroups = Annotated[bool, typer.Option("--no-groups", help="Do not copy committed offsets.")]
Rate = Annotated[
    str | None,
    typer.Option(metavar="RATE", help="Copy at most this much per second, such as 10MB."),
]
Replicas = Annotated[
    int,
    typer.Option(
        help="The replication factor of new topics; -1: the target's default.",
    ),
]
NoConfigs = Annotated[bool, typer.Option("--no-configs", help="Do not copy topic configs.")]
SourceProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--source-property",
        "-S",
        metavar="KEY=VALUE",
        help="A client setting for the source; may be repeated.",
    ),
]
TargetProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--target-property",
        "-T",
        metavar="KEY=VALUE",
        help="A client setting for the target; may be repeated.",
    ),
]
FromProfile = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Client settings for the source: see `kstore profile`."),
]
ToProfile = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Client settings for the target: see `kstore profile`."),
]
