"""Several batches of a producer were in flight when its coordinator could not be reached. None is
refused as out of order because an earlier one will be sent again.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.transactions.admission import LocalAdmission
from kstore.broker.runtime.transactions.produce import WAIT_S, TransactionalProduce
from kstore.errors import ErrorCode

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
AGAIN, NONE = int(ErrorCode.NOT_ENOUGH_REPLICAS), 0
VERSION = 10


class Place:
    """A single broker and one partition. Its coordinator answers as the test says."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.asked = 0
        self.now = 100.0
        self.partition: Any = FakePartition(entry=SimpleNamespace(name=b"t"), index=0)
        coordinator = SimpleNamespace(verify_partitions=self._verify)
        transactions: Any = SimpleNamespace(made=coordinator)
        node: Any = SimpleNamespace(
            config={"transaction.partition.verification.enable": True},
            loop=SimpleNamespace(time=lambda: self.now),
        )
        produce: Any = None
        admission = LocalAdmission(transactions, produce)
        self.produce = TransactionalProduce(node, Lazy(lambda: admission))

    def _verify(self, transactional_id: str, claim: Any, places: Iterable[Any]) -> dict[Any, int]:
        self.asked += 1
        return dict.fromkeys(places, self.codes.pop(0))

    def send(self, base_sequence: int, epoch: int = 0) -> int:
        """The error code of a refused batch; 0: it may be appended."""
        asked = [(self.partition, base_sequence)]
        connection: Any = None
        refused = self.produce.admit(connection, "id", (7, epoch), VERSION, asked)
        return refused.get(self.partition, NONE)


class FakePartition(SimpleNamespace):
    """A partition as a key."""

    __hash__ = object.__hash__


def test_what_comes_behind_a_batch_that_is_to_come_again_is_to_come_again_too() -> None:
    place = Place()
    place.codes = [LOADING, NONE, NONE, NONE]
    assert [place.send(10), place.send(15), place.send(20)] == [AGAIN, AGAIN, AGAIN]
    assert place.asked == 1
    assert [place.send(10), place.send(15), place.send(20)] == [NONE, NONE, NONE]


def test_the_earliest_counts_of_those_that_were_refused() -> None:
    place = Place()
    place.codes = [LOADING, LOADING, LOADING, NONE, NONE]
    assert [place.send(10), place.send(5), place.send(10)] == [AGAIN, AGAIN, AGAIN]
    assert [place.send(5), place.send(5), place.send(10)] == [AGAIN, NONE, NONE]


def test_another_epoch_of_the_producer_waits_for_nothing() -> None:
    place = Place()
    place.codes = [LOADING, NONE]
    assert place.send(10) == AGAIN
    assert place.send(11, epoch=1) == NONE


def test_a_batch_that_never_comes_again_is_not_waited_for_without_end() -> None:
    place = Place()
    place.codes = [LOADING, NONE]
    assert place.send(10) == AGAIN
    place.now += WAIT_S / 2
    assert place.send(15) == AGAIN
    place.now += WAIT_S
    assert place.send(15) == NONE  # its sequence is checked where it is appended


def test_a_refusal_for_good_keeps_nobody_back() -> None:
    place = Place()
    place.codes = [ErrorCode.INVALID_TXN_STATE, NONE]
    assert place.send(10) == ErrorCode.INVALID_TXN_STATE
    assert place.send(15) == NONE
