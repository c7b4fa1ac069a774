"""One request never holds the loop for all: every API, with each of its arrays as full as 128 KB
are, gives the others their turns, or is refused for its elements before they become objects.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kstore.broker.api import API_TABLE, FAST
from kstore.broker.api.requests import large_requests
from kstore.broker.api.requests.large_requests import max_elements
from kstore.broker.api.requests.splitting import PIECES, rows_for
from kstore.broker.runtime.slices import Turns
from kstore.broker.state.work import ROWS_BETWEEN
from kstore.protocol.registry import APIS, encode_request
from tests.broker.api.requests.large_request import FIXED, array_paths, elements, wide_request
from tests.broker.api.requests.large_request import Path as Fields
from tests.broker.api.requests.world import AUTHORIZER, World, in_world
from tests.broker.harness.plane_harness import feed
from tests.plain_messages import Ask

SIZE = 128 * 1024
MOST_ELEMENTS = 100_000
PARTS = 8
"""By what the quick tests divide sizes and limits."""
KEYS = [key for key, row in API_TABLE.items() if row.handler != FAST and not row.internal]


def _marks(distinct: bool, is_last: bool) -> Any:
    """Elements that are all the same: `make test` has them in the last array of each request."""
    if distinct and is_last:
        return ()
    return pytest.mark.slow if distinct or is_last else (pytest.mark.slow, pytest.mark.thorough)


CASES = [
    pytest.param(
        key,
        path,
        distinct,
        id=f"{APIS[key].name}-{'.'.join(path)}-{distinct}",
        marks=_marks(distinct, path == paths[-1]),
    )
    for key in KEYS
    for paths in (list(array_paths(key, API_TABLE[key].max_version)),)
    for path in paths
    for distinct in (True, False)
]
"""The quick tests try one array of each request, the last."""


def give_turns(folder: Path, key: int, path: Fields, *, distinct: bool, parts: int = 1) -> None:
    """A wide request is answered in turns, or refused; ``parts`` divides all sizes."""
    version = API_TABLE[key].max_version
    request = wide_request(key, version, path, SIZE // parts, distinct=distinct, **FIXED)
    count = elements(request)

    async def ask(world: World) -> None:
        world.watch(key)
        connection, transport = world.connect()
        feed(connection, encode_request(request, version, 1, "me"))
        answers = await asyncio.wait_for(world.answers(transport, 1), 60)
        most = max_elements(world.broker.config, key)
        if count > most:
            assert transport.closed
            assert not world.handled, "it was refused before"
            return
        assert len(answers) == 1
        assert world.turns >= count // large_requests.STEP_ELEMENTS
        if key not in PIECES:
            assert [elements(seen) for seen in world.handled] == [count]
            return
        rows = rows_for(request, version)
        # A row with what is not rows (the configs of a topic) is given whole.
        if path[-1] in (rows.request_field, rows.inner and rows.inner.request_field):
            most_at_once = max(elements(seen) for seen in world.handled)
            assert most_at_once <= 2 * (PIECES[key].rows + 2)
        assert world.turns >= len(world.handled)

    in_world(folder, ask, **{"kstore.request.max.elements": str(MOST_ELEMENTS // parts)})


@pytest.mark.quick_one_in(8)
@pytest.mark.parametrize(("key", "path", "distinct"), CASES)
def test_a_wide_request_gives_others_their_turns(
    tmp_path: Path, key: int, path: Fields, distinct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_requests, "STEP_ELEMENTS", large_requests.STEP_ELEMENTS // PARTS)
    give_turns(tmp_path, key, path, distinct=distinct, parts=PARTS)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(("key", "path", "distinct"), CASES)
def test_a_wide_request_gives_others_their_turns_at_its_full_size(
    tmp_path: Path, key: int, path: Fields, distinct: bool
) -> None:
    give_turns(tmp_path, key, path, distinct=distinct)


JUDGED_AS_A_WHOLE = [
    pytest.param(24, ("transactions",), id="AddPartitionsToTxn-transactions"),
    pytest.param(24, ("transactions", "topics"), id="AddPartitionsToTxn-topics"),
    pytest.param(24, ("transactions", "topics", "partitions"), id="AddPartitionsToTxn-partitions"),
    pytest.param(30, ("creations",), id="CreateAcls"),
    pytest.param(31, ("filters",), id="DeleteAcls"),
    pytest.param(33, ("resources", "configs"), id="AlterConfigs-configs"),
    pytest.param(34, ("dirs", "topics", "partitions"), id="AlterReplicaLogDirs"),
    pytest.param(35, ("topics",), id="DescribeLogDirs"),
    pytest.param(44, ("resources", "configs"), id="IncrementalAlterConfigs-configs"),
    pytest.param(49, ("entries", "entity"), id="AlterClientQuotas-entity"),
    pytest.param(50, ("users",), id="DescribeUserScramCredentials"),
    pytest.param(51, ("deletions",), id="AlterUserScramCredentials"),
    pytest.param(75, ("topics",), id="DescribeTopicPartitions"),
]


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("parts", [pytest.param(1, marks=pytest.mark.slow), PARTS])
@pytest.mark.parametrize(("key", "path"), JUDGED_AS_A_WHOLE)
def test_what_is_judged_as_a_whole_gives_others_their_turns_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: int, path: Fields, parts: int
) -> None:
    step = large_requests.STEP_ELEMENTS // parts
    monkeypatch.setattr(large_requests, "STEP_ELEMENTS", step)
    for module in ("kstore.broker.api.requests.turns", "kstore.broker.runtime.slices"):
        monkeypatch.setattr(f"{module}.SLICE_S", 0)  # each piece takes a whole slice
    version = API_TABLE[key].max_version
    request = wide_request(key, version, path, SIZE // parts, **FIXED)
    count = elements(request)

    async def ask(world: World) -> None:
        connection, transport = world.connect()
        feed(connection, encode_request(request, version, 1, "me"))
        assert len(await asyncio.wait_for(world.answers(transport, 1), 60)) == 1
        assert world.turns >= count // step + count // ROWS_BETWEEN

    settings = AUTHORIZER if key in (30, 31) else {}
    in_world(tmp_path, ask, **settings)


def test_all_requests_may_have_as_many_elements_as_the_setting_says(tmp_path: Path) -> None:
    async def ask(world: World) -> None:
        limit = world.broker.config["kstore.request.max.elements"]
        assert {max_elements(world.broker.config, key) for key in KEYS} == {limit}

    in_world(tmp_path, ask)


def test_requests_behind_a_wide_one_wait_for_it(tmp_path: Path) -> None:
    groups = [f"g{number}" for number in range(1000)]

    async def ask(world: World) -> None:
        world.watch(15)
        world.watch(12)
        connection, transport = world.connect()
        wide = encode_request(Ask.DescribeGroups(groups=groups), 6, 1, "me")
        narrow = encode_request(Ask.Heartbeat(group_id="g", member_id="m"), 4, 2, "me")
        feed(connection, wide + narrow)
        other, told = world.connect()
        feed(other, encode_request(Ask.Heartbeat(group_id="g", member_id="m"), 4, 3, "other"))
        await world.answers(told, 1)
        kinds = [type(seen).__name__ for seen in world.handled]
        assert kinds.count("HeartbeatRequest") == 1, "the other's"
        answers = await world.answers(transport, 2)
        assert [answer[:4] for answer in answers] == [b"\0\0\0\1", b"\0\0\0\2"]
        assert type(world.handled[-1]).__name__ == "HeartbeatRequest"

    in_world(tmp_path, ask)


def test_many_wide_requests_take_one_slice_of_each_turn() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        turns, order = Turns(loop), []

        async def work(name: str) -> None:
            for _ in range(3):
                await turns.next()
                order.append((rounds, name))

        rounds = 0
        tasks = [loop.create_task(work(name)) for name in "abc"]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            rounds += 1
        assert [name for _, name in order] == ["a", "b", "c"] * 3
        assert len({number for number, _ in order}) == 9

    asyncio.run(run())


def test_many_small_requests_of_one_client_give_others_their_turns(tmp_path: Path) -> None:
    async def ask(world: World) -> None:
        world.broker.plane.turn_us = 0
        connection, transport = world.connect()
        version = encode_request(
            Ask.ApiVersions(client_software_name="x", client_software_version="1"), 3, 1, "me"
        )
        feed(connection, version * 100)
        assert not transport.reading
        assert len(await world.answers(transport, 1)) == 1, "one in each turn"
        before = world.turns
        assert len(await world.answers(transport, 100)) == 100
        assert world.turns - before >= 99
        await asyncio.sleep(0)
        assert transport.reading, "it is read again in the turn behind its last one"

    in_world(tmp_path, ask)


@pytest.mark.slow
def test_wide_requests_of_many_connections_do_not_become_objects_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_requests, "MOST_BYTES", 300 * 1024)
    decoded: list[int] = []

    class Counted(large_requests.Decoding):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            decoded.append(1)

    monkeypatch.setattr(large_requests, "Decoding", Counted)
    names = [f"group-{number:05}" for number in range(10_000)]  # 120 KB
    frame = encode_request(Ask.DescribeGroups(groups=names), 6, 1, "me")

    async def ask(world: World) -> None:
        transports = []
        for _ in range(6):
            connection, transport = world.connect()
            feed(connection, frame)
            transports.append(transport)
        most = 0
        while not all(transport.written for transport in transports):
            answered = sum(bool(transport.written) for transport in transports)
            most = max(most, len(decoded) - answered)
            await asyncio.sleep(0)
        assert len(decoded) == 6
        assert 2 <= most <= 4, "two in the room, and those whose answers are being copied"

    in_world(tmp_path, ask)


def test_the_limit_on_elements_is_a_setting(tmp_path: Path) -> None:
    async def ask(world: World) -> None:
        connection, transport = world.connect()
        names = [f"g{number}" for number in range(1001)]
        feed(connection, encode_request(Ask.DescribeGroups(groups=names[1:]), 6, 1, "me"))
        assert len(await world.answers(transport, 1)) == 1
        feed(connection, encode_request(Ask.DescribeGroups(groups=names), 6, 2, "me"))
        await world.answers(transport, 2)
        assert transport.closed

    in_world(tmp_path, ask, **{"kstore.request.max.elements": "1000"})
