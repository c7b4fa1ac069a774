"""A producer whose leader epoch is over (KIP-359), against a scripted broker: metadata comes first,
and the refused epoch is not sent again, however often outdated metadata comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from kstore.clients import Producer
from kstore.errors import ErrorCode
from kstore.protocol.logs.produce import ProduceRequest
from kstore.protocol.metadata.api_versions import ApiVersionsRequest
from kstore.protocol.metadata.metadata import MetadataRequest
from kstore.protocol.registry import APIS
from kstore.protocol.schema import Message
from tests.beside.waiting import until
from tests.clients.metadata_answers import metadata
from tests.plain_messages import Answer
from tests.reference.fake_broker import FakeBroker

OLD, NEW = UUID(int=1), UUID(int=2)


class Leader:
    """A broker that leads t-0; its metadata may be outdated. `story` has the requests."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.epoch = 5
        self.topic_id = OLD
        self.lags = 0  # of so many answers
        self.hint = False
        self.story: list[str] = []
        rows = [
            {"api_key": key, "min_version": api.min_version, "max_version": api.max_version}
            for key, api in APIS.items() if key < 100
        ]  # fmt: skip
        feature = {"name": "kstore.kip359", "min_version": 1, "max_version": 1}
        broker.handlers[ApiVersionsRequest] = lambda _: Answer.ApiVersions(
            api_keys=rows, supported_features=[feature]
        )
        broker.handlers[MetadataRequest] = self.metadata
        broker.handlers[ProduceRequest] = self.produce
        self.told = (OLD, 5)

    def metadata(self, _request: Message) -> Message:
        if self.lags:
            self.lags -= 1
        else:
            self.told = (self.topic_id, self.epoch)
        topic_id, epoch = self.told
        self.story.append(f"metadata {epoch}")
        row = {"leader_id": 7, "leader_epoch": epoch}
        return metadata([self.broker.port], row, first=7, topic_id=topic_id)

    def produce(self, request: Message) -> Message:
        [topic] = request.topic_data
        sent = topic.partition_data[0].current_leader_epoch
        self.story.append(f"produce {sent}")
        row = {"index": 0, "base_offset": 3}
        nodes = []
        if topic.topic_id != self.topic_id:
            row = {"index": 0, "error_code": ErrorCode.UNKNOWN_TOPIC_ID}
        elif sent < self.epoch:
            row = {"index": 0, "error_code": ErrorCode.FENCED_LEADER_EPOCH}
            if self.hint:
                row["current_leader"] = {"leader_id": 7, "leader_epoch": self.epoch}
                nodes = [{"node_id": 7, "host": "127.0.0.1", "port": self.broker.port}]
        answer = {"topic_id": topic.topic_id, "partition_responses": [row]}
        return Answer.Produce(responses=[answer], node_endpoints=nodes)


@pytest.fixture
def leader() -> Iterator[Leader]:
    with FakeBroker() as broker:
        yield Leader(broker)


def produced(leader: Leader, *, hint: bool = False, lags: int = 0) -> list[str]:
    """The requests for one record after an election that the producer does not know about."""
    with Producer(
        leader.broker.address, enable_idempotence=False, retry_backoff_ms=1,
        retry_backoff_max_ms=5, linger_ms=0,
    ) as producer:  # fmt: skip
        assert producer.send("t", b"before", partition=0).result(20) == 3
        leader.epoch, leader.lags, leader.hint = 6, lags, hint
        leader.story.clear()
        assert producer.send("t", b"after", partition=0).result(20) == 3
        return list(leader.story)


@pytest.mark.parametrize("lags", [0, 1, 4])
def test_metadata_is_asked_for_before_anything_is_sent_again(leader: Leader, lags: int) -> None:
    story = produced(leader, lags=lags)
    assert [each for each in story if "produce" in each] == ["produce 5", "produce 6"]
    before = story[: story.index("produce 6")]
    assert before[: lags + 2] == ["produce 5", *["metadata 5"] * lags, "metadata 6"]


def test_a_leader_that_the_answer_names_needs_no_metadata(leader: Leader) -> None:
    assert produced(leader, hint=True)[:2] == ["produce 5", "produce 6"]


def test_a_topic_that_was_made_again_begins_with_an_epoch_of_its_own(leader: Leader) -> None:
    with Producer(
        leader.broker.address, enable_idempotence=False, retry_backoff_ms=1,
        retry_backoff_max_ms=5, linger_ms=0,
    ) as producer:  # fmt: skip
        assert producer.send("t", b"before", partition=0).result(20) == 3
        leader.epoch, leader.lags = 6, 1_000_000
        fenced = producer.send("t", b"after", partition=0)
        until(lambda: leader.story.count("produce 5") == 2, "the leader has refused it")
        leader.topic_id, leader.epoch, leader.lags = NEW, 0, 0
        assert fenced.result(20) == 3
        assert [each for each in leader.story if "produce" in each][-1] == "produce 0"
