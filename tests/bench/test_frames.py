"""bench/frames.py and the requests of bench/compare, which are written by hand: kstore's protocol
(which other tests compare with Kafka's own schemas) reads what is sent and writes what is parsed.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from bench import frames
from bench.compare import partitions
from bench.compare.rebalance import members
from kstore.protocol import registry
from kstore.protocol.groups import offsets
from kstore.protocol.logs import list_offsets, produce
from kstore.protocol.metadata import api_versions, metadata, topics

HEADER_BYTES = 4 + 8 + 2 + len("probe")  # size, key, version, correlation id, client id
BATCH = frames.record_batch([b"value"])


def request(frame: bytes) -> Any:
    """The request in a frame, which has to end where the frame ends."""
    size, key, version = struct.unpack_from(">ihh", frame)
    assert size == len(frame) - 4
    cls = registry.APIS[key].request
    body = frame[HEADER_BYTES + (version >= cls.FLEXIBLE_FROM) :]
    found = cls.decode(body, version)
    assert found.encode(version) == body
    return found


def answer(response: Any, version: int, *, flexible: bool) -> bytes:
    """An answer as a broker sends it, without its size."""
    return struct.pack(">i", 7) + (b"\x00" if flexible else b"") + response.encode(version)


def test_requests_say_what_they_are_meant_to():
    found = request(frames.produce_to_many("t", [3, 5], BATCH, acks=1))
    (topic,) = found.topic_data
    assert (found.acks, topic.name) == (1, "t")
    assert [(p.index, bytes(p.records)) for p in topic.partition_data] == [(3, BATCH), (5, BATCH)]

    (topic,) = request(frames.latest_offsets("t", range(2))).topics
    assert [(p.partition_index, p.timestamp) for p in topic.partitions] == [(0, -1), (1, -1)]

    found = request(frames.metadata("t"))
    assert ([topic.name for topic in found.topics], found.allow_auto_topic_creation) == (
        ["t"], False,
    )  # fmt: skip
    found = request(frames.offset_commit("g", "t", 2, 41))
    (partition,) = found.topics[0].partitions
    assert (found.group_id, found.generation_id_or_member_epoch, found.topics[0].name) == (
        "g", -1, "t",
    )  # fmt: skip
    assert (partition.partition_index, partition.committed_offset) == (2, 41)

    assert request(frames.api_versions()).client_software_name == "bench"
    found = request(partitions.create_topics(["a", "b"]))
    assert [(topic.name, topic.num_partitions) for topic in found.topics] == [
        ("a", 100),
        ("b", 100),
    ]
    assert request(members.find_coordinator("g")).key == "g"
    assert request(members.stranger("g")).member_id == "nobody"


def test_produce_answers_are_read_by_partition():
    errors = [produce.BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="bad")]
    rows = [
        produce.PartitionProduceResponse(index=4, error_code=0, log_end_offset=9),
        produce.PartitionProduceResponse(index=1, error_code=87, record_errors=errors),
        produce.PartitionProduceResponse(index=2, error_code=3, error_message="no such topic"),
    ]
    topic = produce.TopicProduceResponse(name="t", partition_responses=rows)
    data = answer(produce.ProduceResponse(responses=[topic]), 9, flexible=True)
    assert frames.produce_errors(data) == {4: 0, 1: 87, 2: 3}
    assert frames.produce_error(data, "t") == 0


def test_other_answers_are_read():
    rows = [
        list_offsets.ListOffsetsPartitionResponse(partition_index=1, offset=12),
        list_offsets.ListOffsetsPartitionResponse(partition_index=0, error_code=6, offset=-1),
    ]
    found = [list_offsets.ListOffsetsTopicResponse(name="t", partitions=rows)]
    data = answer(list_offsets.ListOffsetsResponse(topics=found), 1, flexible=False)
    assert frames.latest_offsets_answer(data) == {1: (0, 12), 0: (6, -1)}

    keys = [api_versions.ApiVersion(api_key=68, min_version=0, max_version=1)]
    data = answer(api_versions.ApiVersionsResponse(api_keys=keys), 3, flexible=False)
    assert frames.api_versions_answer(data) == {68: (0, 1)}
    refused = api_versions.ApiVersionsResponse(error_code=35, api_keys=keys)
    assert frames.api_versions_answer(answer(refused, 3, flexible=False)) == {}

    row = offsets.OffsetCommitResponsePartition(error_code=16)
    found = [offsets.OffsetCommitResponseTopic(name="t", partitions=[row])]
    data = answer(offsets.OffsetCommitResponse(topics=found), 8, flexible=True)
    assert frames.offset_commit_error(data) == 16


@pytest.mark.parametrize(("name", "code", "found"), [("t", 0, 0), ("t", 3, 3), ("u", 0, -1)])
def test_a_topic_that_is_not_in_a_metadata_answer_is_an_error(name, code, found):
    topic = metadata.MetadataResponseTopic(name=name, error_code=code)
    broker = metadata.MetadataResponseBroker(host="127.0.0.1")
    data = answer(metadata.MetadataResponse(brokers=[broker], topics=[topic]), 12, flexible=True)
    assert frames.metadata_error(data, "t") == found


def test_the_errors_of_created_topics_are_found_behind_their_configs():
    configs = [topics.CreatableTopicConfigs(name="cleanup.policy", value="delete")] * 2
    rows = [
        topics.CreatableTopicResult(name="a", configs=configs),
        topics.CreatableTopicResult(name="b", error_code=36, error_message="it exists"),
    ]
    data = answer(topics.CreateTopicsResponse(topics=rows), 5, flexible=True)
    assert partitions.create_errors(data) == [0, 36]
