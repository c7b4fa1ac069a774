"""A consumer looks up positions: a silent broker delays only its own partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kstore.clients import Consumer
from kstore.clients.io import placement
from kstore.errors import ErrorCode, GroupAuthorizationFailedError, TopicAuthorizationFailedError
from kstore.protocol.groups.find_coordinator import FindCoordinatorRequest
from kstore.protocol.groups.offsets import OffsetFetchRequest
from kstore.protocol.logs.fetch import FetchRequest
from kstore.protocol.logs.list_offsets import ListOffsetsRequest
from kstore.protocol.metadata.metadata import MetadataRequest
from kstore.protocol.schema import Message
from kstore.types import TopicPartition
from tests.beside.waiting import until
from tests.clients.metadata_answers import metadata
from tests.clients.scripted_log import BY_NAME, FAST, batch
from tests.plain_messages import Answer
from tests.reference.fake_broker import HANG_UP, FakeBroker

LONG_S = 10
LONG_MS = LONG_S * 1000
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def fetched(request: Message) -> Any:
    """One record in each partition, at offset 0."""
    rows = [
        {"partition_index": row.partition, "records": b"" if row.fetch_offset else batch(0, b"x")}
        for topic in request.topics
        for row in topic.partitions
    ]
    if not any(row["records"] for row in rows):
        time.sleep(request.max_wait_ms / 1000)
    return Answer.Fetch(responses=[{"topic": "t", "partitions": rows}])


def listed(request: Message, **more: Any) -> Any:
    """All partitions begin at 0."""
    rows = [
        {"partition_index": row.partition_index, "offset": 0, **more}
        for topic in request.topics
        for row in topic.partitions
    ]
    return Answer.ListOffsets(topics=[{"name": "t", "partitions": rows}])


class Silent:
    """Answers only at the end of the test: FakeBroker hangs up where it waits for a request."""

    def __init__(self) -> None:
        self.asked, self.ended = threading.Event(), threading.Event()

    def __call__(self, _: Message) -> object:
        self.asked.set()
        self.ended.wait()
        return HANG_UP


@pytest.fixture
def silent() -> Silent:
    """The first broker's ListOffsets."""
    return Silent()


@pytest.fixture
def brokers(silent: Silent) -> Iterator[tuple[FakeBroker, FakeBroker]]:
    """The leaders of the two partitions; the first one is silent."""
    with FakeBroker(versions=BY_NAME) as first, FakeBroker(versions=BY_NAME) as second:
        ports = [first.port, second.port]
        for broker in (first, second):
            broker.handlers |= {
                MetadataRequest: lambda _: metadata(ports, {"leader_id": 0}, {"leader_id": 1}),
                FetchRequest: fetched,
                ListOffsetsRequest: listed,
            }
        first.handlers[ListOffsetsRequest] = silent
        yield first, second
        silent.ended.set()


def consumer(brokers: tuple[FakeBroker, FakeBroker]) -> Consumer:
    options: dict[str, Any] = {"auto_offset_reset": "earliest", **FAST}
    return Consumer([broker.address for broker in brokers], **options)


def test_a_leader_that_does_not_answer_delays_only_its_partitions(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    with consumer(brokers) as reader:
        reader.assign([FIRST, SECOND])
        assert [r.partition for r in reader.poll(LONG_MS)] == [1]


@pytest.mark.parametrize("looks_up", [False, True])
def test_a_partition_is_placed_while_another_ones_leader_does_not_answer(
    brokers: tuple[FakeBroker, FakeBroker], silent: Silent, looks_up: bool
) -> None:
    with consumer(brokers) as reader:
        reader.assign([FIRST])
        assert reader.poll(0) == []
        assert silent.asked.wait(LONG_S)
        reader.assign([FIRST, SECOND])
        if not looks_up:
            reader.seek(SECOND, 0)
        assert [r.partition for r in reader.poll(LONG_MS)] == [1]


def test_the_error_of_a_partition_that_is_not_assigned_any_more_is_not_raised(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def refused(request: Message) -> Any:
        if asked.is_set():
            return listed(request)
        asked.set()
        assert may_answer.wait(LONG_S)
        return listed(request, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    brokers[0].handlers[ListOffsetsRequest] = refused
    with consumer(brokers) as reader:
        reader.assign([FIRST])
        assert reader.poll(0) == []
        assert asked.wait(LONG_S)
        reader.assign([SECOND])
        may_answer.set()
        # The same connection: answers arrive in order.
        assert reader.beginning_offsets([FIRST]) == {FIRST: 0}
        assert [r.partition for r in reader.poll(LONG_MS)] == [1]


def test_pauses_begin_short_again_when_a_partition_loses_its_leader_again(
    brokers: tuple[FakeBroker, FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    leader, answers = [-1], [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]

    def pause_ms(failures: int, *_: object) -> float:
        counts.append(failures)
        if len(counts) in {3, 6}:
            leader[0] = 1
        return 0

    def refused_once(request: Message) -> Any:
        code = answers.pop(0)
        if code:
            leader[0] = -1
        return listed(request, error_code=code)

    monkeypatch.setattr(placement, "pause_ms", pause_ms)
    brokers[1].handlers[ListOffsetsRequest] = refused_once
    ports = [broker.port for broker in brokers]
    for broker in brokers:
        broker.handlers[MetadataRequest] = lambda _: metadata(ports, {"leader_id": leader[0]})
    with consumer(brokers) as reader:
        reader.assign([FIRST])
        for _ in range(2):
            reader.seek_to_beginning()
            assert [r.partition for r in reader.poll(LONG_MS)] == [0]
    assert counts == [1, 2, 3, 1, 1, 2]


def test_an_error_is_raised_when_its_partition_is_assigned_again(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    def refused(request: Message) -> Any:
        return listed(request, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    brokers[0].handlers[ListOffsetsRequest] = refused
    with consumer(brokers) as reader:
        reader.assign([FIRST])
        assert reader.poll(0) == []
        until(lambda: bool(reader._shell.inbox))
        reader.assign([])
        reader.assign([FIRST])
        with pytest.raises(TopicAuthorizationFailedError):
            reader.poll(LONG_MS)


@pytest.mark.parametrize(
    ("row", "code", "error", "text"),
    [
        ({}, ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailedError, "GROUP"),
        ({"partition_epoch": 1, "committed_leader_epoch": -2}, 0, ValueError, "are not epochs"),
    ],
    ids=["refused", "broken"],
)
@pytest.mark.parametrize("polls", [False, True])
def test_an_error_about_committed_offsets_is_raised_once_and_they_are_looked_up_again(
    row: Mapping[str, Any], code: int, error: type[Exception], text: str, polls: bool
) -> None:
    def offsets(row: Mapping[str, Any], code: int) -> Any:
        rows = [{"partition_index": index, "committed_offset": 7, **row} for index in range(2)]
        topics = [] if code else [{"name": "t", "partitions": rows}]
        return Answer.OffsetFetch(groups=[{"group_id": "g", "topics": topics, "error_code": code}])

    answers = [offsets(row, code), offsets({}, 0)]
    with FakeBroker(versions=BY_NAME | {9: (8, 9), 10: (4, 4)}) as broker:
        named = {"key": "g", "node_id": 0, "host": "127.0.0.1", "port": broker.port}
        broker.handlers |= {
            MetadataRequest: lambda _: metadata([broker.port], *[{"leader_id": 0}] * 2),
            FindCoordinatorRequest: lambda _: Answer.FindCoordinator(coordinators=[named]),
            OffsetFetchRequest: lambda _: answers.pop(0) if answers[1:] else answers[0],
            FetchRequest: fetched,
        }
        with Consumer(broker.address, group_id="g", **FAST) as reader:
            reader.assign([FIRST, SECOND])
            with pytest.raises(error, match=text):
                reader.poll(LONG_MS) if polls else reader.position(SECOND)
            assert [reader.position(tp) for tp in (FIRST, SECOND)] == [7, 7]
            assert reader.poll(0) == []
