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
    str, typer.Option(help="read_committed, or read_uncommitted: aborted records too.")
]
Groups = Annotated[
    str, typer.Option(help="Regular expression of the groups whose offsets are copied.")
]
NoGroups = Annotated[bool, typer.Option("--no-groups", help="Do not copy committed offsets.")]
Rate = Annotated[
    str | None, typer.Option(metavar="RATE", help="The limit per second, such as 10MB.")
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
    typer.Option("--source-property", "-S", metavar="KEY=VALUE", help="A client setting."),
]
TargetProperty = Annotated[
    list[str] | None,
    typer.Option("--target-property", "-T", metavar="KEY=VALUE", help="A client setting."),
]
FromProfile = Annotated[
    str | None, typer.Option(metavar="NAME", help="Settings of the source: see `kstore profile`.")
]
ToProfile = Annotated[
    str | None, typer.Option(metavar="NAME", help="Settings of the target: see `kstore profile`.")
]
