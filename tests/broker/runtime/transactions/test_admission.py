"""The responses to writers of a transaction, from its coordinator and from another broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.transactions.admission import LocalAdmission
from kstore.broker.state.transactions.state import TV_2
from kstore.broker.state.transactions.steps import Claim
from kstore.errors import ErrorCode
from kstore.types import TopicPartition
from tests.broker.runtime.replication.in_cluster import codes, isr, opened, state
from tests.plain_messages import Answer

CLAIM = Claim(7, 0)
PLACE = TopicPartition("t", 0)
LOG = SimpleNamespace(log_end_offset=3)


class Coordinator:
    """The coordinator, which records what it was asked."""

    def __init__(self, code: int = ErrorCode.NONE, *, waits: bool = False) -> None:
        self.code = code
        self.waits = waits
        self.asked: list[str] = []

    def add_partitions(self, name: str, claim: Claim, places: Any, version: int) -> int:
        assert (claim, version) == (CLAIM, TV_2)
        self.asked.append("add")
        return self.code

    def verify_partitions(self, name: str, claim: Claim, places: Any) -> dict[Any, int]:
        self.asked.append("verify")
        return dict.fromkeys(places, self.code)

    async def settled(self, name: str) -> None:
        self.asked.append("settled")

    def partition(self, name: str) -> Any:
        return SimpleNamespace(log=LOG)


def admission(coordinator: Coordinator | None, appended: list[Any] | None = None) -> LocalAdmission:
    transactions: Lazy[Any] = Lazy(lambda: coordinator)
    transactions.made = coordinator
    produce: Any = SimpleNamespace(appended=[] if appended is None else appended)
    return LocalAdmission(transactions, produce)


def admitted(of: LocalAdmission, *, adds: bool) -> Any:
    connection: Any = None
    return of.admit(connection, "tx", CLAIM, frozenset({PLACE}), adds=adds)


def test_a_write_without_any_transaction_is_refused_and_makes_no_coordinator() -> None:
    refused = admitted(admission(None), adds=True)
    assert refused == {PLACE: ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_new_clients_add_by_writing_and_old_ones_have_to_have_added() -> None:
    coordinator = Coordinator()
    assert admitted(admission(coordinator), adds=True) == {PLACE: ErrorCode.NONE}
    assert admitted(admission(coordinator), adds=False) == {PLACE: ErrorCode.NONE}
    assert coordinator.asked == ["add", "verify"]


def test_records_are_answered_once_their_transaction_is_on_the_disk() -> None:
    appended: list[Any] = []
    admitted(admission(Coordinator(), appended), adds=True)
    admitted(admission(Coordinator(ErrorCode.PRODUCER_FENCED, waits=True), appended), adds=True)
    assert appended == []
    admitted(admission(Coordinator(waits=True), appended), adds=True)
    assert appended == [(LOG, 3)]


def test_offsets_are_admitted_once_what_was_added_is_safe() -> None:
    async def ask(coordinator: Coordinator, *, adds: bool) -> list[str]:
        of = admission(coordinator)
        found = await of.ask("tx", CLAIM, frozenset({PLACE}), adds=adds)
        assert found == {PLACE: coordinator.code}
        return coordinator.asked

    assert asyncio.run(ask(Coordinator(), adds=True)) == ["add", "settled"]
    assert asyncio.run(ask(Coordinator(), adds=False)) == ["verify"]
    assert asyncio.run(ask(Coordinator(ErrorCode.PRODUCER_FENCED), adds=True)) == ["add"]


class Coordinating:
    """Another broker. It coordinates the transaction, and answers when the test allows it."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def ask(self, node_id: int, request: Any, timeout_s: float) -> Any:
        self.asked.set()
        await self.may_answer.wait()
        topics = [
            {"name": topic.name,
             "results_by_partition": [{"partition_index": each} for each in topic.partitions]}
            for topic in request.transactions[0].topics
        ]  # fmt: skip
        result = {"transactional_id": "tx", "topic_results": topics}
        return Answer.AddPartitionsToTxn(results_by_transaction=[result])


def test_a_batch_is_verified_again_after_a_marker_that_overtook_the_answer(tmp_path: Path) -> None:
    """Otherwise the batch is appended after the marker that ends its transaction, and stays
    open.
    """
    second = TopicPartition("t", 1)

    async def answered(broker: Any, *, adds: bool, marked: int | None) -> list[int]:
        """The answers for two partitions. One of them gets a marker of the producer meanwhile."""
        coordinator = Coordinating()
        broker.peers().ask = coordinator.ask
        places = frozenset({PLACE, second})
        asking = asyncio.create_task(broker.admission().ask("tx", CLAIM, places, adds=adds))
        await coordinator.asked.wait()
        if marked is not None:
            assert broker.markers().write(PLACE, (marked, 0), 0, committed=False) == 0
        coordinator.may_answer.set()
        found = await asking
        return [found[PLACE], found[second]]

    async def story() -> None:
        async with opened(tmp_path) as broker:
            said = isr(state(), state(index=1))
            assert codes(await broker.replica_manager.leader_and_isr(said)) == [0, 0]
            broker.transactions = Lazy[Any](lambda: SimpleNamespace(known_leader=lambda _: 2))
            mine, later = CLAIM.producer_id, ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await answered(broker, adds=False, marked=None) == [0, 0]
            assert await answered(broker, adds=False, marked=mine) == [later, 0]
            assert await answered(broker, adds=False, marked=mine + 1) == [0, 0]
            assert await answered(broker, adds=True, marked=mine) == [0, 0], "epochs fence them"
            broker.transactions.forget()
            with broker.markers().watch(mine):
                assert broker.markers().write(PLACE, (mine, 0), 0, committed=False) == 0
                assert broker.groups().has_ended(PLACE, mine), "for the offsets of transactions"
            assert not broker.groups().has_ended(PLACE, mine)

    asyncio.run(story())
