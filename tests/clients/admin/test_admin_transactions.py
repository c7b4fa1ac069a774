"""Which open transactions hang; and both faces of the admin client have the same methods."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from kstore.clients import AdminClient, AIOAdminClient
from kstore.clients.admin import (
    HangingTransaction,
    ProducerState,
    Results,
    TransactionDescription,
    TransactionListing,
)
from kstore.clients.admin.transactions import TransactionsAdmin
from kstore.errors import CoordinatorNotAvailableError, KafkaError
from kstore.types import TopicPartition

NOW_MS = 10_000_000
TP = TopicPartition("orders", 0)


class FakeAdmin(TransactionsAdmin):
    """Knows producers of one partition, and transactions by producer id."""

    def __init__(
        self, producers: list[ProducerState], transactions: dict[int, TransactionDescription],
        errors: dict[str, KafkaError] | None = None,
    ) -> None:  # fmt: skip
        self.producers = producers
        self.transactions = transactions
        self.errors = errors or {}

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, raise_errors: bool = True
    ) -> Results[TopicPartition, list[ProducerState]]:
        return Results(dict.fromkeys(partitions, self.producers))

    async def list_transactions(
        self, *, states: Sequence[str] = (), producer_ids: Sequence[int] = (),
        min_duration_ms: int = -1, id_pattern: str | None = None,
    ) -> list[TransactionListing]:  # fmt: skip
        return [
            TransactionListing(each.transactional_id, each.producer_id, each.state)
            for producer_id, each in self.transactions.items()
            if producer_id in producer_ids
        ]

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, raise_errors: bool = True
    ) -> Results[str, TransactionDescription]:
        by_id = {each.transactional_id: each for each in self.transactions.values()}
        found = {each: by_id[each] for each in transactional_ids if each not in self.errors}
        return Results(found, self.errors)


def producer(producer_id: int, last_ms: int = 0, start: int = 5) -> ProducerState:
    """A producer's state, with a transaction that begins at `start`."""
    return ProducerState(producer_id, 0, 1, last_ms, 0, start)


def transaction(
    producer_id: int, state: str, partitions: tuple[TopicPartition, ...] = (TP,)
) -> TransactionDescription:
    return TransactionDescription(f"t{producer_id}", state, producer_id, 0, 1, 0, partitions, 1)


def hanging(admin: FakeAdmin) -> list[int]:
    """The producer ids of the transactions that hang."""
    found: list[HangingTransaction] = asyncio.run(
        admin.find_hanging_transactions([TP], now_ms=NOW_MS, max_timeout_ms=1000)
    )
    return [each.producer.producer_id for each in found]


def test_one_that_no_coordinator_knows_hangs() -> None:
    assert hanging(FakeAdmin([producer(1)], {})) == [1]


def test_one_that_is_under_way_does_not() -> None:
    for state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
        assert hanging(FakeAdmin([producer(1)], {1: transaction(1, state)})) == []


def test_one_that_its_coordinator_has_ended_or_that_is_not_on_the_partition_hangs() -> None:
    assert hanging(FakeAdmin([producer(1)], {1: transaction(1, "CompleteCommit")})) == [1]
    other = (TopicPartition("orders", 1),)
    assert hanging(FakeAdmin([producer(1)], {1: transaction(1, "Ongoing", other)})) == [1]


def test_a_young_one_and_a_producer_without_one_are_not_looked_at() -> None:
    assert hanging(FakeAdmin([producer(1, NOW_MS - 500), producer(2, start=-1)], {})) == []


def test_one_whose_coordinator_can_not_be_asked_is_not_accused() -> None:
    errors: dict[str, KafkaError] = {"t1": CoordinatorNotAvailableError()}
    assert hanging(FakeAdmin([producer(1)], {1: transaction(1, "Ongoing")}, errors)) == []


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def methods(client: Any) -> dict[str, Any]:
        found = inspect.getmembers(client, inspect.isfunction)
        return {name: inspect.signature(each) for name, each in found if name[0] != "_"}

    assert methods(AdminClient) == methods(AIOAdminClient)
    assert all(
        inspect.iscoroutinefunction(each) or name == "close"
        for name, each in inspect.getmembers(AIOAdminClient, inspect.isfunction)
        if name[0] != "_"
    )
