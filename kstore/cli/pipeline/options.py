"""Options of several commands of `kstore pipeline`, and how they are parsed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kstore.cli.client_options import client_config

__all__ = ["ArchiveFolder", "Follow", "OnLoss", "reader"]

_WAIT = {"client.id": "kstore-pipeline", "default.api.timeout.ms": 60_000}

OnLoss = Annotated[
    str,
    typer.Option(help="fail or skip, if the cluster has deleted records that were not copied yet."),
]
ArchiveFolder = Annotated[str, typer.Option("--archive", metavar="FOLDER", help="By path or URL.")]
Follow = Annotated[
    bool, typer.Option("--follow", help="Begin another round when one is done, until Ctrl-C.")
]


def reader(
    servers: str | None, properties: list[str] | None, profile: str | None
) -> dict[str, Any]:
    """The settings of a consumer."""
    return client_config("consumer", servers, properties, profile, _WAIT)
