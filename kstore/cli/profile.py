"""``kstore profile``: named client settings for --profile."""

from __future__ import annotations

from typing import Annotated

import typer

from kstore.cli.failure import guarded
from kstore.cli.options import Json
from kstore.cli.output import Output
from kstore.cli.profiles import profile, profiles, profiles_path, shown

__all__ = ["app"]

app = typer.Typer(help="Show named client settings, for --profile.", no_args_is_help=True)


@app.command("list", epilog="Example: kstore profile list")
@guarded
def list_profiles(json: Json = False) -> None:
    """List the profiles, and the file that contains them."""
    found = profiles()
    if not found and not json:
        print(f"there are no profiles in {profiles_path()}")
        return
    rows = [
        {"name": name, "bootstrap_servers": each.get("bootstrap.servers"), "settings": len(each)}
        for name, each in sorted(found.items())
    ]
    Output(json).table(rows, ["name", "bootstrap_servers", "settings"])


@app.command(epilog="Example: kstore profile show staging")
@guarded
def show(
    name: Annotated[str, typer.Argument(help="The profile's name.")], json: Json = False
) -> None:
    """Show a profile's settings; secrets are hidden."""
    found = {key: shown(key, value) for key, value in sorted(profile(name).items())}
    text = "\n".join(f"{key}={value}" for key, value in found.items())
    Output(json).print({"name": name, "settings": found}, text)


@app.command(epilog="Example: $EDITOR $(kstore profile path)")
@guarded
def path(json: Json = False) -> None:
    """Print the path of the file with the profiles."""
    Output(json).print({"path": str(profiles_path())}, str(profiles_path()))
