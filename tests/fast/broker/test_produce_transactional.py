"""When Produce asks about a transactional batch: once per request, and only about some."""

from __future__ import annotations

from typing import Any

import pytest

from kstore.errors import ErrorCode
from kstore.protocol.logs.produce import ProduceRequest
from tests.broker.harness.plane_harness import Plane
from tests.record.producer_batches import produced
from tests.record_requests import produce_request

PRODUCE, VERSION = 0, 12
PRODUCER = (7, 3)


class Asked:
    """A stand-in for the coordinator: it records requests, and refuses what the test names."""

    def __init__(self) -> None:
        self.questions: list[tuple[str, tuple[int, int], int, list[tuple[int, int]]]] = []
        self.refuses: dict[int, int] = {}
        self.holds = False
        self.held: list[Any] = []

    def __call__(
        self,
        connection: Any,
        name: str,
        producer: tuple[int, int],
        version: int,
        asked: list[tuple[Any, int]],
    ) -> dict[Any, int] | None:
        if self.holds:
            self.held.append(connection)
            return None
        places = [(partition.index, sequence) for partition, sequence in asked]
        self.questions.append((name, producer, version, places))
        return {
            partition: self.refuses[partition.index]
            for partition, _ in asked
            if partition.index in self.refuses
        }


@pytest.fixture
def asked(plane: Plane) -> Asked:
    asked = Asked()
    plane.plane.produce.admit_transactional = asked
    return asked


def batch(
    sequence: int, *, transactional: bool = True, producer: tuple[int, int] = PRODUCER
) -> bytes:
    return produced(
        (b"k", b"v"), producer=producer[0], epoch=producer[1], sequence=sequence,
        transactional=transactional, timestamp=1_700_000_000_000,
    )  # fmt: skip


def codes(plane: Plane, batches: dict[int, bytes], name: str | None = "tx") -> list[int]:
    """The error codes of the answer, in the order of the requested partitions."""
    request = produce_request("t", *batches.values(), at=list(batches), transactional_id=name)
    response = plane.client().call(VERSION, request)
    return [row.error_code for row in response.responses[0].partition_responses]


def test_one_question_for_all_partitions_of_a_request(plane: Plane, asked: Asked) -> None:
    assert codes(plane, {0: batch(0), 1: batch(4)}) == [0, 0]
    assert asked.questions == [("tx", PRODUCER, VERSION, [(0, 0), (1, 4)])]


def test_no_question_where_the_transaction_is_open(plane: Plane, asked: Asked) -> None:
    codes(plane, {0: batch(0)})
    codes(plane, {0: batch(1)})
    codes(plane, {0: batch(2), 1: batch(0)})
    assert [places for *_, places in asked.questions] == [[(0, 0)], [(1, 0)]]


def test_a_transaction_whose_marker_a_thread_appends_is_not_open(
    plane: Plane, asked: Asked
) -> None:
    codes(plane, {0: batch(0)})
    plane.partition(0).ending = {PRODUCER[0] + 1: 1}
    codes(plane, {0: batch(1)})
    plane.partition(0).ending = {PRODUCER[0]: 1}
    asked.refuses = {0: ErrorCode.INVALID_TXN_STATE}
    assert codes(plane, {0: batch(2)}) == [ErrorCode.INVALID_TXN_STATE]
    assert [places for *_, places in asked.questions] == [[(0, 0)], [(0, 2)]]


def test_another_epoch_is_another_transaction(plane: Plane, asked: Asked) -> None:
    codes(plane, {0: batch(0)})
    codes(plane, {0: batch(0, producer=(7, 4))})
    assert [producer for _, producer, *_ in asked.questions] == [(7, 3), (7, 4)]


def test_what_is_refused_is_not_appended_and_the_rest_is(plane: Plane, asked: Asked) -> None:
    asked.refuses = {1: ErrorCode.INVALID_TXN_STATE}
    assert codes(plane, {0: batch(0), 1: batch(0)}) == [0, ErrorCode.INVALID_TXN_STATE]
    assert [plane.partition(index).log_end_offset for index in (0, 1)] == [1, 0]


def test_batches_of_two_producers_are_refused_without_a_question(
    plane: Plane, asked: Asked
) -> None:
    found = codes(plane, {0: batch(0), 1: batch(0, producer=(8, 3))})
    assert found[1] == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert asked.questions == []


@pytest.mark.parametrize("name", ["tx", None])
def test_batches_outside_of_transactions_are_never_asked_about(
    plane: Plane, asked: Asked, name: str | None
) -> None:
    assert codes(plane, {0: batch(0, transactional=False)}, name) == [0]
    assert asked.questions == []


def test_a_transactional_batch_needs_a_transactional_id(plane: Plane, asked: Asked) -> None:
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert codes(plane, {0: batch(0)}, None) == [refused]
    assert asked.questions == []


def test_what_is_no_batch_is_left_to_the_append(plane: Plane, asked: Asked) -> None:
    torn = batch(0)[:30]
    assert codes(plane, {0: torn, 9: batch(0)}) == [
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert asked.questions == []


def test_what_is_not_known_yet_waits_and_so_does_what_comes_behind_it(
    plane: Plane, asked: Asked
) -> None:
    def produce(sequence: int) -> ProduceRequest:
        return produce_request("t", batch(sequence), transactional_id="tx")

    asked.holds = True
    client = plane.client()
    numbers = [client.send(VERSION, produce(sequence)) for sequence in range(3)]
    assert client.answers() == []
    assert len(asked.held) == 1
    assert plane.partition(0).log_end_offset == 0
    assert plane.plane.request_counts().get(PRODUCE, 0) == 0
    client.connection.admitted()
    assert client.answers() == []
    assert len(asked.held) == 2, "still not known: asked once more"
    asked.holds = False
    client.connection.admitted()
    assert [number for number, _ in client.answers()] == numbers
    assert plane.partition(0).log_end_offset == 3
    assert asked.questions == [("tx", PRODUCER, VERSION, [(0, 0)])]
    assert plane.plane.request_counts()[PRODUCE] == 3
