"""The options by which a command finds its cluster: -b, -X and --profile; and their meeting."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from kstore.cli.options import TIMEOUT_MS
from kstore.config import ConfigError
from kstore.config.client_configs import ClientKind

__all__ = ["ProfileName", "Properties", "Servers", "client_config", "key_values"]

Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,...",
        help="Brokers to ask first; by default KSTORE_BOOTSTRAP_SERVER, else localhost:9092.",
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="A client setting; may be repeated."),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Client settings from a file (see `kstore profile`); by default KSTORE_PROFILE.",
    ),
]


def key_values(items: Sequence[str] | None, example: str) -> dict[str, str]:
    """Read KEY=VALUE items; typer.BadParameter for one that is not."""
    found: dict[str, str] = {}
    for item in items or ():
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{item!r} is not KEY=VALUE, such as {example}")
        found[key.strip()] = value.strip()
    return found


def client_config(
    kind: ClientKind,
    servers: str | None = None,
    properties: Sequence[str] | None = None,
    profile: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A client's settings. The nearest wins: the command's own options (to be laid over this by the
    command), then -b, -X, --profile, KSTORE_BOOTSTRAP_SERVER, KSTORE_PROFILE, the defaults.

    Raises ConfigError for a profile that is not there, or one with an unknown setting.
    """
    config: dict[str, Any] = dict(defaults or {})
    if kind != "producer":
        config.setdefault("default.api.timeout.ms", TIMEOUT_MS)
    own = key_values(properties, "client.id=me")
    name = profile or os.environ.get("KSTORE_PROFILE")
    if name:
        from kstore.cli.profiles import for_kind, profiles_path
        from kstore.cli.profiles import profile as read_profile

        source = f"profile {name!r} in {profiles_path()}"
        config |= for_kind(kind, read_profile(name), source)
    from_environment = os.environ.get("KSTORE_BOOTSTRAP_SERVER")
    if from_environment and not profile:
        config["bootstrap.servers"] = from_environment
    config |= own
    if servers:
        config["bootstrap.servers"] = servers
    _shorten_requests(config)
    return config


def _shorten_requests(config: dict[str, Any]) -> None:
    """A command gives up sooner than a client would; so each of its requests, to leave time for
    another broker.
    """
    timeout_ms = config.get("default.api.timeout.ms")
    try:
        longest = int(timeout_ms) if timeout_ms is not None else 0
    except ValueError:
        raise ConfigError(f"default.api.timeout.ms is {timeout_ms!r}, not a number") from None
    if longest > 0:
        config.setdefault("request.timeout.ms", max(min(longest // 2, 30_000), 1))
