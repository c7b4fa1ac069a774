"""Requests of a connection are executed in their order, without waiting for answers."""

from __future__ import annotations

import pytest

from kstore.broker.api import API_TABLE
from kstore.protocol.registry import APIS, decode_response, encode_request
from kstore.protocol.schema import Message
from tests.broker.harness.topic_client import TopicClient
from tests.conformance.kstore_broker import KstoreBroker
from tests.plain_messages import Ask
from tests.record_requests import commit_request

COMMIT_VERSION = FETCH_VERSION = 9
"""The last that name topics."""


@pytest.fixture
def client(broker: KstoreBroker) -> TopicClient:
    client = TopicClient(broker)
    client.create("t")
    return client


def commit(offset: int) -> Message:
    return commit_request("t", {0: offset})


def in_a_row(client: TopicClient, *requests: tuple[Message, int]) -> None:
    """Send requests of these versions at once; then read the answers."""
    frames = [
        encode_request(request, version, number, "test")
        for number, (request, version) in enumerate(requests)
    ]
    client.sock.sendall(b"".join(frames))
    for number, (request, version) in enumerate(requests):
        form = APIS[request.API_KEY].response
        correlation_id, _ = decode_response(client.answer(), form, version)
        assert correlation_id == number


@pytest.mark.parametrize(
    "deletion",
    [
        Ask.OffsetDelete(
            group_id="g", topics=[{"name": "t", "partitions": [{"partition_index": 0}]}]
        ),
        Ask.DeleteGroups(groups_names=["g"]),
    ],
    ids=["offsets", "group"],
)
def test_a_commit_behind_a_deletion_stays(client: TopicClient, deletion: Message) -> None:
    client.call(commit(5), COMMIT_VERSION)
    deletes = deletion, API_TABLE[deletion.API_KEY].max_version
    in_a_row(client, deletes, (commit(9), COMMIT_VERSION))
    topics = [{"name": "t", "partition_indexes": [0]}]
    asked = Ask.OffsetFetch(groups=[{"group_id": "g", "topics": topics}])
    answer = client.call(asked, FETCH_VERSION)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 9
