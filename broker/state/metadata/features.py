"""Feature levels (KIP-584): which features exist, and which updates of finalized levels are valid.

The levels of a new cluster are Kafka 4.3's. Other files store them and report them to clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["FEATURES", "Feature", "FeatureUpdate", "default_levels", "plan_update"]

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"


class Feature(NamedTuple):
    """One feature: the levels that this broker supports, and the level of a new cluster."""

    name: str
    min_level: int
    max_level: int
    default_level: int
    needs: tuple[int, int] | None = None
    """The API key and version that the feature requires."""


FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature("group.version", 0, 1, 1, needs=(68, 0)),
        Feature(KRAFT_VERSION, 0, 1, 0),
        Feature(METADATA_VERSION, 7, 30, 30),
        Feature("share.version", 0, 1, 1, needs=(76, 1)),
        Feature("streams.version", 0, 1, 1, needs=(88, 0)),
        Feature("transaction.version", 0, 2, 2, needs=(26, 5)),
        Feature("eligible.leader.replicas.version", 0, 1, 1),
        Feature("kstore.kip232", 1, 1, 0),
        Feature("kstore.kip253", 1, 1, 0),
        Feature("kstore.kip359", 1, 1, 0),
        Feature("kstore.kip391", 1, 1, 0),
        Feature("kstore.exact", 1, 1, 0),
        Feature("kstore.copybatches", 1, 1, 0),
    )
}
"""Kafka 4.3.1's features in the order of its response, then the extensions that a client may
use.
"""


class FeatureUpdate(NamedTuple):
    """A request for a finalized level. The type is UPGRADE, SAFE_DOWNGRADE or UNSAFE_DOWNGRADE."""

    name: str
    level: int
    upgrade_type: int


def default_levels(supported: Mapping[str, Feature]) -> dict[str, int]:
    """The finalized levels of a new cluster."""
    return {name: feature.default_level for name, feature in supported.items()}


def plan_update(
    supported: Mapping[str, Feature],
    levels: Mapping[str, int],
    updates: Iterable[FeatureUpdate],
    node_id: int,
) -> dict[str, int] | str:
    """The levels after all updates, or the message for the first refused update."""
    changed = dict(levels)
    for update in updates:
        problem = _refusal(supported, levels.get(update.name, 0), update, node_id)
        if problem is not None:
            return f"{update.name} can't have level {update.level}: {problem}"
        changed[update.name] = update.level
    return changed


def _refusal(
    supported: Mapping[str, Feature], current: int, update: FeatureUpdate, node_id: int
) -> str | None:
    """The refusal of an update, in the order of Kafka's checks."""
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return (
            f"upgrade type {update.upgrade_type} is unknown, send {UPGRADE} (upgrade), "
            f"{SAFE_DOWNGRADE} (safe downgrade) or {UNSAFE_DOWNGRADE} (unsafe downgrade)."
        )
    if update.level < 0:
        return "levels start at 0."
    feature = supported.get(update.name)
    if feature is None:
        return f"broker {node_id} has no such feature, it has {', '.join(supported)}."
    if not feature.min_level <= update.level <= feature.max_level:
        allowed = f"{feature.min_level} to {feature.max_level}"
        return f"broker {node_id} has the levels {allowed} of it."
    if update.level < current and update.upgrade_type == UPGRADE:
        return (
            f"that is below the present {current}, send upgrade type {SAFE_DOWNGRADE} (safe "
            f"downgrade) or {UNSAFE_DOWNGRADE} (unsafe downgrade)."
        )
    if update.level > current and update.upgrade_type != UPGRADE:
        return f"that is above the present {current}, send upgrade type {UPGRADE} (upgrade)."
    if update.name == KRAFT_VERSION and update.level < current:
        return f"it can't go back from {current}."
    if update.name == METADATA_VERSION and update.level < current:
        return f"metadata that only level {current} knows would be lost; keep that level."
    return None
