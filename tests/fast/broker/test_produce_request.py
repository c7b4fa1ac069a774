"""The Produce request's grammar: arrays that are kept from request to request, whatever was in the
one before, and counts that are not believed. Answers are test_produce_path.py's.
"""

from __future__ import annotations

import itertools
import struct
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from kstore.protocol.logs.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.harness.plane_harness import TOPIC_ID, Client, Plane, framed

VERSIONS = (3, 9, 13)
LEFT, RIGHT = 4000, 5000  # more in one request than memory is kept for


def request(version: int, *topics: list[int], records: bytes | None = None) -> ProduceRequest:
    """Partitions of `t`, which may be named more than once."""
    named = []
    for indexes in topics:
        parts = [PartitionProduceData(index=index, records=records) for index in indexes]
        topic = TopicProduceData(partition_data=parts)
        if version >= 13:
            topic.topic_id = TOPIC_ID
        else:
            topic.name = "t"
        named.append(topic)
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=named)


def asked(client: Client, version: int, wanted: ProduceRequest) -> list[list[tuple[int, int]]]:
    """(partition, error code) of each topic of the answer."""
    response = client.call(version, wanted)
    return [[(p.index, p.error_code) for p in t.partition_responses] for t in response.responses]


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_of_any_size_follow_one_another(plane: Plane, version: int) -> None:
    client = plane.client()
    batch = build_batch([b"one"], timestamp=1_700_000_000_000)
    small = request(version, [1], records=batch)
    assert asked(client, version, small) == [[(1, 0)]]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    left, right = list(range(2, LEFT)), list(range(2, RIGHT))

    answer = asked(client, version, request(version, left, [], right))

    assert answer == [[(i, unknown) for i in {*left, *right}]]
    assert asked(client, version, small) == [[(1, 0)]]
    topics = [[i] for i in range(2, LEFT)] + [[0, 1]]
    answer = asked(client, version, request(version, *topics, records=batch))
    assert answer == [[(i, unknown) for i in range(2, LEFT)] + [(0, 0), (1, 0)]]
    assert asked(client, version, small) == [[(1, 0)]]
    assert (plane.partition(0).log_end_offset, plane.partition(1).log_end_offset) == (1, 4)


NAMED_TOPICS = st.lists(
    st.tuples(st.sampled_from(["t", "u", "v"]), st.lists(st.integers(0, 3), max_size=4)), max_size=5
)


@settings(deadline=None, max_examples=60)
@given(named=NAMED_TOPICS, version=st.sampled_from((3, 9)))
def test_of_what_is_named_twice_the_last_batch_counts(
    named: list[tuple[str, list[int]]], version: int
) -> None:
    """As in Kafka: one entry for each topic that has partitions, one batch for each of these."""
    with TemporaryDirectory() as folder, closing(Plane(Path(folder))) as plane:
        numbers = itertools.count()
        last: dict[str, dict[int, bytes]] = {}
        topics = []
        for name, indexes in named:
            parts = []
            for index in indexes:
                value = b"batch %d" % next(numbers)
                last.setdefault(name, {})[index] = value
                records = build_batch([value], timestamp=1_700_000_000_000)
                parts.append(PartitionProduceData(index=index, records=records))
            topics.append(TopicProduceData(name=name, partition_data=parts))
        wanted = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)

        response = plane.client().call(version, wanted)

        def code(name: str, index: int) -> int:
            there = name == "t" and index < 2
            return ErrorCode.NONE if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        answered = {
            topic.name: {row.index: row.error_code for row in topic.partition_responses}
            for topic in response.responses
        }
        assert answered == {
            name: {index: code(name, index) for index in rows} for name, rows in last.items()
        }
        assert sum(len(topic.partition_responses) for topic in response.responses) == sum(
            len(rows) for rows in last.values()
        )
        for index in (0, 1):
            kept = [record.value for record in plane.partition(index).log.read(0)]
            value = last.get("t", {}).get(index)
            assert kept == ([] if value is None else [value])


@pytest.mark.parametrize("count", [-2, -1, 50, 0x7FFFFFFF])
@pytest.mark.parametrize("inner", [False, True])
def test_a_count_that_the_frame_cannot_hold_appends_nothing(
    plane: Plane, count: int, inner: bool
) -> None:
    batch = build_batch([b"one"], timestamp=1_700_000_000_000)
    frame = bytearray(plane.client().frame(3, request(3, [0, 1], records=batch))[4:])
    head = 2 + 2 + 4 + 2 + len(b"me") + 2 + 2 + 4  # to the acks and the timeout
    at = head + 4 + 2 + len(b"t") if inner else head
    (before,) = struct.unpack_from(">i", frame, at)
    assert before == (2 if inner else 1)
    struct.pack_into(">i", frame, at, count)
    client = plane.client()

    client.feed(framed(bytes(frame)))

    assert client.transport.closed
    assert client.raw_answers() == []
    assert plane.partition(0).log_end_offset == plane.partition(1).log_end_offset == 0
    assert asked(plane.client(), 3, request(3, [0], records=batch)) == [[(0, 0)]]


def test_more_partitions_than_a_request_may_have_append_nothing(tmp_path: Path) -> None:
    plane = Plane(tmp_path, max_elements=100)
    batch = build_batch([b"one"], timestamp=1_700_000_000_000)
    client = plane.client()
    assert len(asked(client, 9, request(9, list(range(99))))[0]) == 99

    client.feed(client.frame(9, request(9, [0], list(range(2, 101)), records=batch)))

    assert client.transport.closed
    assert plane.partition(0).log_end_offset == 0
    plane.close()
