"""Puts the commands of ``kstore`` together with typer. The commands are in other modules, which are
imported when they are called.

A plain ``kstore serve`` does not use this module (see kstore.__main__), so that it starts without
typer and rich.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from kstore.cli.lazy_group import CommandModule, LazyGroup
from kstore.version import installed_version

__all__ = ["app", "run"]

LazyGroup.modules = {
    "acl": CommandModule("kstore.cli.admin.acl", "List, add and remove ACLs."),
    "backup": CommandModule(
        "kstore.cli.backup.commands", "Back up a broker, a cluster or a log dir, and restore it."
    ),
    "cluster": CommandModule(
        "kstore.cli.cluster.commands",
        "Run a cluster on this machine; describe any cluster.",
    ),
    "config": CommandModule("kstore.cli.admin.config", "Show, set and unset configs."),
    "console": CommandModule(
        "kstore.console.command", "Start a web console for a cluster.", "console"
    ),
    "consume": CommandModule(
        "kstore.cli.records.consume", "Write a topic's records to stdout.", "consume"
    ),
    "doctor": CommandModule(
        "kstore.cli.doctor.command",
        "Find problems with a machine, its settings or a cluster.",
        "doctor",
    ),
    "elect": CommandModule("kstore.cli.admin.elect", "Elect the leaders of partitions.", "elect"),
    "feature": CommandModule(
        "kstore.cli.admin.feature", "Describe and update the cluster's features."
    ),
    "group": CommandModule(
        "kstore.cli.admin.group", "Manage groups, their members and committed offsets."
    ),
    "log": CommandModule(
        "kstore.cli.records.log", "Show, check and repair segment files without a broker."
    ),
    "logdirs": CommandModule(
        "kstore.cli.admin.logdirs", "Show log dirs, and move replicas between them."
    ),
    "pipeline": CommandModule(
        "kstore.cli.pipeline.jobs",
        "Run jobs that copy, archive and check files and topics.",
    ),
    "produce": CommandModule(
        "kstore.cli.records.produce", "Send each line of stdin as a record.", "produce"
    ),
    "profile": CommandModule("kstore.cli.profile", "Show named client settings (for --profile)."),
    "quota": CommandModule("kstore.cli.admin.quota", "List, set and remove client quotas."),
    "reassign": CommandModule("kstore.cli.admin.reassign", "Move partitions to other brokers."),
    "replicate": CommandModule(
        "kstore.cli.records.replicate",
        "Copy topics from any Kafka cluster to kstore, with their offsets.",
        "replicate",
    ),
    "scan": CommandModule(
        "kstore.cli.records.scan",
        "Write a topic's records as a table, JSON, CSV or Parquet.",
        "scan",
    ),
    "serve": CommandModule(
        "kstore.cli.serve_command", "Start a broker and run it until Ctrl-C.", "serve"
    ),
    "token": CommandModule(
        "kstore.cli.admin.token", "Create, list, renew and expire delegation tokens."
    ),
    "share": CommandModule(
        "kstore.cli.share.commands",
        "Read topics as a member of a share group.",
    ),
    "top": CommandModule(
        "kstore.cli.top.command", "Watch brokers, topics and groups, live.", "top"
    ),
    "topic": CommandModule("kstore.cli.admin.topic", "Create, list, describe and change topics."),
    "txn": CommandModule("kstore.cli.admin.txn", "List, describe and abort transactions."),
    "verify": CommandModule(
        "kstore.cli.admin.verify",
        "Check that the logs still have the records that groups processed.",
        "verify",
    ),
    "verify-order": CommandModule(
        "kstore.cli.records.verify_order",
        "Check that the records of each key are in order.",
        "verify_order",
    ),
    "upgrade": CommandModule(
        "kstore.cli.upgrade.commands", "Check whether this version can take over data or a cluster."
    ),
    "user": CommandModule(
        "kstore.cli.admin.user",
        "List, set and remove SCRAM credentials of users.",
    ),
}

app = typer.Typer(
    name="kstore",
    cls=LazyGroup,
    help="A log that you can pip install: a broker that speaks Kafka's protocol, and tools for it.",
    epilog="Example: kstore serve --override log.dirs=./data",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
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
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """A log that you can pip install: a broker that speaks Kafka's protocol, and tools for it."""
    if version:
        print(f"kstore {installed_version()}")
        raise typer.Exit


@app.command(
    epilog="Example: kstore completion bash > ~/.local/share/bash-completion/completions/kstore"
)
def completion(
    shell: Annotated[
        str,
        typer.Argument(help="bash, zsh or fish", autocompletion=lambda: ["bash", "zsh", "fish"]),
    ] = "bash",
) -> None:
    """Print the completion script of a shell; --install-completion installs it."""
    if shell not in {"bash", "zsh", "fish"}:
        raise typer.BadParameter(f"{shell} is not one of bash, zsh, fish")
    os.environ["_KSTORE_COMPLETE"] = f"source_{shell}"
    app(args=[], prog_name="kstore")
