"""``kstore verify --group``: another name of ``kstore group verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli import completion
from kstore.cli.admin import group_verify
from kstore.cli.admin_command import with_admin
from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.clients import AdminClient

__all__ = ["EXAMPLE", "verify"]

EXAMPLE = "Example: kstore verify --group billing"


@with_admin
def verify(
    admin: AdminClient,
    out: Output,
    group: Annotated[
        list[str],
        typer.Option(
            "--group", "-g", autocompletion=completion.groups, help="A group's id; may be repeated."
        ),
    ],
) -> None:
    """Compare committed offsets with the logs. The exit code is 1 if a group has processed records
    that no longer exist, an offset could not be checked because of an error, or a group does not
    exist.
    """
    group_verify.verify(admin, out, group)
