"""Settings under Kafka's names: the tables of broker and topic configs, and BrokerConfig, which
reads them.

Nothing here starts or opens anything; the values are used by the log, the broker and the command
line.

May import: nothing of kstore.
"""

from __future__ import annotations

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
