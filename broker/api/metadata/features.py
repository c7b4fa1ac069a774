"""UpdateFeatures 0-2 (KIP-584, KIP-778): raises or lowers finalized feature levels, all or none.

The rules are in state/metadata/features.py; ApiVersions returns the levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kstore.broker.api import RequestContext
from kstore.broker.api.metadata.api_versions import HasFeatures
from kstore.broker.state.metadata.features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    plan_update,
)
from kstore.errors import ErrorCode
from kstore.protocol.metadata.features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from kstore._fast.network.data_plane import DataPlane
    from kstore.broker.runtime.node import Node

__all__ = ["FeatureParts", "handle_update_features"]


class FeatureParts(HasFeatures, Protocol):
    """The parts of a broker that this handler uses."""

    @property
    def node(self) -> Node:
        """This broker's id, and the thread that waits for the disk."""

    @property
    def plane(self) -> DataPlane:
        """Caches responses that contain the levels."""


async def handle_update_features(
    broker: FeatureParts, request: UpdateFeaturesRequest, ctx: RequestContext
) -> UpdateFeaturesResponse:
    """Check every update, and store the levels if all are valid."""
    features = broker.features()
    levels = plan_update(
        features.supported,
        features.levels,
        [_update(row, ctx.api_version) for row in request.feature_updates],
        broker.node.node_id,
    )
    if isinstance(levels, str):
        words = "No feature was changed: "
        return UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=words + levels
        )
    if not request.validate_only and levels != features.levels:
        await broker.node.run_blocking(lambda: features.store(levels))
        broker.plane.forget_answers()  # responses to ApiVersions contain the levels
    results = [
        UpdatableFeatureResult(feature=row.feature, error_message="NONE")
        for row in request.feature_updates
    ]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _update(row: FeatureUpdateKey, version: int) -> FeatureUpdate:
    """Convert an update. Version 0 says only whether a downgrade is allowed."""
    upgrade_type = row.upgrade_type
    if version == 0:
        upgrade_type = SAFE_DOWNGRADE if row.allow_downgrade else UPGRADE
    return FeatureUpdate(row.feature, row.max_version_level, upgrade_type)
