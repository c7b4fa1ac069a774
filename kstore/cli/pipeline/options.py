"""Options of several commands of `kstore pipeline`, and how they are parsed."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from kstore.cli.arguments import one_of
from kstore.cli.client_config import client_config

__all__ = ["ArchiveFolder", "Follow", "OnLoss", "is_committed", "names_matching", "reader"]

_WAIT = {"client.id": "kstore-pipeline", "default.api.timeout.ms": 60_000}

OnLoss = Annotated[
    str,
    typer.Option(help="fail or skip, if the cluster has deleted records that were not copied yet."),
]
ArchiveFolder = Annotated[
    str, typer.Option("--archive", metavar="FOLDER", help="The archive's path or URL.")
]
Follow = Annotated[
    bool, typer.Option("--follow", help="Start another round when one is done, until Ctrl-C.")
]


def reader(
    servers: str | None, properties: list[str] | None, profile: str | None
) -> dict[str, Any]:
    """The settings of a consumer."""
    return client_config("consumer", servers, properties, profile, _WAIT)


def names_matching(names: list[str], regex: bool) -> re.Pattern[str]:
    """A pattern for names of topics or groups. Raises typer.BadParameter."""
    from kstore.clients.replicator.options import names_pattern

    try:
        return names_pattern(names, regex=regex)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def is_committed(isolation: str) -> bool:
    """Whether only committed records are read. Raises typer.BadParameter."""
    known = ("read_committed", "read_uncommitted")
    return one_of("--isolation-level", isolation, *known) == known[0]
