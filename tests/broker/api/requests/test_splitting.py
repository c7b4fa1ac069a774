"""Wide requests in pieces: nothing is lost or doubled, and the answers are one again."""

from __future__ import annotations

from typing import Any

import pytest

from kstore.broker.api.requests.error_responses import failed
from kstore.broker.api.requests.splitting import (
    DIVIDED,
    PIECES,
    Joined,
    is_wide,
    pieces_of,
    rows_for,
)
from kstore.errors import ErrorCode
from kstore.protocol.registry import APIS
from tests.broker.api.requests.large_request import array_paths, wide_request
from tests.plain_messages import Answer, Ask

METADATA = 3
ERROR = ErrorCode.NOT_LEADER_OR_FOLLOWER


def cut(request: Any, version: int) -> list[Any]:
    rows = rows_for(request, version)
    assert rows is not None
    return [piece for piece in pieces_of(request, rows, version) if piece is not None]


def joined(request: Any, version: int, answers: list[Any]) -> Any:
    rows = rows_for(request, version)
    assert rows is not None
    whole = Joined(rows, version)
    assert all(whole.add(answer) for answer in answers)
    return whole.response


CASES = [
    pytest.param(key, path, id=f"{APIS[key].name}-{'.'.join(path)}")
    for key in PIECES
    for path in array_paths(key, APIS[key].max_version)
]


@pytest.mark.quick_one_in(6)
@pytest.mark.parametrize(("key", "path"), CASES)
def test_answers_to_the_pieces_are_the_answer_to_the_whole(key: int, path: Any) -> None:
    version = APIS[key].max_version
    request = wide_request(key, version, path, 20_000)
    pieces = cut(request, version)
    rows = rows_for(request, version)
    assert rows is not None
    assert not any(is_wide(piece, rows) for piece in pieces)
    if is_wide(request, rows):
        assert len(pieces) > 1
    if key != METADATA and key not in DIVIDED:
        told = [failed(piece, version, ERROR, "no", partitions_only=True) for piece in pieces]
        whole = failed(request, version, ERROR, "no", partitions_only=True)
        assert joined(request, version, told) == whole


def list_offsets(*places: tuple[str, int]) -> Any:
    topics = [{"name": name, "partitions": [{"partition_index": index}]} for name, index in places]
    return Ask.ListOffsets(isolation_level=1, topics=topics)


def test_every_piece_keeps_the_other_fields() -> None:
    request = list_offsets(*((f"t{number}", 0) for number in range(200)))
    pieces = cut(request, 11)
    assert [len(piece.topics) for piece in pieces] == [64, 64, 64, 8]
    assert {piece.isolation_level for piece in pieces} == {1}
    assert [row for piece in pieces for row in piece.topics] == request.topics


def test_where_twice_is_an_error_both_are_in_one_piece() -> None:
    places = [(f"t{number}", 0) for number in range(200)]
    pieces = cut(list_offsets(*places, ("t0", 0), ("t0", 0), ("t0", 1)), 11)
    named = [
        [(row.name, each.partition_index) for row in piece.topics for each in row.partitions]
        for piece in pieces
    ]
    assert named[0][:3] == [("t0", 0), ("t0", 0), ("t1", 0)]
    rest = [place for piece in named for place in piece][3:]
    assert rest == [*places[2:], ("t0", 1)]


def test_who_asks_for_a_group_many_times_is_told_once() -> None:
    request = Ask.DescribeGroups(groups=["a", "b"] * 1000)
    assert [piece.groups for piece in cut(request, 6)] == [["a", "b"]]


def test_an_error_for_the_whole_ends_it() -> None:
    request = Ask.OffsetDelete(group_id="g", topics=[])
    rows = rows_for(request, 0)
    assert rows is not None
    whole = Joined(rows, 0)
    assert whole.add(Answer.OffsetDelete())
    assert not whole.add(Answer.OffsetDelete(error_code=ErrorCode.NON_EMPTY_GROUP))
    assert whole.response.error_code == ErrorCode.NON_EMPTY_GROUP


def test_the_longest_wait_of_the_pieces_is_told() -> None:
    answers = [Answer.OffsetDelete(throttle_time_ms=wait_ms) for wait_ms in (0, 70, 30)]
    assert joined(Ask.OffsetDelete(group_id="g", topics=[]), 0, answers).throttle_time_ms == 70


def test_an_old_version_without_rows_is_not_divided() -> None:
    assert rows_for(APIS[10].request(key="g"), 3) is None
