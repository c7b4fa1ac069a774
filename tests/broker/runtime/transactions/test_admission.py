"""The responses of a single broker, which is the coordinator, to writers of a transaction."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.transactions.admission import OwnAdmission
from kstore.broker.state.transactions.state import TV_2
from kstore.broker.state.transactions.steps import Claim
from kstore.errors import ErrorCode
from kstore.types import TopicPartition

CLAIM = Claim(7, 0)
PLACE = TopicPartition("t", 0)
LOG = SimpleNamespace(log_end_offset=3)


class Coordinator:
    """The coordinator, which knows what it was asked."""

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


def admission(coordinator: Coordinator | None, appended: list[Any] | None = None) -> OwnAdmission:
    transactions: Lazy[Any] = Lazy(lambda: coordinator)
    transactions.made = coordinator
    produce: Any = SimpleNamespace(appended=[] if appended is None else appended)
    return OwnAdmission(transactions, produce)


def admitted(of: OwnAdmission, *, adds: bool) -> Any:
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
