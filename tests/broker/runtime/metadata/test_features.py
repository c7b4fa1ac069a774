"""Finalized feature levels in the store, and while the store cannot be reached."""

from __future__ import annotations

import pytest

from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.store import Store, StoreUnavailableError
from kstore.broker.runtime.metadata.features import FinalizedFeatures, supported_features
from kstore.broker.state.metadata.features import default_levels

SERVED = {26: 5, 68: 0}


def test_only_features_whose_apis_are_served_are_told() -> None:
    told = supported_features(SERVED, sends_epochs=True)
    assert {"group.version", "transaction.version", "kstore.kip232"} <= told.keys()
    assert "streams.version" not in told, "API 88 is not served"
    assert "group.version" not in supported_features({}, sends_epochs=True)


def test_brokers_that_tell_no_epochs_have_no_feature_that_needs_them() -> None:
    with_epochs = supported_features(SERVED, sends_epochs=True)
    without = supported_features(SERVED, sends_epochs=False)
    assert with_epochs.keys() - without.keys() == {"kstore.kip232", "kstore.kip253"}


def test_the_defaults_hold_until_the_store_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    store: Store = MemoryStore()
    supported = supported_features(SERVED, sends_epochs=True)
    levels = default_levels(supported) | {"group.version": 0}
    FinalizedFeatures(store, supported).store(levels)
    asked: list[str] = []

    def away(path: str) -> tuple[bytes, int]:
        asked.append(path)
        raise StoreUnavailableError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", away)
        features = FinalizedFeatures(store, supported)
        assert (features.level("group.version"), features.epoch) == (1, 0)
    assert features.levels == levels
    assert features.epoch == 1
    assert asked == ["/feature", "/feature"], "once when it is made, and at each question"
