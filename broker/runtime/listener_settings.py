"""The settings of one listener: what was set for it at run time or at the start, else what is set
for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kstore.config.broker_configs import BROKER_CONFIGS, listener_base

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["listener_settings"]


def listener_settings(
    broker: Broker, listener: str, names: Iterable[str], *, own: bool = False
) -> dict[str, Any]:
    """The named settings; ``own``: only what is set for this listener, else None. Of a name with a
    mechanism's prefix (``plain.sasl.jaas.config``) only that, too.

    Raises ConfigError for what was set at run time and is bad.
    """
    config = broker.config
    dynamic: Mapping[str, str] = {}
    if hasattr(broker, "configs"):  # not before the store is open
        dynamic = broker.configs.brokers.get(str(broker.node_id), {})
    found: dict[str, Any] = {}
    for name in names:
        base = listener_base(name) or name
        text = dynamic.get(f"listener.name.{listener.lower()}.{name}")
        value = config.for_listener(listener, name)
        if text is not None:
            value = BROKER_CONFIGS[base].parse(text, "dynamic")
        if value is None and base == name and not own:
            value = config[name]
        found[name] = value
    return found
