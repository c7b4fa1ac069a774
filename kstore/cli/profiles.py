"""Profiles: named client settings in $XDG_CONFIG_HOME/kstore/profiles.toml (~/.config by default).

    [profiles.staging]
    bootstrap.servers = "a.example:9092,b.example:9092"
    security.protocol = "SASL_SSL"

A profile is for all commands: settings of another kind of client are ignored, unknown settings are
errors. Secrets are never shown. ${env:NAME} and ${file:PATH} are replaced by a variable's or a
file's content. There is a warning for a file with secrets that others may read.
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
    """The path of the profiles file."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join("~", ".config")
    return Path(base).expanduser() / "kstore" / "profiles.toml"


def profiles() -> dict[str, dict[str, Any]]:
    """All profiles by name, each with dotted names; empty if there is no file.

    Raises ConfigError for a malformed file.
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
    """Warn of a file whose secrets others can read."""
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
        print(f"{path} has {names[0]}, and others may read it: chmod 600 {path}", file=sys.stderr)


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names, which TOML parses as nested tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def profile(name: str) -> dict[str, Any]:
    """One profile. Raises ConfigError if it does not exist; the message lists the profiles."""
    found = profiles()
    if name not in found:
        there = ", ".join(sorted(found)) or "no profiles"
        raise ConfigError(f"there is no profile {name!r} in {profiles_path()}, which has {there}")
    return found[name]


def for_kind(kind: ClientKind, settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The settings of a profile that a kind of client understands."""
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
