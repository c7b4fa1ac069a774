"""The late answers of a group's members: without a task, counted, and sent over many turns."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kstore.broker.runtime.groups import step_line
from kstore.broker.runtime.groups.group_partition import ANSWERS_PER_TURN
from kstore.errors import ErrorCode
from kstore.protocol.groups.classic import JoinGroupResponse
from kstore.protocol.registry import decode_response, encode_request
from tests.beside.waiting import reached
from tests.broker.api.requests.world import World, in_world
from tests.broker.harness.plane_harness import FakeTransport, feed, frames
from tests.plain_messages import Ask
from tests.record_requests import join_request

JOIN = 11
VERSION = 3
"""Members get their id from the answer for the first generation, which waits for the others."""
MEMBERS = 5 * ANSWERS_PER_TURN
SETTINGS = {"group.initial.rebalance.delay.ms": "1000"}


async def joining(world: World, count: int) -> list[FakeTransport]:
    """The connections of members whose joins wait."""
    await world.ask(Ask.FindCoordinator(key="g"), 0)
    coordinator = world.broker.groups()
    await coordinator.wait_loaded()
    partition = await coordinator.loaded_partition("g")
    transports = []
    for number in range(count):
        connection, transport = world.connect()
        feed(connection, encode_request(join_request("g"), VERSION, number, "me"))
        transports.append(transport)
    groups = partition.shard.groups
    await reached(lambda: "g" in groups and groups["g"].joined == count, "all joins wait")
    return transports


def joined(transport: FakeTransport) -> JoinGroupResponse:
    (answer,), _ = frames(bytes(transport.written))
    return decode_response(answer, JoinGroupResponse, VERSION)[1]


def test_a_request_that_waits_for_members_has_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_line, "SLICE_S", 60)  # no decision waits for the next turn

    async def test(world: World) -> None:
        transports = await joining(world, 3)
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "JoinGroup"]
        await asyncio.gather(*(world.answers(each, 1) for each in transports))
        assert {joined(each).error_code for each in transports} == {ErrorCode.NONE}
        assert len({joined(each).member_id for each in transports}) == len(transports)

    in_world(tmp_path, test, **SETTINGS)


def test_a_broker_that_stops_answers_all_of_them_a_few_in_each_turn(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        transports = await joining(world, MEMBERS)
        await world.broker.groups().close()
        first = world.turns
        while not all(each.written for each in transports):
            before = sum(bool(each.written) for each in transports)
            await asyncio.sleep(0)
            sent = sum(bool(each.written) for each in transports) - before
            assert sent <= ANSWERS_PER_TURN
            assert world.turns - first < 10 * MEMBERS, "they are not answered"
        assert {joined(each).error_code for each in transports} == {ErrorCode.NOT_COORDINATOR}
        errors = world.broker.table.errors.counts
        assert errors[JOIN, ErrorCode.NOT_COORDINATOR] == MEMBERS

    in_world(tmp_path, test, **SETTINGS)


def test_a_broker_that_stops_waits_for_them_before_it_closes_connections(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        transports = await joining(world, MEMBERS)
        await world.broker.groups().close()
        await world.server.finish(30)
        assert {joined(each).error_code for each in transports} == {ErrorCode.NOT_COORDINATOR}
        assert all(each.closed for each in transports)

    in_world(tmp_path, test, **SETTINGS)
