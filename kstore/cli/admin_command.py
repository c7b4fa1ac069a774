"""Makes a function a command of an admin client: adds -b, -X, --profile and --json, creates the
client, and turns errors into messages and exit codes.

The function takes `admin` (an AdminClient) and `out` (an Output) first, then its own parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import typer

from kstore.cli.client_config import TIMEOUT_MS, client_config
from kstore.cli.failure import guarded
from kstore.cli.options import Json, ProfileName, Properties, Servers
from kstore.cli.output import Output

__all__ = ["admin_command", "with_admin"]

# The last parameters of every such command: name -> annotation and default.
_SHARED: dict[str, tuple[Any, Any]] = {
    "bootstrap": (Servers, None),
    "properties": (Properties, None),
    "profile": (ProfileName, None),
    "json": (Json, False),
}
_GIVEN = ("admin", "out")


def with_admin(function: Callable[..., None], timeout_ms: int = TIMEOUT_MS) -> Callable[..., None]:
    """The function with the signature that typer needs: without admin and out, with the shared
    options.
    """
    hints = get_type_hints(function, localns={"AdminClient": Any}, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in _GIVEN
    ]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _SHARED.items()
    ]

    def run(**values: Any) -> None:
        from kstore.clients import AdminClient

        json, profile = values.pop("json"), values.pop("profile")
        properties, servers = values.pop("properties"), values.pop("bootstrap")
        defaults = {"default.api.timeout.ms": timeout_ms}
        config = client_config("admin", servers, properties, profile, defaults)
        with AdminClient(config) as admin:
            function(admin=admin, out=Output(json), **values)

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {each.name: each.annotation for each in (*own, *shared)}
    run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    return guarded(run)


def admin_command(
    app: typer.Typer, name: str, example: str, timeout_ms: int = TIMEOUT_MS
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the function as a command of the app; its docstring is the help. The command fails
    after timeout_ms, unless the user sets another timeout.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name, epilog=f"Example: {example}")(with_admin(function, timeout_ms))
        return function

    return register
