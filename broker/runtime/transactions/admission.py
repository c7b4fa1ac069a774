"""Asks the coordinator of a transaction about a producer that writes records (Produce) or a group's
offsets to this broker (KIP-890). Kafka's AddPartitionsToTxnManager.

In a cluster the coordinator may be another broker. Then a Produce request waits, and so do later
requests of its connection.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from kstore.broker.runtime.peers.batches import PeerBatches
from kstore.broker.state.transactions.state import TV_2
from kstore.broker.state.transactions.steps import Claim
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.transactions.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._fast.broker.produce_path import ProducePath
    from kstore._fast.network.connection import Connection
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers
    from kstore.broker.runtime.transactions.markers import Markers
    from kstore.broker.runtime.transactions.transaction_coordinator import TransactionCoordinator

__all__ = ["LocalAdmission", "PeerAdmission", "TransactionAdmission"]

TIMEOUT_S = 10.0
Codes = dict[TopicPartition, int]


class TransactionAdmission(Protocol):
    """Sends questions about transactions to their coordinators."""

    def admit(
        self,
        connection: Connection,
        transactional_id: str,
        claim: Claim,
        places: frozenset[TopicPartition],
        *,
        adds: bool,
    ) -> Codes | None:
        """Return an error code for each partition. None: they are not known yet. The connection's
        request then waits and is handled again, which calls this again.
        """

    async def ask(
        self,
        transactional_id: str,
        claim: Claim,
        places: frozenset[TopicPartition],
        *,
        adds: bool,
    ) -> Codes:
        """Return an error code for each partition: whether it belongs to the transaction, or with
        ``adds`` the result of adding it. Raises KafkaError if the result may still be lost.
        """


class LocalAdmission:
    """The TransactionAdmission of a single broker, which coordinates all transactions."""

    def __init__(self, transactions: Lazy[TransactionCoordinator], produce: ProducePath) -> None:
        self._transactions = transactions
        self._produce = produce

    def admit(
        self,
        connection: Connection,
        transactional_id: str,
        claim: Claim,
        places: frozenset[TopicPartition],
        *,
        adds: bool,
    ) -> Codes | None:
        """See TransactionAdmission. The answer is always known at once."""
        coordinator = self._transactions.made
        if coordinator is None:
            return dict.fromkeys(places, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if not adds:
            return coordinator.verify_partitions(transactional_id, claim, places)
        code = coordinator.add_partitions(transactional_id, claim, places, TV_2)
        if coordinator.waits and code == ErrorCode.NONE:
            # The transaction is stored before its records. Otherwise a crash could leave records of
            # a transaction that never ends.
            log = coordinator.partition(transactional_id).log
            self._produce.appended.append((log, log.log_end_offset))
        return dict.fromkeys(places, code)

    async def ask(
        self,
        transactional_id: str,
        claim: Claim,
        places: frozenset[TopicPartition],
        *,
        adds: bool,
    ) -> Codes:
        """See TransactionAdmission. Waits until added partitions can no longer be lost."""
        coordinator = self._transactions()
        if not adds:
            return coordinator.verify_partitions(transactional_id, claim, places)
        code = coordinator.add_partitions(transactional_id, claim, places, TV_2)
        if code == ErrorCode.NONE:
            await coordinator.settled(transactional_id)
        return dict.fromkeys(places, code)


class PeerAdmission:
    """The TransactionAdmission of a broker of a cluster."""

    def __init__(
        self,
        node: Node,
        peers: Lazy[Peers],
        transactions: Lazy[TransactionCoordinator],
        markers: Lazy[Markers],
    ) -> None:
        self._node = node
        self._transactions = transactions
        self._markers = markers
        self._elsewhere: PeerBatches[AddPartitionsToTxnTransaction, AddPartitionsToTxnResult] = (
            PeerBatches(
                node.loop,
                peers,
                lambda requested: AddPartitionsToTxnRequest(transactions=requested),
                lambda response: response.results_by_transaction,
                TIMEOUT_S,
            )
        )
        self._known: tuple[object, Codes] | None = None
        """The answers for the request that is handled again in this turn of the loop."""

    def admit(
        self,
        connection: Connection,
        transactional_id: str,
        claim: Claim,
        places: frozenset[TopicPartition],
        *,
        adds: bool,
    ) -> Codes | None:
        """Return an error code for each partition. None: they are not known yet. The connection's
        request then waits and is handled again, which calls this again.
        """
        question = (connection, transactional_id, claim, places, adds)
        if self._known is not None and self._known[0] == question:
            return self._known[1]
        coordinator = self._transactions()

        async def ask_and_admit() -> None:
            found = await self.ask(transactional_id, claim, places, adds=adds)
            self._known = (question, found)
            try:
                connection.admitted()
            finally:
                self._known = None

        coordinator.spawn(ask_and_admit())
        return None

    async def ask(
        self,
        transactional_id: str,
        claim: Claim,
        places: frozenset[TopicPartition],
        *,
        adds: bool,
    ) -> Codes:
        """See TransactionAdmission.

        If this broker writes a marker before the coordinator's answer arrives, the answer is stale:
        a batch after the marker would belong to a transaction that never ends. So the producer must
        try again (Kafka's VerificationGuard). Producers that add partitions by writing have a new
        epoch after each marker, so this does not concern them.
        """
        if adds:
            return await self._ask(transactional_id, claim, places, adds=True)
        with self._markers().watch(claim.producer_id) as ended:
            found = await self._ask(transactional_id, claim, places, adds=False)
        for place in places & ended:
            if found[place] == ErrorCode.NONE:
                found[place] = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return found

    async def _ask(
        self,
        transactional_id: str,
        claim: Claim,
        places: frozenset[TopicPartition],
        *,
        adds: bool,
    ) -> Codes:
        coordinator = self._transactions()
        try:
            leader = coordinator.known_leader(transactional_id)
            if leader == self._node.node_id:
                return await _ask_here(coordinator, transactional_id, claim, places, adds=adds)
            question = _question(transactional_id, claim, places, adds=adds)
            result = await self._elsewhere.ask(leader, question)
        except KafkaError:
            return dict.fromkeys(places, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        found = dict.fromkeys(places, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        for topic in result.topic_results:
            for row in topic.results_by_partition:
                place = TopicPartition(topic.name, row.partition_index)
                found[place] = row.partition_error_code
        return found


async def _ask_here(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    claim: Claim,
    places: frozenset[TopicPartition],
    *,
    adds: bool,
) -> Codes:
    if adds:
        code = coordinator.add_partitions(transactional_id, claim, places, TV_2)
        found = dict.fromkeys(places, code)
    else:
        found = coordinator.verify_partitions(transactional_id, claim, places)
    if ErrorCode.NONE in found.values():
        await coordinator.settled(transactional_id)
    return found


def _question(
    transactional_id: str, claim: Claim, places: frozenset[TopicPartition], *, adds: bool
) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = defaultdict(list)
    for place in sorted(places):
        topics[place.topic].append(place.partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=claim.producer_id,
        producer_epoch=claim.producer_epoch,
        verify_only=not adds,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )
