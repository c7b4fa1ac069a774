"""The command ``kstore serve`` with its help, its errors and its completion. serve.py does the
work, and runs without this module for a plain command line.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kstore.cli import completion
from kstore.cli.arguments import key_values
from kstore.cli.serve import ServeArguments
from kstore.cli.serve import serve as run

__all__ = ["EXAMPLE", "serve"]

EXAMPLE = (
    "Example: kstore serve --override log.dirs=./data "
    "--override listeners=PLAINTEXT://localhost:9192"
)


def serve(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="server.properties",
            help="Settings under Kafka's names, in Java's properties format.",
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Set one setting; may be repeated. It overrides the file and the environment "
            "(KSTORE_LOG_DIRS sets log.dirs, and so on).",
            autocompletion=completion.broker_configs,
        ),
    ] = None,
    config_print: Annotated[
        bool,
        typer.Option(
            "--config-print",
            help="Show all settings with their values and sources, and exit.",
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Write the ready line, or the settings, as JSON.")
    ] = False,
) -> None:
    """Start a broker and run it until Ctrl-C or SIGTERM. Without a file it listens on
    localhost:9092 and keeps its data in ~/.local/share/kstore/data.
    """
    overrides = key_values(override, "num.partitions=4")
    raise typer.Exit(run(ServeArguments(path, overrides, config_print, json)))
