"""The settings of one listener. A setting with the listener's prefix comes before one without, and
a dynamic setting before one from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kstore.config.broker_configs import BROKER_CONFIGS, listener_base

if TYPE_CHECKING:
    from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
    from kstore.config import BrokerConfig

__all__ = ["ListenerSettings"]


class ListenerSettings:
    """The settings of a broker's listeners."""

    def __init__(self, config: BrokerConfig, configs: Callable[[], DynamicConfigs | None]) -> None:
        """``configs`` returns the dynamic settings, or None if the store is not open yet."""
        self._config = config
        self._configs = configs
        self._node_id = str(config["node.id"])

    @property
    def of_broker(self) -> Mapping[str, str] | None:
        """This broker's dynamic settings. A new object after each change."""
        configs = self._configs()
        return None if configs is None else configs.brokers.get(self._node_id)

    def of(
        self,
        listener: str,
        names: Iterable[str],
        *,
        own: bool = False,
        requested: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The named settings. ``own``: only settings with the listener's prefix; a name without one
        is None. The same applies to a name with a mechanism's prefix (``plain.sasl.jaas.config``).
        ``requested``: dynamic settings that are checked before they are set.

        Raises ConfigError for an invalid dynamic setting.
        """
        dynamic: Mapping[str, str] = {}
        shared: Mapping[str, str] = {}
        configs = self._configs()
        if requested is not None:
            dynamic = requested
        elif configs is not None:
            dynamic = configs.brokers.get(self._node_id, {})
            shared = configs.cluster
        found: dict[str, Any] = {}
        for name in names:
            base = listener_base(name) or name
            key = f"listener.name.{listener.lower()}.{name}"
            text = dynamic.get(key, shared.get(key))
            value = self._config.for_listener(listener, name)
            if text is not None:
                value = BROKER_CONFIGS[base].parse(text, "dynamic")
            if value is None and base == name and not own:
                given = None if requested is None else requested.get(name)
                value = self._config[name]
                if given is not None:
                    value = BROKER_CONFIGS[name].parse(given, "dynamic")
            found[name] = value
        return found
