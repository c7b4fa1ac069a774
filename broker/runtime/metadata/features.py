"""The cluster's finalized feature levels: kept in the coordination store at /feature, as the
ZooKeeper brokers of Kafka kept them (KIP-584). Which updates are valid is state/features.py's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from kstore.broker.coordination.store import NoNodeError, StoreError
from kstore.broker.state.metadata.features import FEATURES, Feature, default_levels

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store

__all__ = ["FEATURE_NODE", "FinalizedFeatures", "supported_features"]

FEATURE_NODE = "/feature"
ENABLED = 1


def supported_features(served: Mapping[int, int]) -> dict[str, Feature]:
    """The features whose APIs are served; ``served`` is API key to highest version.

    Of a feature whose newest API version is not served, nothing is claimed.
    """
    return {
        name: feature
        for name, feature in FEATURES.items()
        if feature.needs is None or served.get(feature.needs[0], -1) >= feature.needs[1]
    }


class FinalizedFeatures:
    """The levels that all brokers of the cluster have agreed on, read once and then kept."""

    def __init__(self, store: Store, supported: Mapping[str, Feature]) -> None:
        self.supported = supported
        self._store = store
        self.epoch = 0
        """Grows with every update; -1 would mean that nothing is finalized."""
        self._levels = default_levels(supported)
        self.is_read = False
        """Whether the store has told the levels; while it is out of reach, the defaults hold."""
        with suppress(StoreError):
            self.reload()

    def reload(self) -> None:
        """Read the levels: another broker may have changed them. Blocks."""
        try:
            data, epoch = self._store.get(FEATURE_NODE)
        except NoNodeError:
            self.is_read = True
            return
        stored = json.loads(data)["features"]
        levels = default_levels(self.supported)
        levels.update((name, stored[name]) for name in self.supported if name in stored)
        self._levels, self.epoch, self.is_read = levels, epoch, True

    @property
    def levels(self) -> dict[str, int]:
        """Name to finalized level; 0 means that the feature is off."""
        return dict(self._levels)

    def level(self, name: str) -> int:
        """One feature's finalized level; 0 where it is off or not known."""
        return self._levels.get(name, 0)

    def store(self, levels: Mapping[str, int]) -> None:
        """Make other levels durable. Blocks."""
        node = {"version": 2, "status": ENABLED, "features": dict(levels)}
        data = json.dumps(node, separators=(",", ":")).encode()
        try:
            version = self._store.set(FEATURE_NODE, data)
        except NoNodeError:
            self._store.create(FEATURE_NODE, data)
            # The defaults were told as epoch 0.
            version = self._store.set(FEATURE_NODE, data)
        self._levels, self.epoch = dict(levels), version
