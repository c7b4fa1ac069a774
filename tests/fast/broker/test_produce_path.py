"""Produce from frame to answer: every version, every error, nothing from a malformed frame."""

from __future__ import annotations

from uuid import UUID

import pytest

from kstore._fast.record.builder import build_batch
from kstore.acls import Acl, AclOperation, AclResourceType
from kstore.broker.state.security.authorizer import Authorizer
from kstore.errors import ErrorCode
from kstore.protocol.logs.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.broker.harness.plane_harness import TOPIC_ID, Plane, framed
from tests.record_requests import only, produce_request
from tests.reference.acl_rules import load

VERSIONS = range(3, 14)


def two_records() -> bytes:
    return build_batch([b"one", (b"key", b"two")], timestamp=1_700_000_000_000)


def request(
    version: int, records: bytes | None, *, partition: int = 0, acks: int = 1, topic: str = "t",
    topic_id: UUID = TOPIC_ID,
) -> ProduceRequest:  # fmt: skip
    to = topic_id if version >= 13 else topic
    return produce_request(to, records, first=partition, acks=acks)


@pytest.mark.parametrize("version", VERSIONS)
def test_appended_batch_is_answered_with_its_base_offset(plane: Plane, version: int) -> None:
    client = plane.client()
    client.call(version, request(version, two_records()))

    response = client.call(version, request(version, two_records()))

    answer = PartitionProduceResponse(index=0, base_offset=2, log_append_time_ms=-1)
    if version >= 5:
        answer.log_start_offset = 0
    topic = TopicProduceResponse(partition_responses=[answer])
    if version >= 13:
        topic.topic_id = TOPIC_ID
    else:
        topic.name = "t"
    assert response == ProduceResponse(responses=[topic])
    assert plane.partition().log_end_offset == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_topic_and_partition(plane: Plane, version: int) -> None:
    client = plane.client()
    unknown = request(version, two_records(), topic="nope", topic_id=UUID(int=9))
    topic_error = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else 3
    assert only(client.call(version, unknown)).error_code == topic_error
    answer = only(client.call(version, request(version, two_records(), partition=2)))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.base_offset == -1
    assert only(
        client.call(version, request(version, two_records(), partition=-1))
    ).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # fmt: skip


def changed(at: int, value: int) -> bytes:
    """The batch of two records with another byte somewhere."""
    batch = bytearray(two_records())
    batch[at] = value
    return bytes(batch)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"\0" * 11, ErrorCode.INVALID_RECORD),
        (b"\0" * 30, ErrorCode.CORRUPT_MESSAGE),
        (changed(16, 1), ErrorCode.INVALID_RECORD),
        (two_records() * 2, ErrorCode.INVALID_RECORD),
        (build_batch([(b"\0\0\0\0", b"")], control=True), ErrorCode.INVALID_RECORD),
        (changed(-1, two_records()[-1] ^ 1), ErrorCode.CORRUPT_MESSAGE),
        (two_records()[:-1], ErrorCode.INVALID_RECORD),
        (changed(11, two_records()[11] - 1), ErrorCode.CORRUPT_MESSAGE),
        (build_batch([b"x"], base_offset=1), ErrorCode.INVALID_RECORD),
        (
            build_batch(
                [b"x"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
            ),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_bad_records_are_refused(plane: Plane, records: bytes | None, error: int) -> None:
    answer = only(plane.client().call(9, request(9, records)))
    assert (answer.error_code, answer.base_offset) == (error, -1)
    assert plane.partition().log_end_offset == 0


def test_zstd_needs_version_7(plane: Plane) -> None:
    batch = build_batch([b"x" * 100], compression=4)
    client = plane.client()
    refused = only(client.call(6, request(6, batch)))
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert only(client.call(7, request(7, batch))).error_code == ErrorCode.NONE


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_other_than_minus_one_to_one_are_refused(plane: Plane, acks: int) -> None:
    answer = only(plane.client().call(9, request(9, two_records(), acks=acks)))
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert plane.partition().log_end_offset == 0


def test_too_few_in_sync_replicas_refuse_a_write_that_waits_for_all(plane: Plane) -> None:
    partition, client = plane.partition(), plane.client()
    partition.configure(stored_codec=-1, stored_level=-1, min_insync_replicas=2)
    answer = only(client.call(9, request(9, two_records(), acks=-1)))
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.append_batches(two_records())[0] == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log_end_offset == 0
    assert only(client.call(9, request(9, two_records(), acks=1))).error_code == 0
    partition.insync_replicas = 2
    assert only(client.call(9, request(9, two_records(), acks=-1))).error_code == 0
    assert partition.append_batches(two_records())[0] == 0
    assert partition.log_end_offset == 6


def test_acks_zero_gets_no_answer(plane: Plane) -> None:
    client = plane.client()
    client.send(9, request(9, two_records(), acks=0))
    assert client.answers() == []
    assert plane.partition().log_end_offset == 2
    assert not client.transport.closed


def test_acks_zero_that_fails_closes_the_connection(plane: Plane) -> None:
    client = plane.client()
    client.send(9, request(9, changed(-1, two_records()[-1] ^ 1), acks=0))
    assert client.answers() == []
    assert client.transport.closed


@pytest.mark.parametrize("version", VERSIONS)
def test_partition_that_is_led_elsewhere(plane: Plane, version: int) -> None:
    partition = plane.partition()
    partition.online, partition.leader_id = False, 9
    answer = only(plane.client().call(version, request(version, two_records())))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        assert answer.current_leader == LeaderIdAndEpoch(leader_id=9, leader_epoch=3)


@pytest.mark.parametrize("version", VERSIONS)
def test_frame_cut_anywhere_appends_nothing(plane: Plane, version: int) -> None:
    good = two_records()
    wanted = request(version, good)
    wanted.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=good))
    whole = plane.client().frame(version, wanted)[4:]
    for size in range(8, len(whole)):
        client = plane.client()
        client.feed(framed(whole[:size]))
        assert client.transport.closed, f"cut at {size} of {len(whole)}"
        assert client.raw_answers() == []
    assert plane.partition().log_end_offset == plane.partition(1).log_end_offset == 0


def test_several_topics_and_partitions_in_one_request(plane: Plane) -> None:
    plane.add_topic("u", UUID(int=7), 1)
    parts = [PartitionProduceData(index=i, records=two_records()) for i in (1, 0, 5)]
    response = plane.client().call(
        9,
        ProduceRequest(
            acks=-1,
            topic_data=[
                TopicProduceData(name="t", partition_data=parts),
                TopicProduceData(name="u", partition_data=parts[1:2]),
                TopicProduceData(name="v", partition_data=parts[1:2]),
            ],
        ),
    )  # fmt: skip
    found = {
        (topic.name, p.index): (p.error_code, p.base_offset)
        for topic in response.responses
        for p in topic.partition_responses
    }
    assert found == {
        ("t", 1): (0, 0), ("t", 0): (0, 0), ("t", 5): (3, -1), ("u", 0): (0, 0), ("v", 0): (3, -1),
    }  # fmt: skip


@pytest.mark.parametrize("version", range(9, 14))
def test_leader_epoch_that_the_producer_knows(plane: Plane, version: int) -> None:
    """KIP-359: the harness leads at epoch 3."""
    client = plane.client()

    def produce(epoch: int) -> PartitionProduceResponse:
        wanted = request(version, two_records())
        wanted.topic_data[0].partition_data[0].current_leader_epoch = epoch
        return only(client.call(version, wanted))

    fenced = produce(2)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    if version >= 10:
        assert fenced.current_leader == LeaderIdAndEpoch(leader_id=5, leader_epoch=3)
    assert produce(4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert plane.partition().log_end_offset == 0
    assert produce(3).error_code == produce(-1).error_code == ErrorCode.NONE
    assert plane.partition().log_end_offset == 4


def given(offset: int) -> ProduceRequest:
    return produce_request("t", build_batch([b"x"], base_offset=offset), use_offset=True)


def test_who_may_not_give_offsets_is_refused(plane: Plane) -> None:
    """KIP-391: REPLICATOR_WRITE on the cluster, beside what every producer needs."""
    write = Acl(AclResourceType.TOPIC, "t", "User:ANONYMOUS", AclOperation.WRITE)
    give = Acl(
        AclResourceType.CLUSTER, "kafka-cluster", "User:ANONYMOUS", AclOperation.REPLICATOR_WRITE
    )
    client = plane.client()
    plane.plane.authorizer = authorizer = Authorizer()
    load(authorizer, [write])
    refused = only(client.call(9, given(4)))
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert refused.log_end_offset == -1, "which is none of its business"
    assert only(client.call(9, request(9, two_records()))).error_code == ErrorCode.NONE
    load(authorizer, [give])
    refused = only(client.call(9, given(4)))
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    load(authorizer, [give, write])
    assert only(client.call(9, given(4))).base_offset == 4


@pytest.mark.parametrize(
    ("tag", "behind", "size"),
    [(39100, 0, 2), (39100, 0, 0), (25300, 1, 3), (25300, 1, 8), (35900, 2, 0), (35900, 2, 5)],
)
def test_extension_field_of_a_wrong_size_is_malformed(
    plane: Plane, tag: int, behind: int, size: int
) -> None:
    """The request ends with the tagged fields of the partition, the topic and itself."""
    client = plane.client()
    whole = client.frame(9, request(9, two_records()))[4:]
    assert whole[-3:] == b"\0\0\0"
    field = bytes([1, tag & 0x7F | 0x80, tag >> 7 & 0x7F | 0x80, tag >> 14, size]) + b"\0" * size
    client.feed(framed(whole[: len(whole) - behind - 1] + field + b"\0" * behind))
    assert client.transport.closed
    assert plane.partition().log_end_offset == 0


def test_tagged_fields_that_nobody_knows_are_skipped(plane: Plane) -> None:
    client = plane.client()
    frame = client.frame(9, request(9, two_records()))[4:-1]
    frame += b"\x02" + b"\x05\x03abc" + b"\xe8\x07\x00"  # tags 5 and 1000
    client.feed(framed(frame))
    [(_, response)] = client.answers()
    assert only(response).error_code == ErrorCode.NONE


def test_what_was_appended_under_an_earlier_partition_count_stays_acknowledged(
    plane: Plane,
) -> None:
    """KIP-253: a retry whose first response was lost is a duplicate. If it were refused, its
    records would be distributed again, and be there twice. A broker that does not lead cannot know,
    and refuses nothing.
    """
    entry = plane.add_topic("u", UUID(int=7), 2)
    partition = entry.partitions[0]
    client = plane.client()

    def produce(sequence: int, count: int) -> tuple[int, int]:
        records = build_batch([b"x"], producer_id=5, producer_epoch=0, base_sequence=sequence)
        answer = only(client.call(9, produce_request("u", records, count=count, acks=-1)))
        return answer.error_code, answer.base_offset

    assert produce(0, 2) == (0, 0)
    entry.partition_count = 3
    assert produce(0, 2) == (0, 0)
    assert produce(1, 2) == (ErrorCode.INVALID_PARTITION_COUNT, -1)
    assert produce(1, 3) == (0, 1)
    partition.online, partition.leader_id = False, 9
    assert produce(2, 2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_known_partition_count(plane: Plane) -> None:
    """KIP-253, per topic of the request."""
    plane.add_topic("u", UUID(int=7), 1)
    parts = [PartitionProduceData(index=0, records=two_records())]

    def codes(*counts: tuple[str, int]) -> list[int]:
        topics = [
            TopicProduceData(name=name, partition_data=parts, partition_count=count)
            for name, count in counts
        ]
        response = plane.client().call(9, ProduceRequest(acks=-1, topic_data=topics))
        return [topic.partition_responses[0].error_code for topic in response.responses]

    assert codes(("t", 1), ("u", 1), ("v", 1)) == [
        ErrorCode.INVALID_PARTITION_COUNT, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    assert codes(("t", 2), ("u", 1)) == [0, 0]


def test_a_partition_that_retires_takes_nothing_whatever_count_is_known(plane: Plane) -> None:
    """A contraction of KIP-253; what it has already is a duplicate as before."""
    entry = plane.add_topic("u", UUID(int=7), 3)
    client = plane.client()

    def produce(index: int, count: int, sequence: int = 0) -> tuple[int, int]:
        records = build_batch([b"x"], producer_id=5, producer_epoch=0, base_sequence=sequence)
        wanted = produce_request("u", records, first=index, count=count, acks=-1)
        answer = only(client.call(9, wanted))
        return answer.error_code, answer.base_offset

    assert produce(2, 3) == (0, 0)
    entry.retired_from, entry.partition_count = 1, 3
    assert produce(0, 3) == (0, 0), "what remains goes on"
    assert produce(2, 3) == (0, 0), "it has that"
    for count in (3, 1, 2):
        assert produce(2, count, 1) == (ErrorCode.INVALID_PARTITION_COUNT, -1)
        assert produce(1, count) == (ErrorCode.INVALID_PARTITION_COUNT, -1)
    assert produce(2, -1, 1) == (ErrorCode.POLICY_VIOLATION, -1)
    entry.partition_count = 1
    assert produce(0, 3, 1) == (ErrorCode.INVALID_PARTITION_COUNT, -1)
    assert produce(0, 1, 1) == (0, 1)
    entry.retired_from, entry.partition_count = -1, 3
    assert produce(2, 3, 1) == (0, 1), "it is rolled back"
