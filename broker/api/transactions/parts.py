"""The parts of a broker that the handlers of transactions use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kstore.broker.api.requests.turns import HasTurns
from kstore.broker.api.security.access import HasAuthorizer

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
    from kstore.broker.runtime.groups.partition_lookup import PartitionLookup
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.transactions.admission import TransactionAdmission
    from kstore.broker.runtime.transactions.markers import Markers
    from kstore.broker.runtime.transactions.producer_ids import ProducerIds
    from kstore.broker.runtime.transactions.transaction_coordinator import TransactionCoordinator
    from kstore.broker.state.metadata.image import MetadataImage
    from kstore.config import BrokerConfig

__all__ = [
    "AddPartitionsParts", "ProducerIdParts", "TransactionAdminParts", "TransactionParts",
    "TransactionalOffsetsParts",
]  # fmt: skip


class TransactionParts(Protocol):
    """For requests to the coordinator."""

    @property
    def transactions(self) -> Lazy[TransactionCoordinator]:
        """The transaction coordinator."""


class ProducerIdParts(TransactionParts, HasAuthorizer, Protocol):
    """For InitProducerId."""

    @property
    def producer_ids(self) -> Lazy[ProducerIds]:
        """Allocates producer ids."""


class AddPartitionsParts(TransactionParts, HasAuthorizer, HasTurns, Protocol):
    """For AddPartitionsToTxn."""

    @property
    def image(self) -> MetadataImage:
        """The metadata image."""


class TransactionalOffsetsParts(TransactionParts, Protocol):
    """For commits of a group's offsets in a transaction."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings."""

    @property
    def image(self) -> MetadataImage:
        """The metadata image."""

    @property
    def groups(self) -> Lazy[GroupCoordinator]:
        """The group coordinator."""

    @property
    def partition_lookup(self) -> Lazy[PartitionLookup] | None:
        """Finds new partitions. None on a single broker, which creates all of them."""

    @property
    def admission(self) -> Lazy[TransactionAdmission]:
        """Asks transaction coordinators about producers."""

    @property
    def markers(self) -> Lazy[Markers]:
        """Writes markers to the partitions that this broker leads."""


class TransactionAdminParts(TransactionParts, HasAuthorizer, Protocol):
    """For requests of administrators."""

    @property
    def node(self) -> Node:
        """The process."""

    @property
    def image(self) -> MetadataImage:
        """The metadata image."""

    @property
    def table(self) -> PartitionTable:
        """The partitions that this broker knows."""

    @property
    def markers(self) -> Lazy[Markers]:
        """Writes markers to the partitions that this broker leads."""
