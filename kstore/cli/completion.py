"""What the shell completes: names in the cluster that the command line refers to, and the values of
options.

The shell waits for the answer. If the cluster does not answer in time, there are no completions and
no error.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Any, cast

import typer

if TYPE_CHECKING:
    from kstore.clients import AdminClient
    from kstore.clients.admin.configs import ResourceKind
    from kstore.config import ConfigDef

__all__ = [
    "Completer",
    "broker_configs",
    "brokers",
    "from_cluster",
    "groups",
    "isolation_levels",
    "profile_names",
    "resource_configs",
    "resource_keys",
    "resource_names",
    "settings",
    "share_groups",
    "topic_configs",
    "topic_keys",
    "topic_partitions",
    "topics",
    "words",
]

ANSWER_MS = 350
"""The time that the cluster has to answer. A user notices a second, and starting Python takes half
of it.
"""
CLOSE_S = 0.05

Completer = Callable[[typer.Context, str], list[str]]


def words(*choices: str) -> Completer:
    """A completer of fixed words."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        return _begin(choices, incomplete)

    return complete


isolation_levels = words("read_committed", "read_uncommitted")


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics, without internal ones."""
    found = from_cluster(
        ctx, lambda admin: [t.name for t in admin.describe_topics() if not t.is_internal]
    )
    return _begin(found, incomplete)


def topic_partitions(ctx: typer.Context, incomplete: str) -> list[str]:
    """TOPIC:PARTITION of all topics."""
    found = from_cluster(
        ctx,
        lambda admin: [
            f"{topic.name}:{row.partition}"
            for topic in admin.describe_topics()
            if not topic.is_internal
            for row in topic.partitions
        ],
    )
    return _begin(found, incomplete)


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """The groups."""
    found = from_cluster(ctx, lambda admin: [row.group_id for row in admin.list_groups()])
    return _begin(found, incomplete)


def share_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """The share groups."""
    found = from_cluster(
        ctx, lambda admin: [row.group_id for row in admin.list_groups(types=["share"])]
    )
    return _begin(found, incomplete)


def brokers(ctx: typer.Context, incomplete: str) -> list[str]:
    """The ids of the brokers that are alive."""
    found = from_cluster(
        ctx, lambda admin: [str(b.node_id) for b in admin.describe_cluster().brokers]
    )
    return _begin(found, incomplete)


def topic_keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of topic configs."""
    return _begin(_known("topic"), incomplete)


def topic_configs(ctx: typer.Context, incomplete: str) -> list[str]:
    """KEY=VALUE of topic configs."""
    return _pairs("topic", _known("topic"), incomplete)


def broker_configs(ctx: typer.Context, incomplete: str) -> list[str]:
    """KEY=VALUE of broker configs."""
    return _pairs("broker", _known("broker"), incomplete)


def resource_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The resources of the kind that the command line names."""
    kind = ctx.params.get("kind")
    if kind in {"broker", "broker-logger"}:
        return [*brokers(ctx, incomplete), *_begin(["default"], incomplete)]
    return {"topic": topics, "group": groups}.get(str(kind), words())(ctx, incomplete)


def resource_keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of the configs of the resource that the command line names, as the cluster reports
    them.
    """
    return _begin(_keys_of(ctx), incomplete)


def resource_configs(ctx: typer.Context, incomplete: str) -> list[str]:
    """KEY=VALUE of the configs of the resource that the command line names."""
    return _pairs(str(ctx.params.get("kind")), _keys_of(ctx), incomplete)


def settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """KEY=VALUE of client settings."""
    from kstore.config.client.configs import CLIENT_CONFIGS

    rows = {name: row for kind in CLIENT_CONFIGS.values() for name, row in kind.items()}
    return _with_values(rows, rows, incomplete)


def profile_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The profiles."""
    from kstore.cli.profiles import profiles
    from kstore.config import ConfigError

    try:
        return _begin(profiles(), incomplete)
    except (ConfigError, OSError):
        return []


def _keys_of(ctx: typer.Context) -> list[str]:
    kind, name = str(ctx.params.get("kind")), ctx.params.get("name")
    of = "" if name == "default" else str(name)
    found = from_cluster(
        ctx, lambda admin: admin.describe_configs(of, resource=cast("ResourceKind", kind))
    )
    return found or list(_known(kind))


def _known(kind: str) -> Mapping[str, ConfigDef]:
    from kstore.config import BROKER_CONFIGS, TOPIC_CONFIGS

    return {"topic": TOPIC_CONFIGS, "broker": BROKER_CONFIGS}.get(kind, {})


def _pairs(kind: str, names: Iterable[str], incomplete: str) -> list[str]:
    return _with_values(names, _known(kind), incomplete)


def _with_values(names: Iterable[str], rows: Mapping[str, ConfigDef], incomplete: str) -> list[str]:
    """NAME= for each name; after the equals sign, the values that the setting takes."""
    name, equals, _ = incomplete.partition("=")
    if not equals:
        return _begin((f"{each}=" for each in names), incomplete)
    row = rows.get(name)
    return [] if row is None else _begin((f"{name}={each}" for each in row.choices), incomplete)


def _begin(found: Iterable[str], incomplete: str) -> list[str]:
    return sorted({each for each in found if each.startswith(incomplete)})


def from_cluster(ctx: typer.Context, ask: Callable[[AdminClient], Iterable[str]]) -> list[str]:
    """The cluster's answer, with the -b, -X and --profile of the command line so far; nothing if it
    does not answer within ANSWER_MS.
    """
    from kstore.clients import AdminClient

    found: list[str] = []

    def run() -> None:
        found.extend(_answer(AdminClient, ctx.params, ask))

    logging.disable(logging.CRITICAL)
    # A daemon thread: a client may not stop in time, but the process must exit.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(ANSWER_MS / 1000 + CLOSE_S)
    return list(found)


def _answer(
    client: type[AdminClient],
    given: Mapping[str, Any],
    ask: Callable[[AdminClient], Iterable[str]],
) -> list[str]:
    from kstore.cli.client_config import client_config
    from kstore.cli.cluster_folder import ClusterError
    from kstore.config import ConfigError
    from kstore.errors import KafkaError

    try:
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
            config = client_config(
                "admin", given.get("bootstrap"), given.get("properties"), given.get("profile")
            )
        limit = {"default.api.timeout.ms": ANSWER_MS, "request.timeout.ms": ANSWER_MS}
        with client(config | limit) as admin:
            return list(ask(admin))
    except (
        KafkaError, ConfigError, ClusterError, OSError, typer.BadParameter, CancelledError,
    ):  # fmt: skip
        return []  # No completions. The command itself reports the error.
