"""Requests of clients that name a topic say which topic of that name they mean (KIP-232). A topic
that was created again meanwhile is found, or not touched.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kstore.clients import AdminClient, NewTopic, Producer
from kstore.clients.core.consumer.commits import fetch_request
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.list_offsets import epoch_ends, list_offsets, list_offsets_once
from kstore.config.client.configs import client_settings
from kstore.errors import ErrorCode, InvalidPartitionEpochError, UnknownTopicIdError
from kstore.protocol.logs.delete_records import DeleteRecordsRequest
from kstore.protocol.logs.list_offsets import ListOffsetsPartitionResponse, ListOffsetsRequest
from kstore.protocol.metadata.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from kstore.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Answer
from tests.reference.fake_broker import FakeBroker

LATEST = -1


@pytest.fixture
def tp(broker: KstoreBroker, request: pytest.FixtureRequest) -> TopicPartition:
    made = TopicPartition("".join(c if c.isalnum() else "-" for c in request.node.name), 0)
    create(broker, made, 2)
    return made


def create(broker: KstoreBroker, tp: TopicPartition, records: int) -> None:
    """The topic, with records."""
    with AdminClient(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(tp.topic, 1)])
    with Producer(broker.bootstrap) as producer:
        for _ in range(records):
            producer.send(tp.topic, b"v", partition=0)


def recreate(broker: KstoreBroker, tp: TopicPartition, records: int) -> None:
    """Another topic of that name."""
    with AdminClient(broker.bootstrap) as admin:
        admin.delete_topics([tp.topic])
    create(broker, tp, records)


def test_old_metadata_finds_nothing_of_the_successor_and_new_metadata_does(
    broker: KstoreBroker, tp: TopicPartition
) -> None:
    async def main() -> None:
        cluster = ClusterClient(client_settings("consumer", broker.bootstrap, {}))
        await cluster.refresh([tp.topic])
        before = cluster.view.partition_epoch(tp)
        await asyncio.to_thread(recreate, broker, tp, 5)
        errors = await list_offsets_once(cluster, {tp: LATEST}, {}, 0, 5000)
        assert isinstance(errors[tp], UnknownTopicIdError)
        ends = await epoch_ends(cluster, {tp: 0})
        assert isinstance(ends[tp], UnknownTopicIdError)
        found = await list_offsets(cluster, {tp: LATEST}, isolation_level=0, timeout_ms=60_000)
        assert found[tp].offset == 5
        assert found[tp].partition_epoch == cluster.view.partition_epoch(tp) > before
        await cluster.close()

    asyncio.run(main())


def test_an_administrator_means_the_topic_that_has_the_name_now(
    broker: KstoreBroker, tp: TopicPartition
) -> None:
    with AdminClient(broker.bootstrap) as admin:
        assert admin.delete_records({tp: 1}) == {tp: 1}
        recreate(broker, tp, 5)
        assert admin.delete_records({tp: 4}) == {tp: 4}


def test_an_administrator_lists_offsets_of_the_topic_that_has_the_name_now(
    broker: KstoreBroker, tp: TopicPartition
) -> None:
    with AdminClient(broker.bootstrap) as admin:
        before = admin.list_offsets({tp: "latest"})[tp]
        recreate(broker, tp, 5)
        after = admin.list_offsets({tp: "latest"})[tp]
    assert (before.offset, after.offset) == (2, 5)
    assert after.partition_epoch > before.partition_epoch


@pytest.mark.parametrize("kind", ["group", "share_group"])
def test_an_offset_that_was_listed_is_not_set_in_the_topics_successor(
    broker: KstoreBroker, tp: TopicPartition, kind: str
) -> None:
    with AdminClient(broker.bootstrap) as admin:
        alter = getattr(admin, f"alter_{kind}_offsets")
        listed = admin.list_offsets({tp: "latest"})[tp]
        meant = OffsetAndMetadata(listed.offset, offset_epoch=listed.offset_epoch)
        alter(kind + tp.topic, {tp: meant})
        recreate(broker, tp, 5)
        with pytest.raises(InvalidPartitionEpochError):
            alter(kind + tp.topic, {tp: meant})
        listed = admin.list_offsets({tp: "latest"})[tp]
        meant = OffsetAndMetadata(listed.offset, offset_epoch=listed.offset_epoch)
        assert alter(kind + tp.topic, {tp: meant}) == {tp: None}


@pytest.mark.parametrize("checks", [True, False])
def test_an_administrator_says_which_partition_an_offset_is_asked_of(checks: bool) -> None:
    """The broker already knows a new topic; a client that asks learns of it, and asks again."""
    known = [7]
    asked: list[int] = []
    with FakeBroker() as scripted:
        versions = scripted.handlers[ApiVersionsRequest]
        metadata = scripted.handlers[MetadataRequest]

        def features(request: ApiVersionsRequest) -> ApiVersionsResponse:
            answer: ApiVersionsResponse = versions(request)
            row = SupportedFeatureKey(name="kstore.kip232", min_version=1, max_version=1)
            return answer.replaced(supported_features=[row] if checks else [])

        def tell(request: MetadataRequest) -> MetadataResponse:
            answer: MetadataResponse = metadata(request)
            for row in answer.topics:
                row.partitions[0].partition_epoch = known[0]
            return answer

        def list_them(request: ListOffsetsRequest) -> Any:
            asked.append(request.topics[0].partitions[0].partition_epoch)
            row = ListOffsetsPartitionResponse(partition_index=0, offset=4, partition_epoch=8)
            if asked[-1] == 7:
                known[0] = 8
                row = row.replaced(error_code=ErrorCode.INVALID_PARTITION_EPOCH, offset=-1)
            return Answer.ListOffsets(topics=[{"name": "t", "partitions": [row]}])

        scripted.handlers[ApiVersionsRequest] = features
        scripted.handlers[MetadataRequest] = tell
        scripted.handlers[ListOffsetsRequest] = list_them
        with AdminClient(scripted.address, retry_backoff_ms=1) as admin:
            tp = TopicPartition("t", 0)
            assert admin.list_offsets({tp: "latest"})[tp].offset == 4
    assert asked == ([7, 8] if checks else [-1])


def test_an_administrator_that_tries_again_still_means_the_same_topic() -> None:
    """The first answer is that another broker leads; then the topic is another one."""
    epochs = iter(range(7, 100))
    asked: list[int] = []
    with FakeBroker() as scripted:
        versions = scripted.handlers[ApiVersionsRequest]
        metadata = scripted.handlers[MetadataRequest]

        def features(request: ApiVersionsRequest) -> ApiVersionsResponse:
            answer: ApiVersionsResponse = versions(request)
            row = SupportedFeatureKey(name="kstore.kip232", min_version=1, max_version=1)
            return answer.replaced(supported_features=[row])

        def recreated(request: MetadataRequest) -> MetadataResponse:
            answer: MetadataResponse = metadata(request)
            for row in answer.topics:
                row.partitions[0].partition_epoch = next(epochs)
            return answer

        def refuse(request: DeleteRecordsRequest) -> Any:
            asked.append(request.topics[0].partitions[0].partition_epoch)
            code = ErrorCode.INVALID_PARTITION_EPOCH
            if len(asked) == 1:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            row = {"partition_index": 0, "error_code": code}
            return Answer.DeleteRecords(topics=[{"name": "t", "partitions": [row]}])

        scripted.handlers[ApiVersionsRequest] = features
        scripted.handlers[MetadataRequest] = recreated
        scripted.handlers[DeleteRecordsRequest] = refuse
        with (
            AdminClient(scripted.address, retry_backoff_ms=1) as admin,
            pytest.raises(InvalidPartitionEpochError),
        ):
            admin.delete_records({TopicPartition("t", 0): 4})
    assert asked == [7, 7]


def test_committed_offsets_are_asked_for_by_name_with_the_partition_epochs() -> None:
    epochs = {TopicPartition("t", 0): 7, TopicPartition("t", 1): 8}
    request = fetch_request("g", None, list(epochs), {}, epochs.__getitem__)
    [topic] = request.groups[0].topics or []
    assert (topic.partition_indexes, topic.partition_epochs) == ([0, 1], [7, 8])
    decoded = type(request).decode(request.encode(9), 9)
    assert (decoded.groups[0].topics or [])[0].partition_epochs == [7, 8]
    unknown = fetch_request("g", None, list(epochs), {}, lambda _tp: -1)
    assert (unknown.groups[0].topics or [])[0].partition_epochs == []
