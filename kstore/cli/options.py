"""Options that several commands share, each defined once."""

from __future__ import annotations

from typing import Annotated

import typer

from kstore.cli import completion

__all__ = ["Bootstrap", "DryRun", "Header", "Json", "ProfileName", "Properties", "Servers", "Topic"]

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
Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,...",
        help="The brokers to connect to first, or a cluster's folder; by default "
        "KSTORE_BOOTSTRAP_SERVER, else ./kstore-cluster if that cluster runs, else "
        "localhost:9092.",
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="KEY=VALUE",
        autocompletion=completion.settings,
        help="A client setting; may be repeated. ${env:NAME} and ${file:PATH} are replaced by the "
        "variable's or the file's content.",
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        autocompletion=completion.profile_names,
        help="Client settings from a file (see `kstore profile`); by default KSTORE_PROFILE.",
    ),
]
