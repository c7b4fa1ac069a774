"""Options that several commands share, each defined once."""

from __future__ import annotations

from typing import Annotated

import typer

from kstore.cli import completion

__all__ = ["DEFAULT_FOLDER", "TIMEOUT_MS", "Bootstrap", "DryRun", "Header", "Json", "Topic"]

# How long a command tries to find a broker.
TIMEOUT_MS = 10_000
# The cluster folder of a command that names none.
DEFAULT_FOLDER = "kstore-cluster"

Topic = Annotated[str, typer.Argument(help="The topic's name.", autocompletion=completion.topics)]
Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", "-b", envvar="KSTORE_BOOTSTRAP_SERVER", help="host:port of a broker."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Have the broker only check the request.")]
Header = Annotated[
    list[str] | None,
    typer.Option(
        "--header", "-H", metavar="NAME=VALUE", help="A header of each record; may be repeated."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, one object per line.")]
