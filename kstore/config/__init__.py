"""Settings with Kafka's names: the tables of broker and topic configs, and BrokerConfig, which
reads them.

Nothing here starts or opens anything; the log, the broker and the command line use the values.

May import: nothing of kstore.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstore.config.broker import BrokerConfig, ConfigSource, SourceKind, environment_name
    from kstore.config.broker_configs import BROKER_CONFIGS
    from kstore.config.definition import (
        ConfigDef,
        ConfigError,
        ConfigType,
        Importance,
        UpdateMode,
    )
    from kstore.config.listener import Listener
    from kstore.config.topic_configs import TOPIC_CONFIGS

__all__ = [
    "BROKER_CONFIGS",
    "TOPIC_CONFIGS",
    "BrokerConfig",
    "ConfigDef",
    "ConfigError",
    "ConfigSource",
    "ConfigType",
    "Importance",
    "Listener",
    "SourceKind",
    "UpdateMode",
    "environment_name",
]

_MODULES = {
    "kstore.config.broker": ("BrokerConfig", "ConfigSource", "SourceKind", "environment_name"),
    "kstore.config.broker_configs": ("BROKER_CONFIGS",),
    "kstore.config.definition": (
        "ConfigDef", "ConfigError", "ConfigType", "Importance", "UpdateMode",
    ),
    "kstore.config.listener": ("Listener",),
    "kstore.config.topic_configs": ("TOPIC_CONFIGS",),
}  # fmt: skip
"""Module to names. A client needs none of them, and building a broker's tables takes 30 ms."""


def __getattr__(name: str) -> Any:
    """Import the module of a name when the name is used."""
    for module, names in _MODULES.items():
        if name in names:
            found = getattr(import_module(module), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'kstore.config' has no attribute {name!r}")
