"""The parts of a broker that the handlers of this room use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kstore.broker.api.requests.turns import HasTurns
from kstore.broker.api.security.access import HasAuthorizer
from kstore.broker.api.security.sasl import HasSecurity

if TYPE_CHECKING:
    from kstore._fast.network.data_plane import DataPlane
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.config_changes.config_reload import ConfigReload
    from kstore.broker.runtime.membership.membership import Membership
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.quotas.client_throttles import ClientThrottles
    from kstore.broker.runtime.replication.replica_manager import ReplicaManager
    from kstore.broker.runtime.topics.topics import Topics
    from kstore.broker.state.metadata.image import MetadataImage

__all__ = [
    "BetweenBrokersParts", "EnvelopeParts", "ForwardingParts", "HasMembership", "HasNode",
    "QuorumParts", "ReassignmentParts", "ReplicaParts",
]  # fmt: skip


class HasMembership(Protocol):
    """For requests that the controller answers."""

    @property
    def membership(self) -> Membership:
        """This broker's membership in its cluster, with the controller if this broker is the
        controller.
        """


class HasNode(Protocol):
    """For reports to the operator."""

    @property
    def node(self) -> Node:
        """The broker's process."""


class ForwardingParts(HasNode, HasMembership, Protocol):
    """For requests that are forwarded to the controller."""

    @property
    def store(self) -> Store:
        """While it is unavailable, no other broker becomes the controller."""

    @property
    def config_reload(self) -> ConfigReload:
        """Applies the controller's changes on this broker at once."""

    @property
    def throttles(self) -> ClientThrottles | None:
        """Throttles clients as the controller requests."""


class ReassignmentParts(HasMembership, Protocol):
    """For elections and reassignments."""

    @property
    def image(self) -> MetadataImage:
        """The partitions."""

    @property
    def topics(self) -> Topics:
        """Changes partitions if there is no controller."""


class QuorumParts(HasNode, ReassignmentParts, Protocol):
    """For the description of the quorum."""


class ReplicaParts(HasNode, Protocol):
    """For requests from the controller."""

    @property
    def replica_manager(self) -> ReplicaManager:
        """Executes these requests."""


class BetweenBrokersParts(HasAuthorizer, HasSecurity, HasNode, Protocol):
    """For the check that the sender is a broker."""


class EnvelopeParts(BetweenBrokersParts, HasMembership, HasTurns, Protocol):
    """For a client's request that another broker forwards."""

    async def loaded(self, api_key: int) -> None:
        """Wait until the modules that answer an API's requests are loaded."""

    @property
    def plane(self) -> DataPlane:
        """Counts errors."""
