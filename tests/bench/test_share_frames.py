"""bench/share_frames.py, written by hand too: kstore's protocol reads what is sent and writes what
is parsed.
"""

from __future__ import annotations

import uuid

import pytest

from bench import share_frames
from kstore.protocol.metadata import configs
from kstore.protocol.shares import fetch, heartbeat, offsets
from tests.bench.test_frames import BATCH, answer, request

TOPIC = uuid.UUID(int=7)


def fetching(epoch: int, *accepted: share_frames.Range) -> fetch.ShareFetchRequest:
    found = request(
        share_frames.share_fetch("g", "m", epoch, TOPIC.bytes, accepted, max_records=500)
    )
    assert isinstance(found, fetch.ShareFetchRequest)
    assert (found.group_id, found.member_id, found.share_session_epoch) == ("g", "m", epoch)
    return found


def test_a_first_fetch_names_its_partition_and_later_ones_only_to_accept():
    first, next_one = fetching(0), fetching(2)
    assert [(row.topic_id, row.partitions) for row in first.topics] == [
        (TOPIC, [fetch.FetchPartition(partition_index=0)])
    ]
    assert next_one.topics == []
    for found in (first, next_one):
        assert (found.max_wait_ms, found.min_bytes) == (500, 1)
        assert (found.max_records, found.batch_size) == (500, 500)
    (partition,) = fetching(1, (0, 4), (7, 7)).topics[0].partitions
    assert [
        (row.first_offset, row.last_offset, row.acknowledge_types)
        for row in partition.acknowledgement_batches
    ] == [(0, 4, [1]), (7, 7, [1])]
    assert fetching(share_frames.FINAL_EPOCH, (0, 4)).max_records == 0


def test_what_surrounds_a_fetch_says_what_it_is_meant_to():
    beat = request(share_frames.heartbeat("g", "m", -1, "t"))
    assert (beat.group_id, beat.member_id, beat.member_epoch) == ("g", "m", -1)
    assert beat.subscribed_topic_names == ["t"]
    (resource,) = request(share_frames.set_of_group("g", "a.b", "c")).resources
    assert (resource.resource_type, resource.resource_name) == (32, "g")
    assert [(row.name, row.config_operation, row.value) for row in resource.configs] == [
        ("a.b", 0, "c")
    ]
    (group,) = request(share_frames.lag("g", "t")).groups
    assert [(row.topic_name, row.partitions) for row in group.topics] == [("t", [0])]


@pytest.mark.parametrize("records", [BATCH, b""], ids=["a batch", "none"])
def test_acquired_ranges_are_found_behind_the_records(records):
    rows = [
        fetch.AcquiredRecords(first_offset=3, last_offset=9, delivery_count=1),
        fetch.AcquiredRecords(first_offset=12, last_offset=12, delivery_count=2),
    ]
    part = fetch.ShareFetchResponsePartitionData(
        error_code=0, acknowledge_error_code=121, records=records, acquired_records=rows
    )
    topic = fetch.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[part])
    data = answer(fetch.ShareFetchResponse(responses=[topic]), 1, flexible=True)
    assert share_frames.fetched(data) == ((0, 0, 121), [(3, 9), (12, 12)], 2)
    refused = answer(fetch.ShareFetchResponse(error_code=122), 1, flexible=True)
    assert share_frames.fetched(refused) == ((122, 0, 0), [], 0)


def test_other_answers_are_read():
    place = heartbeat.ShareGroupHeartbeatResponseTopicPartitions(topic_id=TOPIC, partitions=[0])
    cls = heartbeat.ShareGroupHeartbeatResponseAssignment
    for assignment, assigned in (
        (None, False),
        (cls(topic_partitions=[]), False),
        (cls(topic_partitions=[place]), True),
    ):
        said = heartbeat.ShareGroupHeartbeatResponse(
            member_id="m", member_epoch=5, assignment=assignment
        )
        found = share_frames.heartbeat_answer(answer(said, 1, flexible=True))
        assert found == (0, 5, assigned)
    altered = configs.IncrementalAlterConfigsResponse(
        responses=[configs.AlterConfigsResourceResponse(error_code=40, resource_name="g")]
    )
    assert share_frames.set_of_group_error(answer(altered, 1, flexible=True)) == 40
    partition = offsets.DescribeShareGroupOffsetsResponsePartition(start_offset=4, lag=11)
    topic = offsets.DescribeShareGroupOffsetsResponseTopic(
        topic_name="t", topic_id=TOPIC, partitions=[partition]
    )
    group = offsets.DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=[topic])
    described = offsets.DescribeShareGroupOffsetsResponse(groups=[group])
    assert share_frames.lag_answer(answer(described, 1, flexible=True)) == 11
