"""A client whose first broker is cut off from the controller: an answer that only an outdated
broker gives leads to another one (KIP-232). FindCoordinator, OffsetForLeaderEpoch, and ListOffsets
and DeleteRecords of an administrator, against scripted brokers; tests/documents/test_kip232.py has
the other requests, on real ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kstore.clients import AdminClient, Consumer
from kstore.errors import ErrorCode
from kstore.protocol.groups.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kstore.protocol.groups.offsets import OffsetFetchRequest, OffsetFetchResponse
from kstore.protocol.logs.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kstore.protocol.logs.fetch import FetchRequest
from kstore.protocol.logs.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kstore.protocol.metadata.metadata import MetadataRequest
from kstore.types import OffsetAndMetadata
from tests.clients.metadata_answers import metadata
from tests.clients.scripted_log import BY_NAME, FAST, TP, Log, batch
from tests.plain_messages import Answer
from tests.reference.fake_broker import FakeBroker

VERSIONS = BY_NAME | {9: (8, 9), 10: (4, 4), 21: (2, 2), 23: (3, 4)}
OUTDATED, LEADER, OTHER = range(3)


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    """The first of three brokers does not know that the second leads now."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(FakeBroker(versions=VERSIONS)) for _ in range(3)]
        for number, broker in enumerate(made):
            leader, epoch = (OUTDATED, 1) if number == OUTDATED else (LEADER, 2)
            row = {"leader_id": leader, "leader_epoch": epoch}
            answer = metadata([each.port for each in made], row)
            broker.handlers[MetadataRequest] = lambda _, answer=answer: answer
        yield made


def asked(broker: FakeBroker, kind: type[Any]) -> int:
    """The number of requests of a type that arrived."""
    return sum(isinstance(request, kind) for request in broker.requests)


def test_a_coordinator_that_was_replaced_is_looked_for_at_another_broker(
    brokers: list[FakeBroker],
) -> None:
    def names(number: int) -> Callable[[Any], FindCoordinatorResponse]:
        row = {"key": "g", "node_id": number, "host": "127.0.0.1", "port": brokers[number].port}
        return lambda _request: Answer.FindCoordinator(coordinators=[row])

    def offsets(code: int) -> Callable[[Any], OffsetFetchResponse]:
        row = {"partition_index": 0, "committed_offset": 7}
        topics = [] if code else [{"name": "t", "partitions": [row]}]
        group = {"group_id": "g", "topics": topics, "error_code": code}
        return lambda _request: Answer.OffsetFetch(groups=[group])

    for number, broker in enumerate(brokers):
        named = OUTDATED if number == OUTDATED else LEADER
        broker.handlers[FindCoordinatorRequest] = names(named)
        refusal = ErrorCode.NONE if number == LEADER else ErrorCode.NOT_COORDINATOR
        broker.handlers[OffsetFetchRequest] = offsets(refusal)
    with Consumer(brokers[OUTDATED].address, group_id="g", **FAST) as reader:
        assert reader.committed([TP]) == {TP: OffsetAndMetadata(7)}
    # At first it is the only broker that the client knows: its metadata has the others.
    assert asked(brokers[OUTDATED], FindCoordinatorRequest) <= 2
    assert asked(brokers[OUTDATED], OffsetFetchRequest) <= 2
    assert asked(brokers[LEADER], OffsetFetchRequest) == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_position_is_checked_by_the_leader_that_another_broker_names(
    brokers: list[FakeBroker], code: int
) -> None:
    """The outdated broker names itself, and does not lead."""

    def ends(error_code: int) -> Callable[[Any], OffsetForLeaderEpochResponse]:
        end = {"partition": 0, "leader_epoch": 0, "end_offset": 2, "error_code": error_code}
        rows = [{"topic": "t", "partitions": [end]}]
        return lambda _request: Answer.OffsetForLeaderEpoch(topics=rows)

    brokers[OUTDATED].handlers[OffsetForLeaderEpochRequest] = ends(code)
    brokers[LEADER].handlers[OffsetForLeaderEpochRequest] = ends(ErrorCode.NONE)
    log = Log(batch(0, b"a", b"b"), batch(2, b"c"))
    brokers[LEADER].handlers[FetchRequest] = log.fetch
    with Consumer(brokers[OUTDATED].address, auto_offset_reset="none", **FAST) as reader:
        reader.assign([TP])
        reader.seek(TP, OffsetAndMetadata(2, leader_epoch=0))
        assert [record.value for record in reader.poll(30_000)] == [b"c"]
    assert asked(brokers[OUTDATED], OffsetForLeaderEpochRequest) == 1
    assert asked(brokers[OUTDATED], FetchRequest) == 0


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
@pytest.mark.parametrize("kind", [ListOffsetsRequest, DeleteRecordsRequest])
def test_an_administrator_asks_the_leader_that_another_broker_names(
    brokers: list[FakeBroker], kind: type[Any], code: int
) -> None:
    def listed(error_code: int) -> ListOffsetsResponse:
        row = {"partition_index": 0, "offset": 9, "error_code": error_code}
        return Answer.ListOffsets(topics=[{"name": "t", "partitions": [row]}])

    def deleted(error_code: int) -> DeleteRecordsResponse:
        row = {"partition_index": 0, "low_watermark": 9, "error_code": error_code}
        return Answer.DeleteRecords(topics=[{"name": "t", "partitions": [row]}])

    answer = listed if kind is ListOffsetsRequest else deleted
    brokers[OUTDATED].handlers[kind] = lambda _request: answer(code)
    brokers[LEADER].handlers[kind] = lambda _request: answer(ErrorCode.NONE)
    with AdminClient(brokers[OUTDATED].address, retry_backoff_ms=1) as admin:
        if kind is ListOffsetsRequest:
            assert admin.list_offsets({TP: "latest"})[TP].offset == 9
        else:
            assert admin.delete_records({TP: 9}) == {TP: 9}
    assert asked(brokers[OUTDATED], kind) == 1
    assert asked(brokers[LEADER], kind) == 1
