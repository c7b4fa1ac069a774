"""The cluster's finalized feature levels: stored in the coordination store at /feature, as in Kafka
with ZooKeeper (KIP-584). state/metadata/features.py decides which updates are valid.
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


NEED_EPOCHS = ("kstore.kip232", "kstore.kip253")
"""Features that older inter.broker.protocol.versions do not have."""


def supported_features(served: Mapping[int, int], *, sends_epochs: bool) -> dict[str, Feature]:
    """The features that this broker supports. ``served`` is API key to highest version,
    ``sends_epochs`` whether brokers exchange partition epochs.

    A feature that needs an API version that is not served is left out.
    """
    return {
        name: feature
        for name, feature in FEATURES.items()
        if feature.needs is None or served.get(feature.needs[0], -1) >= feature.needs[1]
        if sends_epochs or name not in NEED_EPOCHS
    }


class FinalizedFeatures:
    """The levels that all brokers of the cluster have agreed on, read once and then cached."""

    def __init__(self, store: Store, supported: Mapping[str, Feature]) -> None:
        self.supported = supported
        self._store = store
        self._epoch = 0
        self._levels = default_levels(supported)
        self._is_read = False  # while the store is unreachable, the defaults apply
        self._read()

    def _read(self) -> None:
        """Read the store, unless an earlier call has succeeded."""
        if not self._is_read:
            with suppress(StoreError):
                self.reload()

    def reload(self) -> None:
        """Read the levels again, since another broker may have changed them. Blocks."""
        try:
            data, epoch = self._store.get(FEATURE_NODE)
        except NoNodeError:
            self._is_read = True
            return
        stored = json.loads(data)["features"]
        levels = default_levels(self.supported)
        levels.update((name, stored[name]) for name in self.supported if name in stored)
        self._levels, self._epoch, self._is_read = levels, epoch, True

    @property
    def epoch(self) -> int:
        """A number that increases with every update. (In the protocol, -1 means that nothing is
        finalized.)
        """
        return self._epoch

    @property
    def levels(self) -> dict[str, int]:
        """Name to finalized level; 0 means that the feature is off."""
        self._read()
        return dict(self._levels)

    def level(self, name: str) -> int:
        """One feature's finalized level; 0 if it is off or unknown."""
        self._read()
        return self._levels.get(name, 0)

    def store(self, levels: Mapping[str, int]) -> None:
        """Store new levels durably. Blocks."""
        node = {"version": 2, "status": ENABLED, "features": dict(levels)}
        data = json.dumps(node, separators=(",", ":")).encode()
        try:
            version = self._store.set(FEATURE_NODE, data)
        except NoNodeError:
            self._store.create(FEATURE_NODE, data)
            # The defaults had epoch 0.
            version = self._store.set(FEATURE_NODE, data)
        self._levels, self._epoch = dict(levels), version
