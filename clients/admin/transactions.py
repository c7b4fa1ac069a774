"""Transactions (KIP-664): list and describe them, describe the producers of a partition, and abort
transactions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kstore.clients.admin.routing import (
    AdminBase,
    Coordinator,
    Leader,
    Results,
    by_topic,
    item_error,
)
from kstore.clients.io.cluster import TRANSACTION
from kstore.errors import KafkaError
from kstore.items import Items, items_of, partitions_of
from kstore.protocol.transactions.admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TopicRequest,
)
from kstore.protocol.transactions.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from kstore.protocol.transactions.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kstore.types import TopicPartition

__all__ = [
    "AbortSpec",
    "HangingTransaction",
    "ProducerState",
    "TransactionDescription",
    "TransactionListing",
    "TransactionsAdmin",
]

# transaction.max.timeout.ms: no transaction may stay open for longer.
MAX_TIMEOUT_MS = 900_000
ENDED_STATES = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


class TransactionListing(NamedTuple):
    """A transactional id, with its producer id and state."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """What the coordinator knows about a transactional id. start_time_ms is in ms since 1970; -1 if
    no transaction is open.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]
    coordinator: int


class ProducerState(NamedTuple):
    """What the leader of a partition knows about a producer. Unknown values are -1.
    txn_start_offset is the first offset of its open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int


class AbortSpec(NamedTuple):
    """The transaction to abort on a partition, from its ProducerState."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class HangingTransaction(NamedTuple):
    """A transaction that is open on a partition, and that no coordinator will end."""

    partition: TopicPartition
    producer: ProducerState


class TransactionsAdmin(AdminBase):
    """Requests about transactions."""

    async def list_transactions(
        self,
        *,
        states: Items[str] = (),
        producer_ids: Items[int] = (),
        min_duration_ms: int = -1,
        id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all coordinators, sorted. `states`, `producer_ids`,
        `min_duration_ms` (open for longer than this; KIP-994) and `id_pattern` (an RE2 expression;
        KIP-1152) select some of them.
        """
        states = items_of("states", states, str, "transaction states")
        producer_ids = items_of("producer_ids", producer_ids, int, "producer ids")
        at_least = 2 if id_pattern is not None else 1 if min_duration_ms >= 0 else 0

        async def ask(node_id: int) -> list[TransactionListing] | KafkaError:
            request = ListTransactionsRequest(
                state_filters=states,
                producer_id_filters=producer_ids,
                duration_filter=min_duration_ms,
                transactional_id_pattern=id_pattern,
            )
            answer = await self._ask(node_id, request, ListTransactionsResponse, at_least=at_least)
            error = item_error(f"transactions of broker {node_id}", answer.error_code)
            return error or [
                TransactionListing(row.transactional_id, row.producer_id, row.transaction_state)
                for row in answer.transaction_states
            ]

        found = await self._every_broker(ask)
        return sorted(row for rows in found.values() for row in rows)

    async def describe_transactions(
        self, transactional_ids: Items[str], *, raise_errors: bool = True
    ) -> Results[str, TransactionDescription]:
        """The state, producer and partitions of transactional ids."""
        transactional_ids = items_of("transactional_ids", transactional_ids, str, "ids")

        async def ask(
            node_id: int, wanted: list[str]
        ) -> dict[str, TransactionDescription | KafkaError]:
            request = DescribeTransactionsRequest(transactional_ids=wanted)
            answer = await self._ask(node_id, request, DescribeTransactionsResponse)
            return {
                row.transactional_id: item_error(
                    f"transactional id {row.transactional_id!r}", row.error_code
                )
                or TransactionDescription(
                    row.transactional_id,
                    row.transaction_state,
                    row.producer_id,
                    row.producer_epoch,
                    row.transaction_timeout_ms,
                    row.transaction_start_time_ms,
                    tuple(
                        sorted(TopicPartition(t.topic, each) for t in row.topics
                               for each in t.partitions)
                    ),
                    node_id,
                )
                for row in answer.transaction_states
            }  # fmt: skip

        route = Coordinator(self._cluster, TRANSACTION)
        return await self._each(transactional_ids, route, ask, raise_errors=raise_errors)

    async def describe_producers(
        self, partitions: Items[TopicPartition], *, raise_errors: bool = True
    ) -> Results[TopicPartition, list[ProducerState]]:
        """The producers that the leaders of partitions know, sorted by producer id."""
        partitions = partitions_of("partitions", partitions)

        async def ask(
            node_id: int, wanted: list[TopicPartition]
        ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(name=topic, partition_indexes=indexes)
                    for topic, indexes in by_topic(wanted).items()
                ]
            )
            answer = await self._ask(node_id, request, DescribeProducersResponse)
            found: dict[TopicPartition, list[ProducerState] | KafkaError] = {}
            for topic in answer.topics:
                for row in topic.partitions:
                    tp = TopicPartition(topic.name, row.partition_index)
                    error = item_error(f"partition {tp}", row.error_code, row.error_message)
                    found[tp] = error or sorted(
                        ProducerState(
                            p.producer_id, p.producer_epoch, p.last_sequence, p.last_timestamp,
                            p.coordinator_epoch, p.current_txn_start_offset,
                        )
                        for p in row.active_producers
                    )  # fmt: skip
            return found

        route = Leader(self._cluster)
        return await self._each(partitions, route, ask, raise_errors=raise_errors)

    async def abort_transaction(self, spec: AbortSpec) -> None:
        """Write an abort marker on a partition. Use this only if the coordinator will not end the
        transaction. A producer that still writes in the transaction loses the records that it wrote
        there.
        """

        async def ask(
            node_id: int, wanted: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            marker = WritableTxnMarker(
                producer_id=spec.producer_id,
                producer_epoch=spec.producer_epoch,
                coordinator_epoch=spec.coordinator_epoch,
                transaction_result=False,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in by_topic(wanted).items()
                ],
            )
            request = WriteTxnMarkersRequest(markers=[marker])
            answer = await self._ask(node_id, request, WriteTxnMarkersResponse)
            return {
                TopicPartition(topic.name, row.partition_index): item_error(
                    f"partition {topic.name}-{row.partition_index}", row.error_code
                )
                for each in answer.markers
                for topic in each.topics
                for row in topic.partitions
            }

        await self._each([spec.partition], Leader(self._cluster), ask, raise_errors=True)

    async def fence_producers(
        self, transactional_ids: Items[str], *, raise_errors: bool = True
    ) -> Results[str, tuple[int, int]]:
        """Abort the open transactions of the producers with these transactional ids, and fence the
        producers. Returns the producer id and epoch after which the next producer continues, by
        transactional id.
        """
        transactional_ids = items_of("transactional_ids", transactional_ids, str, "ids")

        async def ask(node_id: int, wanted: list[str]) -> dict[str, tuple[int, int] | KafkaError]:
            found: dict[str, tuple[int, int] | KafkaError] = {}
            for transactional_id in wanted:
                request = InitProducerIdRequest(
                    transactional_id=transactional_id,
                    transaction_timeout_ms=self._request_timeout_ms,
                )
                answer = await self._ask(node_id, request, InitProducerIdResponse)
                what = f"transactional id {transactional_id!r}"
                found[transactional_id] = item_error(what, answer.error_code) or (
                    answer.producer_id,
                    answer.producer_epoch,
                )
            return found

        route = Coordinator(self._cluster, TRANSACTION)
        return await self._each(transactional_ids, route, ask, raise_errors=raise_errors)

    async def find_hanging_transactions(
        self,
        partitions: Items[TopicPartition],
        *,
        now_ms: int,
        max_timeout_ms: int = MAX_TIMEOUT_MS,
    ) -> list[HangingTransaction]:
        """Find transactions on these partitions that no coordinator will end. Their last write was
        more than max_timeout_ms ago (default: 15 minutes, the default of
        transaction.max.timeout.ms), and their coordinator does not know them or has ended them.
        now_ms is in ms since 1970.
        """
        producers = await self.describe_producers(partitions)
        late = [
            HangingTransaction(tp, producer)
            for tp, rows in producers.items()
            for producer in rows
            if producer.txn_start_offset >= 0
            and now_ms - producer.last_timestamp_ms > max_timeout_ms
        ]
        if not late:
            return []
        ids = sorted({each.producer.producer_id for each in late})
        listed = await self.list_transactions(producer_ids=ids)
        names = {row.producer_id: row.transactional_id for row in listed}
        known = await self.describe_transactions(names.values(), raise_errors=False)
        open_on = {
            (row.producer_id, tp)
            for row in known.values()
            if row.state not in ENDED_STATES
            for tp in row.partitions
        }
        unsure = {producer_id for producer_id, name in names.items() if name in known.errors}
        return [
            each
            for each in late
            if each.producer.producer_id not in unsure
            and (each.producer.producer_id, each.partition) not in open_on
        ]
