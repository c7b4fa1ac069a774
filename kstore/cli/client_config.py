"""How the options with which a command finds its cluster combine: -b, -X and --profile.

All users of a machine can see the arguments of its processes, so do not pass secrets as arguments:
use a profile, or ${env:NAME} and ${file:PATH} in place of a value (as Kafka's config providers do).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from kstore.cli.arguments import key_values
from kstore.config import ConfigError
from kstore.config.client.configs import CLIENT_CONFIGS, ClientKind
from kstore.config.definition import ConfigType

__all__ = ["DEFAULT_FOLDER", "DEFAULT_SERVERS", "TIMEOUT_MS", "client_config"]

# How long a command tries to find a broker.
TIMEOUT_MS = 10_000
# The cluster folder of a command that names none.
DEFAULT_FOLDER = "kstore-cluster"
DEFAULT_SERVERS = "localhost:9092"

_ELSEWHERE = re.compile(r"\$\{(env|file):([^{}]+)\}")


def client_config(
    kind: ClientKind,
    servers: str | None = None,
    properties: Sequence[str] | None = None,
    profile: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A client's settings. Order of precedence: the command's own options (the command adds them),
    -b, -X, --profile, KSTORE_BOOTSTRAP_SERVER, KSTORE_PROFILE, the defaults. If no servers are
    named, the running brokers of ./kstore-cluster are used.

    Raises ConfigError for a profile that does not exist, or one with an unknown setting.
    """
    config: dict[str, Any] = dict(defaults or {})
    if kind != "producer":
        config.setdefault("default.api.timeout.ms", TIMEOUT_MS)
    own = key_values(properties, "client.id=me")
    _warn_of_secrets(own)
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
    _find_servers(config)
    config = {name: _looked_up(name, value) for name, value in config.items()}
    _shorten_requests(config)
    return config


def _find_servers(config: dict[str, Any]) -> None:
    """Replace a cluster's folder by its brokers, and use ./kstore-cluster if no servers are
    named.
    """
    given = config.get("bootstrap.servers")
    if given is None:
        found = _folder_servers()
        if found is not None:
            config["bootstrap.servers"] = found
    elif isinstance(given, str):
        config["bootstrap.servers"] = _named_servers(given)


def _folder_servers() -> str | None:
    """The running brokers of `kstore cluster`'s default folder; None if there are none."""
    if not any(Path(DEFAULT_FOLDER).glob("broker*/server.properties")):
        return None
    return _running(DEFAULT_FOLDER)


def _named_servers(servers: str) -> str:
    """The servers; a folder is replaced by its brokers.

    Raises ClusterError for a folder without a cluster, or if none of its brokers runs.
    """
    if ":" in servers or not Path(servers).is_dir():
        return servers
    from kstore.cli.cluster_folder import ClusterError, ClusterFolder

    ClusterFolder(servers).existing()
    found = _running(servers)
    if found is None:
        raise ClusterError(
            f"no broker of {servers} is running: start them with `kstore cluster start "
            f"--dir {servers}`"
        )
    return found


def _running(folder: str) -> str | None:
    from kstore.cli.cluster_folder import ClusterFolder

    brokers = ClusterFolder(folder).brokers()
    found = [broker.address() for broker in brokers if broker.pid() is not None]
    return ",".join(found) or None


def _warn_of_secrets(own: Mapping[str, str]) -> None:
    for name, value in own.items():
        row = next((rows[name] for rows in CLIENT_CONFIGS.values() if name in rows), None)
        is_secret = row is not None and row.type is ConfigType.PASSWORD
        if is_secret and not _ELSEWHERE.fullmatch(value):
            typer.echo(
                f"{name} can be seen by all users of this machine while the command runs: write "
                f"-X '{name}=${{env:NAME}}', or use a profile",
                err=True,
            )


def _looked_up(name: str, value: Any) -> Any:
    """The value of ${env:NAME} or ${file:PATH}; any other value unchanged."""
    found = _ELSEWHERE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    kind, where = found.groups()
    if kind == "env":
        if where not in os.environ:
            raise ConfigError(
                f"{name} is {value}, but {where} is not set in the environment", key=name
            )
        return os.environ[where]
    try:
        return Path(where).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"{name} is {value}: {reason}", key=name) from None


def _shorten_requests(config: dict[str, Any]) -> None:
    """A command has a shorter timeout than a client. Each of its requests also has, to leave time
    for another broker.
    """
    timeout_ms = config.get("default.api.timeout.ms")
    try:
        longest = int(timeout_ms) if timeout_ms is not None else 0
    except ValueError:
        raise ConfigError(f"default.api.timeout.ms is {timeout_ms!r}, not a number") from None
    if longest > 0:
        config.setdefault("request.timeout.ms", max(min(longest // 2, 30_000), 1))
