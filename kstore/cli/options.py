"""Options that several commands share, each defined once."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["Bootstrap", "Json"]

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", "-b", envvar="KSTORE_BOOTSTRAP_SERVER", help="host:port of a broker."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, one object a line.")]
