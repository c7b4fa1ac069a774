"""The settings of the replication throttle (KIP-73). The rates for leaders and followers are
dynamic settings of brokers. The replicas that they apply to are settings of topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.state.quotas.rates import SampledRate
from kstore.broker.state.replication.follower import names_replica

if TYPE_CHECKING:
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
    from kstore.broker.runtime.node import Node

__all__ = ["NO_RATE", "ThrottledReplicas"]

NO_RATE = -1


class ThrottledReplicas:
    """The settings for one side: "leader" or "follower"."""

    def __init__(
        self, side: str, node: Node, configs: DynamicConfigs, metadata: MetadataCache
    ) -> None:
        self._rate_name = f"{side}.replication.throttled.rate"
        self._replicas_name = f"{side}.replication.throttled.replicas"
        self._node = node
        self._configs = configs
        self._metadata = metadata

    def rate(self) -> int:
        """The rate in bytes per second, or NO_RATE."""
        mine = self._configs.brokers.get(str(self._node.node_id), {})
        text = mine.get(self._rate_name, self._configs.cluster.get(self._rate_name))
        return NO_RATE if text is None else int(text)

    def has(self, topic: str, index: int) -> bool:
        """Whether the topic names this broker's replica of a partition."""
        image = self._metadata.image.topics.get(topic)
        text = "" if image is None else image.configs.get(self._replicas_name, "")
        words = [word.strip() for word in text.split(",")]
        return names_replica(words, index, self._node.node_id)

    def measure(self) -> SampledRate:
        """A new measure of bytes, over the configured windows."""
        config = self._node.config
        window_ms = config["replication.quota.window.size.seconds"] * 1000
        return SampledRate(config["replication.quota.window.num"], window_ms)
