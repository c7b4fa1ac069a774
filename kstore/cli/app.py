"""Every command of ``kstore`` but serve, put together with typer. The commands themselves are in
files of their own.

This is imported only when one of them is called, so that ``kstore serve`` starts without typer and
rich.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from kstore import __version__
from kstore.cli import cluster, consume, log, pipeline, produce, replicate, topic
from kstore.cli.failure import guarded

__all__ = ["app", "run"]

app = typer.Typer(
    name="kstore",
    help="A log you can pip install: a broker that speaks Kafka's protocol, and tools for it.",
    epilog="Example: kstore serve --override log.dirs=./data",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(topic.app, name="topic")
app.add_typer(cluster.app, name="cluster")
app.add_typer(log.app, name="log")
app.add_typer(pipeline.app, name="pipeline")
app.command(epilog=produce.EXAMPLE)(guarded(produce.produce))
app.command(epilog=consume.EXAMPLE)(guarded(consume.consume))
app.command(epilog=replicate.EXAMPLE)(replicate.replicate)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        app(args=list(arguments), prog_name="kstore")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    return 0


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    """A log you can pip install: a broker that speaks Kafka's protocol, and tools for it."""
    if version:
        print(f"kstore {__version__}")
        raise typer.Exit


@app.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
def serve(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[server.properties]")] = None,
) -> None:
    """Start a broker and run it until Ctrl-C; see `kstore serve --help`."""
    # A call of `kstore serve` does not come through here (see kstore.__main__), unless options
    # stand before it.
    from kstore.cli.serve import serve as run_serve

    raise typer.Exit(run_serve(arguments or []))


@app.command(
    epilog="Example: kstore completion bash > ~/.local/share/bash-completion/completions/kstore"
)
def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish")] = "bash",
) -> None:
    """Print the completion script of a shell; --install-completion puts it in its place."""
    if shell not in {"bash", "zsh", "fish"}:
        raise typer.BadParameter(f"{shell} is not one of bash, zsh, fish")
    os.environ["_KSTORE_COMPLETE"] = f"source_{shell}"
    app(args=[], prog_name="kstore")
