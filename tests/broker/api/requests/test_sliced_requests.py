"""Requests that are carried out in slices do what small ones do, however many rows they have."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kstore._fast.protocol.wire import AnswerBuffer
from kstore.acls import AclOperation, AclPatternType, AclPermission, AclResourceType
from kstore.broker import server
from kstore.broker.api import API_TABLE
from kstore.broker.api.requests import large_requests
from kstore.broker.runtime.security import acl_store
from kstore.errors import ErrorCode
from kstore.protocol.metadata.topics import CreateTopicsResponse
from kstore.protocol.registry import APIS, decode_response, encode_request
from kstore.protocol.schema import Message
from tests.broker.api.requests.world import AUTHORIZER, World, in_world
from tests.broker.harness.plane_harness import feed
from tests.plain_messages import Ask

MANY = 10_100
"""More than the broker once took."""
TOPIC, LITERAL = AclResourceType.TOPIC, AclPatternType.LITERAL
READ, ALLOW = AclOperation.READ, AclPermission.ALLOW
FILTER = {
    "resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1,
    "resource_name_filter": None, "principal_filter": None, "host_filter": None,
}  # fmt: skip
"""It matches every rule."""


async def response_to(world: World, request: Message) -> Any:
    api = APIS[request.API_KEY]
    version = API_TABLE[request.API_KEY].max_version
    return decode_response(await world.ask(request, version), api.response, version)[1]


async def topic(world: World, name: str) -> None:
    request = Ask.CreateTopics(
        topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}]
    )
    response = await response_to(world, request)
    assert response.topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("count", [3, MANY])
def test_of_a_transaction_all_partitions_are_added_or_none(tmp_path: Path, count: int) -> None:
    async def ask(world: World) -> None:
        await topic(world, "t")
        row = {"name": "t", "partitions": list(range(count))}
        wide = {"transactional_id": "wide", "topics": [row]}
        one = {"name": "t", "partitions": [0]}
        narrow = {"transactional_id": "narrow", "topics": [one]}
        request = Ask.AddPartitionsToTxn(transactions=[wide, narrow])
        response = await response_to(world, request)
        first, second = response.results_by_transaction
        codes = [
            (row.partition_index, row.partition_error_code)
            for row in first.topic_results[0].results_by_partition
        ]
        unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert codes[0] == (0, ErrorCode.OPERATION_NOT_ATTEMPTED)
        assert codes[1:] == [(index, unknown) for index in range(1, count)]
        (told,) = second.topic_results[0].results_by_partition
        assert told.partition_error_code not in (ErrorCode.OPERATION_NOT_ATTEMPTED, unknown)

    in_world(tmp_path, ask)


def test_a_large_answer_is_copied_in_several_turns(tmp_path: Path) -> None:
    topics = [
        {"name": f"t{number}", "num_partitions": 1, "replication_factor": 1}
        for number in range(600)
    ]

    async def ask(world: World) -> None:
        connection, transport = world.connect()
        request = Ask.CreateTopics(topics=topics, validate_only=True)
        feed(connection, encode_request(request, 7, 1, "me"))
        moved: list[int] = []
        move = server.Encoding.move

        class Counted(server.Encoding):
            def move(self, buffer: AnswerBuffer, most: int) -> bool:
                moved.append(most)
                return move(self, buffer, most)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(large_requests, "Encoding", Counted)
            (answer,) = await asyncio.wait_for(world.answers(transport, 1), 60)
        assert len(answer) > 2 * server.LARGE_ANSWER_BYTES
        assert len(moved) == -(-(len(answer) - 5) // server.LARGE_ANSWER_BYTES)
        _, response = decode_response(answer, CreateTopicsResponse, 7)
        assert [row.name for row in response.topics] == [row["name"] for row in topics]

    in_world(tmp_path, ask)


def test_what_is_asked_again_with_all_its_fields_is_answered_once(tmp_path: Path) -> None:
    def row(*keys: str) -> dict[str, Any]:
        named = {"resource_type": 2, "resource_name": "t"}
        return named | {"configuration_keys": list(keys) or None}

    async def ask(world: World) -> None:
        await topic(world, "t")
        rows = [row(), row("retention.ms"), row(), row("segment.ms"), row("retention.ms")]
        request = Ask.DescribeConfigs(resources=rows * 20)
        response = await response_to(world, request)
        told = [[config.name for config in each.configs] for each in response.results]
        assert told[1:] == [["retention.ms"], ["segment.ms"]]
        assert len(told[0]) > 20

    in_world(tmp_path, ask)


def creation(number: int) -> dict[str, Any]:
    principal = f"User:u{number}" if number % 1000 else "nobody"
    return {
        "resource_type": TOPIC, "resource_name": f"t{number % 10}", "principal": principal,
        "resource_pattern_type": LITERAL, "host": "*", "operation": READ, "permission_type": ALLOW,
    }  # fmt: skip


@pytest.mark.slow
def test_each_of_many_rules_gets_its_own_answer(tmp_path: Path) -> None:
    async def ask(world: World) -> None:
        request = Ask.CreateAcls(creations=[creation(number) for number in range(MANY)])
        created = await response_to(world, request)
        codes = [row.error_code for row in created.results]
        refused = int(ErrorCode.INVALID_REQUEST)
        assert codes == [0 if number % 1000 else refused for number in range(MANY)]
        every = Ask.DescribeAcls(**FILTER)
        described = await response_to(world, every)
        assert {row.resource_name for row in described.resources} == {f"t{n}" for n in range(10)}
        assert sum(len(row.acls) for row in described.resources) == codes.count(0)
        filters = [
            FILTER | {"resource_name_filter": f"t{n % 10}", "principal_filter": f"User:u{n}"}
            for n in range(1, 1001)
        ]
        deletion = Ask.DeleteAcls(filters=filters * 2)
        deleted = await response_to(world, deletion)
        found = [[acl.principal for acl in row.matching_acls] for row in deleted.filter_results]
        names = [[f"User:u{number}"] for number in range(1, 1000)] + [[]]
        assert found == names * 2
        left = await response_to(world, every)
        assert sum(len(row.acls) for row in left.resources) == codes.count(0) - 999

    in_world(tmp_path, ask, **AUTHORIZER)


def test_filters_that_match_more_rules_than_an_answer_may_have_delete_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_store, "MAX_DELETED", 10)

    async def ask(world: World) -> None:
        creations = [creation(number) for number in range(1, 6)]
        await response_to(world, Ask.CreateAcls(creations=creations))
        refused = await response_to(world, Ask.DeleteAcls(filters=[FILTER] * 3))
        assert {row.error_code for row in refused.filter_results} == {ErrorCode.POLICY_VIOLATION}
        told = await response_to(world, Ask.DeleteAcls(filters=[FILTER] * 2))
        assert [len(row.matching_acls) for row in told.filter_results] == [5, 5]

    in_world(tmp_path, ask, **AUTHORIZER)


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("count", [2, MANY])
@pytest.mark.parametrize(
    ("names", "code"),
    [
        ("unknown.{}", ErrorCode.INVALID_CONFIG),
        ("unknown", ErrorCode.INVALID_REQUEST),
        ("retention.ms", ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_that_do_not_exist_or_come_twice_are_refused_however_many_there_are(
    tmp_path: Path, names: str, code: int, count: int
) -> None:
    async def ask(world: World) -> None:
        await topic(world, "t")
        configs = [{"name": names.format(number), "value": "1"} for number in range(count)]
        row = {"resource_type": 2, "resource_name": "t", "configs": configs}
        request = Ask.IncrementalAlterConfigs(resources=[row])
        response = await response_to(world, request)
        assert response.responses[0].error_code == code
        times = f"{count} times" if code == ErrorCode.INVALID_REQUEST else "unknown.0"
        assert times in (response.responses[0].error_message or "")

    in_world(tmp_path, ask)
