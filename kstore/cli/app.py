"""Every command of ``kstore`` but serve, put together with typer. The commands themselves are in
files of their own, which are imported when they are called.

This is imported only when one of them is called, so that ``kstore serve`` starts without typer and
rich.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from kstore import __version__
from kstore.cli.lazy_group import CommandModule, LazyGroup

__all__ = ["app", "run"]

LazyGroup.modules = {
    "acl": CommandModule("kstore.cli.admin.acl", "List, add and remove ACLs."),
    "cluster": CommandModule(
        "kstore.cli.cluster.commands",
        "Start, watch and end a cluster on this machine; describe any.",
    ),
    "config": CommandModule("kstore.cli.admin.config", "Show, set and unset configs."),
    "consume": CommandModule(
        "kstore.cli.records.consume", "Write a topic's records to stdout.", "consume"
    ),
    "elect": CommandModule("kstore.cli.admin.elect", "Elect the leaders of partitions.", "elect"),
    "feature": CommandModule(
        "kstore.cli.admin.feature", "Describe and update the cluster's features."
    ),
    "group": CommandModule(
        "kstore.cli.admin.group", "Groups, their members and committed offsets."
    ),
    "log": CommandModule("kstore.cli.records.log", "Read segment files without a broker."),
    "logdirs": CommandModule("kstore.cli.admin.logdirs", "Show log dirs with their replicas."),
    "pipeline": CommandModule("kstore.cli.pipeline.jobs", "Jobs that move whole files and topics."),
    "produce": CommandModule(
        "kstore.cli.records.produce", "Send each line of stdin as a record.", "produce"
    ),
    "profile": CommandModule("kstore.cli.profile", "Named client settings, for --profile."),
    "quota": CommandModule("kstore.cli.admin.quota", "List, set and remove client quotas."),
    "reassign": CommandModule("kstore.cli.admin.reassign", "Move partitions to other brokers."),
    "replicate": CommandModule(
        "kstore.cli.records.replicate",
        "Copy topics from any Kafka to kstore, offsets too.",
        "replicate",
    ),
    "topic": CommandModule("kstore.cli.admin.topic", "Create, list, describe and change topics."),
    "txn": CommandModule("kstore.cli.admin.txn", "Transactions, and those that hang."),
    "verify-order": CommandModule(
        "kstore.cli.records.verify_order",
        "Check that a topic has each key's records in order.",
        "verify_order",
    ),
    "user": CommandModule("kstore.cli.admin.user", "SCRAM credentials of users."),
}

app = typer.Typer(
    name="kstore",
    cls=LazyGroup,
    help="A log you can pip install: a broker that speaks Kafka's protocol, and tools for it.",
    epilog="Example: kstore serve --override log.dirs=./data",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
