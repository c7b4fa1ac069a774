"""``kstore pipeline``: the jobs of kstore.pipeline.jobs as commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kstore.cli.options import Bootstrap, Json

__all__ = ["app", "load"]

app = typer.Typer(help="Jobs that move whole files and topics.", no_args_is_help=True)


@app.command(epilog="Example: kstore pipeline load --file server.log")
def load(
    file: Annotated[
        Path | None, typer.Option(help="A text file; default: the Debian package list.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Default: named after the file.")] = None,
    bootstrap: Bootstrap = "localhost:9092",
    json: Json = False,
) -> None:
    """Load a file through confluent-kafka, read it back, and compare every record."""
    from kstore.pipeline.jobs.load import main

    arguments = ["--bootstrap-server", bootstrap]
    arguments += ["--file", str(file)] if file else []
    arguments += ["--topic", topic] if topic else []
    arguments += ["--json"] if json else []
    raise typer.Exit(main(arguments))
