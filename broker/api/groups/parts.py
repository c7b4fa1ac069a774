"""The parts of a broker that the handlers of groups use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kstore.broker.api.metadata.api_versions import HasFeatures
from kstore.broker.api.security.access import HasAuthorizer

if TYPE_CHECKING:
    from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
    from kstore.broker.runtime.groups.partition_ends import PartitionEnds
    from kstore.broker.runtime.groups.partition_lookup import PartitionLookup
    from kstore.broker.runtime.groups.share_states import ShareGroupStates
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
    from kstore.broker.runtime.shares.share_coordinator import ShareCoordinator
    from kstore.broker.runtime.topics.internal_topics import InternalTopics
    from kstore.broker.runtime.transactions.transaction_coordinator import TransactionCoordinator
    from kstore.broker.state.metadata.image import MetadataImage
    from kstore.config import BrokerConfig

__all__ = [
    "CoordinatorParts", "DeleteParts", "GroupParts", "GroupProtocolParts", "ShareOffsetParts",
    "ShareParts", "StreamsParts",
]  # fmt: skip


class GroupParts(HasAuthorizer, Protocol):
    """For classic groups and offsets."""

    @property
    def groups(self) -> Lazy[GroupCoordinator]:
        """The group coordinator."""

    @property
    def partition_lookup(self) -> Lazy[PartitionLookup] | None:
        """Finds new partitions. None on a single broker, which creates all of them."""

    @property
    def image(self) -> MetadataImage:
        """The metadata image."""


class CoordinatorParts(GroupParts, Protocol):
    """For FindCoordinator."""

    @property
    def transactions(self) -> Lazy[TransactionCoordinator]:
        """The transaction coordinator."""

    @property
    def share_coordinator(self) -> Lazy[ShareCoordinator]:
        """The share coordinator."""

    async def loaded(self, api_key: int) -> None:
        """Wait until the modules that serve an API are loaded."""


class DeleteParts(GroupParts, Protocol):
    """For DeleteGroups."""

    @property
    def share_states(self) -> Lazy[ShareGroupStates]:
        """Initializes and deletes the state of share-partitions."""


class GroupProtocolParts(HasAuthorizer, HasFeatures, Protocol):
    """For a group protocol that settings and a feature enable."""

    @property
    def partition_lookup(self) -> Lazy[PartitionLookup] | None:
        """Finds new partitions. None on a single broker, which creates all of them."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings."""

    @property
    def groups(self) -> Lazy[GroupCoordinator]:
        """The group coordinator."""


class ShareParts(GroupProtocolParts, Protocol):
    """For share groups."""

    @property
    def share_states(self) -> Lazy[ShareGroupStates]:
        """Initializes and deletes the state of share-partitions."""


class ShareOffsetParts(ShareParts, Protocol):
    """For the offsets of share groups."""

    @property
    def image(self) -> MetadataImage:
        """The metadata image."""

    @property
    def partition_ends(self) -> Lazy[PartitionEnds]:
        """Finds the high watermarks of partitions on any broker."""


class StreamsParts(GroupProtocolParts, Protocol):
    """For streams groups."""

    @property
    def configs(self) -> DynamicConfigs:
        """The settings of groups."""

    @property
    def internal_topics(self) -> Lazy[InternalTopics]:
        """Creates missing internal topics of streams groups."""
