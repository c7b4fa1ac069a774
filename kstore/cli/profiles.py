"""Profiles: named client settings in $XDG_CONFIG_HOME/kstore/profiles.toml (~/.config by default).

    [profiles.staging]
    bootstrap.servers = "a.example:9092,b.example:9092"
    security.protocol = "SASL_SSL"

A profile serves all commands: what another kind of client understands is left out, what none
understands is an error. Values that are secret are never shown; ${env:NAME} and ${file:PATH} stand
for what is there. A file with secrets that others may read is warned of.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kstore.config import ConfigError
from kstore.config.client.configs import CLIENT_CONFIGS, NO_EFFECT, ClientKind
from kstore.config.definition import ConfigType

__all__ = ["for_kind", "profile", "profiles", "profiles_path", "shown"]

HIDDEN = "[hidden]"
_SECRET_WORDS = ("password", "secret", "jaas", "keystore.key", "token")


def profiles_path() -> Path:
    """Where the profiles are."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join("~", ".config")
    return Path(base).expanduser() / "kstore" / "profiles.toml"


def profiles() -> dict[str, dict[str, Any]]:
    """All profiles by name, each with dotted names; none where there is no file.

    Raises ConfigError for a file that is not as it should be.
    """
    path = profiles_path()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    found = content.get("profiles", {})
    _warn_of_readers(path, found)
    tables = isinstance(found, dict) and all(isinstance(each, dict) for each in found.values())
    if not tables or set(content) - {"profiles"}:
        raise ConfigError(f"{path} may only have tables [profiles.NAME]")
    return {name: dict(_flat(table)) for name, table in found.items()}


def _warn_of_readers(path: Path, content: Any) -> None:
    """Tell of a file whose secrets others can read."""
    if not path.stat().st_mode & 0o077 or not isinstance(content, dict):
        return
    names = [
        name
        for table in content.values()
        if isinstance(table, dict)
        for name, value in _flat(table)
        if shown(name, value) == HIDDEN and not str(value).startswith("${")
    ]
    if names:
        print(f"{path} holds {names[0]}, and others may read it: chmod 600 {path}", file=sys.stderr)


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names, which TOML reads as tables in tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def profile(name: str) -> dict[str, Any]:
    """One profile; ConfigError, which names those that there are, if it is none of them."""
    found = profiles()
    if name not in found:
        there = ", ".join(sorted(found)) or "no profiles"
        raise ConfigError(f"there is no profile {name!r} in {profiles_path()}, which has {there}")
    return found[name]


def for_kind(kind: ClientKind, settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """What a kind of client understands of a profile's settings."""
    for name in settings:
        if name not in NO_EFFECT and all(name not in rows for rows in CLIENT_CONFIGS.values()):
            raise ConfigError(f"{source}: {name} is not a client setting")
    known = CLIENT_CONFIGS[kind]
    return {name: value for name, value in settings.items() if name in known}


def shown(name: str, value: Any) -> Any:
    """The value as it may be printed."""
    rows = [rows[name] for rows in CLIENT_CONFIGS.values() if name in rows]
    is_secret = any(row.type is ConfigType.PASSWORD for row in rows)
    if is_secret or any(word in name for word in _SECRET_WORDS):
        return HIDDEN
    return value
