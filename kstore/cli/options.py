"""Options that several commands share, each defined once."""

from __future__ import annotations

from typing import Annotated

import typer

from kstore.cli import completion

__all__ = ["DEFAULT_FOLDER", "TIMEOUT_MS", "Bootstrap", "DryRun", "Header", "Json", "Topic"]

# How long a command looks for a broker before it says that there is none.
TIMEOUT_MS = 10_000
# The folder of the cluster that a command means where none is named.
DEFAULT_FOLDER = "kstore-cluster"

Topic = Annotated[str, typer.Argument(help="Which topic.", autocompletion=completion.topics)]
Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", "-b", envvar="KSTORE_BOOTSTRAP_SERVER", help="host:port of a broker."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Let the broker only check the request.")]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="For each record; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, one object per line.")]
