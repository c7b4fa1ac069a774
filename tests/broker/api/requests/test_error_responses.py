"""Answers that give one error: every API in every version, and parts of requests."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.api import API_TABLE
from kstore.broker.api.requests.error_responses import (
    TOPIC_APIS,
    failed,
    put_in,
    request_partitions,
    split,
)
from kstore.errors import ErrorCode
from kstore.protocol.registry import APIS
from kstore.protocol.schema import KINDS, field_type, parse_versions
from tests.plain_messages import Ask, error_codes

ERROR = ErrorCode.NOT_LEADER_OR_FOLLOWER
STRING, BYTES, UUID_KIND = KINDS["String"], KINDS["Bytes"], KINDS["Uuid"]
NUMBERS = {KINDS[name] for name in ("Int8", "Int16", "Int32", "Int64")}
ID = UUID(int=7)


def filled(cls: Any, version: int, rows: int) -> Any:
    """A request in which every list has this number of rows."""
    values: dict[str, Any] = {}
    for name, spec in cls.SPECS.items():
        low, high = parse_versions(spec.versions)
        if not low <= version <= high or spec.tag >= 0:
            continue
        kind, element, struct = field_type(cls, name)
        if struct is not None:
            made = [filled(struct, version, rows) for _ in range(rows)]
            values[name] = made if element else filled(struct, version, rows)
        elif element in NUMBERS:
            values[name] = list(range(rows))
        elif element == STRING:
            values[name] = ["a", "b"][:rows]
        elif kind == STRING:
            values[name] = "t"
        elif kind == BYTES:
            values[name] = b"x"
        elif kind == UUID_KIND:
            values[name] = ID
    return cls(**values)


@pytest.mark.quick_one_in(6)
@pytest.mark.parametrize("key", sorted(API_TABLE))
def test_every_api_can_fail_in_its_own_form(key: int) -> None:
    row, api = API_TABLE[key], APIS[key]
    for version in range(row.min_version, row.max_version + 1):
        for rows in (0, 1, 2):
            asked = filled(api.request, version, rows).encode(version)
            response = failed(api.request.decode(asked, version), version, ERROR, "words")
            told = api.response.decode(response.encode(version), version)
            assert ERROR in error_codes(told) or rows == 0


@pytest.mark.parametrize("key", sorted(TOPIC_APIS))
def test_only_the_partitions_fail_where_only_they_are_meant(key: int) -> None:
    row, api = API_TABLE[key], APIS[key]
    for version in range(row.min_version, row.max_version + 1):
        request = filled(api.request, version, 2)
        named = set(request_partitions(request, version, lambda topic_id: "t"))
        assert {topic for topic, _ in named} <= {"t", "a", "b"}, api
        assert named, api
        taken, rest = split(request, version, named, lambda topic_id: "t")
        assert rest is None
        response = failed(taken, version, ERROR, "words", partitions_only=True)
        told = api.response.decode(response.encode(version), version)
        assert ERROR in error_codes(told)
        assert getattr(told, "error_code", 0) == 0, "the whole has not failed"


def commit(offsets: dict[tuple[str, int], int]) -> Any:
    topics: dict[str, list[Any]] = {}
    for (topic, index), offset in offsets.items():
        row = {"partition_index": index, "committed_offset": offset}
        topics.setdefault(topic, []).append(row)
    rows = [{"name": name, "partitions": topics[name]} for name in topics]
    return Ask.OffsetCommit(group_id="g", topics=rows)


def codes(response: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, part.partition_index): part.error_code
        for topic in response.topics
        for part in topic.partitions
    }


PLACES = st.tuples(st.sampled_from("tuv"), st.integers(0, 3))


@given(st.dictionaries(PLACES, st.integers(0, 99)), st.sets(PLACES))
def test_a_request_is_split_and_its_answers_are_joined(
    offsets: dict[tuple[str, int], int], struck: set[tuple[str, int]]
) -> None:
    request = commit(offsets)
    taken, rest = split(request, 9, struck, lambda topic_id: "")
    assert request == commit(offsets), "the request itself stays"
    assert set(request_partitions(taken, 9, lambda topic_id: "")) == set(offsets) & struck
    left = set() if rest is None else set(request_partitions(rest, 9, lambda topic_id: ""))
    assert left == set(offsets) - struck
    failure = failed(taken, 9, ERROR, "words", partitions_only=True)
    if rest is None:
        assert codes(failure) == dict.fromkeys(set(offsets) & struck, ERROR)
        return
    true = failed(rest, 9, 0, "", partitions_only=True)
    joined = put_in(failure, true, 9)
    assert codes(joined) == {place: ERROR if place in struck else 0 for place in offsets}
