"""Chooses the version of an API for a broker, by its ApiVersions response."""

from __future__ import annotations

from kstore.errors import UnsupportedVersionError
from kstore.protocol.metadata.api_versions import ApiVersionsResponse
from kstore.protocol.registry import APIS

__all__ = ["BrokerVersions"]

OWN_APIS = {"kstore.kip253": 25300, "kstore.copybatches": 25301}
"""Features that announce kstore's own APIs (LeaderEpochForPartition, CopyBatches)."""


class BrokerVersions:
    """The APIs, version ranges and features of one broker."""

    def __init__(self, response: ApiVersionsResponse) -> None:
        self._ranges = {
            row.api_key: (row.min_version, row.max_version) for row in response.api_keys
        }
        self.features = {
            row.name: (row.min_version, row.max_version) for row in response.supported_features
        }

        self.levels = {row.name: row.max_version_level for row in response.finalized_features}
        """Finalized feature levels of the cluster, such as "transaction.version" (KIP-584)."""

        for feature, key in OWN_APIS.items():
            if self.has(feature):
                # Not listed separately: some clients keep the keys of APIs in an array.
                self._ranges.setdefault(key, (0, 0))

    def has(self, feature: str) -> bool:
        """Whether the broker supports version 1 of a feature (KIP-584), such as "kstore.kip232"."""
        low, high = self.features.get(feature, (1, 0))
        return low <= 1 <= high

    def offers(self, api_key: int) -> bool:
        """Whether the broker has the API."""
        return api_key in self._ranges

    def choose(self, api_key: int, *, at_least: int = 0, at_most: int = 32767) -> int:
        """The newest version that both sides have within the bounds.

        Raises UnsupportedVersionError, which names both ranges.
        """
        api = APIS[api_key]
        theirs = self._ranges.get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(f"the broker does not support {api.name}")
        low = max(api.min_version, theirs[0], at_least)
        high = min(api.max_version, theirs[1], at_most)
        if low > high:
            raise UnsupportedVersionError(
                f"{api.name}: the broker has versions {theirs[0]} to {theirs[1]}, but versions "
                f"{max(api.min_version, at_least)} to {min(api.max_version, at_most)} are needed"
            )
        return high
