"""Which updates of finalized feature levels are valid."""

from __future__ import annotations

from kstore.broker.state.metadata.features import (
    FEATURES,
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    default_levels,
    plan_update,
)


def test_the_levels_of_a_release_are_an_upgrade_of_a_new_cluster() -> None:
    """What `kafka-features upgrade --release-version 4.3` sends, kraft.version included."""
    release = {
        "metadata.version": 30, "kraft.version": 1, "transaction.version": 2, "group.version": 1,
        "eligible.leader.replicas.version": 1, "share.version": 1, "streams.version": 1,
    }  # fmt: skip
    updates = [FeatureUpdate(name, level, UPGRADE) for name, level in release.items()]
    levels = plan_update(FEATURES, default_levels(FEATURES), updates, 1)
    assert levels == default_levels(FEATURES) | release


def test_the_kraft_version_does_not_go_back() -> None:
    levels = default_levels(FEATURES) | {"kraft.version": 1}
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        refused = plan_update(FEATURES, levels, [FeatureUpdate("kraft.version", 0, kind)], 1)
        assert refused == "kraft.version can't have level 0: it can't go back from 1."
