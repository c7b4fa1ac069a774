"""``kstore feature``: the features that brokers support, and the cluster's finalized versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli.admin_command import admin_command
from kstore.cli.arguments import key_values
from kstore.cli.options import DryRun
from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.clients import AdminClient

__all__ = ["app"]

app = typer.Typer(help="Describe and update the cluster's features.", no_args_is_help=True)


@admin_command(app, "describe", "kstore feature describe")
def describe(admin: AdminClient, out: Output) -> None:
    """Show features: the versions that a broker supports, and the cluster's version."""
    found = admin.describe_features()
    rows: list[dict[str, Any]] = []
    for name in sorted({*found.supported, *found.finalized}):
        supported, finalized = found.supported.get(name), found.finalized.get(name)
        rows.append(
            {
                "feature": name,
                "lowest": supported.lowest if supported else None,
                "highest": supported.highest if supported else None,
                "finalized": finalized.highest if finalized else None,
                "epoch": found.epoch if finalized else None,
            }
        )
    out.table(rows, ["feature", "lowest", "highest", "finalized"])


@admin_command(app, "update", "kstore feature update transaction.version=2")
def update(
    admin: AdminClient,
    out: Output,
    levels: Annotated[
        list[str],
        typer.Argument(metavar="FEATURE=VERSION", help="The features and their new versions."),
    ],
    downgrade: Annotated[
        bool,
        typer.Option("--downgrade", help="Allow a lower version than the current one."),
    ] = False,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Like --downgrade, even if metadata is lost.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Change the cluster's feature versions."""
    from kstore.clients.admin import FeatureUpdate

    wanted = {}
    for name, level in key_values(levels, "transaction.version=2").items():
        if not level.isdecimal():
            raise typer.BadParameter(f"{name} is {level!r}, not a version number")
        kind: Any = "unsafe-downgrade" if unsafe else "safe-downgrade" if downgrade else "upgrade"
        wanted[name] = FeatureUpdate(int(level), kind)
    results = admin.update_features(wanted, validate_only=dry_run, raise_errors=False)
    verb = "can be" if dry_run else "is"
    out.report(
        results,
        lambda name, _: (
            {"feature": name, "level": wanted[name].level, "dry_run": dry_run},
            f"{name} {verb} {wanted[name].level}",
        ),
    )
