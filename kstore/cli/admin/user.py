"""``kstore user``: SCRAM credentials. The command reads a password from the terminal or stdin, and
sends only its hash.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from kstore.cli.admin_command import admin_command
from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.clients import AdminClient
    from kstore.clients.admin.credentials import ScramMechanism

__all__ = ["app"]

app = typer.Typer(help="List, set and remove SCRAM credentials of users.", no_args_is_help=True)

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
Mechanism = Annotated[str, typer.Option("--mechanism", help=f"{' or '.join(MECHANISMS)}.")]


def _mechanism(text: str) -> ScramMechanism:
    if text.upper() not in MECHANISMS:
        raise typer.BadParameter(f"{text!r} is not {' or '.join(MECHANISMS)}")
    return cast("ScramMechanism", text.upper())


@admin_command(app, "list", "kstore user list")
def list_users(
    admin: AdminClient,
    out: Output,
    users: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="USER",
            help="Show only this user; may be repeated. By default all.",
        ),
    ] = None,
) -> None:
    """List users with their mechanisms and iterations; passwords are not stored."""
    found = admin.describe_scram_credentials(users or None)
    rows = [
        {"user": user, "mechanism": each.mechanism, "iterations": each.iterations}
        for user, credentials in sorted(found.items())
        for each in credentials
    ]
    out.table(rows, ["user", "mechanism", "iterations"])


@admin_command(app, "set", "kstore user set alice < password.txt")
def set_user(
    admin: AdminClient,
    out: Output,
    user: Annotated[str, typer.Argument(help="The user's name.")],
    mechanism: Mechanism = "SCRAM-SHA-512",
    iterations: Annotated[
        int,
        typer.Option(
            min=4096,
            help="The number of hash iterations.",
        ),
    ] = 8192,
) -> None:
    """Set a user's password; the command asks for it, or reads the first line of stdin."""
    from kstore.clients.admin import ScramUpsertion

    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise typer.BadParameter("the password is empty")
    change = ScramUpsertion(user, _mechanism(mechanism), password.encode(), iterations)
    admin.alter_scram_credentials([change])
    data = {"user": user, "mechanism": change.mechanism}
    out.print(data, f"set the {change.mechanism} credential of {user}")


@admin_command(app, "remove", "kstore user remove alice --mechanism SCRAM-SHA-256")
def remove(
    admin: AdminClient,
    out: Output,
    user: Annotated[str, typer.Argument(help="The user's name.")],
    mechanism: Mechanism = "SCRAM-SHA-512",
) -> None:
    """Remove a credential of a user."""
    from kstore.clients.admin import ScramDeletion

    change = ScramDeletion(user, _mechanism(mechanism))
    admin.alter_scram_credentials([change])
    data = {"removed": user, "mechanism": change.mechanism}
    out.print(data, f"removed the {change.mechanism} credential of {user}")
