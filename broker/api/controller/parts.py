"""What the handlers of this room are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kstore.broker.api.requests.turns import HasTurns
from kstore.broker.api.security.access import HasAuthorizer
from kstore.broker.api.security.sasl import HasSecurity

if TYPE_CHECKING:
    from kstore.broker.runtime.membership.membership import Membership
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.replication.replica_manager import ReplicaManager
    from kstore.broker.state.metadata.image import MetadataImage

__all__ = [
    "BetweenBrokersParts", "EnvelopeParts", "HasMembership", "QuorumParts", "ReassignmentParts",
    "ReplicaParts",
]  # fmt: skip


class HasMembership(Protocol):
    """For what the controller answers."""

    @property
    def membership(self) -> Membership:
        """This broker's place in its cluster, which has the controller where this broker is it."""


class ReassignmentParts(HasMembership, Protocol):
    """For elections and reassignments."""

    @property
    def image(self) -> MetadataImage:
        """The partitions."""


class QuorumParts(ReassignmentParts, Protocol):
    """For what is told of the quorum."""

    @property
    def node(self) -> Node:
        """The clock."""


class ReplicaParts(Protocol):
    """For what the controller says."""

    @property
    def node(self) -> Node:
        """Where the operator is told something."""

    @property
    def replica_manager(self) -> ReplicaManager:
        """Who carries it out."""


class BetweenBrokersParts(HasAuthorizer, HasSecurity, Protocol):
    """For the question who is a broker."""

    @property
    def node(self) -> Node:
        """The listeners, and where the operator is told something."""


class EnvelopeParts(BetweenBrokersParts, HasMembership, HasTurns, Protocol):
    """For a client's request that another broker hands on."""
