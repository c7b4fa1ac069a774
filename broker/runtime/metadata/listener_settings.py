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
    broker: Broker,
    listener: str,
    names: Iterable[str],
    *,
    own: bool = False,
    asked: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The named settings; ``own``: only what is set for this listener, else None. Of a name with a
    mechanism's prefix (``plain.sasl.jaas.config``) only that, too. ``asked``: as they would be, if
    that were set for this broker at run time.

    Raises ConfigError for what was set at run time and is bad.
    """
    config = broker.config
    dynamic: Mapping[str, str] = {}
    shared: Mapping[str, str] = {}
    if asked is not None:
        dynamic = asked
    elif hasattr(broker, "configs"):  # not before the store is open
        dynamic = broker.configs.brokers.get(str(broker.node_id), {})
        shared = broker.configs.cluster
    found: dict[str, Any] = {}
    for name in names:
        base = listener_base(name) or name
        key = f"listener.name.{listener.lower()}.{name}"
        text = dynamic.get(key, shared.get(key))
        value = config.for_listener(listener, name)
        if text is not None:
            value = BROKER_CONFIGS[base].parse(text, "dynamic")
        if value is None and base == name and not own:
            given = None if asked is None else asked.get(name)
            value = config[name] if given is None else BROKER_CONFIGS[name].parse(given, "dynamic")
        found[name] = value
    return found
