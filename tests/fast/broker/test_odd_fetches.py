"""Fetches that no client sends, or that name what does not exist: answers as Kafka 4.3.1's."""

from __future__ import annotations

import pytest

from kstore.errors import ErrorCode
from tests.broker.harness.plane_harness import Plane
from tests.fast.broker.test_fetch_path import append, found, request
from tests.record_requests import fetch_part as part
from tests.record_requests import only


@pytest.mark.parametrize("version", [4, 7, 12, 13, 18])
@pytest.mark.parametrize("level", [2, -1])
def test_an_unknown_isolation_level_reads_nothing(plane: Plane, version: int, level: int) -> None:
    append(plane)
    wanted = request(version, part(0), part(0, 9), isolation_level=level)
    response = plane.client().call(version, wanted)
    assert response.error_code == (-1 if version >= 7 else 0)
    expected = {} if version >= 13 else {0: (-1, 0), 9: (-1, 0)}
    assert found(response) == expected


@pytest.mark.parametrize("version", [4, 12, 18])
def test_of_a_partition_that_is_named_twice_the_last_offset_counts(
    plane: Plane, version: int
) -> None:
    first, second = append(plane), append(plane)
    assert len(first) == len(second)
    wanted = request(version, part(0), part(1, 0), part(0, 1), part(5, 0))
    answer = plane.client().call(version, wanted)
    assert found(answer) == {0: (ErrorCode.OFFSET_OUT_OF_RANGE, 0), 1: (0, 0)}
    wanted = request(version, part(0))
    wanted.topics += request(version, part(1)).topics
    answer = plane.client().call(version, wanted)
    assert found(answer) == {0: (0, len(second))}
    assert [len(topic.partitions) for topic in answer.responses] == [1]


@pytest.mark.parametrize("version", [4, 12, 18])
def test_an_unknown_partition_beside_a_known_one_waits_for_data(plane: Plane, version: int) -> None:
    """Otherwise a consumer of a topic that was deleted would ask without a pause."""
    client = plane.client()
    client.send(version, request(version, part(0), part(0, 9), max_wait_ms=500))
    assert client.answers() == []
    batch = append(plane)
    plane.loop.turn()
    [(_, response)] = client.answers()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found(response) == {0: (0, len(batch)), 9: (unknown, 0)}
    response = client.call(version, request(version, part(0, 9), max_wait_ms=500))
    assert found(response) == {9: (unknown, 0)}


def test_a_deleted_topic_is_not_found_by_its_id(plane: Plane) -> None:
    client = plane.client()
    wanted = request(13, part(0))
    assert only(client.call(13, wanted)).error_code == ErrorCode.NONE
    plane.table.remove_topic(b"t")
    assert only(client.call(13, wanted)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
