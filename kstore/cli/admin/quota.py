"""``kstore quota``: limits on the requests of users, client ids and addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli.admin_command import admin_command
from kstore.cli.arguments import key_values
from kstore.cli.options import DryRun
from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.clients import AdminClient
    from kstore.clients.admin import QuotaEntity

__all__ = ["app"]

app = typer.Typer(help="List, set and remove client quotas.", no_args_is_help=True)

DEFAULT = "<default>"
User = Annotated[
    str | None,
    typer.Option("--user", help=f"A user; '{DEFAULT}': users without a quota of their own."),
]
ClientId = Annotated[
    str | None,
    typer.Option(
        "--client-id", help=f"A client id; '{DEFAULT}': client ids without a quota of their own."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--ip", help=f"An IP address; '{DEFAULT}': addresses without a quota of their own."
    ),
]


def _names(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    given = {"user": user, "client_id": client_id, "ip": ip}
    return {
        kind: None if name == DEFAULT else name for kind, name in given.items() if name is not None
    }


def _entity(user: str | None, client_id: str | None, ip: str | None) -> QuotaEntity:
    from kstore.clients.admin import quota_entity

    names = _names(user, client_id, ip)
    if not names:
        raise typer.BadParameter("use one of --user, --client-id and --ip")
    return quota_entity(**names)


def _text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity)


@admin_command(app, "list", "kstore quota list --user '*'")
def list_quotas(
    admin: AdminClient,
    out: Output,
    user: User = None,
    client_id: ClientId = None,
    ip: Address = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Show only quotas that have exactly these parts.")
    ] = False,
) -> None:
    """List quotas, all or those that match; '*' matches any name."""
    found = admin.describe_client_quotas(_names(user, client_id, ip), strict=strict)
    rows = [
        {"entity": _text(entity), "quota": key, "value": value}
        for entity, quotas in sorted(found.items(), key=lambda item: _text(item[0]))
        for key, value in sorted(quotas.items())
    ]
    out.table(rows, ["entity", "quota", "value"])


@admin_command(app, "set", "kstore quota set --user alice producer_byte_rate=1000000")
def set_quotas(
    admin: AdminClient,
    out: Output,
    quotas: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE",
            help="producer_byte_rate, consumer_byte_rate, request_percentage, "
            "controller_mutation_rate or connection_creation_rate.",
        ),
    ],
    user: User = None,
    client_id: ClientId = None,
    ip: Address = None,
    dry_run: DryRun = False,
) -> None:
    """Set quotas of a user, a client id, both together, or an address."""
    entity = _entity(user, client_id, ip)
    values: dict[str, float | None] = {}
    for key, text in key_values(quotas, "producer_byte_rate=1000000").items():
        try:
            values[key] = float(text)
        except ValueError:
            raise typer.BadParameter(f"{key} is {text!r}, not a number") from None
    admin.alter_client_quotas({entity: values}, validate_only=dry_run)
    verb = "can set" if dry_run else "set"
    out.print(
        {"entity": _text(entity), "set": values, "dry_run": dry_run},
        f"{verb} {', '.join(values)} of {_text(entity)}",
    )


@admin_command(app, "remove", "kstore quota remove --user alice producer_byte_rate")
def remove(
    admin: AdminClient,
    out: Output,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="The quotas to remove.")],
    user: User = None,
    client_id: ClientId = None,
    ip: Address = None,
) -> None:
    """Remove quotas."""
    entity = _entity(user, client_id, ip)
    admin.alter_client_quotas({entity: dict.fromkeys(keys)})
    data = {"entity": _text(entity), "removed": keys}
    out.print(data, f"removed {', '.join(keys)} of {_text(entity)}")
