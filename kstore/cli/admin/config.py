"""``kstore config``: configs of topics, brokers, loggers, client metrics and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kstore.cli import completion
from kstore.cli.admin_command import admin_command
from kstore.cli.arguments import key_values
from kstore.cli.options import DryRun
from kstore.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.clients import AdminClient
    from kstore.clients.admin import ConfigEntry
    from kstore.clients.admin.configs import ResourceKind

__all__ = ["app"]

app = typer.Typer(
    help="Show, set and unset configs; list resources with configs.", no_args_is_help=True
)

KINDS = ("topic", "broker", "broker-logger", "client-metrics", "group")
DEFAULT = 5

Kind = Annotated[
    str,
    typer.Argument(
        metavar="KIND", autocompletion=completion.words(*KINDS), help=f"One of {', '.join(KINDS)}."
    ),
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        autocompletion=completion.resource_names,
        help="The name of the resource: a topic, a group, a broker's id, or 'default' "
        "for all brokers.",
    ),
]


def _resource(kind: str, name: str) -> tuple[ResourceKind, str]:
    if kind not in KINDS:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(KINDS)}")
    is_default = kind == "broker" and name == "default"
    if kind.startswith("broker") and name and not is_default and not name.isdecimal():
        raise typer.BadParameter(f"{name!r} is not a broker's id")
    return cast("ResourceKind", kind), "" if is_default else name


@admin_command(app, "describe", "kstore config describe topic orders --all")
def describe(
    admin: AdminClient,
    out: Output,
    kind: Kind,
    name: Name,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            autocompletion=completion.resource_keys,
            help="Show only this config; may be repeated.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show configs with default values too.")
    ] = False,
    docs: Annotated[bool, typer.Option("--docs", help="Describe each config.")] = False,
) -> None:
    """Show configs with their values and sources. Secret values are hidden."""
    resource, of = _resource(kind, name)
    found = admin.describe_configs(of, resource=resource, keys=key, documentation=docs)
    rows = [
        _row(entry)
        for entry in sorted(found.values(), key=lambda entry: entry.name)
        if everything or key or entry.source != DEFAULT
    ]
    if docs and not out.json:
        for row in rows:
            print(f"{row['name']}={row['value']}  ({row['type']}, {row['source']})")
            print(f"    {row['documentation']}")
        return
    out.table(rows, ["name", "value", "type", "source", "read_only"])


def _row(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": "[hidden]" if entry.is_sensitive else entry.value,
        "type": entry.value_type,
        "source": entry.source.name.lower().replace("_", "-"),
        "read_only": entry.read_only,
        "sensitive": entry.is_sensitive,
        "documentation": entry.documentation,
    }


@admin_command(app, "set", "kstore config set topic orders retention.ms=3600000")
def set_configs(
    admin: AdminClient,
    out: Output,
    kind: Kind,
    name: Name,
    configs: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE",
            autocompletion=completion.resource_configs,
            help="The configs to set.",
        ),
    ],
    append: Annotated[
        bool, typer.Option("--append", help="Add the values to configs that are lists.")
    ] = False,
    subtract: Annotated[
        bool, typer.Option("--subtract", help="Remove the values from configs that are lists.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Set configs; other configs do not change."""
    from kstore.clients.admin import ConfigChange

    if append and subtract:
        raise typer.BadParameter("use either --append or --subtract, not both")
    resource, of = _resource(kind, name)
    operation: Any = "append" if append else "subtract" if subtract else "set"
    changes = {
        key: ConfigChange(operation, value)
        for key, value in key_values(configs, "retention.ms=3600000").items()
    }
    admin.alter_configs(of, changes, resource=resource, validate_only=dry_run)
    _print_changed(out, kind, name, list(changes), dry_run=dry_run)


@admin_command(app, "unset", "kstore config unset topic orders retention.ms")
def unset(
    admin: AdminClient,
    out: Output,
    kind: Kind,
    name: Name,
    keys: Annotated[
        list[str],
        typer.Argument(metavar="KEY", autocompletion=completion.resource_keys, help="Which."),
    ],
    dry_run: DryRun = False,
) -> None:
    """Reset configs to their defaults."""
    resource, of = _resource(kind, name)
    check_names(admin, resource, of, keys)
    admin.alter_configs(of, dict.fromkeys(keys), resource=resource, validate_only=dry_run)
    _print_changed(out, kind, name, keys, dry_run=dry_run)


def check_names(admin: AdminClient, resource: ResourceKind, of: str, keys: Iterable[str]) -> None:
    """Raise InvalidConfigError for a config that the resource can't have. Brokers do not: they
    take the removal of any config for done.
    """
    from kstore.config.nearest import did_you_mean
    from kstore.errors import InvalidConfigError

    known = dict(admin.describe_configs(of, resource=resource))
    if resource == "broker" and not of:  # of the default, only what is set is known
        broker = admin.describe_cluster().brokers[0]
        known |= admin.describe_configs(str(broker.node_id), resource=resource)
    for key in keys:
        if key not in known and not key.startswith("listener.name."):
            raise InvalidConfigError(
                f"{resource} {of or 'default'!r}: there is no config {key!r}"
                f"{did_you_mean(key, known)}"
            )


def _print_changed(out: Output, kind: str, name: str, keys: list[str], *, dry_run: bool) -> None:
    data = {"kind": kind, "name": name, "keys": keys, "dry_run": dry_run}
    verb = "can change" if dry_run else "changed"
    out.print(data, f"{verb} {', '.join(keys)} of {kind} {name}")


@admin_command(app, "list", "kstore config list --kind group")
def list_resources(
    admin: AdminClient,
    out: Output,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            autocompletion=completion.words(*KINDS),
            help="List only this kind of resource; may be repeated.",
        ),
    ] = None,
) -> None:
    """List the resources that may have configs."""
    kinds = [_resource(each, "")[0] for each in kind or ()]
    rows = [{"kind": each.kind, "name": each.name} for each in admin.list_config_resources(kinds)]
    out.table(rows, ["kind", "name"])
