"""What the handlers of groups need of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kstore.broker.api.metadata.api_versions import HasFeatures
from kstore.broker.api.security.access import HasAuthorizer

if TYPE_CHECKING:
    from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
    from kstore.broker.runtime.topics.internal_topics import InternalTopics
    from kstore.broker.runtime.transactions.transaction_coordinator import TransactionCoordinator
    from kstore.broker.state.metadata.image import MetadataImage
    from kstore.config import BrokerConfig

__all__ = ["CoordinatorParts", "GroupParts", "GroupProtocolParts", "StreamsParts"]


class GroupParts(HasAuthorizer, Protocol):
    """For classic groups and offsets."""

    @property
    def groups(self) -> Lazy[GroupCoordinator]:
        """The group coordinator."""

    @property
    def image(self) -> MetadataImage:
        """What this broker knows of the cluster now."""


class CoordinatorParts(GroupParts, Protocol):
    """For FindCoordinator."""

    @property
    def transactions(self) -> Lazy[TransactionCoordinator]:
        """The transaction coordinator."""


class GroupProtocolParts(HasAuthorizer, HasFeatures, Protocol):
    """For a group protocol that settings and a feature turn on."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings."""

    @property
    def groups(self) -> Lazy[GroupCoordinator]:
        """The group coordinator."""


class StreamsParts(GroupProtocolParts, Protocol):
    """For streams groups."""

    @property
    def configs(self) -> DynamicConfigs:
        """The settings of groups."""

    @property
    def internal_topics(self) -> Lazy[InternalTopics]:
        """Who makes topics that streams groups lack."""
